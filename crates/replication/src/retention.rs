//! The part of the log that is kept for replicas: those connected, and those that may return soon.
//!
//! A [`Retention`] holds a position per replica, and the time when the replica disconnected. It does not pin
//! the log: the server pins the position that `keep_from` returns, and asks again as the log grows.
//!
//! Invariants
//! - No replica causes more than `bytes_max` of log to be kept: a replica that is further behind is dropped,
//!   and may need a full sync.
//! - The log is kept for a disconnected replica for `away_ms_max`, and only for the [`AWAY_MAX`] replicas
//!   that disconnected last.

use std::collections::BTreeMap;

use lsn::Lsn;

use crate::ReplicaId;

/// The maximum number of disconnected replicas for which the log is kept.
const AWAY_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Need {
    position: Lsn,
    /// When it disconnected; `None` while it is connected.
    left_ms: Option<u64>,
}

/// The positions that replicas need.
#[derive(Debug)]
pub struct Retention {
    bytes_max: u64,
    away_ms_max: u64,
    needs: BTreeMap<ReplicaId, Need>,
}

impl Retention {
    /// Limits per replica: bytes of log, and milliseconds after its disconnection.
    pub fn new(bytes_max: u64, away_ms_max: u64) -> Retention {
        Retention { bytes_max, away_ms_max, needs: BTreeMap::new() }
    }

    /// Changes the limits per replica, as given to [`Retention::new`].
    pub fn set_limits(&mut self, bytes_max: u64, away_ms_max: u64) {
        (self.bytes_max, self.away_ms_max) = (bytes_max, away_ms_max);
    }

    /// Notes that a connected replica needs the log from `position` on.
    pub fn note(&mut self, id: ReplicaId, position: Lsn) {
        self.needs.insert(id, Need { position, left_ms: None });
    }

    /// Notes that a replica has disconnected; it may return.
    pub fn leave(&mut self, id: ReplicaId, now_ms: u64) {
        if let Some(need) = self.needs.get_mut(&id) {
            need.left_ms = Some(now_ms);
        }
        let away = self.needs.iter().filter_map(|(id, need)| Some((need.left_ms?, *id)));
        let mut away: Vec<(u64, ReplicaId)> = away.collect();
        if away.len() > AWAY_MAX {
            away.sort_unstable();
            self.needs.remove(&away[0].1);
        }
    }

    /// Keeps nothing for this replica any more.
    pub fn forget(&mut self, id: ReplicaId) {
        self.needs.remove(&id);
    }

    /// The first position to keep of a log that ends at `end`; `None` if no replica needs any of it. Drops
    /// replicas that are too far behind, or have been away for too long.
    pub fn keep_from(&mut self, end: Lsn, now_ms: u64) -> Option<Lsn> {
        let (bytes_max, away_ms_max) = (self.bytes_max, self.away_ms_max);
        self.needs.retain(|_, need| {
            let behind_bytes = end.get().saturating_sub(need.position.get());
            let is_back_soon =
                need.left_ms.is_none_or(|left_ms| now_ms.saturating_sub(left_ms) <= away_ms_max);
            behind_bytes <= bytes_max && is_back_soon
        });
        self.needs.values().map(|need| need.position).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ReplicaId {
        ReplicaId::new([number; 16])
    }

    #[test]
    fn the_slowest_replica_keeps_the_log_within_limits() {
        let mut retention = Retention::new(1000, 60);
        assert_eq!(retention.keep_from(Lsn::new(500), 0), None);
        retention.note(id(1), Lsn::new(400));
        retention.note(id(2), Lsn::new(300));
        assert_eq!(retention.keep_from(Lsn::new(1300), 0), Some(Lsn::new(300)));
        assert_eq!(retention.keep_from(Lsn::new(1301), 0), Some(Lsn::new(400)), "too far behind");
        retention.note(id(2), Lsn::new(1200));
        assert_eq!(retention.keep_from(Lsn::new(1301), 0), Some(Lsn::new(400)));
        retention.forget(id(1));
        assert_eq!(retention.keep_from(Lsn::new(1301), 0), Some(Lsn::new(1200)));
    }

    #[test]
    fn a_replica_that_has_gone_is_waited_for_a_while() {
        let mut retention = Retention::new(1000, 60);
        retention.note(id(1), Lsn::new(100));
        retention.leave(id(1), 10);
        assert_eq!(retention.keep_from(Lsn::new(500), 70), Some(Lsn::new(100)));
        retention.note(id(1), Lsn::new(200));
        assert_eq!(retention.keep_from(Lsn::new(500), 1000), Some(Lsn::new(200)), "it is back");
        retention.leave(id(1), 1000);
        assert_eq!(retention.keep_from(Lsn::new(500), 1061), None);
    }

    #[test]
    fn of_many_that_have_gone_the_first_are_given_up() {
        let mut retention = Retention::new(10_000, 10_000);
        for number in 0..=AWAY_MAX as u8 {
            retention.note(id(number), Lsn::new(100 + u64::from(number)));
            retention.leave(id(number), number.into());
        }
        assert_eq!(retention.keep_from(Lsn::new(500), 100), Some(Lsn::new(101)));
    }
}
