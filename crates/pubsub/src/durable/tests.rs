//! Readers against a model: in random orders of events, each reader gets every message of its channels after
//! its position once, in order, and nothing else.

#![allow(clippy::unwrap_used)]

use std::{collections::HashMap, sync::Arc};

use lsn::Lsn;
use proptest::prelude::*;
use wire::{DecodeLimits, Protocol, Value, decode};

use super::*;
use crate::delivery::Delivery;

const CHANNELS: [&str; 3] = ["a", "b", "c"];
const WINDOW: u64 = 400;
const EPOCH: u32 = 7;

/// LSNs with the numbers of their channels.
type Messages = Vec<(Lsn, usize)>;

/// A log in memory: batches (start, end, messages).
#[derive(Default)]
struct FakeLog {
    batches: Vec<(Lsn, Lsn, Messages)>,
    start: Lsn,
    /// The number of batches that one read covers.
    piece: usize,
    /// The number of batches that are appended and may not be read yet.
    hidden: usize,
    /// Whether batches stay hidden when they are appended.
    hides: bool,
}

impl FakeLog {
    fn end(&self) -> Lsn {
        self.batches.last().map_or(Lsn::ZERO, |(_, end, _)| *end)
    }

    fn append(&mut self, channels: &[usize]) {
        let start = self.end();
        let messages = (1..).map(|number| start.advance(number)).zip(channels.iter().copied()).collect();
        self.batches.push((start, start.advance(4096), messages));
        self.hidden += usize::from(self.hides);
        self.hidden *= usize::from(self.hides);
    }

    /// The end of the readable part of the log.
    fn shown_end(&self) -> Lsn {
        let shown = self.batches.len() - self.hidden;
        shown.checked_sub(1).map_or(Lsn::ZERO, |last| self.batches[last].1)
    }

    fn hide(&mut self, hides: bool) {
        self.hides = hides;
        self.hidden *= usize::from(hides);
    }

    /// LSNs of all messages of a channel, including those no longer held.
    fn messages(&self, channel: usize) -> impl Iterator<Item = Lsn> {
        let all = self.batches.iter().flat_map(|(.., messages)| messages);
        all.filter(move |(_, of)| *of == channel).map(|(lsn, _)| *lsn)
    }

    /// The last batch boundary at or before an LSN; the start of the log if no batch holds the LSN.
    fn batch_start(&self, lsn: Lsn) -> Lsn {
        let found = self.batches.iter().find(|(start, end, _)| *start < lsn && lsn <= *end);
        found.map_or(self.start, |(start, end, _)| if *end == lsn { *end } else { *start })
    }
}

impl LogSource for FakeLog {
    fn read(&mut self, from: Lsn, each: &mut dyn FnMut(&DurableMessage<'_>)) -> Read {
        if from < self.start {
            return Read::Forgotten(Position { epoch: EPOCH, lsn: self.start, reign: 0 });
        }
        let (mut end, shown_end) = (None, self.shown_end());
        let shown = self.batches.iter().filter(|(start, end, _)| *start >= from && *end <= shown_end);
        for (_, batch_end, messages) in shown.take(self.piece) {
            for (lsn, channel) in messages {
                let position = Position { epoch: EPOCH, lsn: *lsn, reign: 0 };
                each(&DurableMessage {
                    position,
                    channel: CHANNELS[*channel].as_bytes(),
                    payload: &lsn.get().to_le_bytes(),
                });
            }
            end = Some(*batch_end);
        }
        end.map_or(Read::Nothing, Read::UpTo)
    }
}

struct Client {
    id: ReaderId,
    flow: Arc<Flow>,
    unsent: u64,
    /// For each channel: the position at which the subscription began, and the messages received.
    heard: HashMap<usize, (Lsn, Vec<Lsn>)>,
}

struct World {
    log: FakeLog,
    readers: Readers,
    clients: Vec<Client>,
}

impl World {
    fn new(clients: usize) -> World {
        let client = |number: usize| Client {
            id: ReaderId { client_id: number as u64, generation: 0 },
            flow: Arc::new(Flow::new(|| {})),
            unsent: 0,
            heard: HashMap::new(),
        };
        let clients = (0..clients).map(client).collect();
        World { log: FakeLog { piece: 1, ..FakeLog::default() }, readers: Readers::new(2, WINDOW), clients }
    }

