//! Publishers and readers of durable channels on a simulated disk, until the machine stops.
//!
//! ```text
//! publishers -> engine::conversation::Conversation -> executor -> log
//! log -- LogMessages -> pubsub's Readers -> readers, each at its own pace
//! ```
//!
//! What it is: one incarnation of a server with the product's own thread of durable channels, step by step,
//! and the acknowledgements and messages that its clients got.
//! What it is not: a simulation of SUBSCRIBE, whose messages do not come from the log.
//!
//! Invariants
//! - A publisher numbers its messages for each channel, so lost, repeated and invented messages are detected.
//! - A message that was handed to a reader counts as shown, whether the reader has taken it or not.

use std::{collections::VecDeque, sync::Arc};

use engine::{Executor, Host, Interests};
use engine::{
    conversation::{Conversation, ConversationState, Round},
    log_messages::LogMessages,
};
use env::{Clock, Prng, SimClock, SimDisk};
use pubsub::{
    Delivery,
    durable::{Flow, From, LogSource, Part, Position, Read, ReaderEvent, ReaderId, Readers},
};
use storage::{Durability, Flush, Log};
use wire::{DecodeLimits, Limits, Protocol, RequestBatch, Value, decode};

use crate::host::session_of;
use crate::{Recovered, Violation, WorldOptions, recover, sim_host, start::WORKERS};

/// The channels, which the host treats as durable.
const CHANNELS: [&str; 2] = ["durable:a", "durable:b"];
const READERS: u64 = 3;
/// A reader with more unsent bytes is left behind; the number is so small that this happens often.
const WINDOW_BYTES: u64 = 2 << 10;

/// A message as shown to a reader: its position and payload.
type Shown = (Position, Vec<u8>);

/// A message of a publisher: the index of the channel, and the number of the publisher's earlier messages
/// there.
type Numbered = (usize, u64);

struct Publisher {
    conversation: Conversation,
    state: ConversationState,
    next: [u64; CHANNELS.len()],
    /// The messages acknowledged by each outstanding reply.
    due: VecDeque<Vec<Numbered>>,
    received: Vec<u8>,
    /// The number of acknowledged messages per channel.
    acknowledged: [u64; CHANNELS.len()],
}

struct Reader {
    id: ReaderId,
    flow: Arc<Flow>,
    channel: usize,
    begun_at: Option<Position>,
    shown: Vec<Shown>,
    unsent: u64,
}

/// A simulated server with publishers and readers of durable channels.
pub struct ChannelWorld {
    disk: Arc<SimDisk>,
    clock: Arc<SimClock>,
    log: Log,
    host: Host,
    executors: Vec<Executor>,
    batch: RequestBatch,
    publishers: Vec<Publisher>,
    machine: Readers,
    source: LogMessages,
    readers: Vec<Reader>,
    prng: Prng,
    /// Whether a reply guarantees that the message survives a crash.
    keeps_acknowledged: bool,
}

