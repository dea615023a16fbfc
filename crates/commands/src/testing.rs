//! A whole server for tests, without a process around it: executor, keyspace and log on a simulated disk with
//! a clock that tests advance.
//!
//! `check` is for tables of commands and replies, `TestServer` for everything else. A table of `check` ends
//! with a replay of the log into another keyspace, which must have the same content. So the table also proves
//! that the effects of its commands are complete.
//! Expectations about single commands do not belong here.

mod group;
mod replica;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use documents::Documents;
use engine::{
    Call, CancelAnswer, CommandStats, DebugAccess, Event, EventClass, Executor, Host, Loading, LogLevel,
    LongReply, MemoryFigures, MemoryLimits, Notice, Outcome, Persistence, Process, Resolved, Responder,
    SAVE_IN_PROGRESS, SaveAnswer, Scripts, Session, SettingsInForce, ShutdownMode,
    clients::{Client, Clients, Connected, Signal, Signaller},
    long_units::LONG_AFTER_US,
    observe::Observer,
    users::{UserSettings, Users},
};
use env::{Clock, SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
use keyspace::{
    AccessClock, DbId, Effect, EvictionPolicy, Freed, Item, Keyspace, LoggedMessage, Options, Scope, SlotId,
    ValueBuf, encode_documents_into, slot_of,
};
use lsn::Lsn;
use parking_lot::Mutex;
use pubsub::durable::{Flow, Request};
use storage::{Appender, Error, Log, LogOptions, Recovery};
use wire::{DecodeLimits, Limits, OwnedArgs, Protocol, RequestBatch, RequestParser, Value, decode};

use group::TestGroup;
pub(crate) use group::{check_group, sample_group};
use replica::TestReplication;

/// The time at which every test begins, unix milliseconds.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// The prefix of durable channels in tests.
const DURABLE_CHANNELS: &[u8] = b"durable";

const DIR: &str = "/data";

/// Runs a table of (command, reply) on an empty server with either protocol, then replays the log.
///
/// Commands are inline requests: quotes and `\x00` work. `after 1500` advances the clock by 1500 milliseconds
/// without a reply. For the notation of replies see [`notation`].
///
/// # Panics
/// At the first reply that is not the expected one.
pub(crate) fn check(table: &[(&str, &str)]) {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut server = TestServer::new();
        server.session.protocol = protocol;
        server.check(table);
        server.assert_replays();
    }
}

/// As [`check()`], where the protocols differ: (command, reply in RESP2, reply in RESP3).
///
/// # Panics
/// At the first reply that is not the expected one.
pub(crate) fn check_protocols(table: &[(&str, &str, &str)]) {
    for (protocol, replies) in [(Protocol::Resp2, 0), (Protocol::Resp3, 1)] {
        let mut server = TestServer::new();
        server.session.protocol = protocol;
        for (line, resp2, resp3) in table {
            server.check(&[(line, [*resp2, *resp3][replies])]);
        }
        server.assert_replays();
    }
}

/// The reply of a command on a key of another type.
pub(crate) const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// A thread that runs a script on an executor of its own. A test that fails ends the script, so that the
/// thread ends with the test.
pub(crate) struct ScriptThread<T> {
    host: Host,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> ScriptThread<T> {
    /// Starts `work`, which executes commands with the services of `host`.
    pub(crate) fn spawn(host: &Host, work: impl FnOnce() -> T + Send + 'static) -> ScriptThread<T> {
        ScriptThread { host: host.clone(), thread: Some(std::thread::spawn(work)) }
    }

    /// Asserts that the script has not ended; for loops that wait for it.
    ///
    /// # Panics
    /// The thread has ended.
    pub(crate) fn assert_runs(&self) {
        assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "the script has ended");
    }

    /// The result of the thread, when it has ended.
    ///
    /// # Panics
    /// The thread has panicked.
    pub(crate) fn join(mut self) -> T {
        self.thread.take().expect("it is joined once").join().expect("no panic")
    }
}

impl<T> Drop for ScriptThread<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.host.scripts.close();
            // If the thread has panicked as well, its message is shown.
            _ = thread.join();
        }
    }
}

