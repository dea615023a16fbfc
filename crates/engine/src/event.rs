//! Keyspace notifications: events about keys for the clients that subscribe to them. Messages that are not
//! delivered at once ([`Message`]) go the same way, in one order with the events.
//!
//! ```text
//! handler: cx.notify -> kept with the unit -> commit: gate -> end of the round: Executor::take_notices
//!     -> EventQueue: held until the gate is committed -> Executor::publish -> channels
//! ```
//!
//! This module has the classes of events, and the buffer of one worker. The module does not deliver events:
//! an `EventQueue` holds notices back until their gates are committed, and [`pubsub`] knows the subscribers.
//!
//! Invariants
//! - While no class is wanted an event costs one branch: the wanted classes are kept beside the notices.
//! - The events of one worker stand in the order of its units, and the events of one unit in the order in
//!   which they happened.
//! - An event has a gate. With durability `strict`, an event is delivered only when the change that it
//!   reports is committed.

use std::{
    cell::{Cell, RefCell},
    fmt::{self, Write as _},
};

use keyspace::DbId;
use lsn::Lsn;
use pubsub::Kind;

/// A set of event classes, one for each letter of `notify-keyspace-events` except `A`, which stands for
/// several. `K` and `E` count as classes, too, although they choose the channels of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventClass(u16);

impl EventClass {
    /// The empty set: no event is noted.
    pub const NONE: EventClass = EventClass(0);
    /// `K`: events go to the channel of the key (`__keyspace@0__:key`).
    pub const KEYSPACE: EventClass = EventClass(1);
    /// `E`: events go to the channel of the event (`__keyevent@0__:del`).
    pub const KEYEVENT: EventClass = EventClass(1 << 1);
    /// `g`: commands on keys of any type.
    pub const GENERIC: EventClass = EventClass(1 << 2);
    /// `$`: strings.
    pub const STRING: EventClass = EventClass(1 << 3);
    /// `l`: lists.
    pub const LIST: EventClass = EventClass(1 << 4);
    /// `s`: sets.
    pub const SET: EventClass = EventClass(1 << 5);
    /// `h`: hashes.
    pub const HASH: EventClass = EventClass(1 << 6);
    /// `z`: sorted sets.
    pub const ZSET: EventClass = EventClass(1 << 7);
    /// `x`: a key was removed because it had expired.
    pub const EXPIRED: EventClass = EventClass(1 << 8);
    /// `e`: a key was removed to make room.
    pub const EVICTED: EventClass = EventClass(1 << 9);
    /// `t`: streams.
    pub const STREAM: EventClass = EventClass(1 << 10);
    /// `d`: modules; there are none, so no such event.
    pub const MODULE: EventClass = EventClass(1 << 11);
    /// `n`: a key was created.
    pub const NEW: EventClass = EventClass(1 << 12);
    /// `m`: an absent key was read.
    pub const KEY_MISS: EventClass = EventClass(1 << 13);

    /// The letters in the order in which they are shown; the letters that `A` stands for come first.
    const LETTERS: [(char, EventClass); 14] = [
        ('g', EventClass::GENERIC),
        ('$', EventClass::STRING),
        ('l', EventClass::LIST),
        ('s', EventClass::SET),
        ('h', EventClass::HASH),
        ('z', EventClass::ZSET),
        ('x', EventClass::EXPIRED),
        ('e', EventClass::EVICTED),
        ('t', EventClass::STREAM),
        ('d', EventClass::MODULE),
        ('n', EventClass::NEW),
        ('K', EventClass::KEYSPACE),
        ('E', EventClass::KEYEVENT),
        ('m', EventClass::KEY_MISS),
    ];

    /// `A`: all classes of key events except new keys and key misses.
    const ALL: EventClass = {
        let (mut all, mut index) = (EventClass::NONE, 0);
        while index < 10 {
            all = all.or(EventClass::LETTERS[index].1);
            index += 1;
        }
        all
    };

    /// Parses the letters of `notify-keyspace-events`; `None` if one of them is unknown.
    pub fn parse(letters: &str) -> Option<EventClass> {
        letters.chars().try_fold(EventClass::NONE, |classes, letter| {
            let known = EventClass::LETTERS.into_iter().chain([('A', EventClass::ALL)]);
            let (_, class) = known.into_iter().find(|(known, _)| *known == letter)?;
            Some(classes.or(class))
        })
    }

    /// The union of both sets.
    pub const fn or(self, other: EventClass) -> EventClass {
        EventClass(self.0 | other.0)
    }

    /// Whether the sets have a class in common.
    #[inline]
    pub const fn intersects(self, other: EventClass) -> bool {
        self.0 & other.0 != 0
    }

    /// The set as a number; [`EventClass::from_bits`] is the inverse.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set with this number; see [`EventClass::bits`].
    pub const fn from_bits(bits: u16) -> EventClass {
        EventClass(bits)
    }

