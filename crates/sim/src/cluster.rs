//! A simulated cluster on one thread: a leader, replicas, an operator and the network between them, decided
//! by one seed.
//!
//! ```text
//! step = one of: a write | a server processes its input and timers | a flush | time passes | a snapshot |
//!               the network is disturbed, or heals | a process or a machine stops, starts |
//!               a disk fails, fills, is lost | the operator promotes another server |
//!               a leader hands over to a replica | a client of a replica begins an endless script
//! ```
//!
//! There are many [`Node`]s, each with its own disk and clock, and the [`Truth`], which checks what they
//! commit, acknowledge and show. At the end all faults are healed, and all servers must converge. The
//! server's own sockets, threads and commands are not simulated; they are tested as processes (`tests/`).
//!
//! Checked invariants
//! - The logs of all servers are equal byte by byte up to the commit position. If the policy requires a
//!   replica, committed records survive the permanent loss of any one server.
//! - Acknowledged writes are committed.
//! - A replica shows committed data: whole records, in order, nothing else.
//! - No epoch has two leaders, except where `rivals` promotes two on purpose.
//! - An endless script does not keep a replica from its leader's log, or from leading, for ever. No leader
//!   hands over to a replica that such a script holds up.
//! - Without faults all replicas catch up: then all logs are equal byte by byte, with the same chain value at
//!   the end, and all keys are equal. Equal positions alone do not imply this.

pub(crate) mod copying;
mod following;
mod given;
mod hand_over;
pub(crate) mod history;
pub(crate) mod leading;
mod member;
pub(crate) mod network;
pub(crate) mod node;
mod operator;
mod options;
mod rivals;
mod settling;
pub(crate) mod truth;
pub(crate) mod writes;

use env::{
    Prng,
    sim::{CrashMode, FaultKind, FaultPlan},
};
use lsn::Lsn;
use storage::{Cut, Durability, cut_log};

pub use self::options::{ClusterOptions, ClusterSummary, FaultInjection};
use self::{
    copying::{Copied, Copying},
    following::{Following, Next},
    hand_over::HandingOver,
    network::{Network, NodeId, Side},
    node::{Failure, Node, Order, Role},
    operator::Operator,
    truth::Truth,
};

/// A simulated cluster: its servers, their network, the operator and the judge, driven by one seed.
pub struct Cluster {
    options: ClusterOptions,
    nodes: Vec<Node>,
    network: Network,
    operator: Operator,
    truth: Truth,
    prng: Prng,
    writes: u64,
    handing_over: Option<HandingOver>,
    failovers: u64,
    handovers: u64,
    scripts_ended: u64,
    cuts: u64,
    copies: u64,
}

impl Cluster {
    /// A leader and empty replicas, not yet started.
    pub fn new(options: ClusterOptions) -> Cluster {
        let mut prng = Prng::new(options.seed);
        let order = |id| if id == 0 { Order::Lead } else { Order::Follow(0) };
        let mut durability = |_| if prng.chance(85) { Durability::Strict } else { Durability::Interval };
        let durabilities: Vec<Durability> = (0..options.nodes).map(&mut durability).collect();
        // If no acks are required, the judge takes the durable log on the leader's disk as committed. If that
        // disk syncs in intervals, replicas may have more. In this case, too, replicas show no data before
        // their leader has all of it.
        let is_strict = durabilities.iter().all(|durability| *durability == Durability::Strict);
        let awaits_acks = options.acks > 0 || !is_strict;
        let node =
            |(id, durability)| Node::new(id, order(id), durability, (options.acks, awaits_acks), &mut prng);
        let nodes: Vec<Node> = durabilities.into_iter().enumerate().map(node).collect();
        Cluster {
            options,
            network: Network::new(nodes.len(), prng.fork()),
            operator: Operator::new(nodes.iter().map(|node| node.order).collect()),
            nodes,
            truth: Truth::new(),
            prng,
            writes: 0,
            handing_over: None,
            failovers: 0,
            handovers: 0,
            scripts_ended: 0,
            cuts: 0,
            copies: 0,
        }
    }

