//! A scenario: only the leader is started with `ack-replicas`, its replica is not. If a write was
//! acknowledged under that setting, the setting must be in force on the replica once the replica leads.
//!
//! ```text
//! the leader is given `ack-replicas`, its replica is not -> writes -> the leader is lost at any moment ->
//! the replica leads: if any write was acknowledged, it keeps the promise
//! ```

use super::{Cluster, FaultInjection, node::Role};

/// The setting, by its name in the data.
pub(super) const ACK_REPLICAS: &str = "ack-replicas";

impl Cluster {
    /// Runs fewer than `steps` steps, stops the leader, and promotes the replica if it is up and any write
    /// was acknowledged. Returns the number of acknowledged writes.
    ///
    /// # Errors
    /// The first broken invariant, as text.
    ///
    /// # Panics
    /// If there are not two servers.
    pub fn run_given_settings(&mut self, steps: u64) -> Result<usize, String> {
        assert_eq!(self.nodes.len(), 2, "the leader, and the one that has what was acknowledged");
        for id in 0..self.nodes.len() {
            self.start(id)?;
        }
        self.give_settings()?;
        for _ in 0..self.prng.below(steps) {
            let id = self.prng.below(2) as usize;
            match self.prng.below(10) {
                0..3 => self.write(0)?,
                3..5 => self.flush(id)?,
                5..9 => self.exchange(id)?,
                _ => self.pass(20),
            }
        }
        let acknowledged = self.truth.acknowledged();
        self.stop(0);
        if !matches!(self.nodes[1].role, Role::Replica(_)) || acknowledged == 0 {
            return Ok(acknowledged);
        }
        let promoted = self.make_leader(1);
        self.judge(1, promoted)?;
        let Role::Leader(leading) = &self.nodes[1].role else { return Err("it does not lead".into()) };
        match leading.acks_of_data() {
            acks if acks == self.options.acks => Ok(acknowledged),
            acks => Err(format!(
                "{acknowledged} writes were acknowledged with {} replicas, the new leader asks for {acks}",
                self.options.acks
            )),
        }
    }

    /// Gives the leader the setting, and records it at once, unless the deliberate defect delays that.
    fn give_settings(&mut self) -> Result<(), String> {
        let Role::Leader(leading) = &mut self.nodes[0].role else { return Err("it does not lead".into()) };
        leading.give(vec![(ACK_REPLICAS, self.options.acks.to_string())]);
        let recorded = match self.options.fault {
            Some(FaultInjection::SettingsLate) => Ok(()),
            _ => leading.record_owed(),
        };
        self.judge(0, recorded)
    }
}
