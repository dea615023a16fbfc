//! The acknowledgements of all replicas: the commit position, the number of replicas that have a position,
//! and their lag.
//!
//! There is one row per connected replica; the rows are few, so every question scans all of them. The waits
//! of clients are in `server`.
//!
//! Invariants
//! - A replica counts once, however often it connects: acknowledgements on its older connections are ignored.
//! - `commit` never goes back, except in [`Acks::begin_at`]: a disconnected replica still has the log that it
//!   acknowledged.
//! - By acknowledgements, nothing is committed before the first batch of the leader's own epoch, and
//!   everything before that batch is committed together with it. The reason: of two logs, the one whose last
//!   batch has the higher epoch counts as newer. Assume that replicas had only batches of earlier leaders.
//!   Then a shorter log could be promoted after this leader, if its last batch had an epoch in between, and
//!   the batches of the earlier leaders would be lost.

use lsn::Lsn;

use crate::ReplicaId;

/// The progress of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// The end of the log that is durable on the replica's disk.
    pub flushed: Lsn,
    /// The end of the log that is applied to the replica's memory; 0 before its first acknowledgement.
    pub applied: Lsn,
    /// A time of the leader, in milliseconds: the replica has applied everything that was committed here at
    /// that time. 0 if the replica has not reported a time.
    pub as_of_ms: u64,
    /// When the replica last acknowledged, or connected if it has not acknowledged since, in monotonic
    /// milliseconds.
    pub heard_ms: u64,
}

impl Acked {
    /// Bytes of the log up to `end` that the replica has not acknowledged as applied.
    pub fn lag_bytes(&self, end: Lsn) -> u64 {
        end.get().saturating_sub(self.applied.get())
    }

    /// The maximum age of the data that the replica shows; `None` if it has not reported a time.
    pub fn lag_ms(&self, now_ms: u64) -> Option<u64> {
        (self.as_of_ms > 0).then(|| now_ms.saturating_sub(self.as_of_ms))
    }

    /// Milliseconds since its last acknowledgement, or since it connected if there is none.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms)
    }
}

/// One connection of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    id: ReplicaId,
    number: u64,
}

/// The acknowledgements of the connected replicas.
#[derive(Default, Debug)]
pub struct Acks {
    replicas: Vec<(Session, Acked)>,
    sessions: u64,
    /// The end of a batch of the leader's epoch: the commit position does not rise until it can rise to here.
    floor: Lsn,
    commit: Lsn,
}

impl Acks {
    /// Begins without replicas; for `floor`, see [`Acks::begin_at`].
    pub fn from(floor: Lsn) -> Acks {
        Acks { floor, ..Acks::default() }
    }

    /// Restarts without replicas, because a leader begins to wait for replicas. The log up to `committed` was
    /// committed without them. The commit position stays there until it can rise to `floor`, the end of a
    /// batch of the leader's epoch. Earlier connections remain distinguishable from later ones.
    pub fn begin_at(&mut self, floor: Lsn, committed: Lsn) {
        *self = Acks { sessions: self.sessions, commit: committed, ..Acks::from(floor) };
    }

    /// Adds a connected replica, in place of an older connection of the same replica.
    pub fn join(&mut self, id: ReplicaId, acked: Acked) -> Session {
        self.sessions += 1;
        let session = Session { id, number: self.sessions };
        self.replicas.retain(|(other, _)| other.id != id);
        self.replicas.push((session, acked));
        session
    }

    /// Notes an acknowledgement; ignored if the session is not the replica's newest.
    pub fn note(&mut self, session: Session, acked: Acked) {
        if let Some((_, known)) = self.replicas.iter_mut().find(|(other, _)| *other == session) {
            *known = acked;
        }
    }

    /// A connection has ended; another connection of the same replica still counts.
    pub fn leave(&mut self, session: Session) {
        self.replicas.retain(|(other, _)| *other != session);
    }

