//! CLUSTER on a server alone, on a replica and in a group, and what a follower does with commands on keys.

use std::sync::atomic::Ordering::Relaxed;

use engine::{
    group::{GroupView, MemberKind},
    replication::Address,
};
use wire::Protocol;

use crate::testing::{TestServer, check, sample_group};

const A1: &str = "00000000000000a1000000000000000000000000";
const B2: &str = "00000000000000b2000000000000000000000000";
const C3: &str = "00000000000000c3000000000000000000000000";

fn server() -> TestServer {
    let server = TestServer::new();
    server.host.emulates_cluster.store(true, Relaxed);
    server
}

fn in_group(group: GroupView) -> TestServer {
    let server = server();
    *server.host.group.view.lock() = Some(group);
    server
}

/// A server that follows 10.0.0.1:7001.
fn follower() -> TestServer {
    let mut group = sample_group();
    (group.members[0].is_self, group.members[1].is_self) = (false, true);
    group.members[0].heard_ms = Some(5);
    let server = in_group(group);
    let leader = Address { host: "10.0.0.1".into(), port: 7001 };
    *server.host.replication.leader.lock() = Some(leader);
    server
}

#[test]
fn without_the_setting_there_is_no_cluster() {
    for command in [
        "cluster info",
        "cluster slots",
        "cluster shards",
        "cluster nodes",
        "cluster myid",
        "cluster keyslot k",
        "cluster countkeysinslot 1",
        "cluster getkeysinslot 1 1",
    ] {
        check(&[(command, "-ERR This instance has cluster support disabled")]);
    }
    check(&[("readonly", "+OK"), ("readwrite", "+OK")]);
}

#[test]
fn a_server_alone_holds_all_slots() {
    let mut server = server();
    // The SHA-1 of the server's address.
    let id = "11eceb7f355c699a367c5f3e38ec19fca7318355";
    server.check(&[("cluster myid", &format!("\"{id}\""))]);
    let slots = format!("[[:0, :16383, [\"127.0.0.1\", :6379, \"{id}\", []]]]");
    assert_eq!(server.run("cluster slots"), slots);
    let nodes = server.run("cluster nodes");
    let expected = format!("{id} 127.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-16383");
    assert!(nodes.contains(&expected), "{nodes}");
    let info = server.run("cluster info");
    for line in ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:1", "cluster_size:1"] {
        assert!(info.contains(line), "{line} in {info}");
    }
    server.host.settings.lock().insert("group-host", "db.example".into());
    assert!(server.run("cluster slots").contains("[\"db.example\", :6379,"));
}

#[test]
fn the_members_of_a_group_are_one_shard() {
    let mut server = in_group(sample_group());
    server.check(&[
        ("cluster myid", &format!("\"{A1}\"")),
        (
            "cluster slots",
            &format!(
                "[[:0, :16383, [\"10.0.0.1\", :7001, \"{A1}\", []], [\"db2.example\", :7002, \"{B2}\", []]]]"
            ),
        ),
    ]);
    let nodes = server.run("cluster nodes");
    for line in [
        format!("{A1} 10.0.0.1:7001@17001 myself,master - 0 0 7 connected 0-16383"),
        format!("{B2} db2.example:7002@17002 slave {A1} 0 0 7 connected"),
        format!("{C3} ::1:7003@17003 slave,fail {A1} 0 0 7 disconnected"),
    ] {
        assert!(nodes.contains(&line), "{line} in {nodes}");
    }
    server.session.protocol = Protocol::Resp3;
    let shards = server.run("cluster shards");
    let leader = format!(
        "{{\"slots\": [:0, :16383], \"nodes\": [{{\"id\": \"{A1}\", \"port\": :7001, \"ip\": \"10.0.0.1\", \
         \"endpoint\": \"10.0.0.1\", \"role\": \"master\", \"replication-offset\": :8192, \"health\": \"online\"}}"
    );
    assert!(shards.contains(&leader), "{shards}");
    assert!(shards.contains("\"role\": \"replica\", \"replication-offset\": :4096, \"health\": \"online\""));
    assert!(shards.contains("\"replication-offset\": :0, \"health\": \"fail\""));
}

#[test]
fn a_leader_that_is_gone_is_shown_until_another_leads() {
    let mut server = follower();
    if let Some(group) = &mut *server.host.group.view.lock() {
        group.leader = None;
        group.members[0].heard_ms = Some(3000);
    }
    let slots = server.run("cluster slots");
    assert!(slots.starts_with(&format!("[[:0, :16383, [\"10.0.0.1\", :7001, \"{A1}\", []]")), "{slots}");
    assert!(
        server.run("cluster nodes").contains("10.0.0.1:7001@17001 master,fail - 0 0 7 disconnected 0-16383")
    );
    *server.host.replication.leader.lock() = None;
    assert_eq!(server.run("cluster slots"), "[]");
    assert!(server.run("cluster info").contains("cluster_state:fail"));
}

#[test]
fn a_replica_without_a_group_names_its_leader() {
    let mut server = server();
    *server.host.replication.leader.lock() = Some(Address { host: "10.0.0.9".into(), port: 1 });
    let slots = server.run("cluster slots");
    assert!(slots.starts_with("[[:0, :16383, [\"10.0.0.9\", :1, "), "{slots}");
    assert!(slots.contains("[\"127.0.0.1\", :6379, "), "{slots}");
    server.check(&[("set k v", "-MOVED 7629 10.0.0.9:1")]);
}

