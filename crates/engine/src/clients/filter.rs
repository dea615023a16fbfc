//! The selection of clients by CLIENT LIST and CLIENT KILL.

use super::{Client, ClientKind};

/// Conditions that must all hold; `None` holds for every client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientFilter<'a> {
    /// The id of the client.
    pub id: Option<u64>,
    /// The kind of client.
    pub kind: Option<ClientKind>,
    /// The address of the other side, in full.
    pub peer: Option<&'a [u8]>,
    /// The address it connected to, in full.
    pub local: Option<&'a [u8]>,
    /// The user it is authenticated as.
    pub user: Option<&'a [u8]>,
    /// The minimum age of the connection, in seconds.
    pub age_seconds_min: Option<u64>,
    /// Excludes the client with this id.
    pub except: Option<u64>,
}

impl ClientFilter<'_> {
    /// Whether all conditions hold at this time (unix milliseconds).
    pub fn matches(&self, client: &Client, now_ms: u64) -> bool {
        let age_seconds = now_ms.saturating_sub(client.created_ms()) / 1000;
        self.id.is_none_or(|id| id == client.id())
            && self.kind.is_none_or(|kind| kind == client.kind())
            && self.peer.is_none_or(|peer| peer == client.peer().as_bytes())
            && self.local.is_none_or(|local| local == client.local().as_bytes())
            && self.user.is_none_or(|user| *user == *client.user())
            && self.age_seconds_min.is_none_or(|min| age_seconds >= min)
            && self.except.is_none_or(|except| except != client.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Clients, tests::connected};

    #[test]
    fn every_condition_can_rule_a_client_out() {
        let clients = Clients::new();
        let (first, second) =
            (clients.register(connected("10.0.0.1:1")), clients.register(connected("10.0.0.2:2")));
        first.runs(0, 9_000);
        let ids = |filter: ClientFilter<'_>| -> Vec<u64> {
            clients.matching(&filter, 5_000).iter().map(|client| client.id()).collect()
        };
        let any = ClientFilter::default();
        assert_eq!(ids(any), [1, 2]);
        assert_eq!(ids(ClientFilter { id: Some(second.id()), ..any }), [2]);
        assert_eq!(ids(ClientFilter { id: Some(7), ..any }), [0; 0]);
        assert_eq!(ids(ClientFilter { kind: Some(ClientKind::Normal), ..any }), [1, 2]);
        assert_eq!(ids(ClientFilter { kind: Some(ClientKind::PubSub), ..any }), [0; 0]);
        assert_eq!(ids(ClientFilter { peer: Some(b"10.0.0.1:1"), ..any }), [1]);
        assert_eq!(ids(ClientFilter { peer: Some(b"10.0.0.1"), ..any }), [0; 0]);
        assert_eq!(ids(ClientFilter { local: Some(b"127.0.0.1:6379"), ..any }), [1, 2]);
        assert_eq!(ids(ClientFilter { local: Some(b"127.0.0.1:1"), ..any }), [0; 0]);
        assert_eq!(ids(ClientFilter { user: Some(b"default"), ..any }), [1, 2]);
        assert_eq!(ids(ClientFilter { user: Some(b"other"), ..any }), [0; 0]);
        assert_eq!(ids(ClientFilter { age_seconds_min: Some(4), ..any }), [1, 2]);
        assert_eq!(ids(ClientFilter { age_seconds_min: Some(5), ..any }), [0; 0]);
        assert_eq!(ids(ClientFilter { except: Some(1), ..any }), [2]);
        assert_eq!(ids(ClientFilter { id: Some(1), except: Some(1), ..any }), [0; 0]);
    }
}