/// A server with one client.
pub(crate) struct TestServer {
    pub(crate) clock: Arc<SimClock>,
    pub(crate) host: Arc<TestHost>,
    /// The interfaces of `host`.
    pub(crate) services: Host,
    pub(crate) executor: Executor,
    pub(crate) session: Session,
    pub(crate) bulk_bytes_max: usize,
    /// Events that tests have not taken yet, of the classes that the host wants.
    events: Vec<Event>,
    /// The number of commands that were offloaded.
    pub(crate) long_units: usize,
    /// The appender of offloaded commands.
    spare: Option<Appender>,
    disk: Arc<SimDisk>,
    pub(crate) log: Log,
}

impl TestServer {
    /// An empty server whose client may run commands.
    pub(crate) fn new() -> TestServer {
        let clock = Arc::new(SimClock::new(START_MS));
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..SimDiskOptions::default() });
        let mut recovery = open(&disk);
        recovery.replay::<Error>(|_, _| panic!("a new log is empty"), |_| {}).expect("an empty log replays");
        let log = recovery.finish(clock.clone()).expect("a simulated disk works");
        let host = Arc::new(TestHost::new(clock.clone()));
        let keyspace = Arc::new(Keyspace::new(Options { hash_seed: 1 }));
        let mut executor = Executor::new(crate::table(), keyspace, Arc::default(), host.stats.worker(0), 1);
        executor.attach(log.appender());
        let session = Session::new(host.connect(), true);
        TestServer {
            clock,
            services: host.services(),
            host,
            executor,
            session,
            bulk_bytes_max: 512 << 20,
            events: Vec::new(),
            long_units: 0,
            spare: None,
            disk,
            log,
        }
    }

    /// Sets the password of the default user (`requirepass`).
    pub(crate) fn set_password(&self, password: Option<&[u8]>) {
        let default_password = password.map(access::PasswordHash::of);
        self.host.users.configure(UserSettings { default_password, ..self.host.users.settings() });
    }

    /// Connects another client to the same server, to be swapped with `session`.
    pub(crate) fn connect(&self) -> Session {
        Session::new(self.host.connect(), true)
    }

    /// Runs commands and compares their replies; see [`check()`].
    pub(crate) fn check(&mut self, table: &[(&str, &str)]) {
        for (index, (line, expected)) in table.iter().enumerate() {
            if let Some(ms) = line.strip_prefix("after ") {
                self.clock.advance_ms(ms.parse().expect("milliseconds"));
                continue;
            }
            let reply = self.run(line);
            assert_eq!(reply, *expected, "step {index}: {line} ({:?})", self.session.protocol);
        }
    }

    /// The reply to an inline request, in the notation of [`notation`]; empty for no reply.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.execute(&parse(line)).0
    }

    /// As [`TestServer::run`], with the arguments given one by one.
    pub(crate) fn run_args(&mut self, args: &[&[u8]]) -> String {
        self.execute(&args.iter().collect()).0
    }

    /// The reply to an inline request as a value.
    pub(crate) fn value(&mut self, line: &str) -> Value {
        let bytes = self.raw(line);
        let (value, len) = decoded(&bytes).expect("there is a reply");
        assert_eq!(len, bytes.len(), "more than one reply to {line}");
        value
    }

    /// The bytes of the reply to an inline request.
    pub(crate) fn raw(&mut self, line: &str) -> Vec<u8> {
        self.execute_raw(&parse(line)).0
    }

    /// The position that the reply to an inline request waits for.
    pub(crate) fn gate(&mut self, line: &str) -> Lsn {
        self.execute_raw(&parse(line)).1
    }

    /// The time, unix milliseconds.
    pub(crate) fn clock_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    /// The end of the log.
    pub(crate) fn appended_lsn(&self) -> Lsn {
        self.log.appended_lsn()
    }

    fn execute(&mut self, args: &OwnedArgs) -> (String, Lsn) {
        let (bytes, gate) = self.execute_raw(args);
        let text = decoded(&bytes).map_or_else(String::new, |(value, len)| {
            assert_eq!(len, bytes.len(), "more than one reply to {args:?}");
            notation(&value)
        });
        (text, gate)
    }

    fn execute_raw(&mut self, args: &OwnedArgs) -> (Vec<u8>, Lsn) {
        self.executor.begin_round(self.clock.unix_ms(), &self.services, self.bulk_bytes_max);
        let resolved = self.executor.resolve(args.as_args(), None);
        self.executor.prefetch_bucket(&self.session, &resolved);
        self.executor.prefetch_entry(&self.session, &resolved);
        let call = Call { args: args.as_args(), resolved };
        let mut out = Vec::new();
        loop {
            match self.executor.execute(call, &mut self.session, &self.services, &mut out) {
                Outcome::Long => {
                    self.executor.end_round(&self.services);
                    let gate = self.execute_elsewhere(call, &mut out);
                    return (out, gate);
                }
                Outcome::Done { gate } => {
                    self.executor.end_round(&self.services);
                    self.take_told();
                    return (out, gate);
                }
                Outcome::Wait if self.session.pause_ms > 0 => {
                    self.executor.end_round(&self.services);
                    self.clock.advance_ms(self.session.pause_ms);
                    self.session.end_pause(&self.services.clients);
                    self.executor.begin_round(self.clock.unix_ms(), &self.services, self.bulk_bytes_max);
                }
                Outcome::Wait => {
                    self.log.flush_all().expect("a simulated disk works");
                    self.log.prepare_segment().expect("a simulated disk works");
                }
            }
        }
    }

    /// From now on, long units are offloaded to another executor, and scripts become long after a few looks
    /// at the clock.
    pub(crate) fn offload_long_units(&mut self) {
        let (clock, passed_us) = (self.clock.clone(), AtomicU64::new(0));
        let look = move || clock.monotonic_us() + passed_us.fetch_add(LONG_AFTER_US / 3, Relaxed);
        self.executor.share_thread(Arc::new(look));
    }

    /// Evicts a key that was sampled before.
    pub(crate) fn evict(&mut self, victim: &keyspace::Candidate) -> bool {
        self.executor.begin_round(self.clock.unix_ms(), &self.services, self.bulk_bytes_max);
        let evicted = self.executor.evict(victim, &self.services).expect("no slot is held");
        self.executor.end_round(&self.services);
        self.take_told();
        evicted
    }

    /// Runs a long command as the server does: on another executor.
    fn execute_elsewhere(&mut self, call: Call<'_>, out: &mut Vec<u8>) -> Lsn {
        let unit = self.executor.offload(call, &mut self.session);
        let (keyspace, interests) = (self.executor.keyspace().clone(), self.executor.interests().clone());
        let mut executor = Executor::new(crate::table(), keyspace, interests, self.host.stats.worker(0), 2);
        executor.attach(self.spare.take().unwrap_or_else(|| self.log.appender()));
        executor.own_thread();
        let pause = |_| {
            self.log.flush_all().expect("a simulated disk works");
            self.log.prepare_segment().expect("a simulated disk works");
        };
        let now_ms = || self.clock.unix_ms();
        let LongReply { session, reply, gate } =
            executor.execute_long(unit, &self.services, self.bulk_bytes_max, now_ms, pause);
        self.session.return_from_thread(session);
        self.spare = executor.detach();
        self.long_units += 1;
        out.extend(reply);
        self.publish(executor.take_notices());
        gate
    }

    /// Runs pipelined commands on one key as a worker does. Returns the number of merged commands of each
    /// run, and all replies.
    pub(crate) fn run_merged(&mut self, lines: &[&str]) -> (Vec<usize>, Vec<String>) {
        let requests: Vec<OwnedArgs> = lines.iter().map(|line| parse(line)).collect();
        let (mut runs, mut replies, mut next) = (Vec::new(), Vec::new(), 0);
        while next < requests.len() {
            self.executor.begin_round(self.clock.unix_ms(), &self.services, self.bulk_bytes_max);
            let mut resolved: Vec<Resolved> = Vec::new();
            for (index, args) in requests.iter().enumerate() {
                let call = |index: usize| Call { args: requests[index].as_args(), resolved: resolved[index] };
                let before = index.checked_sub(1).map(call);
                resolved.push(self.executor.resolve(args.as_args(), before));
            }
            let calls = (next..requests.len())
                .map(|index| Call { args: requests[index].as_args(), resolved: resolved[index] });
            let mut out = Vec::new();
            let merged = self.executor.execute_merged(calls, &mut self.session, &self.services, &mut out);
            self.executor.end_round(&self.services);
            self.take_told();
            assert!(merged.gate <= self.log.appended_lsn());
            runs.push(merged.count);
            if merged.count == 0 {
                out = self.execute_raw(&requests[next]).0;
            }
            next += merged.count.max(1);
            while let Some((value, len)) = decoded(&out) {
                replies.push(notation(&value));
                out.drain(..len);
            }
        }
        (runs, replies)
    }

    /// Events since the last call: `set a`, or `set a in 3` for another database than 0.
    pub(crate) fn events(&mut self) -> Vec<String> {
        let shown = |event: Event| match event.db {
            DbId::ZERO => format!("{} {}", event.name, event.key.escape_ascii()),
            db => format!("{} {} in {db}", event.name, event.key.escape_ascii()),
        };
        self.take_events().into_iter().map(shown).collect()
    }

    /// As [`TestServer::events`], unformatted.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.take_told();
        std::mem::take(&mut self.events)
    }

    /// Takes the notices of the executor, and publishes them as if they were durable.
    fn take_told(&mut self) {
        let notices = self.executor.take_notices();
        self.publish(notices);
    }

    fn publish(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            self.executor.publish(&notice);
            if let Notice::Event(event) = notice {
                self.events.push(event);
            }
        }
    }

    /// Messages that channels sent to clients since the last call, in the notation of [`notation`].
    pub(crate) fn take_messages(&mut self) -> BTreeMap<u64, Vec<String>> {
        let channels = self.executor.channels();
        channels.flush_mailboxes();
        channels.deliver();
        let mut messages = BTreeMap::new();
        channels.take_due(|client, delivery| {
            let mut bytes = Vec::new();
            delivery.append_to(&mut bytes);
            let (mut shown, mut rest) = (Vec::new(), &bytes[..]);
            while let Some((value, len)) = decoded(rest) {
                shown.push(notation(&value));
                rest = &rest[len..];
            }
            messages.insert(client, shown);
            true
        });
        messages
    }

    /// All keys with their values and deadlines, expired ones included.
    pub(crate) fn content(&self) -> Content {
        content(self.executor.keyspace())
    }

    /// The messages to durable channels that the log holds, as `channel payload`.
    pub(crate) fn logged_messages(&self) -> Vec<String> {
        let mut messages = Vec::new();
        self.for_each_logged(|_, item| {
            if let Item::Message(LoggedMessage { channel, payload }) = item {
                messages.push(format!("{} {}", channel.escape_ascii(), payload.escape_ascii()));
            }
        });
        messages
    }

    /// The document databases that result from the log, and the number of records that changed them.
    pub(crate) fn logged_documents(&self) -> (Documents, usize) {
        let (documents, mut records) = (Documents::in_memory(Arc::new(|_| {})), 0);
        self.for_each_logged(|lsn, item| {
            if let Item::Documents(change) = item {
                documents.apply(change, lsn).expect("what was made live can be made again");
                records += 1;
            }
        });
        (documents, records)
    }

    /// Visits the items of all records of the log, each with the position of its record.
    pub(crate) fn for_each_logged(&self, mut visit: impl FnMut(Lsn, Item<'_>)) {
        self.log.flush_all().expect("a simulated disk works");
        let read = |lsn, mut payload: &[u8]| {
            while let Some(item) = Item::decode_next(&mut payload).expect("only items are logged") {
                visit(lsn, item);
            }
            Ok(())
        };
        open(&self.disk.clone_state()).replay::<Error>(read, |_| {}).expect("the log is whole");
    }

    pub(crate) fn create_database(&self, name: &str) {
        let mut writer = self.host.documents.lock();
        let mut record = Vec::new();
        encode_documents_into(&writer.create(name).expect("a new name"), &mut record);
        let mut appender = self.log.appender();
        let pending = appender.reserve(&record).expect("a simulated disk works");
        writer.commit(pending.lsn());
        pending.publish();
    }

    /// Replays the log into an empty keyspace, as after a power cut.
    ///
    /// # Panics
    /// If the replayed content differs from that in memory.
    pub(crate) fn assert_replays(&self) {
        self.log.flush_all().expect("a simulated disk works");
        let replayed = Keyspace::new(Options { hash_seed: 2 });
        let apply = |lsn, mut payload: &[u8]| {
            while let Some(effect) = Effect::decode_next(&mut payload).expect("only effects are logged") {
                replay(&replayed, &effect, lsn);
            }
            Ok(())
        };
        open(&self.disk.clone_state()).replay::<Error>(apply, |_| {}).expect("the log is whole");
        assert_eq!(content(&replayed), self.content(), "what replays is not what was in memory");
        let libraries =
            |keyspace: &Keyspace| keyspace.libraries().libraries.iter().cloned().collect::<Vec<_>>();
        assert_eq!(libraries(&replayed), libraries(self.executor.keyspace()));
        self.executor.keyspace().check();
        replayed.check();
    }
}

