//! Replication of a test server: a server alone, or a replica, perhaps one whose leader has gone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use engine::{
    Responder,
    replication::{
        Address, Availability, Failover, LinkState, Replication, RoleView, Standalone, Wanted, WriteRefusal,
    },
};
use lsn::Lsn;
use parking_lot::Mutex;

/// A standalone server, or a replica.
#[derive(Default)]
pub(crate) struct TestReplication {
    /// Whether the server is a replica that may not show its data.
    pub(crate) is_stale: AtomicBool,
    /// Whether the server is a leader that hands over.
    pub(crate) is_handing_over: AtomicBool,
    /// The leader that the server follows; `None` if the server leads.
    pub(crate) leader: Mutex<Option<Address>>,
    /// The newest condition that a client waited for.
    pub(crate) last_wanted: Mutex<Option<Wanted>>,
    /// How many replicas are connected.
    pub(crate) replicas: AtomicUsize,
}

impl Availability for TestReplication {
    fn is_read_only(&self) -> bool {
        self.is_stale() || self.leader.lock().is_some() || self.is_handing_over.load(Relaxed)
    }

    fn refuses_writes(&self) -> Option<WriteRefusal> {
        let refusal = if self.is_handing_over.load(Relaxed) {
            WriteRefusal::HandingOver
        } else {
            WriteRefusal::Replica
        };
        self.is_read_only().then_some(refusal)
    }

    fn is_stale(&self) -> bool {
        self.is_stale.load(Relaxed)
    }
}

impl Replication for TestReplication {
    fn role(&self) -> RoleView {
        match self.leader.lock().clone() {
            Some(leader) => RoleView::Replica { leader, link: LinkState::Connected, applied: Lsn::new(4096) },
            None => Standalone.role(),
        }
    }

    fn follow(&self, leader: Address, responder: Responder) {
        Standalone.follow(leader, responder);
    }

    fn lead(&self, responder: Responder) {
        Standalone.lead(responder);
    }

    fn fail_over(&self, failover: Failover) -> Result<(), String> {
        Standalone.fail_over(failover)
    }

    fn abort_failover(&self) -> Result<(), String> {
        Standalone.abort_failover()
    }

    fn disconnect_replicas(&self) -> usize {
        self.replicas.swap(0, Relaxed)
    }

    fn durable_lsn(&self) -> Lsn {
        Standalone.durable_lsn()
    }

    fn shown_lsn(&self) -> Lsn {
        Standalone.shown_lsn()
    }

    fn count_flushed(&self, lsn: Lsn) -> usize {
        Standalone.count_flushed(lsn)
    }

    fn wait_flushed(&self, wanted: Wanted, responder: Responder) {
        *self.last_wanted.lock() = Some(wanted);
        Standalone.wait_flushed(wanted, responder);
    }

    fn wait_applied(&self, lsn: Lsn, timeout_ms: Option<u64>, responder: Responder) {
        Standalone.wait_applied(lsn, timeout_ms, responder);
    }

    fn unblock(&self, client: u64, with_error: bool) -> bool {
        Standalone.unblock(client, with_error)
    }

    fn newest_common(&self, marks: &[&[u8]]) -> Result<Option<Lsn>, String> {
        Standalone.newest_common(marks)
    }
}