    /// Runs `steps` steps, then heals all faults and waits until all servers have the same data.
    ///
    /// # Errors
    /// The first broken invariant, as text.
    pub fn run(&mut self, steps: usize) -> Result<ClusterSummary, String> {
        for id in 0..self.nodes.len() {
            self.start(id)?;
        }
        for _ in 0..steps {
            self.step()?;
        }
        self.settle()?;
        Ok(ClusterSummary {
            acknowledged: self.truth.acknowledged(),
            committed_bytes: self.truth.end().get(),
            failovers: self.failovers,
            handovers: self.handovers,
            scripts_ended: self.scripts_ended,
            cuts: self.cuts,
            copies: self.copies,
            starts: self.nodes.iter().map(|node| node.incarnation).sum(),
            checks: self.truth.checks(),
        })
    }

    fn step(&mut self) -> Result<(), String> {
        self.step_hand_over()?;
        let id = self.prng.below(self.nodes.len() as u64) as usize;
        match self.prng.below(1000) {
            0..170 => self.write(id),
            170..330 => self.flush(id),
            330..820 => self.exchange(id),
            820..920 => {
                let ms_max = [20, 20, 20, 300, 2_000][self.prng.below(5) as usize];
                let ms = self.prng.below(ms_max);
                self.pass(ms);
                Ok(())
            }
            920..932 => {
                self.network.disturb();
                Ok(())
            }
            932..938 => self.snapshot(id),
            938..946 => self.trouble(id),
            946..970 if matches!(self.nodes[id].role, Role::Down) => self.start(id),
            970..972 if self.has_scripts() => {
                self.with_replica(id, |following, _| following.begin_endless_script());
                Ok(())
            }
            970..979 => self.tell(id),
            979..985 => self.begin_hand_over(),
            985.. => {
                let percent = if self.is_led() { 15 } else { 60 };
                if self.operator.is_busy() || self.prng.chance(percent) { self.operate() } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Whether clients begin endless scripts. They do not in runs that must detect another defect, which
    /// scripts could hide.
    fn has_scripts(&self) -> bool {
        use FaultInjection::{EndNoScript, HandOverUnapplied};
        matches!(self.options.fault, None | Some(EndNoScript | HandOverUnapplied))
    }

    /// Whether the server that the operator wants as leader leads and takes writes.
    fn is_led(&self) -> bool {
        let leader = self.operator.leader().map(|id| &self.nodes[id].role);
        matches!(leader, Some(Role::Leader(_)))
            && self.operator.leader().is_some_and(|id| self.nodes[id].takes_writes())
    }

    fn pass(&mut self, ms: u64) {
        self.nodes.iter().for_each(|node| node.clock.advance_ms(ms));
    }

    /// A client writes to the first leader found, starting from this server.
    fn write(&mut self, id: NodeId) -> Result<(), String> {
        let takes_writes = |id: &NodeId| self.nodes[*id].takes_writes();
        let Some(id) = (id..self.nodes.len()).chain(0..id).find(takes_writes) else { return Ok(()) };
        let Role::Leader(leading) = &mut self.nodes[id].role else { return Ok(()) };
        self.writes += 1;
        let written = leading.write(self.writes, &mut self.prng);
        self.judge(id, written)
    }

    fn flush(&mut self, id: NodeId) -> Result<(), String> {
        let flushed = self.nodes[id].flush();
        self.judge(id, flushed)
    }

    fn snapshot(&mut self, id: NodeId) -> Result<(), String> {
        let node = &mut self.nodes[id];
        let Role::Leader(leading) = &node.role else { return Ok(()) };
        let taken = leading.take_snapshot(&node.disk, &self.truth, &mut node.prng);
        self.judge(id, taken)
    }

    /// A server processes its input and its timers.
    fn exchange(&mut self, id: NodeId) -> Result<(), String> {
        let node = &mut self.nodes[id];
        if !matches!(node.role, Role::Leader(_)) {
            for conn in self.network.conns_to(id) {
                self.network.close(conn, Side::Leader, node.now_ms());
            }
        }
        match &mut node.role {
            Role::Down => Ok(()),
            Role::Leader(leading) => {
                let Some(member) = &mut node.member else { return Ok(()) };
                let stepped = leading.step(&mut leading::Around {
                    number: id,
                    network: &mut self.network,
                    truth: &mut self.truth,
                    member,
                    clock: &node.clock,
                    prng: &mut node.prng,
                    acks: self.options.acks,
                });
                self.judge(id, stepped)
            }
            Role::Replica(_) => {
                let next = self.with_replica(id, Following::step);
                match next.unwrap_or(Ok(Next::Stay)) {
                    Ok(Next::Stay) => self.look_at(id),
                    Ok(Next::Copy) => self.begin_copy(id),
                    Ok(Next::Cut(at)) => self.cut(id, at),
                    Err(failure) => self.failed(id, failure),
                }
            }
            Role::Copying(_) => self.copy(id),
        }
    }

    /// Checks the data that a replica shows.
    fn look_at(&mut self, id: NodeId) -> Result<(), String> {
        let node = &mut self.nodes[id];
        let Role::Replica(following) = &node.role else { return Ok(()) };
        node.is_witness |= following.log.durable_lsn() >= self.truth.end();
        if !node.shows() {
            return Ok(());
        }
        let applied = following.applied();
        self.truth.check(&following.keyspace, applied).map_err(|wrong| format!("server {id} {wrong}"))
    }

    /// Cuts a log at `at`, and starts the server with the rest; if the log cannot be cut there, begins a full
    /// copy.
    fn cut(&mut self, id: NodeId, at: Lsn) -> Result<(), String> {
        let node = &mut self.nodes[id];
        self.network.crash(id, node.now_ms());
        node.role = Role::Down;
        let cut = cut_log(&*node.disk, &node.home(), at);
        self.cuts += 1;
        match cut {
            Ok(Cut::Done(_)) => self.start(id),
            Ok(Cut::NoBase) => {
                self.start(id)?;
                self.begin_copy(id)
            }
            Err(error) => self.failed(id, error.into()),
        }
    }

    /// Begins a full copy from the leader, if it is reachable.
    fn begin_copy(&mut self, id: NodeId) -> Result<(), String> {
        let Order::Follow(from) = self.nodes[id].order else { return Ok(()) };
        if !self.network.reaches(id, from) {
            return Ok(());
        }
        let node = &mut self.nodes[from];
        let Role::Leader(leading) = &node.role else { return Ok(()) };
        let planned = match leading.plan_copy(&node.disk, &self.truth, &mut node.prng) {
            Ok(planned) => planned,
            Err(failure) => return self.failed(from, failure),
        };
        let (source, incarnation) = ((node.disk.clone(), leading.dir.clone()), node.incarnation);
        // A copy shows its data as soon as it starts: the judge has to know before that this data is
        // committed.
        self.exchange(from)?;
        let node = &mut self.nodes[id];
        if let Some(plan) = planned
            && matches!(node.role, Role::Replica(_))
        {
            let into = node.new_home();
            let copying = Copying::new((from, incarnation), plan, source, into, node.now_ms());
            node.role = Role::Copying(copying.into());
        }
        Ok(())
    }

    fn copy(&mut self, id: NodeId) -> Result<(), String> {
        let Role::Copying(copying) = &self.nodes[id].role else { return Ok(()) };
        let (from, incarnation) = copying.leader;
        let is_leading =
            self.nodes[from].incarnation == incarnation && matches!(self.nodes[from].role, Role::Leader(_));
        let is_reached = is_leading && self.network.reaches(id, from);
        let node = &mut self.nodes[id];
        let now_ms = node.now_ms();
        let Role::Copying(copying) = &mut node.role else { return Ok(()) };
        match copying.step(&*node.disk, is_reached, now_ms) {
            Ok(Copied::Piece) => Ok(()),
            Ok(ended) => {
                self.copies += u64::from(ended == Copied::Whole);
                self.stop(id);
                self.start(id)
            }
            Err(failure) => self.failed(id, failure),
        }
    }

    /// Injects a fault into a server or its disk, or ends the fullness of its disk.
    fn trouble(&mut self, id: NodeId) -> Result<(), String> {
        let may_be_lost = self.options.acks > 0 || self.operator.leader() != Some(id);
        let is_only_loss = self.nodes.iter().all(|node| node.is_witness) && self.truth.end() > Lsn::ZERO;
        let node = &mut self.nodes[id];
        let next_io = node.disk.io_count() + self.prng.below(8);
        match self.prng.below(12) {
            0..3 => self.stop(id),
            3..6 => self.crash(id, CrashMode::Random),
            6..9 => {
                node.disk.set_fault_plan(FaultPlan { crash_at_io: Some(next_io), ..FaultPlan::default() });
                node.is_troubled = true;
            }
            9 => {
                let fail_io = Some((next_io, FaultKind::Eio));
                node.disk.set_fault_plan(FaultPlan { fail_io, ..FaultPlan::default() });
                node.is_troubled = true;
            }
            10 => {
                let is_full = self.prng.chance(50);
                node.disk.set_space_limit(is_full.then_some(0));
                node.is_troubled |= is_full;
            }
            _ if is_only_loss && may_be_lost => {
                self.network.crash(id, node.now_ms());
                node.lose_disk();
                self.operator.loses(id);
                node.order = self.operator.orders[id];
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, id: NodeId) -> Result<(), String> {
        let node = &mut self.nodes[id];
        if !matches!(node.role, Role::Down) {
            return Ok(());
        }
        let mut started = node.start(self.options.fault);
        if let Role::Leader(leading) = &node.role {
            self.truth.leads(leading.log.epoch(), id, node.incarnation)?;
            if leading.log.written_lsn() == Lsn::ZERO {
                started = leading.take_snapshot(&node.disk, &self.truth, &mut node.prng);
            }
        }
        self.judge(id, started)
    }

    /// The process ends without a crash of the machine.
    fn stop(&mut self, id: NodeId) {
        self.crash(id, CrashMode::KeepAll);
    }

    fn crash(&mut self, id: NodeId, mode: CrashMode) {
        let node = &mut self.nodes[id];
        self.network.crash(id, node.now_ms());
        node.crash(mode);
    }

    fn judge(&mut self, id: NodeId, outcome: Result<(), Failure>) -> Result<(), String> {
        outcome.or_else(|failure| self.failed(id, failure))
    }

    /// Handles a failure: a disk fault is expected if one was injected; a broken invariant never is.
    fn failed(&mut self, id: NodeId, failure: Failure) -> Result<(), String> {
        match failure {
            Failure::Disk(_) if self.nodes[id].is_troubled => {
                self.crash(id, CrashMode::Random);
                Ok(())
            }
            Failure::Disk(reason) => Err(format!("server {id} stops: {reason}")),
            Failure::Breach(broken) => Err(format!("server {id}: {broken}")),
        }
    }

    /// Calls `act` if the server is a replica.
    fn with_replica<T>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut Following, &mut following::Around<'_>) -> T,
    ) -> Option<T> {
        let node = &mut self.nodes[id];
        let replica = node.replica_id();
        let Role::Replica(following) = &mut node.role else { return None };
        let member = node.member.as_mut()?;
        let leader = if let Order::Follow(leader) = node.order { Some(leader) } else { None };
        let (clock, prng, fault) = (&*node.clock, &mut node.prng, self.options.fault);
        let network = &mut self.network;
        Some(act(
            following,
            &mut following::Around {
                id: replica,
                number: id,
                leader,
                network,
                member,
                clock,
                prng,
                fault,
                scripts_ended: &mut self.scripts_ended,
            },
        ))
    }
}
