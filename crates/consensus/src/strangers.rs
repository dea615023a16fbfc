//! Tests: messages that no member sends, with a valid frame. A member handles such messages or ignores them.
//! It does not panic, commit what it does not have, or answer in the name of another member.

use lsn::Lsn;
use proptest::prelude::*;

use crate::{
    Ballot, Batch, Kind, Member, MemberId, Members, Message, Start, TERM_JUMP_MAX, TERM_MAX, message::KINDS,
};

const OWN: MemberId = MemberId(1);

fn batch(number: u64) -> Batch {
    Batch { number, epoch: 1, end: Lsn::new(4096 * (number + 1)) }
}

fn member() -> Member {
    let batches = [batch(0), batch(1), batch(2)];
    Member::start(Start {
        id: OWN,
        is_witness: false,
        members: Members { voters: vec![OWN, MemberId(2), MemberId(3)], learners: vec![MemberId(4)] },
        configured_up_to: batches[2].end,
        ballot: Default::default(),
        committed: None,
        batches: &batches,
        now_us: 0,
        seed: 1,
    })
}

/// Mostly small numbers, because they match the state of the member more often than others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..6u64, 1 => any::<u64>()]
}

fn message() -> impl Strategy<Value = Message> {
    let numbers = prop::array::uniform6(number());
    let term = prop_oneof![3 => 0..6u32, 1 => any::<u32>()];
    (0..KINDS.len(), any::<[bool; 3]>(), 1..6u64, term, numbers).prop_map(
        |(kind, [is_rejected, is_released, lacks_room], from, term, it)| Message {
            kind: KINDS[kind],
            is_rejected,
            is_released,
            lacks_room,
            from: MemberId(from),
            to: OWN,
            term: term.into(),
            index: it[0],
            index_term: it[1],
            commit: it[2],
            commit_term: it[3],
            sent_us: it[4],
            echo_us: it[5],
        },
    )
}

#[test]
fn a_term_far_ahead_is_not_believed() {
    for (ahead, is_believed) in [(TERM_JUMP_MAX, true), (TERM_JUMP_MAX + 1, false)] {
        let mut member = member();
        let before = member.term();
        let message =
            Message { sent_us: 1, ..Message::plain(Kind::Heartbeat, MemberId(2), OWN, before + ahead) };
        assert_eq!(member.is_too_far(&message), !is_believed);
        member.receive(&message, 1_000_000);
        assert_eq!(member.term(), if is_believed { before + ahead } else { before });
    }
}

#[test]
fn in_the_last_term_nobody_campaigns_and_the_leader_goes_on() {
    let start = |term, voters: &[u64]| {
        Member::start(Start {
            id: OWN,
            is_witness: false,
            members: Members { voters: voters.iter().map(|&id| MemberId(id)).collect(), learners: vec![] },
            configured_up_to: batch(0).end,
            ballot: Ballot { term, voted_for: None },
            committed: Some(batch(0)),
            batches: &[],
            now_us: 0,
            seed: 1,
        })
    };
    let campaigns = |mut member: Member| {
        for tick in 1..100 {
            member.tick(tick * crate::TICK_US);
        }
        (member.take_actions().messages.iter().any(|it| it.kind == Kind::PreVote), member)
    };
    assert!(campaigns(start(TERM_MAX - 1, &[1, 2, 3])).0);
    assert!(!campaigns(start(TERM_MAX, &[1, 2, 3])).0);
    let (_, mut leader) = campaigns(start(TERM_MAX - 1, &[1]));
    assert!(leader.leads() && leader.term() == TERM_MAX);
    let first = Batch { number: 1, epoch: TERM_MAX as u32, end: Lsn::new(8192) };
    leader.durable(&[first], 100 * crate::TICK_US);
    assert_eq!(leader.committed(), first.end);
    assert!(!campaigns(start(TERM_MAX, &[1])).1.leads());
}

proptest! {
    #[test]
    fn a_member_survives_arbitrary_messages(messages in prop::collection::vec((message(), 0..4u64), 1..40)) {
        let (mut member, mut now_us) = (member(), 0);
        for (message, ticks) in messages {
            for _ in 0..ticks {
                now_us += crate::TICK_US;
                member.tick(now_us);
            }
            member.receive(&message, now_us);
            let actions = member.take_actions();
            prop_assert!(actions.messages.iter().all(|sent| sent.from == OWN && sent.to != OWN));
            prop_assert!(member.committed() <= batch(2).end);
        }
    }

    #[test]
    fn a_time_that_has_not_come_yet_releases_nobody(ahead_us in prop_oneof![Just(0), 1..u64::MAX / 2]) {
        let (mut member, now_us) = (member(), 10 * crate::ELECTION_US);
        let said = |kind, from, term, echo_us| Message {
            kind,
            is_rejected: false,
            is_released: true,
            lacks_room: false,
            from: MemberId(from),
            to: OWN,
            term,
            index: 3,
            index_term: 1,
            commit: 0,
            commit_term: 0,
            sent_us: 1,
            echo_us,
        };
        member.receive(&Message { index: 0, ..said(Kind::Heartbeat, 2, 7, 0) }, now_us);
        member.receive(&said(Kind::Release, 2, 7, now_us + ahead_us), now_us);
        member.receive(&said(Kind::Vote, 3, 8, 0), now_us);
        let is_released = member.term() == 8;
        prop_assert_eq!(is_released, ahead_us == 0, "only the present is recent");
    }

    #[test]
    fn a_message_of_an_earlier_term_changes_nothing(message in message()) {
        let (mut member, later) = (member(), 1_000_000);
        let heartbeat = Message {
            kind: Kind::Heartbeat,
            from: MemberId(2),
            term: 7,
            ..Message { is_rejected: false, is_released: false, lacks_room: false, index: 0, index_term: 0, commit: 0, commit_term: 0, ..message }
        };
        member.receive(&heartbeat, later);
        member.take_actions();
        let (leadership, committed) = (member.leadership(), member.committed());
        member.receive(&Message { term: message.term % 7, ..message }, later);
        let actions = member.take_actions();
        prop_assert_eq!((member.leadership(), member.committed(), member.term()), (leadership, committed, 7));
        prop_assert_eq!((actions.ballot, actions.committed, actions.leadership), (None, None, None));
    }
}