/// (database, key) to (value, deadline).
pub(crate) type Content = BTreeMap<(u8, Vec<u8>), (ValueBuf, Option<u64>)>;

fn content(keyspace: &Keyspace) -> Content {
    let mut content = Content::new();
    // Most of the databases are empty, and the slots are many.
    let dbs: Vec<DbId> = DbId::all().filter(|&db| keyspace.len(db) > 0).collect();
    for slot in SlotId::all() {
        let guard = keyspace.lock(slot);
        for &db in &dbs {
            content.extend(guard.entries(db).map(|entry| {
                ((db.get(), entry.key().to_vec()), (ValueBuf::of(entry), entry.expire_at_ms()))
            }));
        }
    }
    content
}

/// Applies an effect of a logged record.
pub(crate) fn replay(keyspace: &Keyspace, effect: &Effect<'_>, lsn: Lsn) {
    let (clock, mut freed) = (AccessClock::default(), Freed::new());
    match effect.scope() {
        Scope::Slot(key) => {
            let mut slot = keyspace.lock(slot_of(key));
            slot.apply(effect, clock, &mut freed);
            slot.set_last_lsn(lsn);
        }
        Scope::Two(from, to) => {
            let mut slots = keyspace.lock_many([from, to].map(slot_of));
            slots.apply(effect, clock, &mut freed);
            slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
        }
        Scope::Global => {
            let mut slots = keyspace.lock_all();
            slots.apply(effect, clock, &mut freed);
            slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
        }
    }
}

