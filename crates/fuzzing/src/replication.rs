//! Arbitrary bytes from a peer, in arbitrary pieces: neither side panics, buffers too much, or accepts log
//! out of order.
//!
//! Input: the size of the pieces in bytes, minus 1 (u8); whether the header is made valid (bit 0 of a u8);
//! the bytes.

use arbitrary::{Arbitrary, Unstructured};
use lsn::Lsn;
use replication::frame::{Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use replication::join::{Answer, Claim, Mark, PROTOCOL_VERSION, format_marks, parse_marks};
use replication::{ProcessId, Receiver, Relay, RelayOptions, ReplicaId};

use crate::{Outcome, Seed};

const START: Lsn = Lsn::new(4096);

/// Decodes frames on both sides, and the lines of a join. Accepts a frame, a claim, marks or an answer.
///
/// # Panics
/// If log is accepted out of order, or an ack of log that was not shipped, or if something has two encodings.
pub fn replication(input: &[u8]) -> Outcome {
    let input = <(u8, bool, &[u8])>::arbitrary_take_rest(Unstructured::new(input));
    let Ok((piece, seal, bytes)) = input else { return Outcome::Refused };
    // With a valid checksum, the code behind the header check is reached.
    let mut bytes = bytes.to_vec();
    if seal && bytes.len() >= HEADER_BYTES {
        let fields =
            Frame::Heartbeat { epoch: 1, end: START, commit: START, sent_ms: 1, distance: 0 }.encode();
        bytes[..4].copy_from_slice(&fields[..4]);
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
    }
    let mut is_valid = false;
    if let Ok(Some(frame)) = Frame::decode(&bytes) {
        assert_eq!(frame.encode(), bytes[..HEADER_BYTES]);
        assert!(frame.payload_bytes() <= PAYLOAD_BYTES_MAX);
        is_valid = true;
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
        is_valid = true;
    }
    is_valid |= parse_marks(&words).is_some();
    if let Some(answer) = Answer::parse(&bytes) {
        assert_eq!(Answer::parse(answer.line().as_bytes()), Some(answer));
        is_valid = true;
    }
    Outcome::accepted_if(is_valid)
}

pub(crate) fn seeds() -> Vec<Seed> {
    let (whole, in_sevens) = (0xff, 6);
    let input = |piece: u8, seal: bool, bytes: &[u8]| [&[piece, seal.into()][..], bytes].concat();
    let log = Frame::Log { epoch: 1, start: START, bytes: 512, commit: START, sent_ms: 5 };
    let end = START.advance(512);
    let next = Frame::Log { epoch: 2, start: end, bytes: 512, commit: end, sent_ms: 6 };
    let heartbeat =
        Frame::Heartbeat { epoch: 2, end: end.advance(512), commit: end, sent_ms: 7, distance: 2 };
    let shipped =
        [&log.encode()[..], &[7; 512], &next.encode(), &[8; 512], &heartbeat.encode(), &heartbeat.encode()]
            .concat();
    let ack = |flushed, as_of_ms| Frame::Ack { epoch: 1, flushed, applied: flushed, as_of_ms }.encode();
    let beyond = Frame::Log { epoch: 1, start: end, bytes: 512, commit: end, sent_ms: 5 };
    let too_far =
        Frame::Heartbeat { epoch: u32::MAX, end: START, commit: START, sent_ms: 7, distance: u8::MAX };
    let mark = Mark { end, chain: u64::MAX / 3 };
    let claim = Claim {
        version: PROTOCOL_VERSION,
        log_id: [0xab; 16],
        epoch: 7,
        mark,
        port: 6379,
        replica: ReplicaId::new([9; 16]),
        process: Some(ProcessId::new(5)),
    };
    let line = |words: Vec<String>| input(whole, false, words.join(" ").as_bytes());
    let answer = |answer: Answer| input(in_sevens, false, answer.line().as_bytes());
    let mut damaged = log.encode();
    damaged[20] ^= 1;
    vec![
        ("log-and-heartbeats", input(whole, false, &shipped)),
        ("log-in-small-pieces", input(in_sevens, true, &shipped)),
        ("acks", input(in_sevens, false, &[ack(Lsn::ZERO, 0), ack(START, 1)].concat())),
        ("fenced", input(whole, false, &Frame::Fenced { epoch: 3 }.encode())),
        ("log-with-a-gap", input(whole, false, &[&beyond.encode()[..], &[1; 512]].concat())),
        ("highest-epoch", input(whole, true, &too_far.encode())),
        ("claim", line(claim.arguments())),
        ("claim-without-process", line(Claim { process: None, ..claim }.arguments())),
        ("claim-of-another-version", line(vec!["99".into()])),
        ("marks", line(format_marks(&[mark, Mark { end: START, chain: 0 }]))),
        ("resume", answer(Answer::Resume { end, epoch: 3 })),
        ("probe", answer(Answer::Probe)),
        ("full", answer(Answer::Full { http_port: 5984 })),
        ("refused-checksum", input(whole, false, &damaged)),
        ("refused-cut", input(whole, false, &log.encode()[..47])),
    ]
}
