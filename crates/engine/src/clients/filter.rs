//! The selection of clients by CLIENT LIST and CLIENT KILL.

use keyspace::DbId;

use super::{Client, ClientKind};

/// The letters that CLIENT LIST may show in `flags`, here or in another server.
const FLAG_LETTERS: &[u8] = b"AbBcdeEIiMNOPrRStTuUx";
const CAPA_LETTERS: &[u8] = b"r";

/// A condition on a client, as CLIENT LIST and CLIENT KILL give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCondition<'a> {
    /// The id of the client is one of these.
    Ids(Vec<u64>),
    /// The client is of this kind (TYPE).
    Kind(ClientKind),
    /// The address of the other side, in full.
    Peer(&'a [u8]),
    /// The address of the other side, without the port.
    Ip(&'a [u8]),
    /// The address of this server to which the client connected, in full.
    Local(&'a [u8]),
    /// The name of the client's user.
    User(&'a [u8]),
    /// The minimum age of the connection, in seconds.
    AgeSecondsMin(u64),
    /// The minimum time since the last command of the client, in seconds.
    IdleSecondsMin(u64),
    /// All of these letters are among the flags of the client.
    Flags(&'a [u8]),
    /// All of these letters are among the capabilities of the client.
    Capabilities(&'a [u8]),
    /// The name of the client. The empty name selects no client.
    Name(&'a [u8]),
    /// The name of the client's library.
    Library(&'a [u8]),
    /// The version of the client's library.
    LibraryVersion(&'a [u8]),
    /// The database that the client has selected.
    Db(DbId),
}

impl ClientCondition<'_> {
    fn holds(&self, client: &Client, now_ms: u64) -> bool {
        let is = |known: &str, wanted: &[u8]| !known.is_empty() && known.as_bytes() == wanted;
        let has_all =
            |known: &str, wanted: &[u8]| wanted.iter().all(|letter| known.as_bytes().contains(letter));
        match *self {
            ClientCondition::Ids(ref ids) => ids.contains(&client.id()),
            ClientCondition::Kind(kind) => kind == client.kind(),
            ClientCondition::Peer(peer) => peer == client.peer().as_bytes(),
            ClientCondition::Ip(ip) => is(client.peer().rsplit_once(':').map_or("", |(ip, _)| ip), ip),
            ClientCondition::Local(local) => local == client.local().as_bytes(),
            ClientCondition::User(user) => *user == *client.user(),
            ClientCondition::AgeSecondsMin(min) => now_ms.saturating_sub(client.created_ms()) / 1000 >= min,
            ClientCondition::IdleSecondsMin(min) => client.idle_seconds(now_ms) >= min,
            ClientCondition::Flags(letters) => has_all(&client.flag_letters(), letters),
            ClientCondition::Capabilities(letters) => has_all(client.capabilities(), letters),
            ClientCondition::Name(name) => is(client.labels().name.as_str(), name),
            ClientCondition::Library(name) => is(client.labels().library.as_str(), name),
            ClientCondition::LibraryVersion(version) => is(client.labels().library_version.as_str(), version),
            ClientCondition::Db(db) => db == client.db(),
        }
    }
}

/// Whether these letters may occur in `flags`.
pub fn are_flags(letters: &[u8]) -> bool {
    letters.iter().all(|letter| FLAG_LETTERS.contains(letter))
}

/// Whether these letters may occur in `capa`.
pub fn are_capabilities(letters: &[u8]) -> bool {
    letters.iter().all(|letter| CAPA_LETTERS.contains(letter))
}

/// A selection of clients by conditions, for CLIENT LIST and CLIENT KILL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFilter<'a> {
    /// The conditions, each with whether it must hold (`true`) or must not.
    pub conditions: Vec<(ClientCondition<'a>, bool)>,
    /// Excludes the client with this id.
    pub except: Option<u64>,
}

impl<'a> ClientFilter<'a> {
    /// A filter with one condition, which must hold.
    pub fn only(condition: ClientCondition<'a>) -> ClientFilter<'a> {
        ClientFilter { conditions: vec![(condition, true)], except: None }
    }

    /// Whether the filter selects clients of this kind only.
    pub fn wants_kind(&self, kind: ClientKind) -> bool {
        self.conditions.contains(&(ClientCondition::Kind(kind), true))
    }

    /// Whether the filter selects a client at this time (unix milliseconds).
    pub fn matches(&self, client: &Client, now_ms: u64) -> bool {
        self.except.is_none_or(|except| except != client.id())
            && self.conditions.iter().all(|(it, wanted)| it.holds(client, now_ms) == *wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Clients, Label, tests::connected};

    #[test]
    fn every_condition_can_rule_a_client_out() {
        use ClientCondition as C;
        let clients = Clients::new();
        let (first, second) =
            (clients.register(connected("10.0.0.1:1")), clients.register(connected("10.0.0.2:2")));
        first.runs(0, 4_000);
        first.set_no_evict(true);
        first.set_db(DbId::new(3).expect("in range"));
        first.set_handles_redirects();
        first.change_labels(|labels| {
            labels.name = Label::parse(b"jobs").expect("valid");
            labels.library = Label::parse(b"lib").expect("valid");
            labels.library_version = Label::parse(b"1.2").expect("valid");
        });
        let ids = |filter: &ClientFilter<'_>| -> Vec<u64> {
            clients.matching(filter, 5_000).iter().map(|client| client.id()).collect()
        };
        assert_eq!(ids(&ClientFilter::default()), [1, 2]);
        assert_eq!(ids(&ClientFilter { except: Some(1), ..ClientFilter::default() }), [2]);
        for (condition, expected) in [
            (C::Ids(vec![second.id(), 7]), &[2][..]),
            (C::Ids(vec![7]), &[]),
            (C::Kind(ClientKind::Normal), &[1, 2]),
            (C::Kind(ClientKind::PubSub), &[]),
            (C::Peer(b"10.0.0.1:1"), &[1]),
            (C::Peer(b"10.0.0.1"), &[]),
            (C::Ip(b"10.0.0.1"), &[1]),
            (C::Ip(b"10.0.0.1:1"), &[]),
            (C::Local(b"127.0.0.1:6379"), &[1, 2]),
            (C::Local(b"127.0.0.1:1"), &[]),
            (C::User(b"default"), &[1, 2]),
            (C::User(b"other"), &[]),
            (C::AgeSecondsMin(4), &[1, 2]),
            (C::AgeSecondsMin(5), &[]),
            (C::IdleSecondsMin(2), &[2]),
            (C::Flags(b"e"), &[1]),
            (C::Flags(b"N"), &[2]),
            (C::Flags(b""), &[1, 2]),
            (C::Capabilities(b"r"), &[1]),
            (C::Name(b"jobs"), &[1]),
            (C::Name(b""), &[]),
            (C::Library(b"lib"), &[1]),
            (C::LibraryVersion(b"1.2"), &[1]),
            (C::Db(DbId::ZERO), &[2]),
        ] {
            assert_eq!(ids(&ClientFilter::only(condition.clone())), expected, "{condition:?}");
            let others: Vec<u64> = [1, 2].into_iter().filter(|id| !expected.contains(id)).collect();
            let not = ClientFilter { conditions: vec![(condition.clone(), false)], except: None };
            assert_eq!(ids(&not), others, "not {condition:?}");
        }
        let both = vec![(C::Ids(vec![1]), true), (C::Name(b"x"), true)];
        assert_eq!(ids(&ClientFilter { conditions: both, except: None }), [0; 0]);
    }
}