    /// The classes that can be delivered: none without `K` or `E`, as there is no channel to deliver to.
    fn deliverable(self) -> EventClass {
        let channels = EventClass::KEYSPACE.or(EventClass::KEYEVENT);
        if self.intersects(channels) { self } else { EventClass::NONE }
    }
}

impl fmt::Display for EventClass {
    /// Writes the letters as CONFIG GET shows them. Redis leaves out the `n` when all of `A` is set; the
    /// letters written here always give the same set when they are set again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0 & EventClass::ALL.0 == EventClass::ALL.0;
        if all {
            f.write_char('A')?;
        }
        let shown = |class: EventClass| self.intersects(class) && !(all && EventClass::ALL.intersects(class));
        let mut letters = EventClass::LETTERS.into_iter().filter(|(_, class)| shown(*class));
        letters.try_for_each(|(letter, _)| f.write_char(letter))
    }
}

/// An event on a key, such as `set`, with the channels that want it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The class of the event, and the channels that were wanted when it happened.
    pub classes: EventClass,
    /// The name of the event, such as `set`.
    pub name: &'static str,
    /// The database of the key.
    pub db: DbId,
    /// The key that the event is about.
    pub key: Box<[u8]>,
    /// The event may be delivered once this position is committed; [`Lsn::ZERO`]: at once.
    pub gate: Lsn,
}

/// A message that is delivered after its unit: it was published in a transaction, a script or IDEMP, to a
/// durable channel, or by a client that has published such a message before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Whether the channel is durable, so that the message is in the record of its unit.
    pub is_logged: bool,
    /// A channel or a shard channel.
    pub kind: Kind,
    /// The name of the channel to which the message goes.
    pub channel: Box<[u8]>,
    /// The bytes that were published.
    pub payload: Box<[u8]>,
    /// The message may be delivered once this position is committed; [`Lsn::ZERO`]: at once.
    pub gate: Lsn,
}

/// An event or message that is delivered to other clients once its gate is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An event on a key, for the channels of keyspace notifications.
    Event(Event),
    /// A message that was published to a channel.
    Message(Message),
}

impl Notice {
    /// The notice may be delivered once this position is committed; [`Lsn::ZERO`]: at once.
    pub fn gate(&self) -> Lsn {
        match self {
            Notice::Event(event) => event.gate,
            Notice::Message(message) => message.gate,
        }
    }

    fn set_gate(&mut self, gates: NoticeGates) {
        match self {
            Notice::Event(event) => event.gate = gates.shown,
            Notice::Message(message) if message.is_logged => message.gate = gates.logged,
            Notice::Message(message) => message.gate = gates.shown,
        }
    }

    /// The approximate memory of the notice, in bytes.
    pub fn bytes(&self) -> usize {
        let own = match self {
            Notice::Event(event) => event.key.len(),
            Notice::Message(message) => message.channel.len() + message.payload.len(),
        };
        size_of::<Notice>() + own
    }

    /// Visits the messages that deliver the notice: kind, channel and payload.
    pub(crate) fn for_each_message(&self, mut each: impl FnMut(Kind, &[u8], &[u8])) {
        match self {
            Notice::Message(message) => each(message.kind, &message.channel, &message.payload),
            Notice::Event(event) => event.for_each_message(each),
        }
    }
}

impl Event {
    /// Visits the messages on the channel of the key and on the channel of the event, if these channels are
    /// wanted.
    fn for_each_message(&self, mut each: impl FnMut(Kind, &[u8], &[u8])) {
        let Event { classes, name, db, key, .. } = self;
        let mut channel = Vec::with_capacity(24 + key.len());
        if classes.intersects(EventClass::KEYSPACE) {
            channel.extend_from_slice(format!("__keyspace@{}__:", db.get()).as_bytes());
            channel.extend_from_slice(key);
            each(Kind::Channel, &channel, name.as_bytes());
        }
        if classes.intersects(EventClass::KEYEVENT) {
            channel.clear();
            channel.extend_from_slice(format!("__keyevent@{}__:{name}", db.get()).as_bytes());
            each(Kind::Channel, &channel, key);
        }
    }
}

/// The positions that the notices of a unit wait for; [`Lsn::ZERO`]: none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoticeGates {
    /// For a notice that merely shows the unit's changes to other clients.
    pub(crate) shown: Lsn,
    /// For a message that is itself in the record of the unit. Under the server's durability, it waits for
    /// the same position as a reply to its publisher.
    pub(crate) logged: Lsn,
}

/// The notices of one worker that the worker has not handed on.
#[derive(Debug, Default)]
pub struct Events {
    wanted: Cell<EventClass>,
    pending: RefCell<Vec<Notice>>,
    /// The number of pending notices that have their gate.
    sealed: Cell<usize>,
}

impl Events {
    /// Sets the classes of events that are noted from now on.
    pub fn want(&self, classes: EventClass) {
        self.wanted.set(classes.deliverable());
    }

