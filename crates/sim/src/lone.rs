//! One client and one server: arbitrary commands with arbitrary arguments, for fuzzing and for a test in
//! every run.
//!
//! A server on a simulated disk executes any request. For all requests every reply must decode, nothing may
//! panic, and a replay of the log must equal the content of memory. The content of replies is not checked.

use std::sync::{Arc, Mutex};

use engine::conversation::{Conversation, ConversationState, Round};
use engine::{
    Executor, Host, Interests, Row,
    clients::{Signal, Signaller},
};
use env::{Clock, Prng, SimClock, SimDisk, sim::SimDiskOptions};
use keyspace::Keyspace;
use lsn::Lsn;
use storage::{Durability, Log};
use wire::{DecodeLimits, Limits, RequestBatch, decode};

use crate::host::session_of;
use crate::{Recovered, WorldOptions, recover, sim_host};

/// Excluded commands: they concern the process or its group instead of data, or turn the connection into a
/// subscriber or a monitor, to which more is sent than replies.
const LEFT_OUT: [&str; 7] =
    ["shutdown", "debug", "monitor", "subscribe", "psubscribe", "ssubscribe", "group"];

/// Rounds after which a command counts as endless.
const ROUNDS_MAX: usize = 100_000;

/// Numbers, ranges and names as arguments.
const WORDS: [&str; 40] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "10",
    "100",
    "-3",
    "1.5",
    "-0.0",
    "3e2",
    "nan",
    "inf",
    "-inf",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "",
    "k0",
    "k1",
    "k2",
    "k3",
    "k4",
    "a",
    "b",
    "c",
    "*",
    "k*",
    "(1",
    "[a",
    "+",
    "-",
    "(b",
    "u8",
    "i63",
    "#2",
    "1700000000000",
    "13.361389",
    "38.115556",
    "\u{0}\u{1}\u{ff}",
];

/// The answers to the blocked command, with their gates.
type Answers = Arc<Mutex<Vec<(Arc<[u8]>, Lsn)>>>;

/// A simulated server with one connection.
pub struct SingleServer {
    options: WorldOptions,
    clock: Arc<SimClock>,
    disk: Arc<SimDisk>,
    keyspace: Arc<Keyspace>,
    log: Log,
    host: Host,
    executor: Executor,
    batch: RequestBatch,
    conversation: Conversation,
    answers: Answers,
}

impl SingleServer {
    /// Starts an empty server.
    ///
    /// # Panics
    /// If it cannot start.
    pub fn new(seed: u64) -> SingleServer {
        let options = WorldOptions {
            seed,
            durability: Durability::Strict,
            segment_bytes: 1 << 20,
            ..WorldOptions::default()
        };
        let disk = SimDisk::new(SimDiskOptions { seed, ..SimDiskOptions::default() });
        let clock = Arc::new(SimClock::new(1_700_000_000_000));
        let Recovered { keyspace, log } = recover(disk.clone(), &options, &clock).expect("an empty disk");
        let (host, _) = sim_host(clock.clone(), log.clone(), 1, None);
        let stats = host.stats.worker(0);
        let mut executor =
            Executor::new(commands::table(), keyspace.clone(), Arc::<Interests>::default(), stats, 1);
        executor.attach(log.appender());
        let answers = Answers::default();
        let conversation = conversation(&host, answers.clone());
        let batch = RequestBatch::new();
        SingleServer { options, clock, disk, keyspace, log, host, executor, batch, conversation, answers }
    }

    /// Sends one random command. Arguments are words of its own syntax and words that many commands
    /// understand.
    pub fn send_random(&mut self, prng: &mut Prng) {
        let rows: Vec<&Row> = commands::rows().iter().copied().filter(|row| is_sent(row)).collect();
        let row = rows[prng.below(rows.len() as u64) as usize];
        let mut words: Vec<Vec<u8>> = row.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        let least = usize::from(row.arity.unsigned_abs());
        let count = if prng.chance(80) { least } else { 0 } + prng.below(5) as usize;
        let options: Vec<&str> =
            row.syntax.split(|letter: char| !letter.is_ascii_uppercase()).filter(|it| it.len() > 1).collect();
        while words.len() < count {
            let word = match prng.below(10) {
                0..4 if !options.is_empty() => options[prng.below(options.len() as u64) as usize].to_string(),
                0..6 => format!("k{}", prng.below(5)),
                _ => WORDS[prng.below(WORDS.len() as u64) as usize].to_string(),
            };
            words.push(word.into_bytes());
        }
        self.send(&words);
        if prng.chance(3) {
            self.clock.advance_ms(prng.below(5000));
        }
    }