    /// The replicas, in the order they connected.
    pub fn replicas(&self) -> impl ExactSizeIterator<Item = (ReplicaId, &Acked)> {
        self.replicas.iter().map(|(session, acked)| (session.id, acked))
    }

    /// The position up to which at least `count` replicas have the log on disk; [`Lsn::MAX`] if `count` is 0,
    /// [`Lsn::ZERO`] if there are fewer replicas.
    pub fn flushed_by(&self, count: usize) -> Lsn {
        let Some(nth) = count.checked_sub(1) else { return Lsn::MAX };
        let mut flushed: Vec<Lsn> = self.replicas.iter().map(|(_, acked)| acked.flushed).collect();
        flushed.sort_unstable_by(|a, b| b.cmp(a));
        flushed.get(nth).copied().unwrap_or(Lsn::ZERO)
    }

    /// The commit position if `count` replicas besides this server must have the log on disk; here it is
    /// durable up to `durable`.
    pub fn commit(&mut self, durable: Lsn, count: usize) -> Lsn {
        let reached = durable.min(self.flushed_by(count));
        if reached >= self.floor {
            self.commit = self.commit.max(reached);
        }
        self.commit
    }

    /// The number of replicas with the log up to `lsn` on disk.
    pub fn count_flushed(&self, lsn: Lsn) -> usize {
        self.replicas.iter().filter(|(_, acked)| acked.flushed >= lsn).count()
    }

