//! The pub/sub state of one worker: its subscribers, their subscriptions, and undelivered messages.
//!
//! A `Local` belongs to one thread. State that other workers see is in the [`Hub`], and so is this worker's
//! inbox, in which batches from other workers stay until [`Local::deliver`] takes them.

mod fan_out;
#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use smallvec::SmallVec;
use wire::Protocol;

use crate::{
    audience::Audiences,
    backpressure::Backpressure,
    batch::Batch,
    delivery::Delivery,
    hub::Hub,
    kind::Kind,
    memberships::Memberships,
    presence::WorkerSet,
    subscriber_id::SubscriberId,
    topic::{Name, Topic},
};
use fan_out::{Delivering, FanOut};

/// The bytes of undelivered frames from this worker to its own subscribers above which
/// [`Local::must_deliver`] is true.
const PENDING_BYTES_MAX: usize = 256 << 10;
/// About the maximum number of bytes that one call of [`Local::deliver_some`] copies to subscribers; the
/// copies of its last piece come on top. While more copied bytes than this are not taken,
/// [`Local::must_deliver`] is true.
const COPIED_BYTES_MAX: usize = 16 << 20;
/// The number of subscriptions above which a subscriber is never counted as behind, because counting visits
/// each of its topics.
const COUNTED_SUBSCRIPTIONS_MAX: usize = 1024;

#[derive(Debug)]
struct Subscriber {
    client_id: u64,
    protocol: Protocol,
    memberships: [Memberships; 4],
    delivery: Delivery,
    /// Whether the subscriber is in `due`, so that it is added only once.
    is_due: bool,
    /// Whether the subscriber is counted as behind in all its topics.
    is_behind: bool,
    /// Whether the client has disconnected, so that nothing more is delivered to it.
    is_gone: bool,
}

impl Subscriber {
    /// Whether the subscriber has exactly one subscription.
    fn has_one(&self) -> bool {
        self.subscriptions() == 1
    }

    fn subscriptions(&self) -> usize {
        self.memberships.iter().map(Memberships::len).sum()
    }
}

/// The subscribers and messages of one worker.
#[derive(Debug)]
pub struct Local {
    hub: Arc<Hub>,
    worker: usize,
    audiences: [Audiences; 4],
    subscribers: Vec<Option<Subscriber>>,
    free: Vec<SubscriberId>,
    /// Number of subscriptions of all subscribers.
    total: usize,
    /// Messages published here, by receiving worker.
    outgoing: Box<[Batch]>,
    /// Other workers with messages in `outgoing`.
    receivers: WorkerSet,
    /// The reason why the publisher of the last messages should wait, if there is one.
    backpressure: Option<Backpressure>,
    /// Whether patterns were added or removed, and the change is not published yet.
    patterns_changed: bool,
    due: Vec<SubscriberId>,
    /// The batch that is being delivered.
    current: Option<Delivering>,
    /// Batches from other workers, not delivered yet.
    arrived: VecDeque<Batch>,
    fan_out: FanOut,
}

impl Hub {
    /// Makes the local state of a worker. To be called once per worker.
    ///
    /// # Panics
    /// If the hub has no such worker.
    pub fn local(self: &Arc<Self>, worker: usize) -> Local {
        Local::new(self.clone(), worker)
    }
}

impl Local {
    pub(crate) fn new(hub: Arc<Hub>, worker: usize) -> Local {
        let workers = hub.inboxes.len();
        assert!(worker < workers);
        Local {
            hub,
            worker,
            audiences: Default::default(),
            subscribers: Vec::new(),
            free: Vec::new(),
            total: 0,
            outgoing: (0..workers).map(|_| Batch::default()).collect(),
            receivers: WorkerSet::default(),
            backpressure: None,
            patterns_changed: false,
            due: Vec::new(),
            current: None,
            arrived: VecDeque::new(),
            fan_out: FanOut::default(),
        }
    }

    /// The index of this worker, from 0.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// The state shared by all workers.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    // ---- subscribers --------------------------------------------------------------------------------------

    /// Adds a subscriber without subscriptions.
    pub fn join(&mut self, client_id: u64, protocol: Protocol) -> SubscriberId {
        let subscriber = Subscriber {
            client_id,
            protocol,
            memberships: Default::default(),
            delivery: Delivery::default(),
            is_due: false,
            is_behind: false,
            is_gone: false,
        };
        if let Some(id) = self.free.pop() {
            self.subscribers[id.index()] = Some(subscriber);
            return id;
        }
        self.subscribers.push(Some(subscriber));
        SubscriberId(self.subscribers.len() as u32 - 1)
    }

