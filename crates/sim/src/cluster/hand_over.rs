//! Planned hand-overs: a leader without a fault gives its place to a replica, as FAILOVER does.
//!
//! ```text
//! leader takes no writes -> `replication::Handover` waits for the replica -> the replica is promoted
//!    '-- given up, crashed, cut off: writes resume --'    '-- the old leader follows it, or is told so later
//! ```
//!
//! The replacement of a failed leader (see `operator`) first holds some replicas back from following. A
//! hand-over needs no such step and no consent: a replica that has the whole log may lead, however many
//! acknowledgements a commit needs. The judge checks that no committed write is lost.

use lsn::Lsn;
use replication::{Acked, Ends, Handover, HandoverStep};

use super::{
    Cluster, FaultInjection,
    network::NodeId,
    node::{Order, Role},
};

/// The longest time for which writes are held back.
const TIMEOUT_MS: u64 = 3_000;

/// A hand-over in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandingOver {
    from: NodeId,
    /// The incarnation of the leader that began the hand-over.
    incarnation: u64,
    to: NodeId,
    machine: Handover,
}

impl Cluster {
    /// Begins a hand-over if there is a leader with a replica, and nothing else is going on.
    pub(super) fn begin_hand_over(&mut self) -> Result<(), String> {
        let Some(from) = self.operator.leader().filter(|id| self.nodes[*id].takes_writes()) else {
            return Ok(());
        };
        let follows = |id: &NodeId| {
            let node = &self.nodes[*id];
            node.order == Order::Follow(from) && matches!(node.role, Role::Replica(_))
        };
        let replicas: Vec<NodeId> = (0..self.nodes.len()).filter(follows).collect();
        if replicas.is_empty() || self.operator.is_busy() || self.handing_over.is_some() {
            return Ok(());
        }
        let to = replicas[self.prng.below(replicas.len() as u64) as usize];
        let node = &mut self.nodes[from];
        let (Role::Leader(leading), Some(member)) = (&node.role, &mut node.member) else { return Ok(()) };
        let closed = member
            .change(|role| (role.begin_hand_over(), false))
            .and_then(|_| Ok(leading.log.end_for_handover()?));
        match closed {
            Ok(_) => {
                let until_ms = node.now_ms() + TIMEOUT_MS;
                let force = self.options.fault == Some(FaultInjection::HandOverEarly);
                let until_ms = if force { 0 } else { until_ms };
                let machine = Handover::new(Some(until_ms), force);
                self.handing_over =
                    Some(HandingOver { from, incarnation: self.nodes[from].incarnation, to, machine });
                Ok(())
            }
            Err(failure) => self.failed(from, failure),
        }
    }

    /// Continues a hand-over.
    pub(super) fn step_hand_over(&mut self) -> Result<(), String> {
        let Some(HandingOver { from, incarnation, to, machine }) = self.handing_over else { return Ok(()) };
        let replica = self.nodes[to].replica_id();
        let node = &self.nodes[from];
        let Role::Leader(leading) = &node.role else {
            self.handing_over = None;
            return Ok(());
        };
        if node.incarnation != incarnation {
            self.handing_over = None;
            return Ok(());
        }
        let log = Ends { appended: leading.log.appended_lsn(), committed: leading.committed() };
        let mut acked = leading.acked_by(replica);
        if self.options.fault == Some(FaultInjection::HandOverUnapplied) {
            acked = acked.map(|acked| Acked { applied: Lsn::MAX, ..acked });
        }
        match machine.step(node.now_ms(), log, acked, None) {
            HandoverStep::Wait => Ok(()),
            HandoverStep::GiveUp(_) => self.resume_writes(from),
            HandoverStep::Promote => self.promote_in_place(from, to),
        }
    }

    fn promote_in_place(&mut self, from: NodeId, to: NodeId) -> Result<(), String> {
        let is_reached = self.network.reaches(from, to)
            && matches!(self.nodes[to].role, Role::Replica(_))
            // No operator hands over to a server that has just lost its disk.
            && self.nodes[to].order == Order::Follow(from);
        if !is_reached {
            return self.resume_writes(from);
        }
        if let (Role::Leader(leading), Role::Replica(following)) =
            (&self.nodes[from].role, &self.nodes[to].role)
            && following.is_held_up()
            && following.applied() < leading.committed().min(leading.log.appended_lsn())
        {
            return Err(format!("server {from} hands over to {to}, whose applier a script holds up"));
        }
        self.handing_over = None;
        let epoch = self.truth.epoch();
        let yielded = self.nodes[from]
            .member
            .as_mut()
            .map_or(Ok(false), |member| member.change(|role| (role.yield_to_replica(epoch), true)));
        match yielded {
            Ok(true) => {}
            Ok(false) => return self.resume_writes(from),
            Err(failure) => return self.failed(from, failure),
        }
        if let Err(failure) = self.make_leader(to) {
            // Whether the replica leads is unknown. The operator decides that the old leader leads after all.
            self.failed(to, failure)?;
            return self.reinstate().map(drop);
        }
        self.handovers += 1;
        if self.prng.chance(20) {
            // The answer is lost; the old leader learns the order later.
            return Ok(());
        }
        let handed_over =
            self.nodes[from].member.as_mut().map_or(Ok(()), |member| member.hand_over(Order::Follow(to)));
        self.judge(from, handed_over)?;
        self.tell(from)
    }

    fn resume_writes(&mut self, id: NodeId) -> Result<(), String> {
        self.handing_over = None;
        let Some(member) = &mut self.nodes[id].member else { return Ok(()) };
        let resumed = member.change(|role| (role.give_up_hand_over(), false));
        self.judge(id, resumed)
    }
}