fn open(disk: &Arc<SimDisk>) -> Recovery {
    let options = LogOptions {
        segment_bytes: 8 << 20,
        ring_bytes: 2 << 20,
        appenders_max: 4,
        unwritten_bytes_max: 256 << 10,
        ..LogOptions::default()
    };
    Recovery::open(disk.clone(), Path::new(DIR), options, &SimEntropy::new(1))
        .expect("a simulated disk works")
}

/// The arguments of an inline request.
pub(crate) fn parse(line: &str) -> OwnedArgs {
    let request = [line.as_bytes(), b"\r\n"].concat();
    let mut batch = RequestBatch::new();
    let parsed = RequestParser::new().parse(&request, &Limits::DEFAULT, &mut batch, 2);
    assert!(parsed.error.is_none() && batch.len() == 1, "{line:?} is not one request: {parsed:?}");
    batch.command(0, &request).into()
}

fn decoded(bytes: &[u8]) -> Option<(Value, usize)> {
    decode(bytes, &DecodeLimits::DEFAULT).expect("a reply is well formed")
}

/// A reply as text: `+OK`, `-ERR text`, `:1`, `"bulk"`, `nil`, `[a, b]`, `{k: v}`, `~[a]`, `>[a]`, `,1.5`,
/// `#true`, `(12`, `txt"text"`.
pub(crate) fn notation(value: &Value) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let list = |values: &[Value]| values.iter().map(notation).collect::<Vec<_>>().join(", ");
    let pairs = |pairs: &[(Value, Value)]| {
        let pair = |(key, value): &(Value, Value)| format!("{}: {}", notation(key), notation(value));
        pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
    };
    match value {
        Value::Simple(bytes) => format!("+{}", String::from_utf8_lossy(bytes)),
        Value::Error(bytes) => format!("-{}", String::from_utf8_lossy(bytes)),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(bytes) => format!("\"{}\"", text(bytes)),
        Value::Null => "nil".to_string(),
        Value::Double(number) => format!(",{number}"),
        Value::Boolean(truth) => format!("#{truth}"),
        Value::BigNumber(digits) => format!("({}", text(digits)),
        Value::Verbatim { format, text: bytes } => format!("{}\"{}\"", text(format), text(bytes)),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Map(entries) => format!("{{{}}}", pairs(entries)),
        Value::Set(values) => format!("~[{}]", list(values)),
        Value::Push(values) => format!(">[{}]", list(values)),
        Value::Attributed { attributes, value } => format!("|{{{}}} {}", pairs(attributes), notation(value)),
    }
}

