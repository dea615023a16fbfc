//! SENTINEL on a server in a group, and without one.

use engine::{
    group::{GroupView, MemberKind, NO_GROUP},
    replication::MASTER_DOWN,
};

use crate::testing::{TestServer, check, check_group, sample_group};

const UNKNOWN: &str = "-ERR No such master with that name";
const NO_LEADER: &str = "-MASTERDOWN no member leads the group at the moment: ask again";

const A1: &str = "00000000000000a1000000000000000000000000";
const B2: &str = "00000000000000b2000000000000000000000000";
const C3: &str = "00000000000000c3000000000000000000000000";

/// The sample group without a known leader, asked at its first member.
fn leaderless() -> GroupView {
    GroupView { leader: None, ..sample_group() }
}

/// The sample group, asked at the second member, which has heard from the leader `heard_ms` ago.
fn at_a_follower(heard_ms: u64) -> GroupView {
    let mut group = sample_group();
    group.members[0].is_self = false;
    group.members[0].heard_ms = Some(heard_ms);
    group.members[1].is_self = true;
    group.members[1].heard_ms = None;
    group
}

/// A server in a group.
fn server(group: GroupView) -> TestServer {
    let server = TestServer::new();
    *server.host.group.view.lock() = Some(group);
    server
}

/// `name value, ...` as an array and as a map of bulk strings.
fn instance(fields: &str) -> [String; 2] {
    let pairs: Vec<(&str, &str)> =
        fields.split(", ").map(|field| field.split_once(' ').expect("a name and a value")).collect();
    let shown = |between: &str| {
        let pair = |(name, value): &(&str, &str)| format!("\"{name}\"{between}\"{value}\"");
        pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
    };
    [format!("[{}]", shown(", ")), format!("{{{}}}", shown(": "))]
}

/// An array of such instances.
fn instances(all: &[&str]) -> [String; 2] {
    [0, 1].map(|protocol| {
        let shown: Vec<String> = all.iter().map(|fields| instance(fields)[protocol].clone()).collect();
        format!("[{}]", shown.join(", "))
    })
}

#[track_caller]
fn check_all(group: &GroupView, commands: &[&str], [resp2, resp3]: &[String; 2]) {
    for command in commands {
        check_group(group, &[(command, resp2, resp3)]);
    }
}

#[test]
fn the_leader_is_the_master() {
    let [of_group, usual] = ["shop", "mymaster"].map(|name| format!(
        "name {name}, ip 10.0.0.1, port 7001, runid {A1}, flags master, link-pending-commands 0, link-refcount 1, \
         last-ping-sent 0, last-ok-ping-reply 0, last-ping-reply 0, down-after-milliseconds 2000, info-refresh 0, \
         role-reported master, role-reported-time 0, config-epoch 7, num-slaves 2, num-other-sentinels 2, quorum 2, \
         failover-timeout 180000, parallel-syncs 1"
    ));
    let both = instances(&[&of_group, &usual]);
    check_all(&sample_group(), &["sentinel masters", "SENTINEL MASTERS"], &both);
    check_all(&sample_group(), &["sentinel master shop"], &instance(&of_group));
    check_all(&sample_group(), &["sentinel master mymaster"], &instance(&usual));
    let only = GroupView { name: "mymaster".into(), ..sample_group() };
    check_all(&only, &["sentinel masters"], &instances(&[&usual]));
}

#[test]
fn the_other_members_are_its_replicas() {
    let voter = format!(
        "name db2.example:7002, ip db2.example, port 7002, runid {B2}, flags slave, link-pending-commands 0, \
         link-refcount 1, last-ping-sent 0, last-ok-ping-reply 12, last-ping-reply 12, down-after-milliseconds 2000, \
         info-refresh 12, role-reported slave, role-reported-time 12, master-link-down-time 0, master-link-status ok, \
         master-host 10.0.0.1, master-port 7001, slave-priority 100, slave-repl-offset 4096, replica-announced 1"
    );
    let never = i32::MAX;
    let learner = format!(
        "name [::1]:7003, ip ::1, port 7003, runid {C3}, flags s_down,slave,disconnected, link-pending-commands 0, \
         link-refcount 1, last-ping-sent {never}, last-ok-ping-reply {never}, last-ping-reply {never}, s-down-time \
         {}, down-after-milliseconds 2000, info-refresh {never}, role-reported slave, role-reported-time {never}, \
         master-link-down-time {never}, master-link-status err, master-host 10.0.0.1, master-port 7001, \
         slave-priority 0, slave-repl-offset 0, replica-announced 1",
        never - 2000
    );
    let commands = ["sentinel replicas shop", "sentinel slaves mymaster"];
    check_all(&sample_group(), &commands, &instances(&[&voter, &learner]));
}

