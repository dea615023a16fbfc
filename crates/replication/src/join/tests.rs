use std::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::ReplicaId;

const LOG_ID: [u8; 16] = [7; 16];
const EPOCH: u32 = 9;

/// A log, as the chain values of its batches, each one position long; the first of them may not be kept.
#[derive(Clone, Debug)]
struct Batches {
    chains: Vec<u64>,
    forgotten: usize,
}

impl History for Batches {
    type Error = Infallible;

    fn start(&self) -> Lsn {
        Lsn::new(self.forgotten as u64)
    }

    fn end(&self) -> Lsn {
        Lsn::new(self.chains.len() as u64)
    }

    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Infallible> {
        let Some(index) = end.get().checked_sub(1).filter(|&index| index >= self.forgotten as u64) else {
            return Ok(None);
        };
        let chain = self.chains.get(index as usize);
        Ok(chain.map(|&chain| Ending { start: Lsn::new(index), chain }))
    }
}

/// The claim of a replica with this log.
fn claim_of(log: &Batches) -> Claim {
    let mark = Mark { end: log.end(), chain: log.chains.last().copied().unwrap_or(0) };
    Claim {
        version: PROTOCOL_VERSION,
        log_id: LOG_ID,
        epoch: EPOCH,
        mark,
        port: 1,
        replica: ReplicaId::new([1; 16]),
        process: None,
    }
}

fn decided(claim: &Claim, leader: &Batches) -> Decision {
    let Ok(decision) = decide(claim, LOG_ID, EPOCH, leader);
    decision
}

fn batches(chains: impl IntoIterator<Item = u64>, forgotten: usize) -> Batches {
    Batches { chains: chains.into_iter().collect(), forgotten }
}

#[test]
fn the_logs_of_both_sides_decide_how_a_replica_joins() {
    let leader = batches(0..10, 4);
    let replica = |chains: std::ops::Range<u64>| claim_of(&batches(chains, 0));
    let forgotten = |end| Decision::Full(Reason::Forgotten { end: Lsn::new(end), start: Lsn::new(4) });
    let whole = replica(0..10);
    let cases = [
        ("the same log", whole, Decision::Resume(Lsn::new(10))),
        ("behind", replica(0..6), Decision::Resume(Lsn::new(6))),
        ("needs what is forgotten", replica(0..3), forgotten(3)),
        ("needs the batch before what is kept", replica(0..4), forgotten(4)),
        ("ahead", replica(0..11), Decision::Probe),
        ("went on otherwise", replica(100..106), Decision::Probe),
        ("empty", replica(0..0), Decision::Full(Reason::Empty)),
        ("empty, of another log", Claim { log_id: [1; 16], ..replica(0..0) }, Decision::Full(Reason::Empty)),
        (
            "empty, of another log with higher epochs",
            Claim { log_id: [1; 16], epoch: 10, ..replica(0..0) },
            Decision::Full(Reason::Empty),
        ),
        (
            "empty, and knows a newer leader",
            Claim { epoch: 10, ..replica(0..0) },
            Decision::Fenced { epoch: 10 },
        ),
        ("another log", Claim { log_id: [1; 16], ..whole }, Decision::Refuse(Refusal::OtherLog)),
        (
            "knows an epoch that nobody has reached",
            Claim { epoch: u32::MAX, ..whole },
            Decision::Refuse(Refusal::Epoch { epoch: u32::MAX, own: EPOCH }),
        ),
        ("knows a newer leader", Claim { epoch: 10, ..whole }, Decision::Fenced { epoch: 10 }),
        ("another version", Claim { version: 3, ..whole }, Decision::Refuse(Refusal::Version(3))),
    ];
    for (what, claim, expected) in cases {
        assert_eq!(decided(&claim, &leader), expected, "{what}");
    }
}

