//! Executing one command: the locks around it, the record and the gate after it. The checks before it are in
//! `admission`, transactions between MULTI and EXEC in `queueing`, timing and monitors in `observing`.

mod databases;
mod merging;
mod replies;
mod resolve;

use std::{collections::VecDeque, sync::Arc};

use keyspace::{AccessClock, AccessPolicy, Freed, Keyspace, LIBRARIES_SLOT, SlotId};
use lsn::Lsn;
use prng::Prng;
use pubsub::{Backpressure, Hub, Local, durable::ReaderEvent};
use storage::{Appender, Durability};
use wire::{Args, ReplyWriter};

use crate::{
    Context, Flags, Host, Interests, Keys, Notice, ReplyMode, Row, Session, Unit,
    blocking::{PendingServe, PendingServes},
    channel_reader,
    context::{ADMITTED_BYTES, Retry, Surroundings},
    error::LockContended,
    event::NoticeGates,
    long_units::ThreadRole,
    observe::{TracedCommand, Watch},
    offload::busy_error,
    row::{CommandTable, ResolvedCommand},
    rules::Rules,
    script_machine::Scripting,
    stats::WorkerStats,
    tracking::BY_SERVER,
    unit::{LockPolicy, Locks, Scratch, UnitAccess},
    users::{REQUIREPASS, UserSet, may_listen},
};
pub use merging::Merged;
pub use replies::refuse;
pub(crate) use replies::silence;
use replies::{tell_lsn, tell_tokens};
pub use resolve::{Call, Resolved};

/// The maximum number of subscriptions of a disconnected client that are ended at once: more would stop the
/// worker for milliseconds.
const SUBSCRIPTIONS_ENDED_MAX: usize = 16 << 10;

/// The outcome of a command: it is over, or must be run elsewhere or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The command ran, or was refused with an error reply. The reply may leave once `gate` is committed.
    Done {
        /// See [`gate`]; [`Lsn::ZERO`] if the reply may leave at once.
        gate: Lsn,
    },
    /// The command takes long on a thread that serves other clients. Nothing happened; take the command to
    /// another thread with [`Executor::offload`].
    Long,
    /// The log cannot take the command now, a long unit holds one of its slots, clients are paused, or this
    /// client has to wait. Nothing happened; execute the command again after [`Session::pause_ms`] or, if
    /// that is 0, after the next movement of the log. A client that a pause holds may go on earlier.
    Wait,
}

/// Executes the commands of one worker.
pub struct Executor {
    pub(crate) table: &'static CommandTable,
    pub(crate) keyspace: Arc<Keyspace>,
    /// `None` before [`Executor::attach`] and after [`Executor::detach`].
    pub(crate) appender: Option<Appender>,
    channels: Local,
    pub(crate) scratch: Scratch,
    pub(crate) clock: AccessClock,
    random: Prng,
    /// The number of commands up to and including the next sampled one.
    pub until_sample: u32,
    /// The commands that are timed in this round, besides sampled ones.
    pub watch: Watch,
    /// Whether commands are shown to monitors in this round.
    pub monitored: bool,
    /// Lines for the monitors, gathered until they are published.
    pub shown: Vec<u8>,
    /// Traced commands whose replies wait for the log.
    pub(crate) traced: Vec<TracedCommand>,
    pub(crate) wrote: bool,
    /// The unused rest of the last admission.
    pub admitted_bytes: u64,
    pub(crate) rules: Rules,
    pub(crate) users: Arc<UserSet>,
    /// The position of the newest change of users; [`Lsn::ZERO`] once it is known to be committed. Until
    /// then, with durability `strict`, replies to a user wait for the newest change of that user.
    users_changed: Lsn,
    pub(crate) bulk_bytes_max: usize,
    /// The Lua machine and the libraries of this worker.
    pub scripting: Scripting,
    /// Keys whose blocked clients are still to be served.
    pub later: VecDeque<PendingServe>,
}

