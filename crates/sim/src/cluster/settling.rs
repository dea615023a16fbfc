//! The end of a run: all faults are healed, and all servers must converge.

use keyspace::Digest;

use super::{
    Cluster,
    node::{Order, Role},
};

/// The number of rounds within which a cluster without faults must converge.
const ROUNDS_MAX: usize = 4_000;
/// The number of writes that clients send meanwhile. Those that the leader takes must be acknowledged.
const LAST_WRITES: u64 = 3;

impl Cluster {
    /// Heals all faults, writes a little, and waits until nothing changes any more.
    ///
    /// # Errors
    /// If the cluster does not converge, or the servers then differ.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.network.heal();
        for id in 0..self.nodes.len() {
            self.nodes[id].disk.set_space_limit(None);
            if self.nodes[id].is_troubled {
                self.stop(id);
            }
        }
        let mut writes = LAST_WRITES;
        for _ in 0..ROUNDS_MAX {
            self.step_hand_over()?;
            if !self.is_led() || self.operator.is_busy() {
                let leader = self.operator.leader().filter(|&id| matches!(self.nodes[id].role, Role::Down));
                // A leader that is only down is restarted instead of replaced.
                if leader.is_none() || self.operator.is_busy() {
                    self.operate()?;
                }
            }
            for id in 0..self.nodes.len() {
                self.start(id)?;
                self.tell(id)?;
                if writes > 0 && self.is_led() && self.operator.leader() == Some(id) {
                    writes -= 1;
                    self.write(id)?;
                }
                self.exchange(id)?;
                self.flush(id)?;
            }
            self.pass(20);
            if writes == 0 && self.has_settled() {
                return self.compare();
            }
        }
        Err(format!("has not come to rest: {}", self.described()))
    }

    fn has_settled(&self) -> bool {
        let Some(leader) = self.operator.leader() else { return false };
        let Role::Leader(leading) = &self.nodes[leader].role else { return false };
        let end = leading.log.appended_lsn();
        let is_done = |node: &super::Node| match &node.role {
            Role::Leader(leading) => node.id == leader && leading.has_told_all(),
            Role::Replica(following) => following.applied() == end && node.shows(),
            Role::Down | Role::Copying(_) => false,
        };
        self.truth.end() == end && self.nodes.iter().all(is_done)
    }

    /// Checks that all servers are equal, in their logs and in memory.
    fn compare(&mut self) -> Result<(), String> {
        let mut held_by_all: Option<(Digest, Option<u64>)> = None;
        for id in 0..self.nodes.len() {
            self.look_at(id)?;
            let (log, keyspace) = match &self.nodes[id].role {
                Role::Leader(leading) => (&leading.log, &leading.keyspace),
                Role::Replica(following) => (&following.log, &following.keyspace),
                Role::Down | Role::Copying(_) => continue,
            };
            let held = super::leading::holds(log, &self.truth).map_err(|failure| format!("{failure:?}"))?;
            held.map_err(|lost| format!("server {id}: {lost}"))?;
            let chain = log.chain_at(log.durable_lsn()).map_err(|error| error.to_string())?;
            let own = (keyspace.digest(), chain);
            if held_by_all.as_ref().is_some_and(|others| *others != own) {
                return Err(format!("server {id} holds something else in its log or in memory"));
            }
            held_by_all = Some(own);
        }
        Ok(())
    }

    /// Describes the state of the cluster, for debugging.
    fn described(&self) -> String {
        let mut text = format!("committed {}", self.truth.end());
        for node in &self.nodes {
            let role = match &node.role {
                Role::Down => "down".into(),
                Role::Leader(leading) => format!(
                    "leads epoch {}, fenced by {:?}, log {}..{}",
                    leading.log.epoch(),
                    node.member.as_ref().map(|member| member.role().remembered().fenced_by),
                    leading.log.start_lsn(),
                    leading.log.appended_lsn()
                ),
                Role::Replica(following) => format!("{following:?}"),
                Role::Copying(_) => "copies".into(),
            };
            let is_told = node.order == self.operator.orders[node.id];
            let order: Order = node.order;
            text += &format!("; server {} ({order:?}, told {is_told}): {role}", node.id);
        }
        text
    }
}