    fn subscribe(&mut self, client: usize, channel: usize, after: Lsn) {
        let after = after.max(self.log.start);
        let (position, at) = (Position { epoch: EPOCH, lsn: after, reign: 0 }, self.log.batch_start(after));
        let Client { id, flow, .. } = &self.clients[client];
        let who = (*id, client % 2, flow.clone());
        self.readers.subscribe(who, CHANNELS[channel].as_bytes().into(), position, at);
        self.collect();
    }

    /// Takes the feeds and checks that each contains the expected next messages.
    fn collect(&mut self) {
        let World { log, readers, clients } = self;
        readers.take_feeds(|worker, feed| {
            for part in feed.parts() {
                match part {
                    Part::Frames(run) => {
                        let protocol = if worker == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
                        let (mut delivery, mut bytes) = (Delivery::default(), Vec::new());
                        run.encode(protocol).deliver_to(&mut delivery);
                        delivery.append_to(&mut bytes);
                        assert_eq!(bytes.len(), run.len());
                        for id in run.to {
                            let client = &mut clients[id.client_id as usize];
                            assert_eq!(id.client_id as usize % 2, worker);
                            client.unsent += bytes.len() as u64;
                            client.hear(log, &bytes, protocol);
                        }
                    }
                    Part::ReaderEvent(told) => {
                        let client = &mut clients[told.reader().client_id as usize];
                        client.note(told);
                    }
                }
            }
        });
    }

    fn step(&mut self, piece: usize) -> bool {
        self.log.piece = piece;
        let more = self.readers.step(&mut self.log);
        self.collect();
        more
    }

    /// Runs steps and sends everything to every client until nothing is left, then checks that no message is
    /// missing.
    fn settle(&mut self) {
        self.rest();
        self.log.hide(false);
        self.rest();
        assert_eq!(self.readers.behind(), 0, "everybody has caught up");
        for client in &self.clients {
            for (channel, (after, heard)) in &client.heard {
                let expected: Vec<Lsn> = self.log.messages(*channel).filter(|lsn| lsn > after).collect();
                assert_eq!(*heard, expected, "client {} channel {channel}", client.id.client_id);
            }
        }
    }