#[test]
fn a_log_that_ends_inside_a_batch_is_probed() {
    struct Coarse(Batches);
    impl History for Coarse {
        type Error = Infallible;
        fn start(&self) -> Lsn {
            self.0.start()
        }
        fn end(&self) -> Lsn {
            self.0.end()
        }
        fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Infallible> {
            let batch = self.0.batch_ending_at(end)?;
            Ok(batch.filter(|_| end.get().is_multiple_of(2)))
        }
    }
    let Ok(decision) = decide(&claim_of(&batches(0..5, 0)), LOG_ID, EPOCH, &Coarse(batches(0..8, 0)));
    assert_eq!(decision, Decision::Probe);
}

#[test]
fn a_copy_continues_from_the_chain_value_of_its_end() {
    /// No batch is kept; only the chain value of the last is known.
    struct Copy(Batches);
    impl History for Copy {
        type Error = Infallible;
        fn start(&self) -> Lsn {
            self.0.end()
        }
        fn end(&self) -> Lsn {
            self.0.end()
        }
        fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Infallible> {
            let batch = self.0.batch_ending_at(end)?.filter(|_| end == self.0.end());
            Ok(batch.map(|batch| Ending { start: end, ..batch }))
        }
    }
    let (mine, other) = (batches(0..5, 0), Copy(batches(0..5, 0)));
    assert_eq!(decide(&claim_of(&mine,), LOG_ID, EPOCH, &other), Ok(Decision::Resume(Lsn::new(5))));
    // A replica of another history: it asks about its only mark, and then has none left.
    let mut probe = Probe::new(Lsn::new(5));
    let Ok(Probed::Ask(marks)) = probe.next(None, &other) else { panic!("it has a mark") };
    assert_eq!(marks.len(), 1);
    assert_eq!(probe.next(None, &other), Ok(Probed::Nothing));
}

/// Asks until the outcome is known, as a replica does. Returns the number of requests.
fn probe(replica: &Batches, leader: &Batches) -> (Probed, usize) {
    let (mut probe, mut answer, mut questions) = (Probe::new(replica.end()), None, 0);
    loop {
        let Ok(next) = probe.next(answer, replica);
        let Probed::Ask(marks) = next else { return (next, questions) };
        questions += 1;
        let Ok(common) = newest_common(&marks, leader);
        answer = common;
    }
}

proptest! {
    #[test]
    fn probing_finds_where_two_logs_part(
        common in 0..600usize,
        ours in 0..50usize,
        theirs in 1..600usize,
        forgotten in 0..600usize,
    ) {
        let log = |own: std::ops::Range<u64>| batches((0..common as u64).chain(own), 0);
        let (forgotten_here, forgotten_there) = (forgotten.min(common) / 2, forgotten.min(common));
        let leader = Batches { forgotten: forgotten_there, ..log(10_000..10_000 + ours as u64) };
        let replica = Batches { forgotten: forgotten_here, ..log(20_000..20_000 + theirs as u64) };
        let (found, questions) = probe(&replica, &leader);
        let expected = if common > forgotten_there {
            Probed::Common(Lsn::new(common as u64))
        } else {
            Probed::Nothing
        };
        prop_assert_eq!(found, expected);
        prop_assert!(questions <= (common + theirs) / MARKS_MAX + 1);
        // After the cut the replica can resume.
        if common > forgotten_there {
            let cut = batches(0..common as u64, 0);
            prop_assert_eq!(decided(&claim_of(&cut), &leader), Decision::Resume(cut.end()));
        }
    }
}

#[test]
fn every_decision_has_its_line() {
    let line = |decision: Decision| decision.line(3, 5984);
    for (decision, answer) in [
        (Decision::Resume(Lsn::new(8192)), Answer::Resume { end: Lsn::new(8192), epoch: 3 }),
        (Decision::Probe, Answer::Probe),
        (Decision::Full(Reason::Empty), Answer::Full { http_port: 5984 }),
    ] {
        assert_eq!(line(decision), format!("+{}", answer.line()));
    }
    assert!(line(Decision::Refuse(Refusal::OtherLog)).starts_with("-ERR the replica holds another log"));
    let fenced = "-ERR epoch 7 has begun, this server leads no more";
    assert_eq!(line(Decision::Fenced { epoch: 7 }), fenced);
}