#[test]
fn the_other_members_are_sentinels_too() {
    let sentinel = |run_id: &str, address: &str, silent: &str| {
        format!(
            "name {run_id}, {address}, runid {run_id}, flags {silent}, voted-leader {A1}, voted-leader-epoch 7"
        )
    };
    let leader = sentinel(
        A1,
        "ip 10.0.0.1, port 7001",
        "sentinel, link-pending-commands 0, link-refcount 1, last-ping-sent 0, last-ok-ping-reply 2000, \
         last-ping-reply 2000, down-after-milliseconds 2000, last-hello-message 2000",
    );
    let never = i32::MAX;
    let down = format!(
        "s_down,sentinel,disconnected, link-pending-commands 0, link-refcount 1, last-ping-sent {never}, \
         last-ok-ping-reply {never}, last-ping-reply {never}, s-down-time {}, down-after-milliseconds 2000, \
         last-hello-message {never}",
        never - 2000
    );
    let learner = sentinel(C3, "ip ::1, port 7003", &down);
    let commands = ["sentinel sentinels shop", "sentinel sentinels mymaster"];
    check_all(&at_a_follower(2000), &commands, &instances(&[&leader, &learner]));
}

#[test]
fn a_silent_leader_is_down_until_another_leads() {
    let mut server = server(at_a_follower(2001));
    let master = server.run("sentinel master shop");
    for field in [
        "\"flags\", \"s_down,master,disconnected\"",
        "\"last-ping-sent\", \"2001\"",
        "\"s-down-time\", \"1\"",
    ] {
        assert!(master.contains(field), "{field} in {master}");
    }
    assert_eq!(server.run("sentinel get-master-addr-by-name shop"), "[\"10.0.0.1\", \"7001\"]");
    let mut group = at_a_follower(u64::MAX);
    group.leader = Some(group.members[1].id.clone());
    *server.host.group.view.lock() = Some(group);
    assert_eq!(server.run("sentinel get-master-addr-by-name shop"), "[\"db2.example\", \"7002\"]");
    let replicas = server.run("sentinel replicas shop");
    assert!(replicas.starts_with("[[\"name\", \"10.0.0.1:7001\""), "{replicas}");
    assert!(replicas.contains(&format!("\"last-ping-reply\", \"{}\"", i32::MAX)), "{replicas}");
    assert_eq!(replicas.matches("\"flags\", \"s_down,slave,disconnected\"").count(), 2, "{replicas}");
}

#[test]
fn without_a_leader_there_is_no_master() {
    let mut server = server(leaderless());
    server.check(&[
        ("sentinel masters", "[]"),
        ("sentinel master shop", NO_LEADER),
        ("sentinel get-master-addr-by-name shop", "nil"),
        ("sentinel get-master-addr-by-name mymaster", "nil"),
    ]);
    assert_eq!(server.raw("sentinel get-master-addr-by-name shop"), b"*-1\r\n");
    let replicas = server.run("sentinel replicas shop");
    assert_eq!(replicas.matches("\"role-reported\", \"slave\"").count(), 3, "{replicas}");
    let unlinked = "\"master-link-status\", \"err\", \"master-host\", \"?\", \"master-port\", \"0\"";
    assert_eq!(replicas.matches(unlinked).count(), 3, "{replicas}");
    let sentinels = server.run("sentinel sentinels shop");
    assert_eq!(
        sentinels.matches("\"voted-leader\", \"?\", \"voted-leader-epoch\", \"0\"").count(),
        2,
        "{sentinels}"
    );
}

#[test]
fn a_master_has_the_name_of_the_group_or_the_usual_one() {
    check_group(
        &sample_group(),
        &[
            ("sentinel get-master-addr-by-name shop", "[\"10.0.0.1\", \"7001\"]", "[\"10.0.0.1\", \"7001\"]"),
            (
                "sentinel get-master-addr-by-name mymaster",
                "[\"10.0.0.1\", \"7001\"]",
                "[\"10.0.0.1\", \"7001\"]",
            ),
            ("sentinel get-master-addr-by-name Shop", "nil", "nil"),
            ("sentinel master other", UNKNOWN, UNKNOWN),
            ("sentinel replicas other", UNKNOWN, UNKNOWN),
            ("sentinel slaves other", UNKNOWN, UNKNOWN),
            ("sentinel sentinels other", UNKNOWN, UNKNOWN),
            ("sentinel ckquorum other", UNKNOWN, UNKNOWN),
            ("sentinel failover other", UNKNOWN, UNKNOWN),
            ("sentinel reset other", ":0", ":0"),
            ("sentinel reset sh*", ":1", ":1"),
            ("sentinel reset *", ":1", ":1"),
            ("sentinel reset mymaster", ":1", ":1"),
        ],
    );
}

