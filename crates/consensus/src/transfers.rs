//! Tests of messages about transfers, connections and room on disks.

use lsn::Lsn;

use crate::{Batch, ELECTION_US, Kind, Leadership, Member, MemberId, Members, Message, Start};

const OWN: MemberId = MemberId(1);
const LEADER: MemberId = MemberId(2);
const CANDIDATE: MemberId = MemberId(3);
const NOW_US: u64 = ELECTION_US / 2;

fn member(members: Members) -> Member {
    let batch = Batch { number: 0, epoch: 1, end: Lsn::new(4096) };
    Member::start(Start {
        id: OWN,
        is_witness: false,
        members,
        configured_up_to: batch.end,
        ballot: Default::default(),
        committed: Some(batch),
        batches: &[],
        now_us: 0,
        seed: 1,
    })
}

/// A voter that has just started and follows [`LEADER`] in term 7.
fn follower() -> Member {
    let mut member = member(Members { voters: vec![OWN, LEADER, CANDIDATE], learners: vec![] });
    member.receive(&said(Kind::Heartbeat, LEADER, 7), NOW_US);
    assert_eq!(member.leadership(), Leadership::Follows { term: 7, leader: LEADER });
    member.take_actions();
    member
}

/// A sole voter, which leads a learner.
fn leader() -> Member {
    let mut leader = member(Members { voters: vec![OWN], learners: vec![CANDIDATE] });
    leader.tick(ELECTION_US);
    assert!(leader.leads());
    leader.take_actions();
    leader
}

fn said(kind: Kind, from: MemberId, term: u64) -> Message {
    Message { sent_us: 1, echo_us: NOW_US, ..Message::plain(kind, from, OWN, term) }
}

fn release() -> Message {
    Message { index: CANDIDATE.get(), ..said(Kind::Release, LEADER, 7) }
}

fn vote(is_released: bool) -> Message {
    Message { is_released, index: 1, index_term: 1, ..said(Kind::Vote, CANDIDATE, 8) }
}

fn votes(member: &mut Member) -> bool {
    let messages = member.take_actions().messages;
    messages.iter().any(|it| it.kind == Kind::VoteAnswer && it.to == CANDIDATE && !it.is_rejected)
}

#[test]
fn a_restarted_voter_votes_only_for_the_candidate_that_its_leader_named() {
    let mut voter = follower();
    voter.receive(&vote(false), NOW_US);
    voter.receive(&vote(true), NOW_US);
    assert!(!votes(&mut voter) && voter.term() == 7, "the leader has not said so");
    let mut voter = follower();
    voter.receive(&release(), NOW_US);
    voter.receive(&vote(false), NOW_US);
    assert!(!votes(&mut voter) && voter.term() == 7, "it campaigns without having been told to");
    voter.receive(&vote(true), NOW_US);
    assert!(votes(&mut voter));
}

#[test]
fn a_candidate_may_ask_before_the_release_arrives() {
    let mut voter = follower();
    voter.receive(&vote(true), NOW_US);
    assert!(!votes(&mut voter));
    let of_another = Message { index: OWN.get(), ..release() };
    voter.receive(&of_another, NOW_US);
    assert!(!votes(&mut voter));
    voter.receive(&release(), NOW_US);
    assert!(votes(&mut voter));
}

#[test]
fn a_leader_announces_itself_and_a_follower_does_not() {
    let mut follower = follower();
    follower.announce(NOW_US);
    assert!(follower.take_actions().is_empty());
    let mut leader = leader();
    leader.announce(ELECTION_US);
    let kinds: Vec<Kind> = leader.take_actions().messages.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::Heartbeat]);
}

#[test]
fn members_say_whether_their_disks_have_room() {
    let mut leader = leader();
    let lacks_room = |leader: &Member| leader.progress().iter().map(|it| it.lacks_room).collect::<Vec<_>>();
    for (said_by_it, of_stranger) in [(true, false), (false, true)] {
        let answer = said(Kind::HeartbeatAnswer, CANDIDATE, leader.term());
        leader.receive(&Message { lacks_room: said_by_it, ..answer }, ELECTION_US);
        leader.receive(&Message { lacks_room: of_stranger, from: LEADER, ..answer }, ELECTION_US);
        assert_eq!(lacks_room(&leader), [said_by_it]);
        leader.note_room(!said_by_it);
        leader.take_actions();
        leader.announce(ELECTION_US);
        assert!(leader.take_actions().messages.iter().all(|it| it.lacks_room == said_by_it));
    }
}
