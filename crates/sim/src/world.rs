//! One incarnation of a server on a simulated disk: recovered, driven step by step, ended in the way that the
//! test chooses.
//!
//! ```text
//! step = one of: a client's bytes arrive | a worker ends its tick | a flush | a segment is made |
//!                replies are taken | time passes | expiry | log cut | collections get other limits |
//!                a snapshot begins, goes on, is published
//! ```
//! The seed chooses the steps.
//!
//! What it is not: the judge of the disk afterwards; see `oracle`.

use std::{path::Path, sync::Arc};

use engine::{
    Executor, Host, Interests, Notice,
    conversation::{Conversation, ConversationState, Round},
    tick::Action,
};
use env::{Clock, Disk, Prng, SimClock, SimDisk};
use keyspace::{Keyspace, SlotId};
use recovery::recover::RecoverError;
use storage::{Flush, Log, Prepare};
use wire::{Limits, RequestBatch};

use crate::host::session_of;
use crate::{
    Command, DeadLog, LyingDisk, Oracle, Recovered, Sabotage, SimClient, Violation, Workload, WorldOptions,
    content_of,
    host::with_events,
    recover, sim_host,
    snapshotting::Snapshotting,
    start::{DIR, WORKERS, some_limits},
    worker::SimWorker,
};

/// A client with more undelivered replies than this sends nothing more.
const UNDELIVERED_MAX: usize = 64;
/// The number of rounds of [`World::drain`] after which a client that still waits counts as stuck.
const DRAIN_ROUNDS_MAX: usize = 20_000;

/// A simulated server with clients and an oracle.
pub struct World {
    options: WorldOptions,
    /// The disk, below any sabotage.
    pub disk: Arc<SimDisk>,
    /// The clock of the server, which only the steps of the world advance.
    pub clock: Arc<SimClock>,
    /// The oracle, which has the expected state.
    pub oracle: Oracle,
    /// The data of the server.
    pub keyspace: Arc<Keyspace>,
    /// The log that the server's commands are appended to.
    pub log: Log,
    /// The simulated clients, each with one connection.
    pub clients: Vec<SimClient>,
    host: Host,
    dead_log: Arc<DeadLog>,
    workers: Vec<SimWorker>,
    /// Whether the log's thread will flush: it was woken, and has not yet found that nothing is left to
    /// flush.
    log_thread_is_awake: bool,
    /// Notices published so far.
    notices: u64,
    batch: RequestBatch,
    workload: Workload,
    prng: Prng,
    failure: Option<String>,
    snapshots_published: u64,
    snapshot_failure: Option<String>,
}

impl World {
    /// Starts a server on the disk. If the recovered content is not the newest state of `oracle`, the caller
    /// restarts the oracle ([`Oracle::restart`]) before it goes on.
    ///
    /// # Errors
    /// As [`recover`].
    pub fn start(
        options: WorldOptions,
        disk: Arc<SimDisk>,
        clock: Arc<SimClock>,
        oracle: Oracle,
    ) -> Result<World, RecoverError> {
        let mut prng = Prng::new(options.seed);
        let door: Arc<dyn Disk> = match options.sabotage {
            Some(Sabotage::LyingDisk) => Arc::new(LyingDisk::over(disk.clone())),
            _ => disk.clone(),
        };
        let Recovered { keyspace, log } = recover(door, &options, &clock)?;
        let (host, dead_log) = sim_host(clock.clone(), log.clone(), WORKERS, None);
        let host = with_events(host);
        let interests = Arc::<Interests>::default();
        let worker = |worker: usize| {
            let (stats, interests) = (host.stats.worker(worker), interests.clone());
            let executor = Executor::new(commands::table(), keyspace.clone(), interests, stats, 1);
            SimWorker::new(executor, &log, options.sabotage)
        };
        let workers = (0..WORKERS).map(worker).collect();
        let client = |index: usize| {
            let session = session_of(&host, index, Box::new(|_, _| {}));
            SimClient::new(Conversation::new(session), index % WORKERS)
        };
        let clients = (0..options.clients).map(client).collect();
        let workload = Workload::new(options.workload, prng.fork());
        let (batch, failure) = (RequestBatch::new(), None);
        Ok(World {
            options,
            disk,
            clock,
            oracle,
            keyspace,
            log,
            clients,
            host,
            dead_log,
            workers,
            log_thread_is_awake: true,
            notices: 0,
            batch,
            workload,
            prng,
            failure,
            snapshots_published: 0,
            snapshot_failure: None,
        })
    }