#[test]
fn a_quorum_is_a_majority_of_voters_that_can_be_heard() {
    let usable = "+OK 2 usable Sentinels. Quorum and failover authorization can be reached";
    check_group(&sample_group(), &[("sentinel ckquorum shop", usable, usable)]);
    let mut group = sample_group();
    // Neither a member without a vote nor one that does not answer counts.
    group.members[2].answers = true;
    check_group(&group, &[("sentinel ckquorum mymaster", usable, usable)]);
    (group.members[2].has_vote, group.members[2].answers) = (true, false);
    check_group(&group, &[("sentinel ckquorum mymaster", usable, usable)]);
    group.members[1].answers = false;
    let refused = "-NOQUORUM 1 usable Sentinels. Not enough available Sentinels to reach the specified quorum for this \
                   master. Not enough available Sentinels to reach the majority and authorize a failover";
    check_group(&group, &[("sentinel ckquorum shop", refused, refused)]);
}

#[test]
fn a_member_has_an_id_of_forty_digits() {
    let expected = format!("\"{A1}\"");
    check_group(&sample_group(), &[("sentinel myid", &expected, &expected)]);
}

#[test]
fn a_failover_is_a_transfer_of_the_lead() {
    let mut server = server(sample_group());
    let client = server.session.client.id();
    assert_eq!(server.run("sentinel failover mymaster"), "");
    assert_eq!(server.host.group.take_asked(), ["transfer"]);
    server.host.group.answer(Ok(()));
    assert_eq!(server.host.take_answer(client).expect("an answer").0, "+OK");
}

#[test]
fn the_group_is_not_configured_through_sentinel() {
    let mut server = server(sample_group());
    for command in [
        "sentinel flushconfig",
        "sentinel monitor other 127.0.0.1 6379 2",
        "sentinel remove shop",
        "sentinel set shop quorum 1",
    ] {
        let reply = server.run(command);
        assert!(reply.starts_with("-ERR the group manages itself: GROUP MEMBERS"), "{command}: {reply}");
    }
}

#[test]
fn a_server_without_a_group_has_no_masters() {
    let refused = format!("-{NO_GROUP}");
    for command in [
        "masters",
        "master mymaster",
        "replicas mymaster",
        "slaves mymaster",
        "sentinels mymaster",
        "get-master-addr-by-name mymaster",
        "ckquorum mymaster",
        "myid",
        "reset *",
        "failover mymaster",
    ] {
        check(&[(&format!("sentinel {command}"), &refused)]);
    }
}

#[test]
fn arguments_are_counted() {
    check(&[
        ("sentinel", "-ERR wrong number of arguments for 'sentinel' command"),
        ("sentinel foo", "-ERR unknown subcommand 'foo'. Try SENTINEL HELP."),
        ("sentinel masters x", "-ERR wrong number of arguments for 'sentinel|masters' command"),
        ("sentinel master", "-ERR wrong number of arguments for 'sentinel|master' command"),
        (
            "sentinel get-master-addr-by-name",
            "-ERR wrong number of arguments for 'sentinel|get-master-addr-by-name' command",
        ),
        ("sentinel set shop quorum", "-ERR wrong number of arguments for 'sentinel|set' command"),
        ("sentinel monitor a b", "-ERR wrong number of arguments for 'sentinel|monitor' command"),
    ]);
}

#[test]
fn a_loading_or_stale_member_answers() {
    let mut server = server(sample_group());
    server.host.replication.is_stale.store(true, std::sync::atomic::Ordering::Relaxed);
    server.check(&[
        ("get k", &format!("-{MASTER_DOWN}")),
        ("sentinel get-master-addr-by-name shop", "[\"10.0.0.1\", \"7001\"]"),
    ]);
    assert!(server.run("group info").starts_with("[\"name\", \"shop\""));
}

#[test]
fn a_witness_is_a_sentinel_and_neither_a_replica_nor_a_master() {
    let mut group = at_a_follower(5);
    (group.members[2].kind, group.members[2].has_vote) = (MemberKind::Witness, true);
    let mut server = server(group.clone());
    let replicas = server.run("sentinel replicas shop");
    assert!(!replicas.contains("[::1]:7003") && replicas.contains("db2.example:7002"), "{replicas}");
    let sentinels = server.run("sentinel sentinels shop");
    assert!(sentinels.contains("\"::1\", \"port\", \"7003\""), "{sentinels}");
    let master = server.run("sentinel master shop");
    for field in ["\"num-slaves\", \"1\"", "\"num-other-sentinels\", \"2\"", "\"quorum\", \"2\""] {
        assert!(master.contains(field), "{field} in {master}");
    }
    // A witness that leads is no master either, until it has handed the lead on.
    group.leader = Some(group.members[2].id.clone());
    *server.host.group.view.lock() = Some(group);
    server.check(&[("sentinel masters", "[]"), ("sentinel get-master-addr-by-name shop", "nil")]);
    let info = server.run("group info");
    assert!(info.contains("\"leader\", \"00000000000000c3\", \"leader-address\", nil"), "{info}");
    assert!(info.contains("\"voters\", :3"), "{info}");
    assert!(server.run("group members").contains("\"kind\", \"witness\", \"role\", \"leader\""));
}