    /// Ends at most `subscriptions_max` subscriptions of a disconnected subscriber, and after the last one
    /// removes the subscriber. Returns whether the subscriber was removed; if not, the caller must call this
    /// again. With the bound, a client with a million subscriptions does not stop the worker.
    pub fn leave(&mut self, id: SubscriberId, subscriptions_max: usize) -> bool {
        let mut left = subscriptions_max;
        for kind in Kind::ALL {
            for topic in self.subscriber(id).memberships[kind as usize].some(left) {
                self.remove(id, kind, &Name { bytes: topic.name(), hash: topic.half_hash() });
                left -= 1;
            }
        }
        let ended = Kind::ALL.iter().all(|kind| self.subscriptions(id, *kind) == 0);
        if ended {
            self.set_behind(id, false);
            self.subscribers[id.index()] = None;
            self.free.push(id);
        }
        ended
    }

    /// Sets the protocol of the subscriber's future messages.
    pub fn set_protocol(&mut self, id: SubscriberId, protocol: Protocol) {
        self.settle();
        self.subscriber_mut(id).protocol = protocol;
    }

    /// Number of subscriptions of a kind that the subscriber has.
    pub fn subscriptions(&self, id: SubscriberId, kind: Kind) -> usize {
        self.subscriber(id).memberships[kind as usize].len()
    }

    /// Number of subscriptions of all subscribers.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The topics of a kind that the subscriber has subscribed to, in no particular order.
    pub fn names(&self, id: SubscriberId, kind: Kind) -> Vec<Box<[u8]>> {
        let topics = self.subscriber(id).memberships[kind as usize].some(usize::MAX);
        topics.iter().map(|topic| topic.name().into()).collect()
    }

    fn subscriber(&self, id: SubscriberId) -> &Subscriber {
        self.subscribers[id.index()].as_ref().expect("it has not left")
    }

    fn subscriber_mut(&mut self, id: SubscriberId) -> &mut Subscriber {
        self.subscribers[id.index()].as_mut().expect("it has not left")
    }

    // ---- subscriptions ------------------------------------------------------------------------------------

    /// Subscribes; `false` if the subscriber has this subscription already. Every message that any worker
    /// publishes after the next [`Local::flush_mailboxes`] reaches the subscriber.
    pub fn subscribe(&mut self, id: SubscriberId, kind: Kind, name: &[u8]) -> bool {
        self.settle();
        let name = self.hub.name(name);
        if self.subscriber(id).memberships[kind as usize].has(&name) {
            return false;
        }
        let audiences = &mut self.audiences[kind as usize];
        let (topic, position) = match audiences.add(&name, id) {
            Some((topic, position)) => {
                topic.presence().add();
                (topic, position)
            }
            None => {
                let topic = self.hub.index(kind).enter(&name, self.worker);
                audiences.insert(topic.clone(), id);
                if kind == Kind::Pattern {
                    self.hub.patterns.add(&topic);
                    self.patterns_changed = true;
                }
                self.hub.note_listening(kind, name.bytes, true);
                (topic, 0)
            }
        };
        let subscriber = self.subscriber_mut(id);
        if subscriber.is_behind {
            topic.presence().note_behind(true);
        }
        subscriber.memberships[kind as usize].insert(topic, position);
        self.total += 1;
        if self.subscriber(id).subscriptions() > COUNTED_SUBSCRIPTIONS_MAX {
            self.set_behind(id, false);
        }
        true
    }

    /// Unsubscribes; `false` if the subscriber has no such subscription. First delivers the messages that
    /// were published here or handed over before.
    pub fn unsubscribe(&mut self, id: SubscriberId, kind: Kind, name: &[u8]) -> bool {
        self.settle();
        let hub = self.hub.clone();
        self.remove(id, kind, &hub.name(name))
    }

    fn remove(&mut self, id: SubscriberId, kind: Kind, name: &Name<'_>) -> bool {
        let subscriber = self.subscriber_mut(id);
        let Some((topic, position)) = subscriber.memberships[kind as usize].remove(name) else {
            return false;
        };
        if subscriber.is_behind {
            topic.presence().note_behind(false);
            self.hub.wake_waiting();
        }
        self.total -= 1;
        let (is_gone, moved) = self.audiences[kind as usize].remove(&topic, position);
        if let Some(moved) = moved {
            self.subscriber_mut(moved).memberships[kind as usize].moved(&topic, position);
        }
        if !is_gone {
            topic.presence().subtract();
            return true;
        }
        self.hub.note_listening(kind, topic.name(), false);
        if self.hub.index(kind).leave(&topic, self.worker) && kind == Kind::Pattern {
            self.hub.patterns.remove(&topic);
            self.patterns_changed = true;
        }
        true
    }