#[test]
fn a_leader_that_hands_over_asks_clients_of_a_cluster_to_try_again() {
    let mut server = server();
    server.run("set k old");
    server.host.replication.is_handing_over.store(true, Relaxed);
    let again = "-CLUSTERDOWN The lead is being handed over to another server. Try again.";
    server.check(&[
        ("set k v", again),
        ("eval 'return 1' 1 k", ":1"),
        ("get k", "\"old\""),
        ("ssubscribe k", "[\"ssubscribe\", \"k\", :1]"),
        ("sunsubscribe k", "[\"sunsubscribe\", \"k\", :0]"),
    ]);
    server.host.emulates_cluster.store(false, Relaxed);
    assert!(server.run("set k v").starts_with("-READONLY"));
    server.host.replication.is_handing_over.store(false, Relaxed);
    server.check(&[("set k v", "+OK")]);
}

#[test]
fn nobody_is_sent_to_a_leader_that_is_not_known() {
    let mut server = follower();
    *server.host.replication.leader.lock() = Some(Address { host: "".into(), port: 0 });
    let again =
        "-CLUSTERDOWN The group has no leader: a majority of its members must be reachable. Try again.";
    server.check(&[("get k", again), ("set k v", again), ("eval 'return 1' 1 k", again)]);
}

#[test]
fn a_follower_sends_clients_to_the_leader() {
    let mut server = follower();
    server.check(&[
        ("get k", "-MOVED 7629 10.0.0.1:7001"),
        ("set k v", "-MOVED 7629 10.0.0.1:7001"),
        ("mget k {x}1 y", "-MOVED 7629 10.0.0.1:7001"),
        ("eval 'return 1' 1 k", "-MOVED 7629 10.0.0.1:7001"),
        ("idemp token 1000 set k v", "-MOVED 2961 10.0.0.1:7001"),
        ("ssubscribe k", "-MOVED 7629 10.0.0.1:7001"),
        ("eval 'return 1' 0", ":1"),
        ("dbsize", ":0"),
        ("ping", "+PONG"),
        ("flushall", "-READONLY You can't write against a read only replica."),
        ("readonly", "+OK"),
        ("get k", "nil"),
        ("mget k y", "[nil, nil]"),
        ("set k v", "-MOVED 7629 10.0.0.1:7001"),
        ("ssubscribe k", "-MOVED 7629 10.0.0.1:7001"),
        ("readwrite", "+OK"),
        ("get k", "-MOVED 7629 10.0.0.1:7001"),
        ("readonly", "+OK"),
        ("reset", "+RESET"),
        ("get k", "-MOVED 7629 10.0.0.1:7001"),
        ("multi", "+OK"),
        ("set k v", "-MOVED 7629 10.0.0.1:7001"),
        ("exec", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
    server.host.emulates_cluster.store(false, Relaxed);
    server.check(&[("get k", "nil"), ("set k v", "-READONLY You can't write against a read only replica.")]);
}

#[test]
fn several_slots_in_one_command_are_allowed() {
    server().check(&[("mset a 1 b 2", "+OK"), ("mget a b", "[\"1\", \"2\"]"), ("del a b", ":2")]);
}

#[test]
fn keys_are_found_by_their_slot() {
    let mut server = server();
    server.check(&[
        ("mset {x}1 1 {x}2 2 y 3", "+OK"),
        ("set {x}gone 1 px 10", "+OK"),
        ("after 11", ""),
        ("cluster keyslot {x}1", ":16287"),
        ("cluster keyslot k", ":7629"),
        ("cluster countkeysinslot 16287", ":2"),
        ("cluster countkeysinslot 0", ":0"),
        ("cluster getkeysinslot 16287 0", "[]"),
        ("cluster countkeysinslot 16384", "-ERR Invalid or out of range slot"),
        ("cluster countkeysinslot -1", "-ERR Invalid or out of range slot"),
        ("cluster countkeysinslot x", "-ERR Invalid or out of range slot"),
        ("cluster getkeysinslot 1 -1", "-ERR Invalid number of keys"),
        ("cluster getkeysinslot 1 x", "-ERR Invalid number of keys"),
        ("cluster foo", "-ERR unknown subcommand 'foo'. Try CLUSTER HELP."),
    ]);
    let keys = server.run("cluster getkeysinslot 16287 10");
    assert!(keys.contains("\"{x}1\"") && keys.contains("\"{x}2\"") && !keys.contains("gone"), "{keys}");
    assert_eq!(server.run("cluster getkeysinslot 16287 1").matches("{x}").count(), 1);
}

#[test]
fn a_witness_is_no_node() {
    let mut group = sample_group();
    group.members[2].kind = MemberKind::Witness;
    let mut server = in_group(group);
    assert!(server.run("cluster info").contains("cluster_known_nodes:2"));
    for command in ["cluster nodes", "cluster shards", "cluster slots"] {
        let shown = server.run(command);
        assert!(shown.contains(B2) && !shown.contains(C3), "{command}: {shown}");
    }
}
