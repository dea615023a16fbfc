//! Whoever makes another server the leader when the leader is gone, by the rules that semi-synchronous replication asks for.
//!
//! ```text
//! Content -- leader gone, or at whim --> Holding: so many replicas follow nobody that no commit goes without them
//!    ^                                      | all of them are up: the one with the newest log leads
//!    '--------------------------------------'
//! ```
//!
//! What it is not: consensus. There is one operator, who remembers which epochs there were, and who waits for the leader to come
//! back where no replica has to have anything: another one would lose what was acknowledged.
//!
//! Invariants
//! - With n servers and k acks, n - k servers besides the leader are held before any of them is promoted: each set of k replicas
//!   has one of them. A server that has lost its disk does not count until it has caught up.
//! - Which log is newest is decided by the epoch of its last batch, then by its end.
//! - What the old leader is told reaches it later, or when it comes back.

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

/// What the operator is at.
#[derive(Debug, Default)]
pub(super) struct Operator {
    /// Those that are held, for a new leader among them.
    held: Vec<NodeId>,
    /// What each server is to be, once it is told.
    pub(super) orders: Vec<Order>,
}

impl Operator {
    pub(super) fn new(orders: Vec<Order>) -> Operator {
        Operator { held: Vec::new(), orders }
    }

    /// All that was on the disk of this server is gone: it is to begin anew, and to lead nobody.
    pub(super) fn loses(&mut self, id: NodeId) {
        self.orders[id] = Order::Hold;
        self.release();
    }

    /// Gives up what it is at: who is held follows the leader, if there is one.
    fn release(&mut self) {
        self.held.clear();
        if let Some(leader) = self.leader() {
            let others = self.orders.iter_mut().filter(|order| **order == Order::Hold);
            others.for_each(|order| *order = Order::Follow(leader));
        }
    }

    /// Whether it has begun to replace the leader.
    pub(super) fn is_busy(&self) -> bool {
        !self.held.is_empty()
    }

    /// Who leads, as far as the operator knows.
    pub(super) fn leader(&self) -> Option<NodeId> {
        self.orders.iter().position(|order| *order == Order::Lead)
    }
}

impl Cluster {
    /// Begins to replace the leader, or goes on with it.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        if self.options.acks == 0 {
            return Ok(());
        }
        if self.operator.held.is_empty() {
            return if self.reinstate()? { Ok(()) } else { self.hold() };
        }
        let is_up = |&id: &NodeId| matches!(self.nodes[id].role, Role::Replica(_));
        if self.operator.held.iter().all(is_up) { self.promote() } else { Ok(()) }
    }

    /// Tells what some server is to be, if it is up, has been told something else, and hears it.
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
                // It starts again as what it is now.
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

    /// A promotion that did not succeed may have left a higher epoch behind. The leader, which is still the only one, begins one
    /// above it. Returns whether that was needed.
    fn reinstate(&mut self) -> Result<bool, String> {
        let Some(id) = self.operator.leader() else { return Ok(false) };
        let node = &mut self.nodes[id];
        let (Role::Leader(leading), Some(member)) = (&node.role, &mut node.member) else { return Ok(false) };
        if !member.role().is_read_only() {
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
        // Of many any so many will do.
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
            // What copies, or still takes itself for the leader, starts again as what it is now.
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
            match following.log.batch_ending_at(end) {
                Ok(batch) => newest.push(((batch.map_or(0, |batch| batch.epoch), end), id)),
                Err(error) => return self.failed(id, error.into()),
            }
        }
        let chosen = match self.options.fault {
            Some(FaultInjection::PromoteAny) => newest.first(),
            _ => newest.iter().max(),
        };
        let Some(&((_, end), id)) = chosen else { return Ok(()) };
        if end == Lsn::ZERO {
            // Nobody has anything yet: an empty server would begin a log of its own.
            self.operator.release();
            return Ok(());
        }
        match self.make_leader(id) {
            Ok(()) => Ok(()),
            Err(failure) => self.failed(id, failure),
        }
    }

    fn make_leader(&mut self, id: NodeId) -> Result<(), Failure> {
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
        self.truth.leads(leading.log.epoch(), id, node.life).map_err(Failure::Breach)?;
        node.role = Role::Leader(leading.into());
        self.operator.held.clear();
        for order in &mut self.operator.orders {
            *order = Order::Follow(id);
        }
        self.operator.orders[id] = Order::Lead;
        self.failovers += 1;
        Ok(())
    }
}

/// A leader that was fenced is to lead again.
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