    // ---- messages -----------------------------------------------------------------------------------------

    /// Publishes a message; returns the number of subscriptions that it matches.
    pub fn publish(&mut self, kind: Kind, channel: &[u8], payload: &[u8]) -> usize {
        self.publish_patterns();
        let (topic, workers, patterns) = self.find(kind, channel);
        let count = topic.iter().chain(&patterns).map(|topic| topic.presence().count()).sum();
        for worker in workers.iter() {
            self.outgoing[worker].push(kind, topic.as_ref(), &patterns, channel, payload);
            if worker != self.worker {
                self.receivers = self.receivers.or(WorkerSet::one(worker));
            }
        }
        self.check_backpressure(workers, topic.iter().chain(&patterns));
        count
    }

    /// The topic of a channel, the matching patterns, and the workers with subscribers of any of them.
    #[inline]
    fn find(&self, kind: Kind, channel: &[u8]) -> (Option<Topic>, WorkerSet, SmallVec<[Topic; 4]>) {
        let topic = self.hub.index(kind).read(&self.hub.name(channel), Topic::clone);
        let mut workers = topic.as_ref().map_or(WorkerSet::default(), |topic| topic.presence().workers());
        let mut patterns = SmallVec::new();
        if kind == Kind::Channel {
            self.hub.patterns.for_each_match(channel, |pattern| {
                workers = workers.or(pattern.presence().workers());
                patterns.push(pattern.clone());
            });
        }
        (topic, workers, patterns)
    }

    /// Number of subscriptions that a message to the channel would match.
    pub fn receivers(&mut self, kind: Kind, channel: &[u8]) -> usize {
        self.publish_patterns();
        let mut count = self.hub.subscribers(kind, channel);
        if kind == Kind::Channel {
            self.hub.patterns.for_each_match(channel, |pattern| count += pattern.presence().count());
        }
        count
    }

    /// Hands messages over to other workers and publishes changed patterns. To be called at the end of a
    /// round, before the replies of the round are sent. Returns whether this worker has own messages to
    /// deliver, or deliveries that were not taken; messages from other workers do not count.
    pub fn flush_mailboxes(&mut self) -> bool {
        self.publish_patterns();
        for worker in std::mem::take(&mut self.receivers).iter() {
            let batch = std::mem::take(&mut self.outgoing[worker]);
            let inbox = &self.hub.inboxes[worker];
            inbox.send(self.worker, batch);
        }
        !self.outgoing[self.worker].is_empty() || !self.due.is_empty()
    }

    fn publish_patterns(&mut self) {
        if std::mem::take(&mut self.patterns_changed) {
            self.hub.patterns.publish();
        }
    }

    /// Whether the undelivered bytes of messages published here to subscribers of this worker, or the copied
    /// bytes that are not taken yet, exceed their limit.
    pub fn must_deliver(&self) -> bool {
        self.outgoing[self.worker].bytes.len() > PENDING_BYTES_MAX
            || self.fan_out.copied_bytes > COPIED_BYTES_MAX
    }

    /// Whether there are undelivered messages, own or from other workers.
    fn has_mail(&self) -> bool {
        let is_own = !self.outgoing[self.worker].is_empty();
        let is_begun = self.current.is_some() || !self.arrived.is_empty();
        is_own || is_begun || self.hub.inboxes[self.worker].has_mail()
    }

    /// Delivers earlier messages to the present subscribers. To be called before subscriptions change.
    fn settle(&mut self) {
        if self.has_mail() {
            self.deliver();
        }
    }

    /// Delivers all messages that were published here or handed over by other workers. The caller then takes
    /// the deliveries with [`Local::take_due`].
    pub fn deliver(&mut self) {
        while self.deliver_some() {}
    }

    /// Does the same as [`Local::deliver`], but stops when it has copied about [`COPIED_BYTES_MAX`] bytes
    /// (small messages are copied for each subscriber), so that the caller can take the deliveries in
    /// between. Returns whether there is more to deliver.
    pub fn deliver_some(&mut self) -> bool {
        if self.current.is_none() && self.arrived.is_empty() {
            let own = std::mem::take(&mut self.outgoing[self.worker]);
            self.current = Some(self.begin_delivering(own));
            let arrived = &mut self.arrived;
            self.hub.inboxes[self.worker].take(|batch| arrived.push_back(batch));
            if !self.arrived.is_empty() {
                self.hub.wake_waiting();
            }
        }
        let copied_bytes_max = self.fan_out.copied_bytes + COPIED_BYTES_MAX;
        loop {
            let next = self.current.take().or_else(|| {
                let batch = self.arrived.pop_front()?;
                Some(self.begin_delivering(batch))
            });
            let Some(mut current) = next else { return false };
            if !self.deliver_up_to(&mut current, copied_bytes_max) {
                self.current = Some(current);
                return true;
            }
            self.end_delivering(current);
        }
    }

