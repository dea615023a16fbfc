//! The clients of a replica, while the records of its leader are applied.

use std::mem::swap;

use engine::{
    Executor, ReplayObservers, Session,
    replication::{Address, WriteRefusal},
};
use keyspace::Item;
use lsn::Lsn;

use crate::testing::{TestServer, replay};

/// A leader, and a replica with some clients.
struct Pair {
    leader: TestServer,
    replica: TestServer,
    clients: Vec<Session>,
    observers: ReplayObservers,
    applied: Lsn,
}

impl Pair {
    fn new(clients: usize) -> Pair {
        let (leader, replica) = (TestServer::new(), TestServer::new());
        let clients = (0..clients).map(|_| replica.connect()).collect();
        let (keyspace, interests) =
            (replica.executor.keyspace().clone(), replica.executor.interests().clone());
        let mut executor =
            Executor::new(crate::table(), keyspace, interests, replica.host.stats.worker(0), 3);
        executor.attach(replica.log.appender());
        let pair =
            Pair { leader, replica, clients, observers: ReplayObservers::new(executor), applied: Lsn::ZERO };
        pair.follow();
        pair
    }

    fn follow(&self) {
        let leader = Address { host: "leader".into(), port: 1 };
        *self.replica.host.replication.leader.lock() = Some(leader);
    }

    /// The leader runs these commands; the replica applies the records, one after the other.
    fn lead(&mut self, lines: &[&str]) {
        for line in lines {
            let reply = self.leader.run(line);
            assert!(!reply.starts_with('-'), "{line}: {reply}");
        }
        let Pair { leader, replica, observers, applied, .. } = self;
        let (keyspace, services, mut open) = (replica.executor.keyspace(), &replica.services, None);
        leader.for_each_logged(|lsn, item| {
            if lsn <= *applied {
                return;
            }
            if let Some(before) = open.replace(lsn).filter(|before| *before < lsn) {
                observers.after_record(before, services);
            }
            let Item::Effect(effect) = item else { return };
            replay(keyspace, &effect, lsn);
            observers.saw(&effect);
        });
        if let Some(last) = open {
            observers.after_record(last, services);
            *applied = last;
        }
        observers.tell(services);
    }

    /// A client of the replica runs a command.
    fn run(&mut self, client: usize, line: &str) -> String {
        swap(&mut self.replica.session, &mut self.clients[client]);
        let reply = self.replica.run(line);
        swap(&mut self.replica.session, &mut self.clients[client]);
        reply
    }

    fn block(&mut self, client: usize, line: &str) {
        assert_eq!(self.run(client, line), "", "{line} is to block");
        assert!(self.clients[client].wait.is_some(), "{line} is to block");
    }

    /// The answer to a blocked client; empty text if it still waits.
    fn answered(&mut self, client: usize) -> String {
        let session = &mut self.clients[client];
        let Some((reply, gate)) = self.replica.host.take_answer(session.client.id()) else {
            return String::new();
        };
        assert!(reply.starts_with('-') || gate == self.applied || gate > Lsn::ZERO, "it shows a record");
        assert!(session.wait.take().is_some());
        reply
    }
}