    /// The number of replicas that connected or acknowledged within the last `silent_ms_max`.
    pub fn count_heard(&self, now_ms: u64, silent_ms_max: u64) -> usize {
        self.replicas.iter().filter(|(_, acked)| acked.silent_ms(now_ms) <= silent_ms_max).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn acked(flushed: u64, applied: u64) -> Acked {
        Acked { flushed: Lsn::new(flushed), applied: Lsn::new(applied), as_of_ms: 0, heard_ms: flushed }
    }

    fn id(number: u8) -> ReplicaId {
        ReplicaId::new([number; 16])
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(u8, u64),
        /// The connection is chosen from all connections so far, including ended ones.
        Note(prop::sample::Index, u64, u64),
        Leave(prop::sample::Index),
        Commit(u64, usize),
    }

    #[test]
    fn a_connection_of_an_earlier_epoch_does_not_end_a_later_one() {
        let mut acks = Acks::default();
        let old = acks.join(id(1), acked(5, 5));
        acks.begin_at(Lsn::new(4), Lsn::ZERO);
        assert_eq!(acks.replicas().len(), 0);
        assert_eq!(acks.commit(Lsn::new(3), 0), Lsn::ZERO, "the first batch of the epoch is not durable yet");
        acks.join(id(1), acked(7, 7));
        acks.leave(old);
        acks.note(old, acked(9, 9));
        assert_eq!((acks.replicas().len(), acks.flushed_by(1)), (1, Lsn::new(7)));
    }

    #[test]
    fn what_was_committed_without_replicas_stays_committed() {
        let mut acks = Acks::default();
        acks.begin_at(Lsn::new(12), Lsn::new(8));
        assert_eq!(acks.commit(Lsn::new(12), 1), Lsn::new(8));
        acks.join(id(1), acked(5, 5));
        assert_eq!(acks.commit(Lsn::new(12), 1), Lsn::new(8));
        acks.join(id(1), acked(14, 12));
        assert_eq!(acks.commit(Lsn::new(16), 1), Lsn::new(14));
    }

    #[test]
    fn batches_of_earlier_leaders_commit_with_the_first_batch_of_this_one() {
        let mut acks = Acks::from(Lsn::new(10));
        let session = acks.join(id(1), acked(9, 9));
        assert_eq!(acks.commit(Lsn::new(12), 1), Lsn::ZERO);
        acks.note(session, acked(10, 9));
        assert_eq!(acks.commit(Lsn::new(12), 1), Lsn::new(10));
    }

    fn some_step() -> impl Strategy<Value = Step> {
        let position = 0..50u64;
        prop_oneof![
            (0..4u8, position.clone()).prop_map(|(id, at)| Step::Join(id, at)),
            (any::<prop::sample::Index>(), position.clone(), position.clone())
                .prop_map(|(which, flushed, applied)| Step::Note(which, flushed, applied)),
            any::<prop::sample::Index>().prop_map(Step::Leave),
            (position, 0..4usize).prop_map(|(durable, count)| Step::Commit(durable, count)),
        ]
    }

    proptest! {
        #[test]
        fn each_replica_counts_once_and_commit_never_goes_back(steps in prop::collection::vec(some_step(), 1..60)) {
            let (mut acks, mut commit) = (Acks::default(), 0);
            let mut sessions: Vec<(u8, Session)> = Vec::new();
            // The newest connection of each replica, and its last acknowledgement.
            let mut model: BTreeMap<u8, (Session, u64, u64)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Join(number, at) => {
                        let session = acks.join(id(number), acked(at, at));
                        sessions.push((number, session));
                        model.insert(number, (session, at, at));
                    }
                    Step::Note(which, flushed, applied) if !sessions.is_empty() => {
                        let (number, session) = *which.get(&sessions);
                        acks.note(session, acked(flushed, applied));
                        if let Some(known) = model.get_mut(&number).filter(|known| known.0 == session) {
                            *known = (session, flushed, applied);
                        }
                    }
                    Step::Leave(which) if !sessions.is_empty() => {
                        let (number, session) = *which.get(&sessions);
                        acks.leave(session);
                        if model.get(&number).is_some_and(|known| known.0 == session) {
                            model.remove(&number);
                        }
                    }
                    Step::Commit(durable, count) => {
                        let have = |at: u64| model.values().filter(|known| known.1 >= at).count() >= count;
                        let reached = (0..=durable).rev().find(|&at| have(at) || at == 0).unwrap_or(0);
                        commit = commit.max(reached);
                        prop_assert_eq!(acks.commit(Lsn::new(durable), count), Lsn::new(commit));
                    }
                    Step::Note(..) | Step::Leave(_) => {}
                }
                prop_assert_eq!(acks.replicas().len(), model.len());
                for at in 0..50 {
                    let count = |have: fn(&(Session, u64, u64)) -> u64| model.values().filter(|it| have(it) >= at).count();
                    prop_assert_eq!(acks.count_flushed(Lsn::new(at)), count(|it| it.1));
                    let applied = acks.replicas().filter(|(_, acked)| acked.applied >= Lsn::new(at)).count();
                    prop_assert_eq!(applied, count(|it| it.2));
                }
            }
        }
    }

    #[test]
    fn without_enough_replicas_nothing_is_committed() {
        let mut acks = Acks::default();
        assert_eq!(acks.commit(Lsn::new(8), 1), Lsn::ZERO);
        assert_eq!(acks.commit(Lsn::new(8), 0), Lsn::new(8));
        acks.join(id(1), acked(20, 3));
        assert_eq!(acks.commit(Lsn::new(9), 1), Lsn::new(9), "not before it is durable here");
        assert_eq!(acks.commit(Lsn::new(30), 1), Lsn::new(20));
        assert_eq!(acks.commit(Lsn::new(30), 2), Lsn::new(20), "a promise stays one");
    }

    #[test]
    fn lag_is_told_in_bytes_and_in_time() {
        let behind = Acked { as_of_ms: 900, heard_ms: 990, ..acked(50, 40) };
        assert_eq!((behind.lag_bytes(Lsn::new(100)), behind.lag_bytes(Lsn::new(10))), (60, 0));
        assert_eq!((behind.lag_ms(1000), behind.silent_ms(1000)), (Some(100), 10));
        assert_eq!(acked(1, 1).lag_ms(1000), None, "it has not caught up yet");
        let mut acks = Acks::default();
        acks.join(id(1), Acked { heard_ms: 500, ..behind });
        acks.join(id(2), behind);
        assert_eq!([0, 10, 500].map(|silent_ms_max| acks.count_heard(1000, silent_ms_max)), [0, 1, 2]);
    }
}