    /// The reason why the log failed; `None` if it works.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The number of notices (key events) published so far.
    pub fn notices(&self) -> u64 {
        self.notices
    }

    /// The number of snapshots published so far.
    pub fn snapshots_published(&self) -> u64 {
        self.snapshots_published
    }

    /// The reason why the last failed snapshot failed; `None` if none has failed.
    pub fn snapshot_failure(&self) -> Option<&str> {
        self.snapshot_failure.as_deref()
    }

    /// Whether the machine has stopped, so that nothing can happen any more.
    pub fn has_stopped(&self) -> bool {
        self.disk.has_stopped()
    }

    /// Runs `steps` steps, or fewer if the machine stops. Abandons a snapshot that is unfinished at the end.
    ///
    /// # Errors
    /// The first wrong reply.
    pub fn run(&mut self, steps: usize) -> Result<(), Violation> {
        let keyspace = self.keyspace.clone();
        let mut snapshot = None;
        for _ in 0..steps {
            if self.has_stopped() {
                break;
            }
            if self.options.snapshots_permille > 0 {
                snapshot = self.snapshot_step(&keyspace, snapshot);
            }
            self.step()?;
        }
        Ok(())
    }

    /// Checks the data in memory.
    ///
    /// # Errors
    /// If it is not the result of the commands.
    pub fn check(&self) -> Result<(), Violation> {
        self.oracle.check(&content_of(&self.keyspace))
    }

    fn step(&mut self) -> Result<(), Violation> {
        let index = self.prng.below(self.clients.len() as u64) as usize;
        match self.prng.below(100) {
            0..35 => self.client_step(index)?,
            35..62 => self.log_thread_step(),
            62..72 => {
                let worker = self.prng.below(WORKERS as u64) as usize;
                self.end_tick(worker)?;
            }
            72..85 => self.deliver(index, true),
            85..89 => self.prepare(),
            89..95 => {
                let us = if self.prng.chance(20) { 2_000_000 } else { 5_000 };
                self.clock.advance_us(self.prng.below(us));
            }
            95..98 => self.expire(),
            98 => self.cut(),
            _ => self.keyspace.set_packed_limits(some_limits(self.prng.next_u64())),
        }
        Ok(())
    }

