//! Arbitrary bytes between members of a group: decoding does not panic, what is decoded is encoded to the
//! same bytes, and a member that hears it goes on, and commits nothing beyond its log.
#![no_main]

use consensus::{Batch, MESSAGE_BYTES, Member, MemberId, Members, Message, Start};
use libfuzzer_sys::fuzz_target;
use lsn::Lsn;

const OWN: u64 = 1;
const OTHERS: [u64; 2] = [2, 3];

fuzz_target!(|bytes: &[u8]| {
    let ids = [OWN, OTHERS[0], OTHERS[1]].map(|id| MemberId::new(id).expect("not 0"));
    let batch = |number: u64| Batch { number, epoch: 1, end: Lsn::new(4096 * (number + 1)) };
    let batches = [batch(0), batch(1), batch(2)];
    let mut member = Member::start(Start {
        id: ids[0],
        is_witness: false,
        members: Members { voters: ids.to_vec(), learners: Vec::new() },
        configured_up_to: batches[2].end,
        ballot: Default::default(),
        committed: None,
        batches: &batches,
        now_us: 0,
        seed: 1,
    });
    for (index, piece) in bytes.chunks_exact(MESSAGE_BYTES).enumerate() {
        let mut piece: [u8; MESSAGE_BYTES] = piece.try_into().expect("a whole piece");
        let decoded = Message::decode(&piece);
        if let Ok(message) = decoded {
            assert_eq!(message.encode(), piece);
        }
        // With a valid frame, the code behind the checks is reached.
        piece[..4].copy_from_slice(b"SGRP");
        piece[4] = piece[4] % 9 + 1;
        piece[5] &= 3;
        piece[6..8].fill(0);
        let other = OTHERS[usize::from(piece[8]) % 2];
        piece[8..16].copy_from_slice(&other.to_le_bytes());
        piece[16..24].copy_from_slice(&OWN.to_le_bytes());
        piece[24] |= 1;
        piece[28..32].fill(0);
        piece[80..84].fill(0);
        let crc = crc32c::crc32c(&piece[..84]);
        piece[84..].copy_from_slice(&crc.to_le_bytes());
        let message = Message::decode(&piece).expect("a valid frame");
        let now_us = 100_000 * index as u64;
        member.receive(&message, now_us);
        member.tick(now_us);
        let actions = member.take_actions();
        assert!(actions.messages.iter().all(|message| message.from == ids[0]));
        // A leader may say what is committed, but not beyond the log here.
        assert!(member.committed() <= batches[2].end);
    }
});