impl Executor {
    /// An executor for one worker, without a log. Before its first round, it runs only commands that are
    /// allowed while loading.
    /// `seed` determines the random choices of the executor. Workers on the same keyspace share `interests`.
    pub fn new(
        table: &'static CommandTable,
        keyspace: Arc<Keyspace>,
        interests: Arc<Interests>,
        stats: Arc<WorkerStats>,
        seed: u32,
    ) -> Executor {
        let mut random = Prng::new(seed.into());
        let clock = AccessClock { now_ms: 0, policy: AccessPolicy::Lru, random: random.next_u64() as u32 };
        Executor {
            table,
            keyspace,
            appender: None,
            channels: Hub::new(1, u64::from(seed)).local(0),
            scratch: Scratch::new(stats, interests),
            clock,
            random,
            until_sample: 1,
            watch: Watch::Nothing,
            monitored: false,
            shown: Vec::new(),
            traced: Vec::new(),
            wrote: false,
            admitted_bytes: 0,
            rules: Rules::LOADING,
            users: Arc::new(UserSet::initial(table)),
            users_changed: Lsn::ZERO,
            bulk_bytes_max: 512 << 20,
            scripting: Scripting::default(),
            later: VecDeque::new(),
        }
    }

    /// Starts a round of commands at this time (unix milliseconds). The state of the process (loading, memory
    /// limits) is read here and holds for the round.
    pub fn begin_round(&mut self, now_ms: u64, host: &Host, bulk_bytes_max: usize) {
        self.rules = Rules::now(host);
        self.watch = host.observer.watch();
        self.monitored = host.clients.monitors().is_watched();
        self.clock.now_ms = now_ms;
        self.clock.policy = self.rules.limits.policy.access_policy();
        self.bulk_bytes_max = bulk_bytes_max;
        self.admitted_bytes = 0;
        self.scratch.events.want(host.config.event_classes());
        self.follow_users(host);
    }

    /// Takes over the users in force now, for this round and later ones.
    #[inline]
    pub(crate) fn follow_users(&mut self, host: &Host) {
        if !host.users.is_current(&self.users, &self.keyspace) {
            self.users = host.users.refresh(&self.keyspace, &host.clients);
            self.users_changed = self.users.lsn;
        }
        // While the server loads, nothing is committed yet.
        if self.users_changed != Lsn::ZERO && self.users_changed <= self.committed_lsn() {
            self.users_changed = Lsn::ZERO;
        }
    }

    /// Makes a reply that depends on the rights of the session's user wait until the newest change of that
    /// user is committed. The commands with which servers connect to each other do not wait: the change may
    /// be committed only once those servers follow this leader.
    #[inline]
    pub(crate) fn behind_user(&self, outcome: Outcome, row: &Row, session: &Session) -> Outcome {
        match outcome {
            Outcome::Done { gate } if !row.flags.has(Flags::BETWEEN_SERVERS) => {
                Outcome::Done { gate: gate.max(self.user_gate(session)) }
            }
            other => other,
        }
    }

    /// The position for which replies to the session's user wait, because of a change of users.
    #[inline]
    fn user_gate(&self, session: &Session) -> Lsn {
        if self.users_changed == Lsn::ZERO {
            return Lsn::ZERO;
        }
        let changed = session.login.principal().map_or(self.users_changed, |principal| principal.lsn);
        gate(self.durability(), false, changed)
    }

    /// The users as they are in force for this round.
    pub fn users(&self) -> &UserSet {
        &self.users
    }

    /// Whether the user of a session may listen to everything that the session listens to: its subscriptions,
    /// and MONITOR.
    pub fn may_listen(&mut self, session: &Session, host: &Host) -> bool {
        self.follow_users(host);
        may_listen(&self.users, &self.channels, session)
    }

    /// The keyspace on which this executor works.
    pub fn keyspace(&self) -> &Arc<Keyspace> {
        &self.keyspace
    }

    /// The registry of clients that watch, await or track keys.
    pub fn interests(&self) -> &Arc<Interests> {
        &self.scratch.interests
    }

    /// Attaches the log, to which commands write from now on.
    pub fn attach(&mut self, appender: Appender) {
        self.appender = Some(appender);
    }

    /// Detaches the log, for another executor.
    pub fn detach(&mut self) -> Option<Appender> {
        self.appender.take()
    }

    /// The access to the log; `None` if none is attached.
    #[inline]
    pub fn appender(&self) -> Option<&Appender> {
        self.appender.as_ref()
    }

    /// The position up to which replies may leave.
    #[inline]
    pub fn committed_lsn(&self) -> Lsn {
        self.appender.as_ref().map_or(Lsn::ZERO, Appender::committed_lsn)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.appender.as_ref().map_or(Durability::None, Appender::reply_durability)
    }