    /// Sometimes begins a snapshot; continues a running one in about half of the steps.
    fn snapshot_step<'k>(
        &mut self,
        keyspace: &'k Keyspace,
        running: Option<Snapshotting<'k>>,
    ) -> Option<Snapshotting<'k>> {
        let stepped = match running {
            Some(running) if self.prng.chance(50) => {
                let stepped = running.step(&mut self.prng);
                self.snapshots_published += u64::from(matches!(stepped, Ok(None)));
                stepped
            }
            Some(running) => Ok(Some(running)),
            None if self.prng.below(1000) < self.options.snapshots_permille => {
                let disk: Arc<dyn Disk> = self.disk.clone();
                Snapshotting::begin(&disk, Path::new(DIR), &self.log, keyspace, &mut self.prng)
            }
            None => Ok(None),
        };
        stepped.unwrap_or_else(|error| {
            self.snapshot_failure = Some(error.to_string());
            None
        })
    }

    /// Sends a pipeline, lets bytes arrive, or resumes an interrupted conversation.
    fn client_step(&mut self, index: usize) -> Result<(), Violation> {
        let client = &mut self.clients[index];
        match client.state {
            ConversationState::Idle => {
                if client.on_the_way_bytes() == 0 {
                    if client.undelivered() > UNDELIVERED_MAX {
                        return Ok(());
                    }
                    client.send(self.workload.pipeline(index));
                }
                let all = client.on_the_way_bytes();
                let bytes = if self.prng.chance(70) { all } else { 1 + self.prng.below(all as u64) as usize };
                self.receive(index, bytes)
            }
            // The end of a tick resumes the conversation.
            ConversationState::WaitForLog => Ok(()),
            _ => self.resume(index),
        }
    }

    /// Sends commands chosen by the test, in one piece.
    ///
    /// # Errors
    /// The first wrong reply.
    pub fn send(&mut self, index: usize, commands: Vec<Command>) -> Result<(), Violation> {
        self.clients[index].send(commands);
        let bytes = self.clients[index].on_the_way_bytes();
        self.receive(index, bytes)
    }

    fn receive(&mut self, index: usize, bytes: usize) -> Result<(), Violation> {
        let input = self.clients[index].arrive(bytes);
        self.round(index, |conversation, round| conversation.receive(&input, round))
    }

    /// Resumes an interrupted conversation.
    ///
    /// # Errors
    /// The first wrong reply.
    pub fn resume(&mut self, index: usize) -> Result<(), Violation> {
        self.round(index, Conversation::resume)
    }

    /// Runs commands of one client and checks every reply as it is made.
    fn round(
        &mut self,
        index: usize,
        run: impl FnOnce(&mut Conversation, &mut Round<'_>) -> ConversationState,
    ) -> Result<(), Violation> {
        let log = self.log.clone();
        // A failure shows as replies that are never sent.
        let flush_alone = move || drop(log.flush_all());
        let client = &mut self.clients[index];
        let worker = &mut self.workers[client.worker];
        let now_ms = self.clock.unix_ms();
        let is_congested = worker.is_congested();
        let mut round = Round {
            executor: &mut worker.executor,
            batch: &mut self.batch,
            host: &self.host,
            now_ms,
            limits: Limits::DEFAULT,
            is_congested,
            flush_alone: if self.options.merges { None } else { Some(&flush_alone) },
        };
        client.state = run(&mut client.conversation, &mut round);
        drop(worker.executor.take_freed());
        let early = worker.after_round(index, client.conversation.outbox.held_in_round(), client.state);
        for (end, reply) in client.take_new_replies()? {
            let Some(command) = client.unexecuted.pop_front() else {
                return Err(Violation::Protocol(format!("a reply to no command: {reply:?}")));
            };
            let position = self.oracle.executes(&mut client.session, &command, now_ms, &reply)?;
            client.owes(end, position);
        }
        self.oracle.mark(self.log.appended_lsn());
        early.iter().for_each(|notice| self.oracle.shows(notice.gate()));
        Ok(())
    }

    /// Carries out the end of a worker's tick, if one is due or has begun. Stops at a new look at the
    /// sockets, so that the next steps of the simulation come in between.
    fn end_tick(&mut self, worker: usize) -> Result<(), Violation> {
        while let Some(action) = self.workers[worker].next_action() {
            match action {
                Action::LookAgain => return Ok(()),
                Action::FlushHere => self.flush(),
                Action::WakeFlusher if self.is_sabotaged_by(Sabotage::SleepingLogThread) => {}
                Action::WakeFlusher => self.log_thread_is_awake |= self.log.needs_flusher(),
                Action::Publish(notices) => self.publish(worker, &notices),
                Action::Release(index, committed) => {
                    self.clients[index].conversation.outbox.release(committed);
                }
                Action::Resume(_) if self.is_sabotaged_by(Sabotage::NoResume) => {}
                Action::Resume(index) => self.resume(index)?,
                Action::Deliver => self.workers[worker].executor.channels().deliver(),
            }
        }
        Ok(())
    }

    fn is_sabotaged_by(&self, sabotage: Sabotage) -> bool {
        self.options.sabotage == Some(sabotage)
    }

    /// Subscribers see these notices.
    fn publish(&mut self, worker: usize, notices: &[Notice]) {
        self.notices += notices.len() as u64;
        self.workers[worker].executor.publish_all(notices);
        notices.iter().for_each(|notice| self.oracle.shows(notice.gate()));
    }

    /// One step of the log thread, if it is awake.
    fn log_thread_step(&mut self) {
        if self.log_thread_is_awake {
            self.flush();
        }
    }

    /// Flushes one batch, or prepares the segment that the batch needs first. The log thread flushes the
    /// rest.
    pub fn flush(&mut self) {
        let flushed = self.log.flush();
        self.log_thread_is_awake = !matches!(flushed, Ok(Flush::Idle { due_us: None }) | Err(_));
        match flushed {
            Ok(Flush::NeedSegment) => self.prepare(),
            Ok(_) => {}
            Err(error) => {
                self.failure.get_or_insert(error.to_string());
            }
        }
    }

    /// One step of the thread that prepares segments.
    pub fn prepare(&mut self) {
        if self.log.needs_segment() {
            // If no segment can be created, the log is read-only, which clients see as errors.
            let prepared = self.log.prepare_segment();
            assert!(prepared.is_ok(), "only a full disk is expected, and it is no error: {prepared:?}");
        }
    }

    fn expire(&mut self) {
        let now_ms = self.clock.unix_ms();
        let worker = self.prng.below(WORKERS as u64) as usize;
        let worker = &mut self.workers[worker];
        let executor = &mut worker.executor;
        executor.begin_round(now_ms, &self.host, usize::MAX);
        let due: Vec<SlotId> = self.keyspace.due_slots(now_ms, SlotId::FIRST, SlotId::LAST).collect();
        for slot in due {
            // One call removes only some of many expired fields.
            loop {
                let appended = self.log.appended_lsn();
                executor.expire_due(slot, slot, usize::MAX, &self.host);
                if self.log.appended_lsn() == appended {
                    break;
                }
                self.oracle.expires(now_ms, &content_of(&self.keyspace));
            }
        }
        drop(executor.take_freed());
        worker.after_own_changes();
        self.oracle.mark(self.log.appended_lsn());
    }

    /// Cuts the log before a FLUSHALL that has become durable.
    pub fn cut(&mut self) {
        if self.failure.is_none() {
            // If this fails, the next call tries again.
            drop(self.dead_log.cut());
        }
    }

    /// Delivers released replies to a client; with `partly`, sometimes only a part.
    fn deliver(&mut self, index: usize, partly: bool) {
        let client = &mut self.clients[index];
        let outbox = &mut client.conversation.outbox;
        let all = outbox.sendable().len();
        let bytes =
            if partly && self.prng.chance(20) { self.prng.below(all as u64 + 1) as usize } else { all };
        outbox.consume(bytes);
        for position in client.reads(bytes) {
            self.oracle.delivers(position);
        }
    }

    /// Every worker whose tick is due ends it, and every client takes all that it is sent.
    ///
    /// # Errors
    /// A wrong reply.
    pub fn deliver_all(&mut self) -> Result<(), Violation> {
        for worker in 0..WORKERS {
            self.end_tick(worker)?;
            while self.workers[worker].is_ending() {
                self.end_tick(worker)?;
            }
        }
        (0..self.clients.len()).for_each(|index| self.deliver(index, false));
        Ok(())
    }

    /// Handles a failed log: replies that are already released are still sent, the others are not.
    pub fn fail_all(&mut self) {
        self.workers.iter_mut().for_each(SimWorker::clear);
        for index in 0..self.clients.len() {
            self.clients[index].conversation.outbox.discard_held();
            self.deliver(index, false);
        }
    }

    /// Runs until every sent command is executed and replied to, and the log is written, unless it has
    /// failed.
    ///
    /// # Errors
    /// A wrong reply, or a client that waits for ever.
    pub fn drain(&mut self) -> Result<(), Violation> {
        for _ in 0..DRAIN_ROUNDS_MAX {
            if self.clients.iter().all(|client| client.is_done() && client.on_the_way_bytes() == 0) {
                while self.log.unwritten_bytes() > 0 && self.failure.is_none() {
                    self.flush();
                    self.prepare();
                }
                return Ok(());
            }
            for index in 0..self.clients.len() {
                match self.clients[index].state {
                    ConversationState::Idle => self.receive(index, usize::MAX)?,
                    ConversationState::WaitForLog => {}
                    _ => self.resume(index)?,
                }
            }
            // The ticks end before the log moves. So replies that become durable now leave only if the log
            // wakes their workers.
            (0..WORKERS).try_for_each(|worker| self.end_tick(worker))?;
            self.log_thread_step();
            self.prepare();
            (0..self.clients.len()).for_each(|index| self.deliver(index, false));
        }
        let waiting = self.clients.iter().find(|client| !client.is_done());
        let state = waiting.map(|client| client.state);
        let next = waiting.and_then(|client| client.unexecuted.front().map(|it| format!("{it:?}")));
        let next = next.map(|text| text.chars().take(60).collect::<String>());
        Err(Violation::Protocol(format!("a client waits for ever: {state:?}, next is {next:?}")))
    }

    /// Prepares segments until there is a spare one, or no room for one.
    pub fn prepare_all(&mut self) {
        while matches!(self.log.prepare_segment(), Ok(Prepare::Made)) {}
    }
}
