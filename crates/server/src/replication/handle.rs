//! Replication as commands see it: implements [`engine::replication`]'s traits.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use engine::{
    Responder,
    replication::{
        Address, Availability, COMMITS_NOTHING, FAR_BEHIND, Failover, LinkState, MASTER_DOWN, NO_LEADER,
        NOT_JOINED, NOT_KNOWN_COMMITTED, READ_DEPOSED, READ_REMOVED, READ_WITNESS, Replication, RoleView,
        Wanted, WriteRefusal,
    },
};
use lsn::Lsn;
use replication::{Follow, Led, LogHistory, join};

use super::{Node, failover, orders::Order, waits::Awaited};
use crate::spawn::spawn_with;

/// The error of REPLICAOF on a member of a group.
pub(super) const OF_GROUP: &str =
    "ERR this server belongs to a group, whose votes decide who leads: GROUP TRANSFER changes the leader";
/// The reply to REPLICAOF with the present leader, as Redis gives it.
const FOLLOWS_ALREADY: &str = "OK Already connected to specified master";

/// The interface for commands. Holds an `Arc`, because some operations outlive the command.
pub(crate) struct ReplicationHandle(pub(crate) Arc<Node>);

impl ReplicationHandle {
    /// Carries out the order of a client on a thread of its own, because the disk may take long.
    fn carry_out(&self, thread: &str, responder: Responder, run: impl FnOnce(Arc<Order>) + Send + 'static) {
        let order = self.0.orders.begin(self.0.now_ms(), responder);
        let thread = std::thread::Builder::new().name(thread.into());
        if let Err(refused) = spawn_with(thread, order, run) {
            self.0.orders.end(&refused.value);
            let error = format!("ERR cannot start a thread: {}", refused.error);
            refused.value.answer(|reply| reply.error(&error));
        }
    }
}

impl Availability for ReplicationHandle {
    fn is_read_only(&self) -> bool {
        self.0.is_read_only.load(SeqCst)
    }

    fn refuses_writes(&self) -> Option<WriteRefusal> {
        if self.is_read_only() {
            Some(match self.0.is_removed() {
                true => WriteRefusal::Removed,
                false if self.0.is_witness() => WriteRefusal::Witness,
                false if self.0.lacks_leader() && self.0.is_joining() => WriteRefusal::Joining,
                false if self.0.lacks_leader() => WriteRefusal::NoLeader,
                false if self.0.is_handing_over.load(SeqCst) => WriteRefusal::HandingOver,
                false if self.0.is_deposed.load(SeqCst) => WriteRefusal::Deposed,
                false => WriteRefusal::Replica,
            })
        } else if self.0.may_be_replaced() {
            Some(WriteRefusal::NoLeader)
        } else if self.0.owes_settings.load(SeqCst) {
            Some(WriteRefusal::SettingsOwed)
        } else if self.0.lacks_replicas.load(SeqCst) {
            Some(WriteRefusal::TooFewReplicas)
        } else if self.0.lacks_commits.load(SeqCst) {
            Some(WriteRefusal::NotCommitted)
        } else {
            None
        }
    }

    fn lacks_acks(&self) -> bool {
        // What was overdue at the last look counts no more once nothing waits for replicas.
        let is_overdue = || self.0.acks_overdue.load(SeqCst) && self.0.ack_timeout_ms().is_some();
        self.0.lacks_acks.load(SeqCst) || is_overdue()
    }

    fn is_stale(&self) -> bool {
        self.0.is_stale()
    }

    fn refuses_reads(&self) -> Option<&'static str> {
        if self.0.is_witness() && !self.0.is_removed() {
            return Some(READ_WITNESS);
        }
        let is_stale = self.is_stale();
        let lacks_leader = self.0.lacks_leader();
        let shows_data = self.0.shows_old_data() || !(lacks_leader || self.0.lags_far_behind());
        if !is_stale && shows_data {
            return self.0.answers_nothing().then_some(COMMITS_NOTHING);
        }
        Some(match self.0.votes() {
            None if self.0.is_deposed.load(SeqCst) => READ_DEPOSED,
            None => MASTER_DOWN,
            Some(_) if self.0.is_removed() => READ_REMOVED,
            Some(_) if lacks_leader && self.0.is_joining() => NOT_JOINED,
            Some(_) if is_stale => NOT_KNOWN_COMMITTED,
            Some(_) if lacks_leader => NO_LEADER,
            Some(_) => FAR_BEHIND,
        })
    }

    fn shows_nothing(&self) -> bool {
        let Some(following) = self.0.following() else { return false };
        let is_empty = following.applied() == Lsn::ZERO && following.link() != LinkState::Connected;
        is_empty || self.refuses_reads().is_some()
    }

    fn awaits_disk(&self) -> bool {
        self.0.awaits_disk()
    }

    fn lacks_majority(&self) -> bool {
        self.0.lacks_leader() || !self.0.has_lease()
    }

    fn is_in_ring(&self) -> bool {
        self.0.following().is_some_and(|following| following.link() == LinkState::Leaderless)
    }

    fn is_in_group(&self) -> bool {
        self.0.votes().is_some()
    }

    fn may_answer(&self) -> bool {
        self.0.may_answer()
    }

    fn times_stepped_down(&self) -> u64 {
        self.0.times_stepped_down()
    }

    fn drops_replies(&self) -> bool {
        self.0.drops_replies()
    }
}