    /// Whether the log must be flushed: since the last call, a unit has appended to it or has repeated an
    /// earlier write.
    #[inline]
    pub fn take_wrote(&mut self) -> bool {
        std::mem::take(&mut self.wrote)
    }

    /// Takes the keys whose waiters are still to be served. Another executor continues with them:
    /// [`Executor::adopt_pending_serves`].
    pub fn take_pending_serves(&mut self) -> PendingServes {
        PendingServes(std::mem::take(&mut self.later))
    }

    /// Continues with the keys that the executor of a long unit could not serve.
    pub fn adopt_pending_serves(&mut self, serves: PendingServes, host: &Host) {
        self.serve_later(serves.0, host);
    }

    /// Takes the memory that commands have detached; freeing it can take long.
    pub fn take_freed(&mut self) -> Option<Freed> {
        (!self.scratch.freed.is_empty()).then(|| std::mem::take(&mut self.scratch.freed))
    }

    /// Takes the notices of the ended units, each to be [published](Executor::publish) once its gate is
    /// committed.
    #[inline]
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.scratch.events.take()
    }

    /// Delivers a notice to the subscribers. Its gate must be committed.
    pub fn publish(&mut self, notice: &Notice) {
        notice.for_each_message(|kind, channel, payload| {
            self.channels.publish(kind, channel, payload);
        });
    }

    /// Applies a report of the thread of durable channels about a client of this worker, and appends it to
    /// `out` for the client.
    pub fn notify(&mut self, event: &ReaderEvent, session: &mut Session, out: &mut Vec<u8>) {
        let mut reply = ReplyWriter::new(out, session.protocol);
        channel_reader::notify(&mut self.channels, session, event, &mut reply);
    }

    /// Delivers notices whose gates are committed, in order. The back-pressure that this causes is dropped:
    /// the clients that caused the notices were held back, if at all, after their own rounds.
    pub fn publish_all(&mut self, notices: &[Notice]) {
        notices.iter().for_each(|notice| self.publish(notice));
        self.channels.take_backpressure();
        self.channels.flush_mailboxes();
    }

    /// The reason for the publisher of a round, or of a long unit, to wait for subscribers, if any. The
    /// notices are checked as if they were published now.
    pub fn backpressure_of(&mut self, notices: &[Notice]) -> Option<Backpressure> {
        if !notices.is_empty() && self.channels.may_hold_back() {
            notices.iter().for_each(|notice| {
                notice.for_each_message(|kind, channel, _| {
                    self.channels.check_backpressure_later(kind, channel);
                });
            });
        }
        self.channels.take_backpressure()
    }

    /// Whether the publisher of the last message should wait.
    #[inline]
    pub fn has_backpressure(&self) -> bool {
        self.channels.has_backpressure()
    }

    /// Shares channels with other workers; until then the executor has channels of its own.
    pub fn share_channels(&mut self, channels: Local) {
        self.channels = channels;
    }

    /// The channels of this worker: published messages and their subscribers.
    #[inline]
    pub fn channels(&mut self) -> &mut Local {
        &mut self.channels
    }

    /// Ends the subscriptions of a disconnected client, at most `SUBSCRIPTIONS_ENDED_MAX` per call. Returns
    /// whether all are ended.
    pub fn end_subscriptions(&mut self, session: &mut Session) -> bool {
        let Some(id) = session.subscriber else { return true };
        let ended = self.channels.leave(id, SUBSCRIPTIONS_ENDED_MAX);
        if ended {
            session.subscriber = None;
        }
        ended
    }

    /// Executes a command and appends its reply to `out`.
    #[inline]
    pub fn execute(
        &mut self,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let (before, last_write) = (out.len(), session.last_write);
        let outcome = self.execute_replying(call, session, host, out);
        if session.tells_lsn && session.last_write != last_write {
            tell_lsn(session, out, before);
        }
        if matches!(outcome, Outcome::Done { .. }) && session.reply_mode != ReplyMode::On {
            silence(session, out, before);
        }
        outcome
    }

    #[inline]
    fn execute_replying(
        &mut self,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        if session.transaction.is_some() {
            return self.execute_in_transaction(call, session, host, out);
        }
        let found = match call.resolved.found {
            Some(found) => found,
            None => match self.table.resolve_call(call.args) {
                Ok(found) => found,
                // Redis reports unknown commands before it asks for a password.
                Err(error) => return refuse(&error, self.stats(), session, out),
            },
        };
        match self.check(found, call.args, session, host) {
            Ok(true) => self.run_observed(found, call, session, host, out),
            Ok(false) => Outcome::Wait,
            Err(error) => self.reject(found, error, session, out),
        }
    }

    /// Runs a command that has passed its checks, with timing and monitors.
    #[inline]
    pub fn run_observed(
        &mut self,
        found: ResolvedCommand,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let (row, index) = (found.row, found.index as usize);
        session.client.runs(index, self.clock.now_ms);
        self.until_sample -= 1;
        let outcome = if self.until_sample == 0 || self.watch.includes(row) {
            self.run_timed(found, call, session, host, out)
        } else {
            self.run(found, call, session, host, out)
        };
        if self.monitored && matches!(outcome, Outcome::Done { .. }) && !row.flags.has(Flags::RUNS_SCRIPTS) {
            self.show(row, call.args, session, host);
        }
        outcome
    }

    /// The time of the round, unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms
    }

    /// The round's clock with fresh randomness.
    #[inline]
    pub(crate) fn next_clock(&mut self) -> AccessClock {
        AccessClock { random: self.random.next_u64() as u32, ..self.clock }
    }

    /// Runs a change of the server's own (expiry, eviction) on one slot, as one record.
    ///
    /// # Errors
    /// A long unit holds the slot.
    pub(crate) fn run_on_slot(
        &mut self,
        slot: SlotId,
        host: &Host,
        change: impl FnOnce(&mut Unit<'_>),
    ) -> Result<(), LockContended> {
        self.run_own(host, |keyspace| Locks::slot(keyspace, slot, LockPolicy(host)), change)
    }

    /// Runs a change of the server's own on the slots that `lock` locks, as one record.
    ///
    /// # Errors
    /// A long unit holds one of the slots.
    pub(crate) fn run_own(
        &mut self,
        host: &Host,
        lock: impl FnOnce(&Keyspace) -> Result<Locks<'_>, LockContended>,
        change: impl FnOnce(&mut Unit<'_>),
    ) -> Result<(), LockContended> {
        let clock = self.next_clock();
        let durability = self.durability();
        let mut later = VecDeque::new();
        let (seen, wrote) = {
            let locks = lock(&self.keyspace)?;
            let mut unit = Unit::new(&self.keyspace, locks, &mut self.scratch, UnitAccess::own(clock));
            change(&mut unit);
            if unit.has_ready() {
                // A client that waits in XREADGROUP learns that its stream is gone.
                let (keyspace, bulk_bytes_max, rules) = (&*self.keyspace, self.bulk_bytes_max, &self.rules);
                let surroundings = Surroundings { keyspace, host, durability, bulk_bytes_max, rules };
                surroundings.serve_and_commit(unit, self.appender.as_mut(), None, &mut later)
            } else {
                unit.commit(self.appender.as_mut(), None)
            }
        };
        self.wrote |= wrote;
        self.scratch.seal(BY_SERVER, notice_gates(durability, seen));
        self.add_pending_serves(later);
        Ok(())
    }

    /// The counters of this worker.
    pub fn stats(&self) -> &WorkerStats {
        &self.scratch.stats
    }

    /// Runs a command that has passed its checks.
    #[inline]
    pub fn run(
        &mut self,
        found: ResolvedCommand,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        if !matches!(self.scripting.place, ThreadRole::OwnThread) {
            return self.run_until_done(found, call, session, host, out);
        }
        let runs_scripts = match (&session.transaction, found.row.keys) {
            (Some(transaction), Keys::Queued) => transaction.any(Flags::RUNS_SCRIPTS),
            _ => found.row.flags.has(Flags::RUNS_SCRIPTS),
        };
        self.holding_visibly(runs_scripts, host, |it| it.run_until_done(found, call, session, host, out))
    }

    #[inline]
    fn run_until_done(
        &mut self,
        found: ResolvedCommand,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let shown = self.shown.len();
        match self.run_once(found, call, session, host, out, (ADMITTED_BYTES, false)) {
            Ok(outcome) => outcome,
            Err(again) => {
                let outcome = self.run_again(again, found, call, session, host, out, shown);
                // A unit on a thread of its own stays registered until it has ended, however often it is
                // retried.
                if outcome != Outcome::Long && !matches!(self.scripting.place, ThreadRole::OwnThread) {
                    self.forget_offloaded(host);
                }
                outcome
            }
        }
    }

    /// Continues after a first run that ended with `again`: takes that step and runs the command once more,
    /// or returns the outcome that the step means. `shown` is the length of the monitor lines before the
    /// command.
    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "those of `run`, and where it stands")]
    fn run_again(
        &mut self,
        mut again: Retry,
        found: ResolvedCommand,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
        shown: usize,
    ) -> Outcome {
        let (mut admitted_bytes, mut locks_all) = (ADMITTED_BYTES, false);
        loop {
            self.scratch.events.forget_unsealed();
            self.shown.truncate(shown);
            if let Some(held) = &self.scratch.held_slots {
                held.clear();
            }
            match again {
                Retry::AllSlots => locks_all = true,
                Retry::OwnThread => return Outcome::Long,
                // As in Redis, WATCH never replies BUSY; the watch counts as broken.
                Retry::Slot(LockContended::Busy)
                    if found.row.treatment.is_never_busy && session.transaction.is_none() =>
                {
                    session.watches.add_unseen(&self.scratch.interests);
                    ReplyWriter::new(out, session.protocol).ok();
                    return Outcome::Done { gate: Lsn::ZERO };
                }
                Retry::Slot(taken) => {
                    let error = match taken {
                        LockContended::Busy => busy_error(host),
                        later => later.into(),
                    };
                    return self.reject(found, error, session, out);
                }
                Retry::Room(needed_bytes) => match self.admit_write(needed_bytes) {
                    Ok(true) => admitted_bytes = needed_bytes,
                    Ok(false) => return Outcome::Wait,
                    Err(error) => return self.reject(found, error, session, out),
                },
            }
            again = match self.run_once(found, call, session, host, out, (admitted_bytes, locks_all)) {
                Ok(outcome) => return outcome,
                Err(again) => again,
            };
        }
    }

    /// Runs a command with this admission by the log, and with every slot or the slots of its keys locked.
    /// The error is the step that must be done first; nothing has happened then.
    // Inlined twice, so that the first try of every command is not a call.
    #[inline(always)]
    fn run_once(
        &mut self,
        ResolvedCommand { row, index, .. }: ResolvedCommand,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
        (admitted_bytes, locks_all): (u64, bool),
    ) -> Result<Outcome, Retry> {
        let args = call.args;
        // Databases are locked before slots: see `unit::Databases`.
        let databases = self.lock_databases(row, call, session, host);
        let durability = self.durability();
        let clock = self.next_clock();
        let access = session.access(clock);
        let (keyspace, patience) = (&*self.keyspace, LockPolicy(host));
        let locks = match row.keys {
            _ if locks_all => Locks::all(keyspace, patience),
            Keys::First => Locks::one(keyspace, args.at(1), call.resolved.hash, patience),
            keys if keys.spans_all(args) => Locks::all(keyspace, patience),
            Keys::Libraries => Locks::slots(keyspace, smallvec::smallvec![LIBRARIES_SLOT], patience),
            Keys::Settings if changes_data(args, host) => {
                Locks::slots(keyspace, smallvec::smallvec![LIBRARIES_SLOT], patience)
            }
            Keys::Queued => match session.slots_of_transaction() {
                Some(slots) => Locks::slots(keyspace, slots, patience),
                None => Locks::all(keyspace, patience),
            },
            keys => Locks::keys(keyspace, keys, args, call.resolved.hash, session.db, patience),
        }
        .map_err(Retry::Slot)?;
        // The wait for the locks may have been long, and the client may have been killed meanwhile.
        let is_away = matches!(self.scripting.place, ThreadRole::OwnThread);
        if is_away && session.client.is_killed() {
            return Ok(Outcome::Wait);
        }
        let reply = ReplyWriter::new(out, session.protocol);
        let (bulk_bytes_max, rules) = (self.bulk_bytes_max, &self.rules);
        let surroundings = Surroundings { keyspace, host, durability, bulk_bytes_max, rules };
        let mut later = VecDeque::new();
        let (seen, wrote) = {
            let session = &mut *session;
            let unit = Unit::new(keyspace, locks.with_databases(databases), &mut self.scratch, access);
            let mut cx = Context {
                admitted_bytes,
                channels: Some(&mut self.channels),
                scripting: Some(&mut self.scripting),
                watch: self.watch,
                monitor: self.monitored.then_some(&mut self.shown),
                ..Context::new(unit, surroundings, session, reply)
            };
            cx.unit.show_held_slots();
            let succeeded = cx.handle(row, args)?;
            if is_away {
                // Once the slots are unlocked, others may change what the reply shows, and tell the client.
                cx.session.client.set_pushes_wait(true);
            }
            cx.unit.stats().called(index as usize, !succeeded);
            let flushing = cx.unit.flushes_all().then_some(host);
            let position = if cx.unit.has_ready() {
                surroundings.serve_and_commit(cx.unit, self.appender.as_mut(), flushing, &mut later)
            } else {
                cx.unit.commit(self.appender.as_mut(), flushing)
            };
            if !cx.deferred_reply.is_empty() {
                cx.deferred_reply.write(&mut cx.reply);
            }
            position
        };
        if let Some(held) = &self.scratch.held_slots {
            held.clear();
        }
        if let Keys::Libraries | Keys::Settings | Keys::Queued = row.keys {
            self.follow_users(host);
        }
        if let Keys::Settings = row.keys {
            // This comes after unlocking: a setting that requires more acknowledgements begins an epoch, and
            // that waits for the disk.
            host.config.apply_data_settings();
        }
        if !session.granted.is_empty() {
            let token = self.appender.as_ref().map_or(seen.get(), |appender| appender.log().token(seen));
            tell_tokens(session, out, token);
        }
        // The log of a replica may hold records that are not applied yet.
        let shown = || {
            let appended = self.appender.as_ref().map_or(Lsn::ZERO, Appender::appended_lsn);
            appended.min(host.replication.shown_lsn())
        };
        let seen = if row.flags.has(Flags::READS_ALL) { shown() } else { seen };
        let gate = self.end_unit((seen, wrote), later, session, host, durability);
        Ok(self.behind_user(Outcome::Done { gate }, row, session))
    }

    /// Ends a client's unit after it has taken its position: notes its write, seals its notices, serves
    /// waiters. Returns the gate of its replies.
    #[inline]
    fn end_unit(
        &mut self,
        (seen, wrote): (Lsn, bool),
        later: VecDeque<PendingServe>,
        session: &mut Session,
        host: &Host,
        durability: Durability,
    ) -> Lsn {
        if wrote {
            self.wrote = true;
            session.last_write = session.last_write.max(seen);
        }
        // Other clients get the events and invalidations: for them the server's durability counts.
        self.scratch.seal(session.client.id(), notice_gates(durability, seen));
        if !later.is_empty() {
            self.serve_later(later, host);
        }
        gate(session.effective_durability(durability), wrote, seen)
    }
}

