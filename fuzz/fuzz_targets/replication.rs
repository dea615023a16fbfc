//! Arbitrary bytes from a peer, in arbitrary pieces: neither side panics, buffers too much, or accepts log
//! out of order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lsn::Lsn;
use replication::{
    Receiver, Relay, RelayOptions,
    frame::{Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX},
    join::{Answer, Claim, PROTOCOL_VERSION, parse_marks},
};

const START: Lsn = Lsn::new(4096);

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (piece, seal, bytes) = input;
    // With a valid checksum, the code behind the header check is reached.
    let mut bytes = bytes.to_vec();
    if seal && bytes.len() >= HEADER_BYTES {
        let fields = Frame::Heartbeat { epoch: 1, end: START, commit: START, sent_ms: 1 }.encode();
        bytes[..4].copy_from_slice(&fields[..4]);
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
    }
    if let Ok(Some(frame)) = Frame::decode(&bytes) {
        assert_eq!(frame.encode(), bytes[..HEADER_BYTES]);
        assert!(frame.payload_bytes() <= PAYLOAD_BYTES_MAX);
    }

    let mut receiver = Receiver::new(1, START, 0);
    let mut relay = Relay::new(RelayOptions::default(), 1, START, 0);
    let (mut is_replica_open, mut is_leader_open, mut taken) = (true, true, START);
    for piece in bytes.chunks(usize::from(piece) + 1) {
        receiver.inbox().extend_from_slice(piece);
        while is_replica_open {
            match receiver.next(1) {
                Ok(Some(log)) => {
                    assert_eq!(log.start, taken);
                    taken = log.start.advance(log.bytes.len() as u64);
                }
                Ok(None) => break,
                Err(_) => is_replica_open = false,
            }
        }
        relay.inbox().extend_from_slice(piece);
        is_leader_open = is_leader_open && relay.receive(1).is_ok();
    }
    assert_eq!(receiver.position(), taken);
    assert!(relay.acked().flushed <= START, "nothing was shipped");

    let words: Vec<&[u8]> = bytes.split(|&byte| byte == b' ').collect();
    if let Some(claim) = Claim::parse(&words) {
        let again = claim.arguments();
        let again: Vec<&[u8]> = again.iter().map(String::as_bytes).collect();
        assert!(claim.version != PROTOCOL_VERSION || Claim::parse(&again) == Some(claim));
    }
    let _ = parse_marks(&words);
    if let Some(answer) = Answer::parse(&bytes) {
        assert_eq!(Answer::parse(answer.line().as_bytes()), Some(answer));
    }
});