    /// Sends one command and takes its replies.
    ///
    /// # Panics
    /// If a reply does not decode, or the command never ends.
    pub fn send(&mut self, words: &[Vec<u8>]) {
        let mut request = Vec::new();
        wire::request::encode(words, &mut request);
        let mut state = self.round(|conversation, round| conversation.receive(&request, round));
        for _ in 0..ROUNDS_MAX {
            self.take_replies(words);
            match state {
                ConversationState::Idle => return,
                ConversationState::Closing => {
                    self.conversation = conversation(&self.host, self.answers.clone());
                    return;
                }
                ConversationState::Blocked => self.end_wait(),
                ConversationState::Paused | ConversationState::Held => {
                    // A pause of clients may be years long: an administrator ends it.
                    self.host.clients.pause().end();
                    self.conversation.session.end_pause(&self.host.clients);
                }
                // There are no subscribers to wait for.
                ConversationState::WaitForSubscribers => drop(self.executor.channels().take_backpressure()),
                ConversationState::WaitForLog
                | ConversationState::WaitForClient
                | ConversationState::More => self.flush(),
                ConversationState::Away => unreachable!("this executor hands nothing over"),
            }
            state = self.round(Conversation::resume);
        }
        let shown: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        panic!("{shown:?} does not end: {state:?}");
    }

    /// Ends the wait of the blocked command with the answer that another part of the server has sent (as to
    /// WAIT). If there is none, ends the wait as a timeout does.
    fn end_wait(&mut self) {
        let answer = self.answers.lock().expect("no panic under the lock").pop();
        match answer {
            Some((bytes, gate)) => self.conversation.answer(&bytes, gate, self.log.committed_lsn()),
            None => drop(self.conversation.time_out(&self.host)),
        }
    }

    /// Checks that the log has everything that is in memory.
    ///
    /// # Panics
    /// If a replay of the log gives another content.
    pub fn check(&mut self) {
        self.keyspace.check();
        self.flush();
        let replayed =
            recover(self.disk.clone_state(), &self.options, &self.clock).expect("the log is whole");
        replayed.keyspace.check();
        assert_eq!(
            replayed.keyspace.digest(),
            self.keyspace.digest(),
            "what replays is not what was in memory"
        );
    }

    fn round(
        &mut self,
        run: impl FnOnce(&mut Conversation, &mut Round<'_>) -> ConversationState,
    ) -> ConversationState {
        let mut round = Round {
            executor: &mut self.executor,
            batch: &mut self.batch,
            host: &self.host,
            now_ms: self.clock.unix_ms(),
            limits: Limits::DEFAULT,
            flush_alone: None,
            is_congested: false,
        };
        let state = run(&mut self.conversation, &mut round);
        drop(self.executor.take_freed());
        state
    }

    fn flush(&mut self) {
        self.log.flush_all().expect("a simulated disk works");
        self.log.prepare_segment().expect("a simulated disk works");
    }

    fn take_replies(&mut self, words: &[Vec<u8>]) {
        self.conversation.outbox.release(lsn::Lsn::MAX);
        let mut rest = self.conversation.outbox.sendable();
        while !rest.is_empty() {
            let decoded = decode(rest, &DecodeLimits::DEFAULT);
            let Ok(Some((_, len))) = decoded else {
                let shown: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                panic!("{shown:?} was answered with {:?}: {decoded:?}", rest.escape_ascii().to_string());
            };
            rest = &rest[len..];
        }
        let len = self.conversation.outbox.sendable().len();
        self.conversation.outbox.consume(len);
    }
}

fn is_sent(row: &Row) -> bool {
    let name = row.name.split('|').next().unwrap_or_default();
    !LEFT_OUT.contains(&name)
}

/// A conversation whose signaller puts the answers to a blocked command into `answers`.
fn conversation(host: &Host, answers: Answers) -> Conversation {
    let signaller: Signaller = Box::new(move |_, signal| {
        if let Signal::Answer { bytes, gate } = signal {
            answers.lock().expect("no panic under the lock").push((bytes, gate));
        }
    });
    Conversation::new(session_of(host, 1, signaller))
}