impl Replication for ReplicationHandle {
    fn role(&self) -> RoleView {
        let node = &self.0;
        match node.leader_address() {
            // This is a member of a group that knows no leader, or a server that is about to lead.
            None if node.is_shown_as_replica() => RoleView::Replica {
                leader: Address { host: String::new(), port: 0 },
                link: LinkState::Connect,
                applied: node.following().map_or(Lsn::ZERO, |following| following.applied()),
            },
            None => RoleView::Leader {
                end: node.durable_lsn(),
                replicas: node
                    .leader
                    .replicas()
                    .into_iter()
                    .map(Into::into)
                    .chain(node.redis.for_role())
                    .collect(),
            },
            Some(leader) => {
                let applied = node.following().map_or(Lsn::ZERO, |following| following.applied());
                RoleView::Replica { leader, link: node.shown_link(), applied }
            }
        }
    }

    fn follow(&self, leader: Address, responder: Responder) {
        let node = self.0.clone();
        let run = move |order: Arc<Order>| {
            let follow = node.begin_to_follow(&leader);
            let following = node.following();
            // Once the client has its OK, neither INFO nor HTTP shows the link to the former leader.
            if let (Ok(Follow::Reconnect), Some(following)) = (&follow, &following) {
                following.reconnect(node.now_ms());
            }
            node.orders.end(&order);
            order.answer(|reply| match &follow {
                Ok(Follow::Already) => reply.simple(FOLLOWS_ALREADY),
                Ok(_) => reply.ok(),
                Err(error) => reply.error(error),
            });
            // The client is answered before a restart closes connections.
            match (follow, following) {
                (Ok(Follow::Already) | Err(_), _) | (Ok(Follow::Reconnect), Some(_)) => {}
                _ => node.request_restart(),
            }
        };
        // The order writes to the disk, which may take long.
        self.carry_out("replicaof", responder, run);
    }

    fn lead(&self, responder: Responder) {
        let node = self.0.clone();
        if node.votes().is_some() {
            return responder.keep(Err(OF_GROUP.into()));
        }
        let run = move |order: Arc<Order>| {
            let led = node.promote();
            if let Err(reason) = &led {
                tracing::error!(target: "replication", reason, "this server cannot lead");
            }
            node.orders.end(&order);
            order.answer(|reply| match &led {
                Ok(_) => reply.ok(),
                Err(reason) => reply.error(reason),
            });
            // The client is answered before the restart closes connections.
            if led == Ok(Led::AfterRestart) {
                node.request_restart();
            }
        };
        self.carry_out("promotion", responder, run);
    }

    fn is_changing_role(&self) -> bool {
        self.0.votes().is_none() && self.0.orders.are_under_way()
    }

    fn fail_over(&self, failover: Failover) -> Result<(), String> {
        failover::begin(&self.0, failover)
    }

    fn abort_failover(&self) -> Result<(), String> {
        failover::abort(&self.0)
    }

    fn disconnect_replicas(&self) -> usize {
        self.0.leader.disconnect()
    }

    fn durable_lsn(&self) -> Lsn {
        self.0.durable_lsn()
    }

    fn shown_lsn(&self) -> Lsn {
        self.0.shown_lsn()
    }

    fn count_flushed(&self, lsn: Lsn) -> usize {
        self.0.count_flushed(lsn)
    }

    fn wait_flushed(&self, wanted: Wanted, responder: Responder) {
        let node = &self.0;
        if wanted.local
            && wanted.lsn > node.durable_lsn()
            && let (Some(log), Some(runtime)) = (node.log(), node.runtime.get())
        {
            // If the durability syncs on a timer, the sync is made now and not at its time.
            let (log, node) = (log.clone(), node.clone());
            runtime.spawn_blocking(move || {
                let _ = log.make_durable(wanted.lsn);
                node.settle_waits();
            });
        }
        node.wait(Awaited::Flushed(wanted), wanted.timeout_ms, responder);
    }

    fn wait_applied(&self, lsn: Lsn, timeout_ms: Option<u64>, responder: Responder) {
        self.0.wait(Awaited::Shown(lsn), timeout_ms, responder);
    }

    fn unblock(&self, client: u64, with_error: bool) -> bool {
        self.0.unblock(client, with_error)
    }

    fn newest_common(&self, marks: &[&[u8]]) -> Result<Option<Lsn>, String> {
        let marks = join::parse_marks(marks).ok_or("ERR no arguments of REPLICATE MARKS")?;
        let log = self.0.log().ok_or("LOADING this server is starting")?;
        join::newest_common(&marks, &LogHistory(log)).map_err(|error| format!("ERR {error}"))
    }
}
