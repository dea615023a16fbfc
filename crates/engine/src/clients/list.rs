//! The list of clients.
//!
//! What it is: how a client is found, by its id or by what is known of it, and what is counted over all of them, also after
//! they have gone. What it is not: on the path of a command; it is locked when clients come and go, and to be looked at.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{Client, ClientFilter, ClientKind, Connected};
use crate::observe::Monitors;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Clients {
    list: Mutex<List>,
    monitors: Monitors,
    /// How many copy another server here.
    import_sources: AtomicUsize,
}

#[derive(Debug, Default)]
struct List {
    accepted: u64,
    /// Bytes received from and sent to clients that have gone.
    departed_bytes: (u64, u64),
    by_id: BTreeMap<u64, Arc<Client>>,
}

impl Clients {
    /// No clients.
    pub fn new() -> Clients {
        Clients::default()
    }

    /// Adds a connection.
    pub fn register(&self, connected: Connected) -> Arc<Client> {
        let mut list = self.list.lock();
        list.accepted += 1;
        let client = Arc::new(Client::new(list.accepted, connected));
        list.by_id.insert(client.id, client.clone());
        client
    }

    /// The clients that watch every command.
    pub fn monitors(&self) -> &Monitors {
        &self.monitors
    }

    /// Notes whether a client copies another server here (CLIENT IMPORT-SOURCE); one that has gone does not.
    pub fn set_import_source(&self, client: &Client, is_import_source: bool) {
        match (client.import_source.swap(is_import_source, Relaxed), is_import_source) {
            (false, true) => _ = self.import_sources.fetch_add(1, Relaxed),
            (true, false) => _ = self.import_sources.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Whether there is a client that copies another server here: nothing is removed then for having expired.
    pub fn has_import_source(&self) -> bool {
        self.import_sources.load(Relaxed) > 0
    }

    /// Removes a connection that has closed. Returns whether it was there.
    pub fn remove(&self, id: u64) -> bool {
        self.monitors.remove(id);
        let mut list = self.list.lock();
        let Some(client) = list.by_id.remove(&id) else { return false };
        self.set_import_source(&client, false);
        let (input, output) = client.traffic_bytes();
        list.departed_bytes.0 += input;
        list.departed_bytes.1 += output;
        true
    }

    /// Bytes (received, sent) by all clients there have ever been.
    pub fn traffic_bytes(&self) -> (u64, u64) {
        let list = self.list.lock();
        let present = list.by_id.values().map(|client| client.traffic_bytes());
        present.fold(list.departed_bytes, |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }

    /// Memory of all clients: what is kept about them and their buffers.
    pub fn memory_bytes(&self) -> u64 {
        self.list.lock().by_id.values().map(|client| client.memory_bytes()).sum()
    }

    /// The client with this id.
    pub fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.list.lock().by_id.get(&id).cloned()
    }

    /// All clients, by ascending id. A copy: clients may come and go meanwhile.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.list.lock().by_id.values().cloned().collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.lock().by_id.len()
    }

    /// How many are blocked in a command.
    pub fn blocked(&self) -> usize {
        self.list.lock().by_id.values().filter(|client| client.is_blocked()).count()
    }

    /// How many have subscribed to something.
    pub fn subscribed(&self) -> usize {
        self.list.lock().by_id.values().filter(|client| client.kind() == ClientKind::PubSub).count()
    }

    /// How many there have ever been.
    pub fn accepted(&self) -> u64 {
        self.list.lock().accepted
    }

    /// The clients that match, by ascending id.
    pub fn matching(&self, filter: &ClientFilter<'_>, now_ms: u64) -> Vec<Arc<Client>> {
        let mut matching = self.all();
        matching.retain(|client| filter.matches(client, now_ms));
        matching
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::connected;

    #[test]
    fn ids_start_at_one_and_are_never_used_again() {
        let clients = Clients::new();
        let first = clients.register(connected("a:1"));
        let second = clients.register(connected("a:2"));
        assert_eq!((first.id(), second.id(), clients.count()), (1, 2, 2));
        assert!(clients.remove(1));
        assert!(!clients.remove(1));
        assert_eq!(clients.register(connected("a:3")).id(), 3);
        let ids: Vec<u64> = clients.all().iter().map(|client| client.id()).collect();
        assert_eq!((ids, clients.accepted()), (vec![2, 3], 3));
        assert!(clients.find(1).is_none());
        assert_eq!(clients.find(2).map(|client| client.peer().to_string()).as_deref(), Some("a:2"));
    }

    #[test]
    fn traffic_of_clients_that_have_gone_still_counts() {
        let clients = Clients::new();
        let client = clients.register(connected("a:1"));
        client.received(10);
        client.sent(20);
        clients.remove(client.id());
        clients.register(connected("a:2")).received(1);
        assert_eq!(clients.traffic_bytes(), (11, 20));
    }
}
