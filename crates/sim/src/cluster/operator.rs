//! The operator: replaces a failed leader, by the rules of semi-synchronous replication.
//!
//! ```text
//! Content -- leader gone, or at random --> Holding: no commit is possible, as too few replicas have a leader
//!    ^                                       | all held servers are up: the one with the newest log leads
//!    '---------------------------------------'
//! ```
//!
//! This is no consensus: a single operator remembers all epochs. If no replica is required for commits, the
//! operator waits for the leader to return, because another leader would lose acknowledged writes.
//!
//! Invariants
//! - With n servers and k acks, n - k servers besides the leader are held before any of them is promoted. So
//!   every set of k replicas includes a held server. A server that has lost its disk does not count until it
//!   has caught up.
//! - The newest log is decided by the epoch of its last batch, then by its end.
//! - Orders reach the old leader later, or when it returns.

use lsn::Lsn;
use replication::{Led, Promotion, promote};
use storage::Log;

use super::{
    Cluster, FaultInjection,
    leading::{Leading, holds},
    member::Member,
    network::NodeId,
    node::{Failure, Node, Order, Role},
};

/// The longest wait of a promotion for a script that holds up the applier.
const PROMOTION_SECONDS_MAX: u64 = 3;

#[derive(Debug, Default)]
pub(super) struct Operator {
    /// The held servers, one of which will be the new leader.
    held: Vec<NodeId>,
    /// The intended role of each server, which the server has perhaps not received yet.
    pub(super) orders: Vec<Order>,
}

impl Operator {
    pub(super) fn new(orders: Vec<Order>) -> Operator {
        Operator { held: Vec::new(), orders }
    }

    /// A server has lost its disk: it starts empty, and is no candidate for leader.
    pub(super) fn loses(&mut self, id: NodeId) {
        self.orders[id] = Order::Hold;
        self.release();
    }

    /// Abandons the replacement: held servers follow the leader again, if there is one.
    fn release(&mut self) {
        self.held.clear();
        if let Some(leader) = self.leader() {
            let others = self.orders.iter_mut().filter(|order| **order == Order::Hold);
            others.for_each(|order| *order = Order::Follow(leader));
        }
    }

    /// Whether a replacement of the leader is in progress.
    pub(super) fn is_busy(&self) -> bool {
        !self.held.is_empty()
    }

    /// The current leader, as far as the operator knows.
    pub(super) fn leader(&self) -> Option<NodeId> {
        self.orders.iter().position(|order| *order == Order::Lead)
    }
}