impl ChannelWorld {
    /// Starts a server on an empty disk.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn start(options: WorldOptions, disk: Arc<SimDisk>, clock: Arc<SimClock>) -> ChannelWorld {
        let Recovered { keyspace, log } =
            recover(disk.clone(), &options, &clock).expect("a sound disk starts");
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
        let publisher = |index: usize| Publisher {
            conversation: Conversation::new(session_of(&host, index, Box::new(|_, _| {}))),
            state: ConversationState::Idle,
            next: [0; CHANNELS.len()],
            due: VecDeque::new(),
            received: Vec::new(),
            acknowledged: [0; CHANNELS.len()],
        };
        let publishers = (0..options.clients).map(publisher).collect();
        let reader = |number: u64| Reader {
            id: ReaderId { client_id: number, generation: 0 },
            flow: Arc::new(Flow::new(|| {})),
            channel: number as usize % CHANNELS.len(),
            begun_at: None,
            shown: Vec::new(),
            unsent: 0,
        };
        ChannelWorld {
            source: LogMessages::new(&log),
            disk,
            clock,
            log,
            host,
            executors,
            batch: RequestBatch::new(),
            publishers,
            machine: Readers::new(1, WINDOW_BYTES),
            readers: (0..READERS).map(reader).collect(),
            prng: Prng::new(options.seed),
            keeps_acknowledged: matches!(options.durability, Durability::Strict | Durability::Commit),
        }
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
            let index = self.prng.below(self.publishers.len() as u64) as usize;
            match self.prng.below(100) {
                0..30 => self.publisher_step(index),
                30..50 => self.flush(),
                50..65 => self.deliver(index)?,
                65..85 => _ = self.machine.step(&mut self.source),
                85..97 => self.reader_step(),
                _ => self.clock.advance_us(self.prng.below(5_000)),
            }
            self.take_feeds()?;
        }
        Ok(())
    }

    fn publisher_step(&mut self, index: usize) {
        let worker = index % WORKERS;
        let input = match self.publishers[index].state {
            ConversationState::Idle if self.publishers[index].due.len() < 40 => Some(self.pipeline(index)),
            ConversationState::Idle => return,
            _ => None,
        };
        let (publisher, executor) = (&mut self.publishers[index], &mut self.executors[worker]);
        let mut round = Round {
            executor,
            batch: &mut self.batch,
            host: &self.host,
            now_ms: self.clock.unix_ms(),
            limits: Limits::DEFAULT,
            flush_alone: None,
            is_congested: false,
        };
        publisher.state = match input {
            Some(input) => publisher.conversation.receive(&input, &mut round),
            None => publisher.conversation.resume(&mut round),
        };
        drop((executor.take_freed(), executor.take_notices()));
    }

    /// The requests for some messages, alone or in a transaction.
    fn pipeline(&mut self, index: usize) -> Vec<u8> {
        let (publisher, mut input) = (&mut self.publishers[index], Vec::new());
        let count = 1 + self.prng.below(6);
        let is_transaction = self.prng.chance(30);
        let mut all = Vec::new();
        let mut send = |words: &[&[u8]], due: &mut VecDeque<Vec<Numbered>>, acknowledges: Vec<Numbered>| {
            wire::request::encode(words, &mut input);
            due.push_back(acknowledges);
        };
        if is_transaction {
            send(&[b"MULTI"], &mut publisher.due, Vec::new());
        }
        for _ in 0..count {
            let channel = self.prng.below(CHANNELS.len() as u64) as usize;
            let number = publisher.next[channel];
            publisher.next[channel] += 1;
            // Some are so large that their record has several parts.
            let padding =
                [0, 10, 1000, 20_000][if self.prng.chance(3) { 3 } else { self.prng.below(3) as usize }];
            let payload = format!("{index} {number} {}", "x".repeat(padding));
            let acknowledges = if is_transaction { Vec::new() } else { vec![(channel, number)] };
            send(
                &[b"PUBLISH", CHANNELS[channel].as_bytes(), payload.as_bytes()],
                &mut publisher.due,
                acknowledges,
            );
            all.push((channel, number));
        }
        if is_transaction {
            send(&[b"SET", b"k", b"v"], &mut publisher.due, Vec::new());
            send(&[b"EXEC"], &mut publisher.due, all);
        }
        input
    }

    fn flush(&mut self) {
        if let Ok(Flush::NeedSegment) = self.log.flush() {
            // A failure shows as replies that are never sent.
            drop(self.log.prepare_segment());
        }
    }

    /// Delivers released replies to a publisher.
    fn deliver(&mut self, index: usize) -> Result<(), Violation> {
        let publisher = &mut self.publishers[index];
        let outbox = &mut publisher.conversation.outbox;
        outbox.release(self.log.durable_lsn());
        let bytes = outbox.sendable().len();
        publisher.received.extend_from_slice(outbox.sendable());
        outbox.consume(bytes);
        for value in take_values(&mut publisher.received)? {
            let acknowledged = publisher.due.pop_front();
            match value {
                // A publish that was refused because the disk has failed did not happen.
                Value::Error(_) => {}
                _ => acknowledged
                    .into_iter()
                    .flatten()
                    .for_each(|(channel, number)| publisher.acknowledged[channel] = number + 1),
            }
        }
        Ok(())
    }

    /// A reader subscribes, or takes some of its unsent bytes and sometimes subscribes anew.
    fn reader_step(&mut self) {
        let index = self.prng.below(READERS) as usize;
        let reader = &mut self.readers[index];
        if reader.begun_at.is_some() {
            let bytes = self.prng.below(reader.unsent + 1);
            reader.unsent -= bytes;
            reader.flow.take(bytes);
            if self.prng.chance(10) {
                self.machine.leave(reader.id);
                reader.id.generation += 1;
                let last = reader.shown.last().map(|(position, _)| *position);
                let from = last.or(reader.begun_at).map_or(From::Oldest, From::After);
                (reader.flow, reader.unsent) = (Arc::new(Flow::new(|| {})), 0);
                self.begin(index, from);
            }
        } else {
            let from = if self.prng.chance(50) { From::Oldest } else { From::Now };
            self.begin(index, from);
        }
    }

    fn begin(&mut self, index: usize, from: From) {
        let reader = &mut self.readers[index];
        // If the log cannot be read, the disk is about to stop.
        let Ok((position, at)) = self.source.place(from, self.machine.tail()) else { return };
        let who = (reader.id, 0, reader.flow.clone());
        self.machine.subscribe(who, CHANNELS[reader.channel].as_bytes().into(), position, at);
    }

    fn take_feeds(&mut self) -> Result<(), Violation> {
        let (readers, mut taken) = (&mut self.readers, Ok(()));
        let has_stopped = self.disk.has_stopped();
        self.machine.take_feeds(|_, feed| {
            for part in feed.parts() {
                let done = match part {
                    Part::Frames(run) => {
                        let (mut delivery, mut bytes) = (Delivery::default(), Vec::new());
                        run.encode(Protocol::Resp2).deliver_to(&mut delivery);
                        delivery.append_to(&mut bytes);
                        let mut to = readers.iter_mut().filter(|reader| run.to.contains(&reader.id));
                        to.try_for_each(|reader| reader.hear(bytes.clone()))
                    }
                    Part::ReaderEvent(ReaderEvent::Subscribed { reader: id, position, .. }) => {
                        let found = readers.iter_mut().find(|reader| reader.id == *id);
                        found.into_iter().for_each(|it| _ = it.begun_at.get_or_insert(*position));
                        Ok(())
                    }
                    // The disk cannot be read any more.
                    Part::ReaderEvent(ReaderEvent::Lost { .. }) if has_stopped => Ok(()),
                    Part::ReaderEvent(told) => Err(Violation::Protocol(format!("{told:?}"))),
                };
                if taken.is_ok() {
                    taken = done;
                }
            }
        });
        taken
    }

    /// The number of messages that readers were shown.
    pub fn shown(&self) -> usize {
        self.readers.iter().map(|reader| reader.shown.len()).sum()
    }

    /// Checks the log of a server that was started on the remaining disk.
    ///
    /// # Errors
    /// If a message that was shown is missing, or one that was acknowledged and is guaranteed to survive, or
    /// if there is a message that was never published.
    pub fn judge(&self, log: &Log) -> Result<(), Violation> {
        let mut source = LogMessages::new(log);
        for reader in &self.readers {
            let Some(begun_at) = reader.begun_at else { continue };
            let kept = messages(&mut source, reader.channel)?;
            let behind: Vec<&Shown> =
                kept.iter().filter(|(position, _)| position.lsn > begun_at.lsn).collect();
            if !reader.shown.iter().eq(behind.iter().take(reader.shown.len()).copied()) {
                return Err(Violation::Protocol(format!("{:?} was shown something else", reader.id)));
            }
            let last = reader.shown.last().map_or(begun_at, |(position, _)| *position);
            let place = source.place(From::After(last), None);
            if !reader.shown.is_empty() && place.is_err() {
                return Err(Violation::Protocol(format!("{last} was shown: {place:?}")));
            }
        }
        (0..CHANNELS.len())
            .try_for_each(|channel| self.judge_numbers(channel, &messages(&mut source, channel)?))
    }

    /// The messages of each publisher must be numbered without a gap. If replies guarantee that, they must
    /// reach the last acknowledged one.
    fn judge_numbers(&self, channel: usize, kept: &[Shown]) -> Result<(), Violation> {
        let mut found = vec![0; self.publishers.len()];
        for (position, payload) in kept {
            let text = String::from_utf8_lossy(payload);
            let mut words = text.split(' ').map(str::parse::<u64>);
            let (Some(Ok(publisher)), Some(Ok(number))) = (words.next(), words.next()) else {
                return Err(Violation::Protocol(format!("{position}: nobody has published that")));
            };
            let expected = &mut found[publisher as usize];
            if number != *expected {
                return Err(Violation::Protocol(format!("{position}: {number} instead of {expected}")));
            }
            *expected += 1;
        }
        for (publisher, found) in self.publishers.iter().zip(found) {
            let least = if self.keeps_acknowledged { publisher.acknowledged[channel] } else { 0 };
            let most = publisher.next[channel];
            if !(least..=most).contains(&found) {
                return Err(Violation::Protocol(format!("{found} messages of {least} to {most}")));
            }
        }
        Ok(())
    }
}