#[test]
fn an_applied_entry_wakes_waiting_readers() {
    let mut pair = Pair::new(3);
    pair.lead(&["XADD s 1-1 a 1"]);
    pair.block(0, "XREAD BLOCK 0 STREAMS s $");
    pair.block(1, "XREAD BLOCK 0 STREAMS other s 0 1-1");
    pair.block(2, "XREAD COUNT 1 BLOCK 0 STREAMS other $");
    pair.lead(&["XADD s 5-1 a b"]);
    let entry = r#"[["s", [["5-1", ["a", "b"]]]]]"#;
    assert_eq!([0, 1, 2].map(|client| pair.answered(client)), [entry, entry, ""]);
    // A transaction is one record; XREAD sees all of it.
    pair.lead(&["MULTI", "XADD other 1-1 a b", "XADD other 1-2 c d", "EXEC"]);
    assert_eq!(pair.answered(2), r#"[["other", [["1-1", ["a", "b"]]]]]"#);
    pair.block(0, "XREAD BLOCK 0 STREAMS s $");
    // The entry is gone with the next record.
    pair.lead(&["XADD s 6-1 a b", "DEL s"]);
    assert_eq!(pair.answered(0), r#"[["s", [["6-1", ["a", "b"]]]]]"#);
    pair.block(0, "XREAD BLOCK 0 STREAMS s 0");
    pair.lead(&["SET s text", "DEL s", "XADD elsewhere 1-1 a b"]);
    assert_eq!(pair.answered(0), "");
    pair.lead(&["RENAME elsewhere s"]);
    assert_eq!(pair.answered(0), r#"[["s", [["1-1", ["a", "b"]]]]]"#);
    pair.block(0, "XREAD BLOCK 0 STREAMS t 0");
    pair.lead(&["SELECT 1", "XADD t 1-1 a b", "SWAPDB 0 1"]);
    assert_eq!(pair.answered(0), r#"[["t", [["1-1", ["a", "b"]]]]]"#);
    assert_eq!(pair.replica.executor.interests().awaited_keys(), 0);
    assert_eq!(pair.replica.content(), pair.leader.content());
}

#[test]
fn a_replica_pops_nothing_for_waiting_clients() {
    let mut pair = Pair::new(3);
    *pair.replica.host.replication.leader.lock() = None;
    // These clients block while the server leads, as if the demotion had missed them.
    pair.block(0, "BLPOP l 0");
    pair.block(1, "BLMOVE l m LEFT LEFT 0");
    pair.lead(&["XGROUP CREATE s g $ MKSTREAM"]);
    pair.block(2, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    pair.follow();
    let refusal = format!("-{}", WriteRefusal::Replica.error());
    pair.lead(&["RPUSH l a b", "XADD s 1-1 a b"]);
    assert_eq!([0, 1, 2].map(|client| pair.answered(client)), [&*refusal; 3]);
    assert_eq!(pair.run(0, "LRANGE l 0 -1"), r#"["a", "b"]"#);
    assert_eq!(pair.run(0, "BLPOP l 0"), refusal);
}

#[test]
fn waiting_clients_get_the_refusal_of_a_replica_that_hides_its_data() {
    let mut pair = Pair::new(1);
    pair.block(0, "XREAD BLOCK 0 STREAMS s $");
    pair.replica.host.replication.is_stale.store(true, std::sync::atomic::Ordering::Relaxed);
    pair.lead(&["XADD s 1-1 a b"]);
    let reply = pair.answered(0);
    assert!(reply.starts_with("-MASTERDOWN "), "{reply}");
}

#[test]
fn a_wait_on_a_replica_goes_on_after_its_promotion() {
    let mut pair = Pair::new(1);
    pair.block(0, "XREAD BLOCK 0 STREAMS s $");
    *pair.replica.host.replication.leader.lock() = None;
    assert_eq!(pair.replica.run("XADD s 1-1 a b"), r#""1-1""#);
    assert_eq!(pair.answered(0), r#"[["s", [["1-1", ["a", "b"]]]]]"#);
}

#[test]
fn applied_changes_stop_transactions_and_invalidate_caches() {
    let mut pair = Pair::new(2);
    pair.lead(&["SET a 1", "SET b 1"]);
    assert_eq!(pair.run(0, "WATCH a"), "+OK");
    assert_eq!(pair.run(1, "HELLO 3").chars().next(), Some('{'));
    assert_eq!(pair.run(1, "CLIENT TRACKING ON"), "+OK");
    assert_eq!(pair.run(1, "GET b"), r#""1""#);
    pair.lead(&["SET b 2", "INCR a"]);
    for (line, expected) in [("MULTI", "+OK"), ("GET a", "+QUEUED"), ("EXEC", "nil")] {
        assert_eq!(pair.run(0, line), expected, "{line}");
    }
    let id = pair.clients[1].client.id();
    let (pushed, gate) = pair.replica.host.take_pushed(id);
    assert_eq!(pushed, [r#">["invalidate", ["b"]]"#]);
    assert!(gate > Lsn::ZERO, "it waits for the record, as a reader of the key does");
}