/// Bytes that were pushed to a client: its id, the bytes, their gate.
type Pushed = (u64, Arc<[u8]>, Lsn);

/// A host that records the requests of commands.
pub(crate) struct TestHost {
    pub(crate) documents: Arc<Documents>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) stats: Arc<CommandStats>,
    pub(crate) limits: Mutex<MemoryLimits>,
    pub(crate) event_classes: Mutex<EventClass>,
    pub(crate) debug_access: Mutex<DebugAccess>,
    pub(crate) emulates_cluster: AtomicBool,
    pub(crate) loading: Mutex<Option<Loading>>,
    pub(crate) users: Arc<Users>,
    /// The clients whose subscriptions were to be reviewed.
    pub(crate) reviewed: Arc<Mutex<Vec<u64>>>,
    /// The settings of CONFIG. Only these, and `of-data`, can be set.
    pub(crate) settings: Mutex<BTreeMap<&'static str, String>>,
    /// The largest record for which the log can make room.
    pub(crate) room_bytes: AtomicU64,
    /// The recorded requests, in order: `rewrite`, `reset`, `shutdown InOrder`, `flushing_all 4096`.
    pub(crate) asked: Mutex<Vec<String>>,
    /// Pushes to clients that tests have not taken yet.
    pushed: Arc<Mutex<Vec<Pushed>>>,
    /// Answers to blocked clients that tests have not taken yet.
    answers: Arc<Mutex<Vec<Pushed>>>,
    /// The promises of clients that have requested a snapshot, or confirmed a recovery.
    pub(crate) promises: Mutex<Vec<Responder>>,
    /// The requests to the thread of durable channels.
    pub(crate) channel_requests: Mutex<Vec<Request>>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) replication: Arc<TestReplication>,
    pub(crate) group: Arc<TestGroup>,
    /// The apparent duration of each timed command, in microseconds.
    pub(crate) command_us: AtomicU64,
    /// The sum of these durations.
    commands_us: AtomicU64,
    clock: Arc<SimClock>,
}