    // ---- backpressure -------------------------------------------------------------------------------------

    /// Sets whether a subscriber is behind, because its connection takes less than is sent to it. A
    /// subscriber with more than `COUNTED_SUBSCRIPTIONS_MAX` subscriptions never counts as behind. See
    /// [`Backpressure`].
    pub fn set_behind(&mut self, id: SubscriberId, is_behind: bool) {
        let subscriber = self.subscriber_mut(id);
        let is_behind = is_behind && subscriber.subscriptions() <= COUNTED_SUBSCRIPTIONS_MAX;
        if std::mem::replace(&mut subscriber.is_behind, is_behind) == is_behind {
            return;
        }
        let topics = subscriber.memberships.iter().flat_map(Memberships::topics);
        topics.for_each(|topic| topic.presence().note_behind(is_behind));
        if is_behind {
            self.hub.behind.fetch_add(1, Relaxed);
        } else {
            self.hub.behind.fetch_sub(1, Relaxed);
            self.hub.wake_waiting();
        }
    }

    /// Whether there may be any reason for a publisher of this worker to wait.
    pub fn may_hold_back(&self) -> bool {
        self.hub.behind.load(Relaxed) > 0 || self.hub.inboxes.iter().any(|inbox| inbox.is_full(self.worker))
    }

    /// Notes the reason for the publisher to wait, if a message to these topics gives one.
    #[inline]
    fn check_backpressure<'t>(
        &mut self,
        workers: WorkerSet,
        topics: impl Iterator<Item = &'t Topic> + Clone,
    ) {
        if let Some(backpressure) = Backpressure::of(&self.hub, self.worker, workers, topics) {
            self.backpressure = Some(backpressure);
        }
    }

    /// As [`Local::check_backpressure`], for a message that the caller does not publish yet.
    pub fn check_backpressure_later(&mut self, kind: Kind, channel: &[u8]) {
        let (topic, workers, patterns) = self.find(kind, channel);
        self.check_backpressure(workers, topic.iter().chain(&patterns));
    }

    /// Whether a publisher of this worker should wait: [`Local::take_backpressure`] returns a reason.
    #[inline]
    pub fn has_backpressure(&self) -> bool {
        self.backpressure.is_some()
    }

    /// Takes the reason why the publisher of the last messages should wait, if there is one. To be called
    /// when all messages of the publisher's command are published.
    #[inline]
    pub fn take_backpressure(&mut self) -> Option<Backpressure> {
        self.backpressure.take()
    }

    /// Registers that publishers of this worker wait: the worker is woken whenever the reason may have ended.
    /// The caller must check the reason once more afterwards.
    pub fn begin_waiting(&self) {
        self.hub.waiting.enter(self.worker);
    }

    /// Registers that no publisher of this worker waits any more.
    pub fn end_waiting(&self) {
        self.hub.waiting.leave(self.worker);
    }

    /// Passes each delivery to `each`, with the client's id, and then clears the delivery. `each` returns
    /// whether the client still exists; if not, nothing more is delivered to the client.
    pub fn take_due(&mut self, mut each: impl FnMut(u64, &mut Delivery) -> bool) {
        self.fan_out.copied_bytes = 0;
        for id in std::mem::take(&mut self.due) {
            if let Some(subscriber) = self.subscribers[id.index()].as_mut().filter(|it| it.is_due) {
                subscriber.is_due = false;
                if !subscriber.delivery.is_empty() {
                    subscriber.is_gone |= !each(subscriber.client_id, &mut subscriber.delivery);
                    subscriber.delivery.clear();
                }
            }
        }
    }

    /// Bytes of all delivered blocks that are still referenced, each counted once. Blocks of durable channels
    /// do not count.
    pub fn block_bytes(&self) -> usize {
        self.fan_out.block_bytes()
    }

    /// Whether the subscriber has a delivery that was not taken.
    pub fn has_delivered(&self, id: SubscriberId) -> bool {
        !self.subscriber(id).delivery.is_empty()
    }

    /// Appends the subscriber's delivery to `out`, so that bytes written next come after it.
    pub fn drain_into(&mut self, id: SubscriberId, out: &mut Vec<u8>) {
        let subscriber = self.subscriber_mut(id);
        subscriber.delivery.append_to(out);
        subscriber.delivery.clear();
    }
}