/// Whether a CONFIG SET names a setting that belongs to the data, or one that changes a user. `false` while
/// loading.
#[cold]
fn changes_data(args: Args<'_>, host: &Host) -> bool {
    let is_of_data =
        |name: &[u8]| name.eq_ignore_ascii_case(REQUIREPASS.as_bytes()) || host.config.is_of_data(name);
    host.process.loading().is_none() && args.skip(2).iter().step_by(2).any(is_of_data)
}

/// The positions that the notices of a unit must wait for, under the durability of the server.
#[inline]
pub(crate) fn notice_gates(durability: Durability, seen: Lsn) -> NoticeGates {
    NoticeGates { shown: gate(durability, false, seen), logged: gate(durability, true, seen) }
}

/// The position that must be committed before a reply may leave. `seen` is the newest position that the reply
/// could show; `wrote` says whether the reply's unit has changed data, or repeats the reply of an earlier
/// write. [`Lsn::ZERO`]: the reply may leave at once. [`Lsn::MAX`]: the log has failed, and the reply never
/// leaves.
#[inline]
pub fn gate(durability: Durability, wrote: bool, seen: Lsn) -> Lsn {
    match durability {
        Durability::Strict => seen,
        Durability::Commit if wrote => seen,
        _ if seen == Lsn::MAX => seen,
        _ => Lsn::ZERO,
    }
}
