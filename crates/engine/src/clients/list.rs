//! The list of clients.
//!
//! This module finds clients by id or by filter, and keeps totals over all of them, disconnected ones
//! included. The list is not on the path of most commands: it is locked when clients connect and disconnect,
//! when commands and metrics about clients look at it, when users change, and to redirect invalidations.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::Monitors;
use super::{Client, ClientFilter, ClientKind, Connected, PauseSwitch};

/// All connected clients, the monitors among them, and totals that include disconnected clients.
#[derive(Debug, Default)]
pub struct Clients {
    list: Mutex<List>,
    monitors: Monitors,
    /// The number of clients that import from another server.
    import_sources: AtomicUsize,
    pause: PauseSwitch,
}

#[derive(Debug, Default)]
struct List {
    accepted: u64,
    /// Bytes received from and sent to disconnected clients.
    departed_bytes: (u64, u64),
    by_id: BTreeMap<u64, Arc<Client>>,
}

impl Clients {
    /// A list without clients, whose first client gets the id 1.
    pub fn new() -> Clients {
        Clients::default()
    }

    /// Adds a connection and gives it an id.
    pub fn register(&self, connected: Connected) -> Arc<Client> {
        let mut list = self.list.lock();
        list.accepted += 1;
        let client = Arc::new(Client::new(list.accepted, connected));
        list.by_id.insert(client.id, client.clone());
        client
    }

    /// The clients that are shown commands (MONITOR).
    pub fn monitors(&self) -> &Monitors {
        &self.monitors
    }

    /// The pause of the clients' commands (CLIENT PAUSE).
    pub fn pause(&self) -> &PauseSwitch {
        &self.pause
    }

    /// Notes whether a client imports another server's data (CLIENT IMPORT-SOURCE). A disconnect also ends
    /// the import.
    pub fn set_import_source(&self, client: &Client, is_import_source: bool) {
        match (client.import_source.swap(is_import_source, Relaxed), is_import_source) {
            (false, true) => _ = self.import_sources.fetch_add(1, Relaxed),
            (true, false) => _ = self.import_sources.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Whether any client imports another server's data: meanwhile active expiry removes nothing.
    pub fn has_import_source(&self) -> bool {
        self.import_sources.load(Relaxed) > 0
    }

    /// Removes a closed connection. Returns whether the connection was in the list.
    pub fn remove(&self, id: u64) -> bool {
        self.monitors.remove(id);
        let mut list = self.list.lock();
        let Some(client) = list.by_id.remove(&id) else { return false };
        self.pause.let_go(&client);
        self.set_import_source(&client, false);
        let (input, output) = client.traffic_bytes();
        list.departed_bytes.0 += input;
        list.departed_bytes.1 += output;
        true
    }

    /// Bytes received from and sent to all clients since the start, disconnected ones included.
    pub fn traffic_bytes(&self) -> (u64, u64) {
        let list = self.list.lock();
        let present = list.by_id.values().map(|client| client.traffic_bytes());
        present.fold(list.departed_bytes, |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }

    /// Memory of all clients in bytes: their entries and buffers.
    pub fn memory_bytes(&self) -> u64 {
        self.list.lock().by_id.values().map(|client| client.memory_bytes()).sum()
    }

    /// The connected client with this id.
    pub fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.list.lock().by_id.get(&id).cloned()
    }

    /// All clients, by ascending id. A copy: clients may come and go meanwhile.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.list.lock().by_id.values().cloned().collect()
    }

    /// The number of connected clients.
    pub fn count(&self) -> usize {
        self.list.lock().by_id.len()
    }

    /// The number of clients that are blocked in a command.
    pub fn blocked(&self) -> usize {
        self.list.lock().by_id.values().filter(|client| client.is_blocked()).count()
    }

    /// The number of clients that watch keys.
    pub fn watching(&self) -> usize {
        self.list.lock().by_id.values().filter(|client| client.watched() > 0).count()
    }

    /// The number of clients of the kind [`ClientKind::PubSub`].
    pub fn subscribed(&self) -> usize {
        self.list.lock().by_id.values().filter(|client| client.kind() == ClientKind::PubSub).count()
    }

    /// The number of clients that were ever registered.
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