impl TestHost {
    fn new(clock: Arc<SimClock>) -> TestHost {
        let limits = MemoryLimits { memory_bytes_max: 0, policy: EvictionPolicy::NoEviction, samples: 5 };
        TestHost {
            documents: Arc::new(Documents::in_memory(Arc::new(|_| {}))),
            clients: Arc::new(Clients::new()),
            stats: Arc::new(CommandStats::new(1, crate::table())),
            limits: Mutex::new(limits),
            event_classes: Mutex::default(),
            debug_access: Mutex::new(DebugAccess::Everybody),
            emulates_cluster: AtomicBool::new(false),
            loading: Mutex::default(),
            users: Arc::new(Users::new(crate::table())),
            reviewed: Arc::default(),
            settings: Mutex::default(),
            room_bytes: AtomicU64::new(u64::MAX),
            asked: Mutex::default(),
            pushed: Arc::default(),
            answers: Arc::default(),
            promises: Mutex::default(),
            channel_requests: Mutex::default(),
            observer: Arc::default(),
            scripts: Arc::default(),
            replication: Arc::default(),
            group: Arc::default(),
            command_us: 0.into(),
            commands_us: 0.into(),
            clock,
        }
    }

    /// The interfaces of this host, for an executor.
    fn services(self: &Arc<Self>) -> Host {
        Host {
            clock: self.clone(),
            clients: self.clients.clone(),
            scripts: self.scripts.clone(),
            stats: self.stats.clone(),
            observer: self.observer.clone(),
            documents: Arc::new(OnceLock::from(self.documents.clone())),
            config: self.clone(),
            users: self.users.clone(),
            persistence: self.clone(),
            replication: self.replication.clone(),
            group: self.group.clone(),
            durable_channels: self.clone(),
            process: self.clone(),
        }
    }

