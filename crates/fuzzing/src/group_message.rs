//! Arbitrary bytes between members of a group: decoding does not panic, a decoded message is encoded to the
//! same bytes, and a member that receives the message keeps working and commits nothing beyond its log.

use consensus::{Batch, Kind, MESSAGE_BYTES, Member, MemberId, Members, Message, Start, TERM_MAX};
use lsn::Lsn;

use crate::{Outcome, Seed};

const OWN: u64 = 1;
const OTHERS: [u64; 2] = [2, 3];

fn id(number: u64) -> MemberId {
    MemberId::new(number).expect("not 0")
}

/// Lets a member receive messages with valid frames. Accepts messages that are all valid as they are.
///
/// # Panics
/// If a message has two encodings, if the member sends a message in the name of another member, or if it
/// commits more than its log.
pub fn group_message(bytes: &[u8]) -> Outcome {
    let ids = [OWN, OTHERS[0], OTHERS[1]].map(id);
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
    let mut are_valid = bytes.len() >= MESSAGE_BYTES;
    for (index, piece) in bytes.chunks_exact(MESSAGE_BYTES).enumerate() {
        let mut piece: [u8; MESSAGE_BYTES] = piece.try_into().expect("a whole piece");
        match Message::decode(&piece) {
            Ok(message) => assert_eq!(message.encode(), piece),
            Err(_) => are_valid = false,
        }
        // With a valid frame, the code behind the checks is reached.
        piece[..4].copy_from_slice(b"SGRP");
        piece[4] = piece[4] % 9 + 1;
        piece[5] &= 7;
        piece[6..8].fill(0);
        let other = OTHERS[usize::from(piece[8]) % 2];
        piece[8..16].copy_from_slice(&other.to_le_bytes());
        piece[16..24].copy_from_slice(&OWN.to_le_bytes());
        piece[24] |= 1;
        piece[27] &= 1;
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
        // A leader may tell any commit position, but this member commits nothing beyond its own log.
        assert!(member.committed() <= batches[2].end);
    }
    Outcome::accepted_if(are_valid)
}

pub(crate) fn seeds() -> Vec<Seed> {
    let message = |kind, from, term, commit| Message {
        kind,
        is_rejected: false,
        is_released: false,
        lacks_room: false,
        from: id(from),
        to: id(OWN),
        term,
        index: 2,
        index_term: 1,
        commit,
        commit_term: 1,
        sent_us: 1_000_000,
        echo_us: 500_000,
    };
    let join = |messages: &[Message]| messages.iter().flat_map(Message::encode).collect::<Vec<u8>>();
    let [one, other] = OTHERS;
    let rejected = Message { is_rejected: true, ..message(Kind::VoteAnswer, other, 2, 0) };
    let released = Message { is_released: true, ..message(Kind::Vote, one, 3, 0) };
    let lacks_room = Message { lacks_room: true, ..message(Kind::Accepted, one, 2, 1) };
    // `group_message` turns each kind into the next one.
    let election = [
        message(Kind::PreVoteAnswer, one, 2, 0),
        message(Kind::VoteAnswer, one, 2, 0),
        message(Kind::VoteAnswer, other, 2, 0),
        message(Kind::Accepted, one, 2, 1),
    ];
    let mut damaged = join(&election[..1]);
    damaged[30] ^= 1;
    vec![
        ("heartbeats", join(&[message(Kind::Heartbeat, one, 2, 1), message(Kind::Heartbeat, one, 2, 2)])),
        ("heartbeat-answer", join(&[message(Kind::HeartbeatAnswer, other, 2, 1)])),
        ("pre-vote", join(&[message(Kind::PreVote, one, 2, 0), message(Kind::PreVote, other, 5, 0)])),
        ("votes", join(&[message(Kind::Vote, one, 2, 0), rejected, released])),
        ("election", join(&election)),
        ("transfer", join(&[message(Kind::TimeoutNow, one, 2, 0), message(Kind::Release, one, 2, 0)])),
        ("accepted-without-room", join(&[lacks_room])),
        ("highest-term", join(&[message(Kind::Heartbeat, other, TERM_MAX, u64::MAX)])),
        ("refused-term", join(&[message(Kind::Heartbeat, other, TERM_MAX + 1, 0)])),
        ("refused-checksum", damaged),
        ("refused-cut", join(&election[..1])[..MESSAGE_BYTES - 1].to_vec()),
    ]
}
