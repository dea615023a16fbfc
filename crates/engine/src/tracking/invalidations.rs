//! The invalidations for tracking clients: gathered by a worker over a round, then pushed.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use lsn::Lsn;
use wire::{Protocol, ReplyWriter};

use super::{Tracker, Tracking, table::Readers};
use crate::clients::{Client, ClientKind, Clients};

/// The channel for RESP2 clients.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The author of changes by the server itself; no client has this id.
pub(crate) const BY_SERVER: u64 = 0;

/// The reason for which a cached key is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The key has changed; the client that changed it is not noted yet.
    Change,
    /// The key was changed by this client.
    ChangeBy(u64),
    /// The key is no longer remembered.
    Forgotten,
}

/// A key that is invalid for the clients that have read it.
#[derive(Debug)]
struct Item {
    key: Box<[u8]>,
    /// The clients that have read the key.
    readers: Readers,
    cause: Cause,
}

impl Item {
    /// Whether the tracker is to get the invalidation.
    fn concerns(&self, tracker: &Tracker) -> bool {
        !tracker.noloop || self.cause != Cause::ChangeBy(tracker.client.id())
    }
}

/// The invalidations of one round.
#[derive(Debug, Default)]
pub(crate) struct Invalidations {
    items: Vec<Item>,
    /// The number of items for which [`Invalidations::sign`] has noted who made the change.
    signed: usize,
    /// Whether any key may have changed.
    all: bool,
    /// The newest gate of the gathered changes.
    gate: Lsn,
}

impl Invalidations {
    /// Whether there is nothing to push at the end of the round.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && !self.all
    }

    /// Adds a key that has changed, with the clients that have read it.
    pub(super) fn changed(&mut self, key: &[u8], readers: Readers) {
        self.items.push(Item { key: key.into(), readers, cause: Cause::Change });
    }

    /// Adds a key that is no longer remembered.
    pub(super) fn forgotten(&mut self, key: &[u8], readers: Readers) {
        self.items.push(Item { key: key.into(), readers, cause: Cause::Forgotten });
    }

    /// The number of items, for [`Tracking::not_changed`].
    #[inline]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Removes the changes from index `start` on. Returns their keys and readers.
    pub(super) fn take_changes(&mut self, start: usize) -> Vec<(Box<[u8]>, Readers)> {
        let later = self.items.split_off(start);
        let (changes, others): (Vec<Item>, Vec<Item>) =
            later.into_iter().partition(|item| item.cause == Cause::Change);
        self.items.extend(others);
        changes.into_iter().map(|item| (item.key, item.readers)).collect()
    }

    /// Invalidates all keys, because any of them may have changed.
    pub(super) fn all_changed(&mut self) {
        self.all = true;
    }

    /// Notes that the changes since the last call were made by this client, and may be shown once `gate` is
    /// committed.
    pub fn sign(&mut self, by: u64, gate: Lsn) {
        for item in &mut self.items[self.signed..] {
            if item.cause == Cause::Change {
                item.cause = Cause::ChangeBy(by);
            }
        }
        self.signed = self.items.len();
        self.gate = self.gate.max(gate);
    }

    /// Pushes the invalidations to the clients that they concern.
    pub fn publish(self, tracking: &Tracking, clients: &Clients) {
        let Invalidations { items, all, gate, .. } = self;
        let mut messages = Messages { clients, by_client: BTreeMap::new() };
        for item in &items {
            let trackers = item.readers.iter().filter_map(|id| tracking.tracker(*id));
            trackers
                .filter(|tracker| !tracker.follows_prefixes && item.concerns(tracker))
                .for_each(|tracker| messages.add(&tracker, Some(&[&*item.key])));
        }
        for prefix in &*tracking.prefixes.read() {
            let concerned =
                |item: &&Item| item.cause != Cause::Forgotten && item.key.starts_with(&prefix.prefix);
            let matching: Vec<&Item> = items.iter().filter(concerned).collect();
            for tracker in prefix.clients.iter().filter_map(|id| tracking.tracker(*id)) {
                let own = matching.iter().filter(|item| item.concerns(&tracker));
                let mut keys: Vec<&[u8]> = own.map(|item| &*item.key).collect();
                keys.sort_unstable();
                keys.dedup();
                if !keys.is_empty() {
                    messages.add(&tracker, Some(&keys));
                }
            }
        }
        if all {
            let trackers: Vec<_> = tracking.trackers.read().values().cloned().collect();
            trackers.iter().for_each(|tracker| messages.add(tracker, None));
        }
        for (client, bytes) in messages.by_client.into_values() {
            client.push(bytes.into(), gate);
        }
    }
}

/// The messages of a round, by client.
struct Messages<'c> {
    clients: &'c Clients,
    by_client: BTreeMap<u64, (Arc<Client>, Vec<u8>)>,
}

impl Messages<'_> {
    /// Adds a message about these keys, or about all, for a tracking client, or for the client to which it
    /// redirects its messages.
    fn add(&mut self, tracker: &Tracker, keys: Option<&[&[u8]]>) {
        let Some(id) = tracker.redirect else {
            return self.invalidate(&tracker.client, false, keys);
        };
        match self.clients.find(id) {
            Some(other) => self.invalidate(&other, other.kind() == ClientKind::PubSub, keys),
            None => self.tell_broken(tracker, id),
        }
    }

    /// Adds an invalidation for a client. `listens` says whether the client is subscribed. A RESP2 client
    /// that is not subscribed cannot tell messages from replies, so it gets no invalidation.
    fn invalidate(&mut self, client: &Arc<Client>, listens: bool, keys: Option<&[&[u8]]>) {
        let protocol = client.protocol();
        if protocol == Protocol::Resp2 && !listens {
            return;
        }
        let mut writer = self.writer(client, protocol);
        if protocol == Protocol::Resp3 {
            writer.push(2);
            writer.bulk(b"invalidate");
        } else {
            writer.array(3);
            writer.bulk(b"message");
            writer.bulk(CHANNEL);
        }
        match keys {
            Some(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.bulk(key));
            }
            None => writer.null(),
        }
    }

    fn tell_broken(&mut self, tracker: &Tracker, redirect: u64) {
        tracker.redirect_broken.store(true, Relaxed);
        tracker.client.set_redirect_broken();
        if tracker.client.protocol() == Protocol::Resp3 {
            let mut writer = self.writer(&tracker.client, Protocol::Resp3);
            writer.push(2);
            writer.bulk(b"tracking-redir-broken");
            writer.integer(redirect as i64);
        }
    }

    fn writer(&mut self, client: &Arc<Client>, protocol: Protocol) -> ReplyWriter<'_> {
        let (_, bytes) = self.by_client.entry(client.id()).or_insert_with(|| (client.clone(), Vec::new()));
        ReplyWriter::new(bytes, protocol)
    }
}