    fn connect(&self) -> Arc<Client> {
        let (pushed, answers) = (self.pushed.clone(), self.answers.clone());
        let reviewed = self.reviewed.clone();
        let signaller: Signaller = Box::new(move |id, signal| match signal {
            Signal::Push { bytes, gate } => pushed.lock().push((id, bytes, gate)),
            Signal::Answer { bytes, gate } => answers.lock().push((id, bytes, gate)),
            Signal::Review => reviewed.lock().push(id),
            Signal::Close | Signal::GoOn => {}
        });
        let (peer, local) = ("127.0.0.1:50001".to_string(), "127.0.0.1:6379".to_string());
        self.clients.register(Connected { peer, peer_uid: None, local, fd: 8, now_ms: START_MS, signaller })
    }

    /// Takes the pushes to a client, in the notation of [`notation`], and their newest gate.
    pub(crate) fn take_pushed(&self, client: u64) -> (Vec<String>, Lsn) {
        let mut pushed = self.pushed.lock();
        let (mut values, mut gate) = (Vec::new(), Lsn::ZERO);
        pushed.retain(|(id, bytes, of)| {
            if *id != client {
                return true;
            }
            gate = gate.max(*of);
            let mut rest = &bytes[..];
            while let Some((value, len)) = decoded(rest) {
                values.push(notation(&value));
                rest = &rest[len..];
            }
            assert!(rest.is_empty(), "pushes are whole: {rest:?}");
            false
        });
        (values, gate)
    }

    /// Takes the answer to a blocked client, in the notation of [`notation`], and its gate.
    pub(crate) fn take_answer(&self, client: u64) -> Option<(String, Lsn)> {
        let mut answers = self.answers.lock();
        let position = answers.iter().position(|(id, ..)| *id == client)?;
        let (_, bytes, gate) = answers.remove(position);
        Some((decoded(&bytes).map_or_else(String::new, |(value, _)| notation(&value)), gate))
    }

    /// Sets the eviction policy; the memory limit stays as it is.
    pub(crate) fn set_policy(&self, policy: EvictionPolicy) {
        self.limits.lock().policy = policy;
    }
}

impl SettingsInForce for TestHost {
    fn memory_limits(&self) -> MemoryLimits {
        *self.limits.lock()
    }

    fn event_classes(&self) -> EventClass {
        *self.event_classes.lock()
    }

    fn debug_access(&self) -> DebugAccess {
        *self.debug_access.lock()
    }

    fn is_durable_channel(&self, channel: &[u8]) -> bool {
        channel.starts_with(DURABLE_CHANNELS)
    }

    fn emulates_cluster(&self) -> bool {
        self.emulates_cluster.load(Relaxed)
    }

    fn get(&self, pattern: &[u8]) -> Vec<(&'static str, String)> {
        let settings = self.settings.lock();
        let matching =
            settings.iter().filter(|(name, _)| wire::glob::matches_ignore_case(pattern, name.as_bytes()));
        matching.map(|(name, value)| (*name, value.clone())).collect()
    }

    fn is_of_data(&self, setting: &[u8]) -> bool {
        setting.eq_ignore_ascii_case(b"of-data")
    }

