//! Two operators that promote different replicas at the same time.
//!
//! ```text
//! all servers are equal -> the leader fails -> two replicas are promoted in the same millisecond ->
//! both write batches of equal lengths -> one is told to follow the other, the old leader returns ->
//! all servers have the data of the remaining leader
//! ```
//!
//! Writes that the losing leader had acknowledged are lost; that is the price of such operators. But none of
//! them may be mistaken for a write of the other leader, and no server may keep them.

use env::Clock;
use storage::Durability;

use super::{
    Cluster,
    leading::Leading,
    network::NodeId,
    node::{Failure, Order, Role, flush},
};

/// The maximum number of batches that both write in lock step.
const BATCHES_MAX: u64 = 8;

impl Cluster {
    /// Runs `steps` steps, then promotes two replicas at once, and lets the cluster converge again.
    ///
    /// # Errors
    /// The first broken invariant, as text.
    ///
    /// # Panics
    /// If there are fewer than three servers, or `acks` is not 0, so that the simulated operator could
    /// replace leaders.
    pub fn run_double_promotion(&mut self, steps: usize) -> Result<(), String> {
        assert!(self.nodes.len() >= 3 && self.options.acks == 0);
        for id in 0..self.nodes.len() {
            self.start(id)?;
        }
        for _ in 0..steps {
            self.step()?;
        }
        self.settle()?;
        let old = self.operator.leader().ok_or("no leader is set")?;
        self.stop(old);
        let rivals: Vec<NodeId> = (0..self.nodes.len()).filter(|&id| id != old).take(2).collect();
        let now_ms = rivals.iter().map(|&id| self.nodes[id].clock.unix_ms()).max().unwrap_or(0);
        for &id in &rivals {
            self.with_replica(id, |following, around| following.leave(around));
            // Only the wall clock is set: the network uses the monotonic clock, which must not jump.
            self.nodes[id].clock.set_unix_ms(now_ms);
            let promoted = self.promote_rival(id);
            self.judge(id, promoted)?;
        }
        self.write_in_lock_step(&rivals)?;
        let winner = rivals[self.prng.below(2) as usize];
        let Role::Leader(leading) = &self.nodes[winner].role else { return Err("it does not lead".into()) };
        self.truth.leads(leading.log.epoch(), winner, self.nodes[winner].incarnation)?;
        for id in 0..self.nodes.len() {
            let order = if id == winner { Order::Lead } else { Order::Follow(winner) };
            (self.operator.orders[id], self.nodes[id].order) = (order, order);
            if id != winner {
                self.stop(id);
            }
        }
        self.settle()
    }

    fn promote_rival(&mut self, id: NodeId) -> Result<(), Failure> {
        let epoch = self.truth.epoch();
        let fault = self.options.fault;
        let node = &mut self.nodes[id];
        // Below, both are set to sync every batch: only then do their batches end at the same positions.
        let Role::Replica(following) = &mut node.role else {
            return Err(Failure::Breach("it does not follow".into()));
        };
        let Some(member) = &mut node.member else { return Err(Failure::Breach("it is down".into())) };
        following.promote(epoch, member, fault)?;
        following.log.set_durability(Durability::Strict);
        let (log, keyspace) = (following.log.clone(), following.keyspace.clone());
        let leading = Leading::new(log, keyspace, node.home(), self.options.acks, fault)?;
        node.order = Order::Lead;
        node.role = Role::Leader(leading.into());
        Ok(())
    }

    /// Has both leaders write records and batches of equal lengths, and sometimes one of them one batch more.
    fn write_in_lock_step(&mut self, rivals: &[NodeId]) -> Result<(), String> {
        for _ in 0..=self.prng.below(BATCHES_MAX) {
            let prng = self.prng.fork();
            for &id in rivals {
                self.write_one(id, prng.clone())?;
            }
        }
        let ends = rivals.iter().map(|&id| match &self.nodes[id].role {
            Role::Leader(leading) => Some((leading.log.epoch(), leading.log.durable_lsn())),
            _ => None,
        });
        let ends: Vec<_> = ends.collect();
        if ends[0].is_none() || ends[0] != ends[1] {
            return Err(format!("they have not written the same positions: {ends:?}"));
        }
        if self.prng.chance(30) {
            let (id, prng) = (rivals[self.prng.below(2) as usize], self.prng.fork());
            self.write_one(id, prng)?;
        }
        Ok(())
    }

    fn write_one(&mut self, id: NodeId, mut prng: env::Prng) -> Result<(), String> {
        self.writes += 1;
        let Role::Leader(leading) = &mut self.nodes[id].role else { return Err("it does not lead".into()) };
        let written = leading.write(self.writes, &mut prng).and_then(|()| flush(&leading.log));
        self.judge(id, written)
    }
}
