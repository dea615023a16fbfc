//! Commands whose records repeat their arguments ask for room before they change anything.

use std::sync::atomic::Ordering::Relaxed;

use crate::testing::TestServer;

/// A name that fits once, but not twice, into a record of 1 MiB. A transaction asks for room only for more
/// than 1 MiB.
fn long_name() -> Vec<u8> {
    vec![b'n'; 600_000]
}

/// Asserts that a transaction with `command` is refused on a disk without room, and changes nothing. Runs the
/// commands of `before` first. In `command`, `NAME` stands for the long name.
fn assert_asks_for_room(before: &[&str], command: &str) {
    let mut server = TestServer::new();
    let name = long_name();
    let run = |server: &mut TestServer, line: &str| {
        let words = line.split(' ').map(|word| if word == "NAME" { &name[..] } else { word.as_bytes() });
        server.run_args(&words.collect::<Vec<_>>())
    };
    for line in before {
        match line.strip_prefix("after ") {
            Some(_) => server.check(&[(line, "")]),
            None => {
                let reply = run(&mut server, line);
                assert!(!reply.starts_with('-'), "{line}: {reply}");
            }
        }
    }
    let content = server.content();
    server.host.room_bytes.store(0, Relaxed);
    server.run("MULTI");
    assert_eq!(run(&mut server, command), "+QUEUED");
    let reply = server.run("EXEC");
    assert!(reply.contains("no space left"), "{command}: {reply}");
    assert_eq!(server.content(), content, "{command}");
    server.host.room_bytes.store(u64::MAX, Relaxed);
    let reply = run(&mut server, command);
    assert!(!reply.starts_with('-'), "{command}: {reply}");
    assert_ne!(server.content(), content, "{command}");
    server.assert_replays();
}

#[test]
fn names_that_a_record_repeats_are_asked_room_for() {
    let pending = [
        "XADD s 1-1 f v",
        "XGROUP CREATE s a 0",
        "XGROUP CREATE s NAME 0",
        "XREADGROUP GROUP a c STREAMS s >",
        "XREADGROUP GROUP NAME c STREAMS s >",
    ];
    let with_group = &pending[..3];
    let expired = ["HSET h NAME 1 b 2", "HPEXPIRE h 10 FIELDS 1 NAME", "after 10"];
    for (before, command) in [
        (&[][..], "BITFIELD NAME SET u8 0 1 SET u8 800 1"),
        (&[], "HSETEX h PX 10000 FIELDS 1 NAME v"),
        (&["HSET h NAME 1 b 2"], "HSETEX h PXAT 1 FIELDS 1 NAME v"),
        (&expired, "HSETEX h FIELDS 1 NAME v"),
        (&expired, "HSET h NAME 3"),
        (&expired, "HDEL h NAME b"),
        (&expired, "HINCRBY h NAME 3"),
        (&expired, "HINCRBYFLOAT h NAME 3.5"),
        (&expired, "HGETDEL h FIELDS 2 NAME b"),
        (&expired, "HGETEX h PX 5000 FIELDS 2 NAME b"),
        (with_group, "XREADGROUP GROUP NAME c STREAMS s >"),
        (with_group, "XREADGROUP GROUP a NAME STREAMS s >"),
        (&pending, "XCLAIM s NAME d 0 1-1"),
        (&pending, "XAUTOCLAIM s a NAME 0 0"),
        (with_group, "XGROUP RESTORECONSUMER s NAME c 1 1 1-1 5 1"),
    ] {
        assert_asks_for_room(before, command);
    }
}

#[test]
fn groups_whose_references_are_removed_are_asked_room_for() {
    let other = format!("XGROUP CREATE s {} 0", "m".repeat(600_000));
    let read = format!("XREADGROUP GROUP {} c STREAMS s >", "m".repeat(600_000));
    let pending = [
        "XADD s 1-1 f v",
        "XADD s 1-2 f v",
        "XGROUP CREATE s NAME 0",
        &other,
        "XREADGROUP GROUP NAME c STREAMS s >",
        &read,
    ];
    for command in [
        "XDELEX s DELREF IDS 1 1-1",
        "XACKDEL s NAME DELREF IDS 1 1-1",
        "XTRIM s MAXLEN 1 DELREF",
        "XTRIM s MINID 1-2 DELREF",
        "XADD s MAXLEN 1 DELREF 1-3 f v",
    ] {
        assert_asks_for_room(&pending, command);
    }
}

#[test]
fn entries_that_a_trim_lists_are_asked_room_for() {
    let mut server = TestServer::new();
    for number in 1..=60_000 {
        server.run(&format!("XADD s 1-{number} f v"));
    }
    server.host.room_bytes.store(0, Relaxed);
    for line in ["XTRIM s MAXLEN 0 ACKED", "XTRIM s MINID 2 ACKED", "XADD s MAXLEN 0 ACKED 3-1 f v"] {
        server.check(&[("MULTI", "+OK"), (line, "+QUEUED")]);
        let reply = server.run("EXEC");
        assert!(reply.contains("no space left"), "{line}: {reply}");
        server.check(&[("XLEN s", ":60000")]);
    }
    server.check(&[("XTRIM s MAXLEN 1 ACKED", ":59999")]);
}

#[test]
fn a_restored_hash_is_asked_room_for_with_the_names_of_its_deadlines() {
    let mut server = TestServer::new();
    let name = long_name();
    server.run_args(&[b"HSETEX", b"h", b"PX", b"10000", b"FIELDS", b"1", &name, b"v"]);
    let wire::Value::Bulk(payload) = server.value("DUMP h") else { panic!("no payload") };
    server.host.room_bytes.store(0, Relaxed);
    server.run("MULTI");
    server.run_args(&[b"RESTORE", b"copy", b"0", &payload]);
    let reply = server.run("EXEC");
    assert!(reply.contains("no space left"), "{reply}");
    server.check(&[("EXISTS copy", ":0")]);
    assert_eq!(server.run_args(&[b"RESTORE", b"copy", b"0", &payload]), "+OK");
    server.assert_replays();
}

#[test]
fn a_record_that_no_log_can_hold_is_refused_before_anything_changes() {
    let mut server = TestServer::new();
    let key = vec![b'k'; 1 << 20];
    let mut args = vec![b"BITFIELD".to_vec(), key.clone()];
    for number in 0..2100 {
        args.extend(["SET", "u8", &(number * 8).to_string(), "1"].map(|word| word.as_bytes().to_vec()));
    }
    let reply = server.run_args(&args.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(reply, "-ERR this would write more than 2 GiB to the log at once, which is not possible");
    assert_eq!(server.run_args(&[b"EXISTS", &key]), ":0");
}

#[test]
fn a_counter_of_distinct_elements_with_a_long_name_is_logged_briefly() {
    let mut server = TestServer::new();
    let key = vec![b'k'; 100_000];
    let members: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    let add = |from: usize, to: usize| {
        let words = ["PFADD".as_bytes(), &key].into_iter();
        words.chain(members[from..to].iter().map(String::as_bytes)).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    for (from, to) in [(0, 2900), (2900, 3000)] {
        let before = server.appended_lsn().get();
        let words = add(from, to);
        assert_eq!(server.run_args(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()), ":1");
        let record_bytes = server.appended_lsn().get() - before;
        assert!(record_bytes < 120_000, "{record_bytes} bytes");
    }
    server.assert_replays();
}