    fn set(&self, wanted: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String> {
        if let [(name, value)] = wanted
            && self.is_of_data(name)
        {
            return Ok(vec![("of-data".into(), String::from_utf8_lossy(value).into_owned())]);
        }
        let mut settings = self.settings.lock();
        let mut changed = settings.clone();
        for (name, value) in wanted {
            let known = changed.iter_mut().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
            let Some((_, known)) = known else {
                let name = String::from_utf8_lossy(name);
                return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"));
            };
            *known = String::from_utf8_lossy(value).into_owned();
        }
        *settings = changed;
        Ok(Vec::new())
    }

    fn rewrite(&self) -> Result<(), String> {
        self.asked.lock().push("rewrite".to_string());
        Ok(())
    }
}

impl Persistence for TestHost {
    fn save(&self, scheduled: bool) -> SaveAnswer {
        let mut asked = self.asked.lock();
        let is_busy = asked.iter().any(|it| it == "save");
        if is_busy && !scheduled {
            return SaveAnswer::InProgress;
        }
        asked.push("save".to_string());
        if is_busy { SaveAnswer::Scheduled } else { SaveAnswer::Started }
    }

    fn cancel_save(&self) -> CancelAnswer {
        let mut asked = self.asked.lock();
        let count = asked.len();
        asked.retain(|it| it != "save");
        if asked.len() < count { CancelAnswer::Running } else { CancelAnswer::Nothing }
    }

    fn save_and_respond(&self, responder: Responder) -> Result<(), &'static str> {
        let mut promises = self.promises.lock();
        if !promises.is_empty() {
            return Err(SAVE_IN_PROGRESS);
        }
        promises.push(responder);
        Ok(())
    }

    fn confirm_recovery(&self, responder: Responder) -> Result<(), &'static str> {
        self.promises.lock().push(responder);
        Ok(())
    }

    fn last_save_unix_s(&self) -> u64 {
        self.clock.unix_ms() / 1000
    }

    fn flushing_all(&self, record: Lsn, dead_before: Lsn) {
        assert!(dead_before < record);
        self.asked.lock().push(format!("flushing_all {}", record.get()));
    }

    fn make_room_for(&self, bytes: u64) -> Result<(), String> {
        if bytes > self.room_bytes.load(Relaxed) { Err("no space left".into()) } else { Ok(()) }
    }
}

impl engine::DurableChannels for TestHost {
    fn request(&self, request: Request) {
        self.channel_requests.lock().push(request);
    }

    fn new_flow(&self) -> Arc<Flow> {
        Arc::new(Flow::new(|| {}))
    }
}

impl Process for TestHost {
    fn loading(&self) -> Option<Loading> {
        *self.loading.lock()
    }

    fn info(&self, sections: &[String]) -> (String, Lsn) {
        (format!("# Sections\r\nsections:{}\r\n", sections.join(",")), Lsn::ZERO)
    }

    fn fill_secret(&self, bytes: &mut [u8]) {
        bytes.fill(0xa5);
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn reset_stats(&self) {
        self.asked.lock().push("reset".to_string());
        self.stats.reset();
    }

    fn memory_figures(&self) -> MemoryFigures {
        MemoryFigures {
            resident_bytes: 1 << 20,
            resident_bytes_max: 2 << 20,
            log_buffer_bytes: 4096,
            ..MemoryFigures::default()
        }
    }

    fn release_unused_memory(&self) {
        self.asked.lock().push("release_unused_memory".to_string());
    }

    fn allocator_report(&self) -> String {
        "allocator".to_string()
    }

    fn log_script(&self, level: LogLevel, message: &str) {
        self.asked.lock().push(format!("log {level:?} {message}"));
    }

    fn shutdown(&self, mode: ShutdownMode) -> Result<(), String> {
        self.asked.lock().push(format!("shutdown {mode:?}"));
        match mode {
            ShutdownMode::InOrder | ShutdownMode::Save | ShutdownMode::NoSave => Ok(()),
            ShutdownMode::Abort => Err("ERR No shutdown in progress.".to_string()),
        }
    }
}

impl Clock for TestHost {
    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms() + self.commands_us.load(Relaxed) / 1000
    }

    fn monotonic_us(&self) -> u64 {
        let command_us = self.command_us.load(Relaxed);
        self.clock.monotonic_us() + self.commands_us.fetch_add(command_us, Relaxed)
    }
}