impl Cluster {
    /// Restarts a leader that is fenced; otherwise begins or continues to replace the leader, if commits
    /// require replicas.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        if self.handing_over.is_some() {
            return Ok(());
        }
        if self.options.acks == 0 {
            return self.reinstate().map(drop);
        }
        if self.operator.held.is_empty() {
            return if self.reinstate()? { Ok(()) } else { self.hold() };
        }
        let is_up = |&id: &NodeId| matches!(self.nodes[id].role, Role::Replica(_));
        if self.operator.held.iter().all(is_up) { self.promote() } else { Ok(()) }
    }

    /// Tells a server its intended role if that has changed; a server that is down learns it at its start.
    pub(super) fn tell(&mut self, id: NodeId) -> Result<(), String> {
        let order = self.operator.orders[id];
        let node = &mut self.nodes[id];
        if node.order == order {
            return Ok(());
        }
        let was = std::mem::replace(&mut node.order, order);
        let obeyed = node.member.as_mut().map_or(Ok(()), |member| member.obey(order));
        if let Err(failure) = obeyed {
            return self.failed(id, failure);
        }
        match (&mut self.nodes[id].role, order) {
            (Role::Leader(_), _) => {
                // A former leader restarts in its new role.
                self.stop(id);
                self.start(id)
            }
            (Role::Replica(_), Order::Follow(_) | Order::Hold) if was != Order::Lead => {
                self.with_replica(id, |following, around| following.leave(around));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Restarts the leader if a failed promotion has left a higher epoch behind, which fences the leader. It
    /// is still the only leader, and gets an epoch above the higher one. Returns whether this was needed.
    pub(super) fn reinstate(&mut self) -> Result<bool, String> {
        let Some(id) = self.operator.leader() else { return Ok(false) };
        let node = &mut self.nodes[id];
        let (Role::Leader(leading), Some(member)) = (&node.role, &mut node.member) else { return Ok(false) };
        if !member.role().is_fenced() {
            return Ok(false);
        }
        match promote(&mut Reinstating { log: &leading.log, member }) {
            Ok(led) => {
                assert_eq!(led, Led::AfterRestart, "a leader that takes no writes was fenced");
                self.stop(id);
                self.start(id)?;
            }
            Err(failure) => self.failed(id, failure)?,
        }
        Ok(true)
    }

    fn hold(&mut self) -> Result<(), String> {
        let leader = self.operator.leader();
        let others = |node: &&Node| Some(node.id) != leader && node.is_witness;
        let mut held: Vec<NodeId> = self.nodes.iter().filter(others).map(|node| node.id).collect();
        // If there are more candidates than needed, hold a random selection.
        let wanted = self.nodes.len() - self.options.acks;
        while held.len() > wanted {
            held.swap_remove(self.prng.below(held.len() as u64) as usize);
        }
        if held.len() < wanted {
            return Ok(());
        }
        for &id in &held {
            self.operator.orders[id] = Order::Hold;
            self.nodes[id].order = Order::Hold;
            if let Some(member) = &mut self.nodes[id].member
                && let Err(failure) = member.obey(Order::Hold)
            {
                self.failed(id, failure)?;
            }
            // A server that copies, or still believes to be the leader, is stopped, and later starts in its
            // new role.
            if matches!(self.nodes[id].role, Role::Copying(_) | Role::Leader(_)) {
                self.stop(id);
            }
            self.with_replica(id, |following, around| following.leave(around));
        }
        self.operator.held = held;
        Ok(())
    }

    fn promote(&mut self) -> Result<(), String> {
        let mut newest: Vec<((u32, Lsn), NodeId)> = Vec::new();
        for &id in &self.operator.held {
            let Role::Replica(following) = &self.nodes[id].role else { return Ok(()) };
            let end = following.log.durable_lsn();
            match self.nodes[id].last_epoch(&following.log) {
                Ok(epoch) => newest.push(((epoch, end), id)),
                Err(error) => return self.failed(id, error.into()),
            }
        }
        let chosen = match self.options.fault {
            Some(FaultInjection::PromoteAny) => newest.first(),
            _ => newest.iter().max(),
        };
        let Some(&((_, end), id)) = chosen else { return Ok(()) };
        if end == Lsn::ZERO {
            // No server has any data yet, and an empty server would begin a new log.
            self.operator.release();
            return Ok(());
        }
        match self.make_leader(id) {
            Ok(()) => Ok(()),
            Err(failure) => self.failed(id, failure),
        }
    }

    pub(super) fn make_leader(&mut self, id: NodeId) -> Result<(), Failure> {
        self.end_script_for_promotion(id);
        let epoch = self.truth.epoch();
        let node = &mut self.nodes[id];
        let Role::Replica(following) = &mut node.role else { return Ok(()) };
        let Some(member) = &mut node.member else { return Ok(()) };
        following.promote(epoch, member, self.options.fault)?;
        let (log, keyspace) = (following.log.clone(), following.keyspace.clone());
        let leading = Leading::new(log, keyspace, node.home(), self.options.acks, self.options.fault)?;
        node.order = Order::Lead;
        holds(&leading.log, &self.truth)?
            .map_err(|lost| Failure::Breach(format!("server {id} is promoted: {lost}")))?;
        self.truth.leads(leading.log.epoch(), id, node.incarnation).map_err(Failure::Breach)?;
        node.role = Role::Leader(leading.into());
        self.operator.held.clear();
        for order in &mut self.operator.orders {
            *order = Order::Follow(id);
        }
        self.operator.orders[id] = Order::Lead;
        self.failovers += 1;
        Ok(())
    }

    /// Lets the time pass that a promotion may wait for a script: the promotion waits for the applier, and
    /// the applier for the end of the script.
    fn end_script_for_promotion(&mut self, id: NodeId) {
        for _ in 0..PROMOTION_SECONDS_MAX {
            let now_ms = self.nodes[id].now_ms();
            let Role::Replica(following) = &mut self.nodes[id].role else { return };
            if !following.is_held_up() || following.applied() >= following.mirror.position() {
                return;
            }
            self.scripts_ended += u64::from(following.end_script(now_ms, true, self.options.fault));
            self.pass(1000);
        }
    }
}

/// The promotion of a leader that was fenced and is to lead again.
struct Reinstating<'l> {
    log: &'l Log,
    member: &'l mut Member,
}

impl Promotion for Reinstating<'_> {
    type Error = Failure;

    fn end_link(&mut self) -> Result<Option<Lsn>, Failure> {
        Ok(None)
    }

    fn make_durable(&mut self, _: Lsn) -> Result<(), Failure> {
        Ok(())
    }

    fn apply_all(&mut self, _: Lsn) -> Result<(), Failure> {
        Ok(())
    }

    fn begin_epoch(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn stop_following(&mut self) -> Result<u32, Failure> {
        self.member.change(|role| (role.lead(), true))
    }

    fn outbid(&mut self, epoch: u32) -> Result<(), Failure> {
        Ok(self.log.outbid_epoch(epoch)?)
    }
}
