//! Simulated queues: clients that push, clients that wait, and interruptions.
//!
//! ```text
//! step = one of: a client sends or times out | a signal reaches its worker | a flush |
//!               replies are delivered | a client hangs up | time passes | the elements are checked
//! ```
//! A signal to a client's worker arrives in a step of its own, after any number of other steps.
//!
//! This module drives the clients, and checks that waiting clients are served in order. The elements are
//! checked by the [`Ledger`]. Unlike in a [`World`](crate::World), lists are the only data.

mod client;
mod request;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use engine::conversation::{Conversation, ConversationState, Round};
use engine::{Executor, Host, Interests, clients::Signal};
use env::{Clock, Prng, SimClock, SimDisk};
use keyspace::{DbId, Keyspace, View, slot_of};
use lsn::Lsn;
use recovery::recover::RecoverError;
use storage::{Flush, Log};
use wire::{DecodeLimits, Limits, RequestBatch, Value, decode};

use crate::host::session_of;
use crate::{
    Ledger, Recovered, Sabotage, Violation, WorldOptions, ledger::Element, recover, sim_host, start::WORKERS,
};
use client::Client;
use request::{Fact, Request, fact, key, number, unexpected};

const QUEUES: u64 = 5;
const PIPELINE_MAX: u64 = 4;

type Signals = Arc<Mutex<Vec<(u64, Signal)>>>;

/// A simulated server with clients that push to, pop from and wait for queues.
pub struct QueueWorld {
    options: WorldOptions,
    disk: Arc<SimDisk>,
    clock: Arc<SimClock>,
    /// The invariants of the elements.
    pub ledger: Ledger,
    keyspace: Arc<Keyspace>,
    log: Log,
    host: Host,
    executors: Vec<Executor>,
    batch: RequestBatch,
    clients: Vec<Client>,
    /// The signals of the current round.
    signalled: Signals,
    /// Signals that have not reached the worker of their client yet.
    on_the_way: VecDeque<(u64, Signal)>,
    next_element: Element,
    next_ticket: u64,
    prng: Prng,
}

impl QueueWorld {
    /// Starts a server on an empty disk.
    ///
    /// # Errors
    /// As [`recover`].
    pub fn start(
        options: WorldOptions,
        disk: Arc<SimDisk>,
        clock: Arc<SimClock>,
    ) -> Result<QueueWorld, RecoverError> {
        let Recovered { keyspace, log } = recover(disk.clone(), &options, &clock)?;
        let (host, _) = sim_host(clock.clone(), log.clone(), WORKERS, None);
        let interests = Arc::<Interests>::default();
        let executor = |worker: usize| {
            let stats = host.stats.worker(worker);
            let mut executor =
                Executor::new(commands::table(), keyspace.clone(), interests.clone(), stats, 1);
            executor.attach(log.appender());
            executor
        };
        let executors = (0..WORKERS).map(executor).collect();
        let mut world = QueueWorld {
            disk,
            clock,
            ledger: Ledger::default(),
            keyspace,
            log,
            host,
            executors,
            batch: RequestBatch::new(),
            clients: Vec::new(),
            signalled: Signals::default(),
            on_the_way: VecDeque::new(),
            next_element: 1,
            next_ticket: 0,
            prng: Prng::new(options.seed),
            options,
        };
        world.clients = (0..options.clients).map(|index| world.connect(index)).collect();
        Ok(world)
    }

    fn connect(&self, index: usize) -> Client {
        let signalled = self.signalled.clone();
        let signaller = Box::new(move |id, signal| signalled.lock().expect("one thread").push((id, signal)));
        let session = session_of(&self.host, index, signaller);
        Client::new(Conversation::new(session), index % WORKERS)
    }

    /// The simulated disk.
    pub fn disk(&self) -> &Arc<SimDisk> {
        &self.disk
    }

    /// Runs `steps` steps, or fewer if the machine stops.
    ///
    /// # Errors
    /// The first violation.
    pub fn run(&mut self, steps: usize) -> Result<(), Violation> {
        for _ in 0..steps {
            if self.disk.has_stopped() {
                break;
            }
            let index = self.prng.below(self.clients.len() as u64) as usize;
            match self.prng.below(100) {
                0..40 => self.client_step(index)?,
                40..60 => self.signal_step()?,
                60..75 => self.flush(),
                75..92 => self.deliver(index),
                92..97 => self.clock.advance_us(self.prng.below(400_000)),
                _ if self.prng.chance(30) => self.hang_up(index),
                _ => self.ledger.check(&lists(&self.keyspace))?,
            }
        }
        self.ledger.check(&lists(&self.keyspace))
    }