    /// Runs steps until there is nothing to do.
    fn rest(&mut self) {
        let mut steps = 0;
        loop {
            let more = self.step(2);
            let takes = |client: &mut Client| client.take(u64::MAX);
            let taken = self.clients.iter_mut().map(takes).sum::<u64>();
            if !more && taken == 0 {
                break;
            }
            steps += 1;
            assert!(steps < 10_000, "it goes on for ever");
        }
    }
}

fn number_of(channel: &[u8]) -> usize {
    CHANNELS.iter().position(|name| name.as_bytes() == channel).unwrap()
}

impl Client {
    fn hear(&mut self, log: &FakeLog, mut bytes: &[u8], protocol: Protocol) {
        while !bytes.is_empty() {
            assert_eq!(bytes[0], if protocol == Protocol::Resp3 { b'>' } else { b'*' });
            let (value, len) = decode(bytes, &DecodeLimits::default()).unwrap().unwrap();
            bytes = &bytes[len..];
            let (Value::Array(parts) | Value::Push(parts)) = value else { panic!("an array") };
            let [verb, channel, position, payload] = &parts[..] else { panic!("four parts") };
            let text = |value: &Value| match value {
                Value::Bulk(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            };
            assert_eq!(text(verb), b"xmessage");
            let (channel, position) = (number_of(&text(channel)), Position::parse(&text(position)).unwrap());
            assert_eq!((position.epoch, text(payload)), (EPOCH, position.lsn.get().to_le_bytes().to_vec()));
            let (after, heard) = self.heard.get_mut(&channel).expect("it has subscribed");
            let last = heard.last().copied().unwrap_or(*after);
            assert_eq!(log.messages(channel).find(|lsn| *lsn > last), Some(position.lsn), "what comes next");
            heard.push(position.lsn);
        }
    }

    fn note(&mut self, told: &ReaderEvent) {
        match told {
            ReaderEvent::Subscribed { channel, position, .. } => {
                self.heard.insert(number_of(channel), (position.lsn, Vec::new()));
            }
            ReaderEvent::Unsubscribed { channels, .. } => {
                channels.iter().for_each(|channel| _ = self.heard.remove(&number_of(channel)));
            }
            ReaderEvent::Lost { channel, oldest, .. } => {
                let (after, heard) = self.heard.remove(&number_of(channel)).expect("it has subscribed");
                assert!(heard.last().copied().unwrap_or(after) < oldest.lsn, "it has missed something");
            }
            ReaderEvent::Refused { .. } => panic!("nothing is refused here"),
        }
    }

    fn take(&mut self, bytes: u64) -> u64 {
        let taken = self.unsent.min(bytes);
        self.unsent -= taken;
        if taken > 0 {
            self.flow.take(taken);
        }
        taken
    }
}

#[derive(Debug, Clone)]
enum Event {
    Append(Vec<usize>),
    Step(usize),
    Subscribe { client: usize, channel: usize, from: u64 },
    Unsubscribe { client: usize, channel: usize },
    Leave(usize),
    Take { client: usize, bytes: u64 },
    Forget(u64),
    Hide(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let client = 0..5usize;
    prop_oneof![
        4 => prop::collection::vec(0..3usize, 0..12).prop_map(Event::Append),
        6 => (1..4usize).prop_map(Event::Step),
        3 => (client.clone(), 0..3usize, 0..=120u64)
            .prop_map(|(client, channel, from)| Event::Subscribe { client, channel, from }),
        1 => (client.clone(), 0..3usize).prop_map(|(client, channel)| Event::Unsubscribe { client, channel }),
        1 => client.clone().prop_map(Event::Leave),
        3 => (client, 1..600u64).prop_map(|(client, bytes)| Event::Take { client, bytes }),
        1 => (0..60u64).prop_map(Event::Forget),
        2 => any::<bool>().prop_map(Event::Hide),
    ]
}

proptest! {
    #[test]
    fn every_reader_hears_of_everything_once_and_in_order(
        events in prop::collection::vec(event(), 1..150),
    ) {
        let mut world = World::new(5);
        for event in events {
            match event {
                Event::Append(channels) => world.log.append(&channels),
                Event::Step(piece) => _ = world.step(piece),
                Event::Subscribe { client, channel, from } => {
                    // `from` is a percentage of the log; 100 and more is its end.
                    let end = world.log.end().get();
                    world.subscribe(client, channel, Lsn::new(end * from.min(100) / 100));
                }
                Event::Unsubscribe { client, channel } => {
                    let id = world.clients[client].id;
                    world.readers.unsubscribe(id, client % 2, vec![CHANNELS[channel].as_bytes().into()]);
                    world.collect();
                }
                Event::Leave(client) => {
                    world.collect();
                    world.readers.leave(world.clients[client].id);
                    world.clients[client].heard.clear();
                    world.clients[client].unsent = 0;
                    world.clients[client].flow = Arc::new(Flow::new(|| {}));
                }
                Event::Take { client, bytes } => _ = world.clients[client].take(bytes),
                Event::Forget(percent) => {
                    let boundary = world.log.shown_end().get() / 4096 * percent / 100 * 4096;
                    world.log.start = world.log.start.max(Lsn::new(boundary));
                }
                Event::Hide(hides) => world.log.hide(hides),
            }
            let bound = WINDOW + 3 * 12 * 60;
            prop_assert!(world.clients.iter().all(|client| client.unsent <= 2 * bound));
        }
        world.settle();
        let reading = world.clients.iter().filter(|client| !client.heard.is_empty()).count();
        prop_assert_eq!(world.readers.len(), reading);
        prop_assert_eq!(world.readers.tail().is_some(), reading > 0);
    }
}

#[test]
fn clients_at_the_tail_share_frames_and_slow_ones_fall_behind() {
    let mut world = World::new(4);
    (0..4).for_each(|client| world.subscribe(client, 0, Lsn::ZERO));
    while world.step(1) {}
    assert_eq!((world.readers.behind(), world.readers.tail()), (0, Some(Lsn::ZERO)));
    world.log.append(&[0; 4]);
    assert!(world.readers.step(&mut world.log));
    let mut runs = Vec::new();
    world.readers.take_feeds(|worker, feed| {
        for part in feed.parts() {
            let Part::Frames(run) = part else { panic!("messages only") };
            runs.push((worker, run.to.len(), run.starts_len()));
        }
    });
    assert_eq!(runs, [(0, 2, 4), (1, 2, 4)], "one run for all readers of a worker");
    assert_eq!(world.readers.behind(), 0, "the window is not full yet");
    let (mut slow, mut steps) = (Vec::new(), 0);
    while slow.len() < 3 && steps < 100 {
        world.log.append(&[0; 8]);
        world.clients[0].flow.take(100_000);
        world.readers.step(&mut world.log);
        slow = world.clients[1..].iter().filter(|client| world.readers.is_behind(client.id)).collect();
        steps += 1;
    }
    assert!(slow.len() == 3 && !world.readers.is_behind(world.clients[0].id));
}

#[test]
fn clients_that_begin_in_an_unreadable_batch_get_only_later_messages() {
    let mut world = World::new(3);
    world.log.append(&[0; 4]);
    world.log.hide(true);
    world.log.append(&[0; 4]);
    let third_of_the_second = Lsn::new(4096 + 3);
    world.subscribe(0, 0, third_of_the_second);
    world.subscribe(1, 0, third_of_the_second);
    world.rest();
    assert_eq!((world.readers.tail(), world.readers.waits_at()), (None, Some(Lsn::new(4096))));
    world.subscribe(2, 0, Lsn::new(4096));
    world.rest();
    assert_eq!((world.readers.tail(), world.readers.behind()), (Some(Lsn::new(4096)), 2));
    world.settle();
    assert_eq!(world.clients[0].heard[&0].1, [Lsn::new(4096 + 4)]);
}

#[test]
fn a_lost_position_ends_only_the_subscriptions_behind_it() {
    let mut world = World::new(1);
    for _ in 0..10 {
        world.log.append(&[0, 1, 2]);
    }
    world.subscribe(0, 0, Lsn::ZERO);
    world.subscribe(0, 1, Lsn::new(5 * 4096));
    world.log.start = Lsn::new(2 * 4096);
    world.step(1);
    assert_eq!(world.clients[0].heard.keys().collect::<Vec<_>>(), [&1]);
    world.settle();
}

/// A log whose beginning is removed while it is read.
struct CutLog<'a>(&'a mut FakeLog, Lsn);

impl LogSource for CutLog<'_> {
    fn read(&mut self, from: Lsn, each: &mut dyn FnMut(&DurableMessage<'_>)) -> Read {
        self.0.read(from, each);
        self.0.start = self.1;
        Read::Forgotten(Position { epoch: EPOCH, lsn: self.1, reign: 0 })
    }
}

#[test]
fn what_was_handed_out_before_the_log_was_lost_fills_the_window() {
    let mut world = World::new(1);
    world.subscribe(0, 0, Lsn::ZERO);
    while world.step(1) {}
    world.log.append(&[0; 100]);
    world.log.append(&[1; 4]);
    world.subscribe(0, 1, Lsn::new(4096 + 2));
    let id = world.clients[0].id;
    assert!(world.readers.step(&mut CutLog(&mut world.log, Lsn::new(4096))));
    world.collect();
    assert!(world.clients[0].unsent > WINDOW && world.clients[0].heard.keys().eq(&[1]));
    while world.step(1) {}
    assert!(world.readers.is_behind(id), "it has taken nothing yet");
    assert_eq!(world.clients[0].heard[&1].1, [], "and gets nothing until it has");
    world.settle();
}

#[test]
fn a_client_that_subscribes_again_keeps_its_window() {
    let mut world = World::new(1);
    for _ in 0..50 {
        world.log.append(&[0; 8]);
    }
    world.subscribe(0, 0, Lsn::ZERO);
    world.settle();
    let id = world.clients[0].id;
    world.readers.unsubscribe(id, 0, vec![CHANNELS[0].as_bytes().into()]);
    world.collect();
    assert!(world.readers.is_empty());
    world.subscribe(0, 0, Lsn::ZERO);
    while world.step(1) {}
    let unsent = world.clients[0].unsent;
    assert!((WINDOW..3 * WINDOW).contains(&unsent), "{unsent} bytes at once");
    world.settle();
}