    /// Whether events of one of these classes are noted.
    #[inline]
    pub fn wants(&self, classes: EventClass) -> bool {
        self.wanted.get().intersects(classes)
    }

    /// Notes an event, if its class is wanted.
    #[inline]
    pub fn note(&self, class: EventClass, name: &'static str, db: DbId, key: &[u8]) {
        if self.wants(class) {
            self.keep(class, name, db, key);
        }
    }

    #[cold]
    fn keep(&self, class: EventClass, name: &'static str, db: DbId, key: &[u8]) {
        let channels = self.wanted.get().0 & (EventClass::KEYSPACE.0 | EventClass::KEYEVENT.0);
        let event =
            Event { classes: EventClass(channels | class.0), name, db, key: key.into(), gate: Lsn::ZERO };
        self.pending.borrow_mut().push(Notice::Event(event));
    }

    /// Notes a message, to be published after the unit, and after the notices noted before.
    pub(crate) fn note_message(&self, kind: Kind, channel: &[u8], payload: &[u8], is_logged: bool) {
        let (channel, payload) = (channel.into(), payload.into());
        let message = Message { is_logged, kind, channel, payload, gate: Lsn::ZERO };
        self.pending.borrow_mut().push(Notice::Message(message));
    }

    /// Sets the gates of the notices that a unit has noted, once the unit has ended.
    #[inline]
    pub(crate) fn seal(&self, gates: NoticeGates) {
        let mut pending = self.pending.borrow_mut();
        let first = self.sealed.get();
        if first < pending.len() {
            pending[first..].iter_mut().for_each(|notice| notice.set_gate(gates));
            self.sealed.set(pending.len());
        }
    }

    /// Forgets the notices that a unit has noted, because the unit will run again.
    pub(crate) fn forget_unsealed(&self) {
        self.pending.borrow_mut().truncate(self.sealed.get());
    }

    /// The number of pending notices, for [`Events::forget_from`].
    #[inline]
    pub fn noted(&self) -> usize {
        self.pending.borrow().len()
    }

    /// Forgets the notices after the first `noted`, because a command of a unit will run again or is undone.
    pub(crate) fn forget_from(&self, noted: usize) {
        self.pending.borrow_mut().truncate(noted);
    }

    /// Takes all notices; all of them must be sealed.
    pub fn take(&self) -> Vec<Notice> {
        self.sealed.set(0);
        std::mem::take(&mut self.pending.borrow_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_name(notice: &Notice) -> &'static str {
        match notice {
            Notice::Event(event) => event.name,
            Notice::Message(_) => "message",
        }
    }

    #[test]
    fn letters_are_read_in_any_order_and_shown_in_one() {
        for (letters, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("KEn$", "$nKE"),
            ("KEmtng", "gtnKEm"),
            ("nKEmg$lszhxetd", "AnKEm"),
            ("xEx", "xE"),
            ("g$lszhxet", "g$lshzxet"),
        ] {
            let classes = EventClass::parse(letters).expect(letters);
            assert_eq!(classes.to_string(), shown);
            assert_eq!(EventClass::parse(shown), Some(classes));
            assert_eq!(EventClass::from_bits(classes.bits()), classes);
        }
        for letters in ["q", "KEA ", "a", "k"] {
            assert_eq!(EventClass::parse(letters), None, "{letters}");
        }
    }

    #[test]
    fn nothing_is_noted_without_a_channel() {
        let events = Events::default();
        let wants = |letters| {
            events.want(EventClass::parse(letters).expect(letters));
            events.wants(EventClass::STRING)
        };
        assert!(!wants("A") && !wants("$") && !wants("KEg") && !wants(""));
        assert!(wants("K$") && wants("EA"));
    }

    #[test]
    fn events_wait_for_the_gate_of_their_unit() {
        let events = Events::default();
        events.want(EventClass::parse("EA").expect("letters"));
        let note = |name| events.note(EventClass::STRING, name, DbId::ZERO, b"k");
        note("retried");
        events.forget_unsealed();
        note("first");
        note("second");
        events.note_message(Kind::Channel, b"plain", b"", false);
        events.note_message(Kind::Channel, b"durable", b"", true);
        let gates = |shown, logged| NoticeGates { shown: Lsn::new(shown), logged: Lsn::new(logged) };
        events.seal(gates(8, 9));
        events.seal(gates(10, 10));
        note("third");
        events.note(EventClass::KEY_MISS, "keymiss", DbId::ZERO, b"k");
        events.seal(gates(16, 16));
        let taken: Vec<_> =
            events.take().into_iter().map(|notice| (shown_name(&notice), notice.gate().get())).collect();
        let expected = [("first", 8), ("second", 8), ("message", 8), ("message", 9), ("third", 16)];
        assert_eq!(taken, expected);
        assert!(events.take().is_empty());
    }
}