impl Reader {
    fn hear(&mut self, mut bytes: Vec<u8>) -> Result<(), Violation> {
        self.unsent += bytes.len() as u64;
        for value in take_values(&mut bytes)? {
            let Value::Array(parts) = &value else { return Err(Violation::Protocol(format!("{value:?}"))) };
            let [_, Value::Bulk(channel), Value::Bulk(position), Value::Bulk(payload)] = &parts[..] else {
                return Err(Violation::Protocol(format!("{value:?}")));
            };
            let position = Position::parse(position).filter(|_| channel == CHANNELS[self.channel].as_bytes());
            let Some(position) = position else { return Err(Violation::Protocol(format!("{value:?}"))) };
            self.shown.push((position, payload.to_vec()));
        }
        Ok(())
    }
}

/// All messages of a channel in the log.
fn messages(source: &mut LogMessages, channel: usize) -> Result<Vec<Shown>, Violation> {
    let oldest = source.oldest().map_err(|error| Violation::Protocol(error.to_string()))?;
    let (mut at, mut found) = (oldest.lsn, Vec::new());
    loop {
        let read = source.read(at, &mut |message| {
            if message.channel == CHANNELS[channel].as_bytes() {
                found.push((message.position, message.payload.to_vec()));
            }
        });
        match read {
            Read::UpTo(end) => at = end,
            Read::Nothing => return Ok(found),
            Read::Forgotten(oldest) => return Err(Violation::Protocol(format!("only from {oldest} on"))),
        }
    }
}

/// Takes complete values from the front.
fn take_values(bytes: &mut Vec<u8>) -> Result<Vec<Value>, Violation> {
    let (mut values, mut taken) = (Vec::new(), 0);
    while let Some((value, len)) = decode(&bytes[taken..], &DecodeLimits::DEFAULT)
        .map_err(|error| Violation::Protocol(format!("{error:?}")))?
    {
        values.push(value);
        taken += len;
    }
    bytes.drain(..taken);
    Ok(values)
}