    fn client_step(&mut self, index: usize) -> Result<(), Violation> {
        let client = &mut self.clients[index];
        match client.state {
            ConversationState::Idle => {
                let input = self.pipeline(index);
                self.round(index, |conversation, round| conversation.receive(&input, round))
            }
            ConversationState::Blocked => {
                let now_ms = self.clock.unix_ms();
                if client.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
                    client.deadline_ms = None;
                    if client.conversation.time_out(&self.host) {
                        client.ticket = None;
                        return self.round(index, Conversation::resume);
                    }
                } else if self.prng.chance(20) && self.clients[index].open.len() < PIPELINE_MAX as usize {
                    let input = self.pipeline(index);
                    self.clients[index].conversation.keep(&input);
                }
                Ok(())
            }
            _ => self.round(index, Conversation::resume),
        }
    }

    /// Generates the next requests of a client.
    fn pipeline(&mut self, index: usize) -> Vec<u8> {
        let mut input = Vec::new();
        for _ in 0..1 + self.prng.below(PIPELINE_MAX) {
            let next = self.request(index);
            next.encode(&mut input);
            self.clients[index].open.push_back(next);
        }
        input
    }

    fn request(&mut self, index: usize) -> Request {
        let prng = &mut self.prng;
        let (queue, other, at_head) = (prng.below(QUEUES), prng.below(QUEUES), prng.chance(50));
        let timeout_ms = if prng.chance(50) { 0 } else { 1 + prng.below(2000) };
        let id = self.clients[prng.below(self.clients.len() as u64) as usize].id();
        // The first client never waits, so that one client is always able to push. The others take more than
        // they push, so that lists are empty most of the time.
        let drawn = if index == 0 { prng.below(50) } else { 25 + prng.below(75) };
        match drawn {
            0..46 => {
                let first = self.next_element;
                self.next_element += if prng.chance(75) { 1 } else { 3 };
                Request::Push { at_head, queue, elements: (first..self.next_element).collect() }
            }
            46..48 => Request::Take(queue),
            48 => Request::Kill(id),
            49 => Request::Unblock(id),
            50..96 => {
                let queues = (0..1 + prng.below(3)).map(|_| prng.below(QUEUES)).collect();
                Request::Pop { at_head, queues, timeout_ms }
            }
            _ => Request::Move { from: queue, to: other, timeout_ms },
        }
    }

    /// Runs commands of one client and checks every reply and signal.
    fn round(
        &mut self,
        index: usize,
        run: impl FnOnce(&mut Conversation, &mut Round<'_>) -> ConversationState,
    ) -> Result<(), Violation> {
        let is_moving = |client: &Client| {
            client.ticket.is_some() && matches!(client.open.front(), Some(Request::Move { .. }))
        };
        // Clients that wait to move an element are not always served in the record of the push, nor are the
        // clients that wait behind them.
        let any_moves = self.clients.iter().any(is_moving);
        let client = &mut self.clients[index];
        let executor = &mut self.executors[client.worker];
        let (batch, host, now_ms) = (&mut self.batch, &self.host, self.clock.unix_ms());
        let mut round = Round {
            executor,
            batch,
            host,
            now_ms,
            limits: Limits::DEFAULT,
            is_congested: false,
            flush_alone: None,
        };
        client.state = run(&mut client.conversation, &mut round);
        drop(executor.take_freed());
        let mut pushed = Vec::new();
        for (end, reply) in client.take_new_replies() {
            let Some(request) = client.open.pop_front() else {
                return Err(Violation::Protocol(format!("a reply to no request: {reply:?}")));
            };
            let fact = fact(request, &reply)?;
            match &fact {
                Fact::Pushed(elements) => {
                    self.ledger.pushes(elements);
                    pushed.extend(elements);
                }
                // The element of an answer to a waiting client was noted when the answer was sent.
                Fact::Popped(element) if !client.is_answered => self.ledger.pops(*element)?,
                _ => {}
            }
            client.is_answered = false;
            client.undelivered.push_back((end, fact));
        }
        for element in self.take_signals()? {
            if !any_moves && pushed.contains(&element) {
                self.ledger.passes_on(element);
            }
        }
        let client = &mut self.clients[index];
        if client.state == ConversationState::Blocked {
            client.ticket = Some(self.next_ticket);
            client.deadline_ms = client.conversation.wait_timeout_ms().map(|ms| now_ms + ms);
            self.next_ticket += 1;
        }
        Ok(())
    }

    /// Takes the signals of a round, and puts them in transit. A signal ends the wait of its client, if the
    /// client waits. Returns the elements popped for waiting clients.
    fn take_signals(&mut self) -> Result<Vec<Element>, Violation> {
        let mut popped = Vec::new();
        let signalled = std::mem::take(&mut *self.signalled.lock().expect("one thread"));
        for (id, signal) in signalled {
            let index = self.clients.iter().position(|client| client.id() == id);
            let index = index.ok_or_else(|| Violation::Protocol(format!("{id} is gone: {signal:?}")))?;
            let ticket = self.clients[index].ticket.take();
            if let Signal::Answer { bytes, .. } = &signal {
                let answer = decode(bytes, &DecodeLimits::DEFAULT).expect("replies are well formed");
                let (answer, _) = answer.expect("an answer is a whole reply");
                let request = self.clients[index].open.front().cloned();
                let (Some(ticket), Some(request)) = (ticket, request) else {
                    return Err(Violation::Protocol(format!("{id} did not wait: {answer:?}")));
                };
                self.check_order(ticket, &request, &answer)?;
                if let Fact::Popped(element) = fact(request, &answer)? {
                    self.ledger.pops(element)?;
                    popped.push(element);
                }
            }
            self.on_the_way.push_back((id, signal));
        }
        Ok(popped)
    }

    /// Checks that no client that began to wait earlier is still waiting for the key of this answer.
    fn check_order(&self, ticket: u64, request: &Request, answer: &Value) -> Result<(), Violation> {
        let served = match (request, answer) {
            (Request::Move { from, .. }, Value::Bulk(_)) => *from,
            (Request::Pop { queues, .. }, Value::Array(parts)) => {
                let is_key = |queue: &&u64| parts.first() == Some(&Value::Bulk(key(**queue).into_bytes()));
                *queues.iter().find(is_key).ok_or_else(|| unexpected(request, answer))?
            }
            _ => return Ok(()),
        };
        let is_before = |client: &&Client| {
            client.ticket.is_some_and(|other| other < ticket)
                && client.open.front().is_some_and(|request| request.queues().contains(&served))
        };
        match self.clients.iter().find(is_before) {
            None => Ok(()),
            Some(client) => {
                let text = format!("{:?} was passed over for {request:?}: {answer:?}", client.open.front());
                Err(Violation::Protocol(text))
            }
        }
    }

    /// One of the signals in transit arrives.
    fn signal_step(&mut self) -> Result<(), Violation> {
        if self.on_the_way.is_empty() {
            return Ok(());
        }
        let chosen = self.prng.below(self.on_the_way.len() as u64) as usize;
        let Some((id, signal)) = self.on_the_way.remove(chosen) else { return Ok(()) };
        let Some(index) = self.clients.iter().position(|client| client.id() == id) else { return Ok(()) };
        match signal {
            Signal::Close => self.hang_up(index),
            Signal::Review | Signal::GoOn => {}
            Signal::Answer { bytes, gate } => {
                let client = &mut self.clients[index];
                client.conversation.answer(&bytes, gate, self.log.durable_lsn());
                (client.is_answered, client.deadline_ms) = (true, None);
                self.round(index, Conversation::resume)?;
            }
            Signal::Push { .. } => return Err(Violation::Protocol("nothing is pushed".into())),
        }
        Ok(())
    }

    /// A client disconnects, and another one takes its place.
    fn hang_up(&mut self, index: usize) {
        let next = self.connect(index);
        let gone = std::mem::replace(&mut self.clients[index], next);
        self.host.clients.remove(gone.id());
    }

    fn flush(&mut self) {
        if let Ok(Flush::NeedSegment) = self.log.flush() {
            // A failure shows as replies that are never sent.
            drop(self.log.prepare_segment());
        }
    }

    /// Delivers all or a part of the released replies to a client.
    fn deliver(&mut self, index: usize) {
        let durable = match self.options.sabotage {
            Some(Sabotage::EarlyReplies) => Lsn::MAX,
            _ => self.log.durable_lsn(),
        };
        let client = &mut self.clients[index];
        let outbox = &mut client.conversation.outbox;
        outbox.release(durable);
        let all = outbox.sendable().len() as u64;
        let bytes = if self.prng.chance(20) { self.prng.below(all + 1) } else { all };
        outbox.consume(bytes as usize);
        client.delivered_bytes += bytes;
        while let Some((end, fact)) = client.undelivered.pop_front() {
            if end > client.delivered_bytes {
                client.undelivered.push_front((end, fact));
                break;
            }
            match fact {
                Fact::Pushed(elements) => self.ledger.delivers_push(&elements),
                Fact::Popped(element) => self.ledger.delivers_pop(element),
                Fact::Nothing => {}
            }
        }
    }
}

/// The elements of all queues.
///
/// # Panics
/// If the key of a queue holds anything but a list of numbers.
pub fn lists(keyspace: &Keyspace) -> Vec<Element> {
    let mut elements = Vec::new();
    for queue in 0..QUEUES {
        let key = key(queue).into_bytes();
        let slot = keyspace.lock(slot_of(&key));
        let Some(entry) = slot.get_raw(DbId::ZERO, &keyspace.hash(&key), &key) else { continue };
        let View::List(list) = entry.view() else { panic!("there are only lists") };
        let numbers = list.range(0..list.len()).map(|element| number(&element));
        elements.extend(numbers.map(|number| number.expect("elements are numbers")));
    }
    elements
}
