//! Several workers against a plain model, and two workers on threads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
};

use proptest::prelude::*;
use wire::{DecodeLimits, Value, decode, glob};

use super::*;
use crate::delivery::Block;

const WORKERS: usize = 3;

/// Bytes sent to each client and not yet checked.
type Received = BTreeMap<u64, Vec<u8>>;

fn collect(local: &mut Local, received: &mut Received) {
    local.deliver();
    local.take_due(|client, delivery| {
        delivery.append_to(received.entry(client).or_default());
        true
    });
}

fn values(mut bytes: &[u8]) -> Vec<Value> {
    let mut values = Vec::new();
    while let Some((value, len)) = decode(bytes, &DecodeLimits::DEFAULT).expect("frames are well formed") {
        values.push(value);
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty(), "frames are whole");
    values
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect::<String>().replace("\r\n", " ")
}

#[test]
fn frames_are_those_of_redis() {
    let hub = Hub::new(1, 1);
    let (mut local, mut received) = (hub.local(0), Received::new());
    let (old, new) = (local.join(1, Protocol::Resp2), local.join(2, Protocol::Resp3));
    for id in [old, new] {
        assert!(local.subscribe(id, Kind::Channel, b"ch"));
        assert!(!local.subscribe(id, Kind::Channel, b"ch"), "once is enough");
        assert!(local.subscribe(id, Kind::Pattern, b"c*"));
        assert!(local.subscribe(id, Kind::Shard, b"ch"));
    }
    assert_eq!(local.publish(Kind::Channel, b"ch", b"hi"), 4);
    assert_eq!(local.publish(Kind::Shard, b"ch", b""), 2);
    assert_eq!(local.publish(Kind::Channel, b"other", b"x"), 0);
    collect(&mut local, &mut received);
    let expected = "*3 $7 message $2 ch $2 hi *4 $8 pmessage $2 c* $2 ch $2 hi *3 $8 smessage $2 ch $0  ";
    assert_eq!(text(&received[&1]), expected);
    assert_eq!(text(&received[&2]), expected.replace('*', ">").replace("c>", "c*"));
}

#[test]
fn a_message_reaches_the_subscribers_of_its_time() {
    let hub = Hub::new(2, 1);
    let (mut here, mut there, mut received) = (hub.local(0), hub.local(1), Received::new());
    let (first, second) = (here.join(1, Protocol::Resp2), here.join(2, Protocol::Resp2));
    here.subscribe(first, Kind::Channel, b"a");
    here.publish(Kind::Channel, b"a", b"own");
    there.publish(Kind::Channel, b"a", b"from there");
    assert!(!there.flush_mailboxes(), "nothing to deliver there");
    here.subscribe(second, Kind::Channel, b"a");
    here.unsubscribe(first, Kind::Channel, b"a");
    here.publish(Kind::Channel, b"a", b"later");
    assert!(here.flush_mailboxes());
    collect(&mut here, &mut received);
    assert_eq!(values(&received[&1]).len(), 2);
    assert_eq!(values(&received[&2]).len(), 1);
    let mut out = Vec::new();
    here.publish(Kind::Channel, b"a", b"x");
    here.unsubscribe(second, Kind::Channel, b"a");
    here.drain_into(second, &mut out);
    assert_eq!(text(&out), "*3 $7 message $1 a $1 x ", "goes before the confirmation");
}

#[test]
fn large_frames_are_shared_and_small_ones_are_not() {
    let hub = Hub::new(1, 1);
    let mut local = hub.local(0);
    for client in 0..3 {
        let id = local.join(client, Protocol::Resp2);
        local.subscribe(id, Kind::Channel, b"a");
        local.subscribe(id, Kind::Channel, b"b");
    }
    for _ in 0..100 {
        local.publish(Kind::Channel, b"a", &[b'x'; 64]);
    }
    local.publish(Kind::Channel, b"b", b"small");
    local.publish(Kind::Channel, b"a", b"small");
    local.deliver();
    let mut blocks = Vec::new();
    local.take_due(|_, delivery| {
        assert!(delivery.bytes().len() < 100);
        blocks.extend(delivery.take_blocks());
        true
    });
    assert_eq!(blocks.len(), 3);
    assert_eq!(blocks[0].1.holders(), 3, "one block for the run of one channel");
    assert_eq!(values(&blocks[0].1).len(), 100);
    assert_eq!(local.block_bytes(), blocks[0].1.len(), "counted once");
    blocks.truncate(1);
    assert!(local.block_bytes() > 0, "somebody holds it");
    blocks.clear();
    assert_eq!(local.block_bytes(), 0);
}

#[test]
fn a_subscriber_of_one_channel_gets_one_block() {
    let hub = Hub::new(1, 1);
    let mut local = hub.local(0);
    for client in 0..5 {
        let id = local.join(client, if client == 4 { Protocol::Resp3 } else { Protocol::Resp2 });
        local.subscribe(id, Kind::Channel, b"a");
        if client == 0 {
            local.subscribe(id, Kind::Channel, b"b");
        }
    }
    for number in 0..200u8 {
        local.publish(Kind::Channel, if number % 2 == 0 { b"a" } else { b"b" }, &[number; 64]);
    }
    local.deliver();
    let (mut blocks, mut numbers) = (Vec::new(), BTreeMap::new());
    local.take_due(|client, delivery| {
        let mut bytes = Vec::new();
        delivery.append_to(&mut bytes);
        blocks.extend(delivery.take_blocks().map(|(_, block)| block));
        let number = |value: &Value| match value {
            Value::Array(parts) | Value::Push(parts) => match &parts[2] {
                Value::Bulk(payload) => payload[0],
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        numbers.insert(client, values(&bytes).iter().map(number).collect::<Vec<_>>());
        true
    });
    assert_eq!(numbers.remove(&0).unwrap(), (0..200).collect::<Vec<_>>(), "both channels in turn");
    let even: Vec<u8> = (0..200).step_by(2).collect();
    assert!(numbers.len() == 4 && numbers.values().all(|it| *it == even));
    blocks.sort_by_key(Block::holders);
    assert_eq!(blocks.iter().map(Block::holders).collect::<Vec<_>>(), [1, 3, 3, 3], "one per protocol");
}

#[test]
fn a_worker_that_cannot_follow_is_noticed() {
    let hub = Hub::new(2, 1);
    let (mut here, mut there) = (hub.local(0), hub.local(1));
    let id = there.join(1, Protocol::Resp2);
    there.subscribe(id, Kind::Channel, b"a");
    let mut published = 0;
    while here.take_backpressure().is_none() {
        here.publish(Kind::Channel, b"a", &[b'x'; 1 << 20]);
        here.flush_mailboxes();
        published += 1;
    }
    let mut received = Received::new();
    collect(&mut there, &mut received);
    here.publish(Kind::Channel, b"a", b"x");
    assert!(here.take_backpressure().is_none());
    assert_eq!(values(&received[&1]).len(), published);
}

/// Whether the publisher of a message should wait.
fn is_held_back(local: &mut Local, kind: Kind, channel: &[u8]) -> bool {
    local.publish(kind, channel, b"x");
    local.take_backpressure().is_some()
}

#[test]
fn publishers_are_held_back_while_most_of_an_audience_is_behind() {
    let hub = Hub::new(2, 1);
    let (mut here, mut there) = (hub.local(0), hub.local(1));
    let near: Vec<_> = (0..2).map(|client| here.join(client, Protocol::Resp2)).collect();
    let far: Vec<_> = (2..4).map(|client| there.join(client, Protocol::Resp2)).collect();
    near.iter().for_each(|id| _ = here.subscribe(*id, Kind::Channel, b"a"));
    far.iter().for_each(|id| _ = there.subscribe(*id, Kind::Pattern, b"a*"));
    there.flush_mailboxes();
    there.subscribe(far[0], Kind::Shard, b"s");
    there.set_behind(far[0], true);
    there.set_behind(far[0], true);
    assert!(!is_held_back(&mut here, Kind::Channel, b"a"), "one of four");
    assert!(is_held_back(&mut here, Kind::Shard, b"s"), "this is all of them");
    assert!(!is_held_back(&mut here, Kind::Channel, b"ab"), "one of two, of those by pattern only");
    here.set_behind(near[0], true);
    assert!(is_held_back(&mut here, Kind::Channel, b"a"), "half of them, and not just one");
    there.set_behind(far[1], true);
    for local in [&mut here, &mut there] {
        assert!(is_held_back(local, Kind::Channel, b"a"), "three of four");
        local.check_backpressure_later(Kind::Channel, b"a");
        assert!(local.take_backpressure().is_some(), "before it is published");
        assert!(!is_held_back(local, Kind::Channel, b"b"), "others have nothing to do with it");
    }
    let another = here.join(4, Protocol::Resp3);
    here.publish(Kind::Channel, b"a", b"x");
    let reason = here.take_backpressure().unwrap();
    here.subscribe(another, Kind::Channel, b"a");
    here.set_behind(another, true);
    assert!(reason.holds(&hub) && reason.is_of_subscribers());
    here.unsubscribe(another, Kind::Channel, b"a");
    there.set_behind(far[1], false);
    assert!(reason.holds(&hub));
    there.set_behind(far[0], false);
    assert!(!reason.holds(&hub));
}

#[test]
fn a_client_that_leaves_or_has_many_subscriptions_holds_up_no_publisher() {
    let hub = Hub::new(1, 1);
    let mut local = hub.local(0);
    let (slow, fast) = (local.join(1, Protocol::Resp2), local.join(2, Protocol::Resp2));
    for id in [slow, fast] {
        local.subscribe(id, Kind::Channel, b"a");
        local.set_behind(id, true);
    }
    local.set_behind(fast, false);
    assert!(!is_held_back(&mut local, Kind::Channel, b"a"));
    local.subscribe(slow, Kind::Channel, b"b");
    assert!(is_held_back(&mut local, Kind::Channel, b"b"), "also where it comes while it is behind");
    for number in 0..COUNTED_SUBSCRIPTIONS_MAX {
        local.subscribe(slow, Kind::Shard, &number.to_le_bytes());
    }
    assert!(!is_held_back(&mut local, Kind::Channel, b"b") && !local.may_hold_back());
    local.set_behind(slow, true);
    assert!(!is_held_back(&mut local, Kind::Channel, b"b"));
    assert!(local.leave(fast, usize::MAX));
    let last = local.join(3, Protocol::Resp2);
    local.subscribe(last, Kind::Channel, b"c");
    local.set_behind(last, true);
    assert!(is_held_back(&mut local, Kind::Channel, b"c"));
    assert!(local.leave(last, usize::MAX));
    assert!(!local.may_hold_back(), "nobody is left who is behind");
}

#[test]
fn workers_that_hold_publishers_back_are_woken_when_somebody_catches_up() {
    let hub = Hub::new(2, 1);
    let (mut here, mut there) = (hub.local(0), hub.local(1));
    let woken = Arc::new(AtomicU32::new(0));
    let counter = woken.clone();
    hub.listen(0, move || _ = counter.fetch_add(1, SeqCst));
    let id = there.join(1, Protocol::Resp2);
    there.subscribe(id, Kind::Channel, b"a");
    there.set_behind(id, true);
    assert!(is_held_back(&mut here, Kind::Channel, b"a"));
    here.begin_waiting();
    there.set_behind(id, false);
    assert_eq!(woken.load(SeqCst), 1);
    there.set_behind(id, true);
    there.unsubscribe(id, Kind::Channel, b"a");
    assert_eq!(woken.load(SeqCst), 2);
    here.end_waiting();
    there.set_behind(id, false);
    assert_eq!(woken.load(SeqCst), 2, "nobody waits any more");
}

#[test]
fn listeners_for_keyspace_notifications_are_counted() {
    let hub = Hub::new(1, 1);
    let mut local = hub.local(0);
    let id = local.join(1, Protocol::Resp2);
    for (kind, name, hears) in [
        (Kind::Channel, "__keyspace@0__:a", true),
        (Kind::Channel, "__ke", false),
        (Kind::Shard, "__keyspace@0__:a", false),
        (Kind::Pattern, "__keyevent@*", true),
        (Kind::Pattern, "*", true),
        (Kind::Pattern, "__k?y*", true),
        (Kind::Pattern, "news*", false),
    ] {
        local.subscribe(id, kind, name.as_bytes());
        assert_eq!(hub.hears_of_keys(), hears, "{name}");
        local.unsubscribe(id, kind, name.as_bytes());
        assert!(!hub.hears_of_keys());
    }
}

#[test]
fn leaving_can_take_several_steps_and_leaves_nothing() {
    let hub = Hub::new(1, 1);
    let mut local = hub.local(0);
    let (id, other) = (local.join(1, Protocol::Resp2), local.join(2, Protocol::Resp2));
    for number in 0..1000u32 {
        local.subscribe(id, Kind::Channel, &number.to_be_bytes());
        local.subscribe(other, Kind::Channel, &(number / 2).to_be_bytes());
    }
    local.subscribe(id, Kind::Pattern, b"p*");
    local.publish(Kind::Channel, b"p", b"never taken");
    let mut steps = 1;
    while !local.leave(id, 100) {
        steps += 1;
    }
    assert_eq!((steps, hub.topics(Kind::Channel), hub.topics(Kind::Pattern)), (11, 500, 0));
    assert!(local.leave(other, 1000));
    assert_eq!(hub.topics(Kind::Channel), 0);
    let next = local.join(3, Protocol::Resp2);
    local.subscribe(next, Kind::Channel, b"p");
    local.take_due(|client, _| panic!("nothing was published for {client}"));
}

#[test]
fn a_confirmed_subscription_misses_no_message_while_others_change() {
    let hub = Hub::new(2, 1);
    // The threads hand over by blocking channels. Threads that spin and yield instead wait for whole time
    // slices on a busy machine.
    let (confirm, confirmed) = mpsc::sync_channel(1);
    let (publish, published) = mpsc::sync_channel(1);
    const ROUNDS: u32 = 20_000;
    std::thread::scope(|threads| {
        let hub = &hub;
        threads.spawn(move || {
            let mut local = hub.local(0);
            let id = local.join(1, Protocol::Resp2);
            for round in 1..=ROUNDS {
                let by_pattern = round % 4 == 0;
                let (kind, name): (_, &[u8]) =
                    if by_pattern { (Kind::Pattern, b"c*") } else { (Kind::Channel, b"ch") };
                local.subscribe(id, kind, name);
                local.flush_mailboxes();
                confirm.send(round).expect("the publisher runs");
                assert_eq!(published.recv(), Ok(round));
                let mut received = Received::new();
                collect(&mut local, &mut received);
                assert_eq!(received.get(&1).map_or(0, |bytes| values(bytes).len()), 1, "round {round}");
                local.unsubscribe(id, kind, name);
            }
        });
        threads.spawn(move || {
            let mut local = hub.local(1);
            let id = local.join(2, Protocol::Resp2);
            for round in 1..=ROUNDS {
                // Both workers use the same channel, so its topic is retired and made again all the time.
                local.subscribe(id, Kind::Channel, b"ch");
                local.unsubscribe(id, Kind::Channel, b"ch");
                assert_eq!(confirmed.recv(), Ok(round));
                local.publish(Kind::Channel, b"ch", b"x");
                local.flush_mailboxes();
                publish.send(round).expect("the subscriber runs");
            }
        });
    });
    assert_eq!(hub.topics(Kind::Channel) + hub.topics(Kind::Pattern), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Subscribe { client: usize, kind: usize, name: String },
    Unsubscribe { client: usize, kind: usize, name: String },
    Publish { worker: usize, shard: bool, channel: String },
    Deliver { worker: usize },
    Reconnect { client: usize, newer: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let (client, kind, worker) = (|| 0..6usize, || 0..3usize, || 0..WORKERS);
    let name = || prop_oneof!["[ab]{0,2}", "[ab]?\\*[ab]?", Just("*".to_string()), Just("[ab]b".to_string())];
    prop_oneof![
        3 => (client(), kind(), name()).prop_map(|(client, kind, name)| Step::Subscribe { client, kind, name }),
        2 => (client(), kind(), name()).prop_map(|(client, kind, name)| Step::Unsubscribe { client, kind, name }),
        6 => (worker(), prop::bool::weighted(0.2), "[ab]{0,2}")
            .prop_map(|(worker, shard, channel)| Step::Publish { worker, shard, channel }),
        1 => worker().prop_map(|worker| Step::Deliver { worker }),
        1 => (client(), any::<bool>()).prop_map(|(client, newer)| Step::Reconnect { client, newer }),
    ]
}

/// A client: the id of its connection, its subscriber, and its subscriptions.
type Client = (u64, SubscriberId, BTreeSet<(usize, String)>);

/// The messages of each client, by the worker that published them.
type Told = BTreeMap<(u64, u8), Vec<String>>;

proptest! {
    /// However deliveries are delayed, every client gets the messages published while it was subscribed, in
    /// each publisher's order, once per matching subscription.
    #[test]
    fn several_workers_deliver_as_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let hub = Hub::new(WORKERS, 7);
        let mut locals: Vec<Local> = (0..WORKERS).map(|worker| hub.local(worker)).collect();
        // Client c is on worker c % WORKERS.
        let mut clients: Vec<Client> = (0..6)
            .map(|client| (client as u64, locals[client % WORKERS].join(client as u64, Protocol::Resp2), BTreeSet::new()))
            .collect();
        let (mut received, mut expected) = (Received::new(), Told::new());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Subscribe { client, kind, name } => {
                    let (_, id, subscribed) = &mut clients[*client];
                    let is_new = locals[client % WORKERS].subscribe(*id, Kind::ALL[*kind], name.as_bytes());
                    prop_assert_eq!(is_new, subscribed.insert((*kind, name.clone())));
                }
                Step::Unsubscribe { client, kind, name } => {
                    let (_, id, subscribed) = &mut clients[*client];
                    let was = locals[client % WORKERS].unsubscribe(*id, Kind::ALL[*kind], name.as_bytes());
                    prop_assert_eq!(was, subscribed.remove(&(*kind, name.clone())));
                }
                Step::Publish { worker, shard, channel } => {
                    let kind = if *shard { Kind::Shard } else { Kind::Channel };
                    let payload = format!("{}:{number}", char::from(b'0' + *worker as u8));
                    let count = locals[*worker].publish(kind, channel.as_bytes(), payload.as_bytes());
                    let mut told = 0;
                    for (connection, _, subscribed) in &clients {
                        let tells = |(of, name): &&(usize, String)| match Kind::ALL[*of] {
                            Kind::Pattern => !shard && glob::matches(name.as_bytes(), channel.as_bytes()),
                            of => of == kind && name == channel,
                        };
                        // The channel's own subscription comes first; patterns have no order among each
                        // other.
                        let mut told_here: Vec<String> = subscribed.iter().filter(tells)
                            .map(|(of, name)| format!("{payload} {} {channel}", if *of == 1 { name } else { "" }))
                            .collect();
                        told_here.sort();
                        told += told_here.len();
                        expected.entry((*connection, b'0' + *worker as u8)).or_default().append(&mut told_here);
                    }
                    prop_assert_eq!(count, told);
                }
                Step::Deliver { worker } => collect(&mut locals[*worker], &mut received),
                Step::Reconnect { client, newer } => {
                    let worker = client % WORKERS;
                    collect(&mut locals[worker], &mut received);
                    let (connection, id, subscribed) = &mut clients[*client];
                    while !locals[worker].leave(*id, 2) {}
                    subscribed.clear();
                    *connection += 6;
                    let protocol = if *newer { Protocol::Resp3 } else { Protocol::Resp2 };
                    *id = locals[worker].join(*connection, protocol);
                }
            }
            locals.iter_mut().for_each(|local| { local.flush_mailboxes(); });
            let total: usize = clients.iter().map(|(_, _, subscribed)| subscribed.len()).sum();
            prop_assert_eq!(locals.iter().map(Local::total).sum::<usize>(), total);
        }
        locals.iter_mut().for_each(|local| collect(local, &mut received));
        let mut told = Told::new();
        for (connection, bytes) in &received {
            for value in values(bytes) {
                let (Value::Array(parts) | Value::Push(parts)) = value else { panic!("a frame") };
                let parts: Vec<String> = parts.iter()
                    .map(|part| match part { Value::Bulk(bytes) => text(bytes), other => panic!("{other:?}") })
                    .collect();
                let (pattern, channel, payload) = match &parts[..] {
                    [_, channel, payload] => ("", channel, payload),
                    [_, pattern, channel, payload] => (&pattern[..], channel, payload),
                    other => panic!("{other:?}"),
                };
                let line = format!("{payload} {pattern} {channel}");
                told.entry((*connection, payload.as_bytes()[0])).or_default().push(line);
            }
        }
        expected.retain(|_, lines| !lines.is_empty());
        let in_order = |told: &Told| -> Told {
            let payload = |line: &String| line.split(' ').next().map(str::to_string);
            told.iter().map(|(key, lines)| {
                let mut lines = lines.clone();
                lines.chunk_by_mut(|left, right| payload(left) == payload(right)).for_each(<[String]>::sort);
                (*key, lines)
            }).collect()
        };
        prop_assert_eq!(in_order(&told), in_order(&expected));
        for (client, (_, id, _)) in clients.iter().enumerate() {
            while !locals[client % WORKERS].leave(*id, 3) {}
        }
        prop_assert!(Kind::ALL.iter().all(|kind| hub.topics(*kind) == 0) && !hub.hears_of_keys());
    }
}

/// Gives a worker this many clients. Each has two subscriptions that match the channel `c`, so every message
/// is a run of its own, which is too short to be shared.
fn with_listeners_in_turn(local: &mut Local, clients: u64) {
    for client in 0..clients {
        let id = local.join(client, Protocol::Resp2);
        local.subscribe(id, Kind::Channel, b"c");
        local.subscribe(id, Kind::Pattern, b"*");
    }
    local.flush_mailboxes();
}

/// Delivers in parts; client number 7 has disconnected. Returns the numbers of parts and of messages, and
/// checks the bytes of each part.
fn deliver_in_parts(local: &mut Local) -> (usize, usize) {
    let (mut parts, mut messages) = (0, 0);
    loop {
        let has_more = local.deliver_some();
        assert!(!has_more || local.must_deliver());
        let mut bytes = Vec::new();
        local.take_due(|client, delivery| {
            delivery.append_to(&mut bytes);
            client != 7
        });
        assert!(!local.must_deliver() && bytes.len() <= COPIED_BYTES_MAX + (1 << 20), "{}", bytes.len());
        messages += values(&bytes).len();
        parts += 1;
        if !has_more {
            return (parts, messages);
        }
    }
}

#[test]
fn copies_for_many_subscribers_are_delivered_in_parts() {
    let hub = Hub::new(2, 1);
    let (mut sender, mut local) = (hub.local(0), hub.local(1));
    with_listeners_in_turn(&mut local, 100);
    for _ in 0..3 {
        for _ in 0..2000 {
            assert_eq!(sender.publish(Kind::Channel, b"c", &[b'x'; 100]), 200);
        }
        sender.flush_mailboxes();
    }
    let (parts, messages) = deliver_in_parts(&mut local);
    let gone_after = messages - 3 * 99 * 4000;
    assert!(parts >= 4 && gone_after < 4000, "{parts} parts, and who has gone gets {gone_after}");
}

#[test]
fn own_messages_are_delivered_in_parts_too() {
    let hub = Hub::new(1, 1);
    let mut local = hub.local(0);
    with_listeners_in_turn(&mut local, 200);
    let mut published = 0;
    while !local.must_deliver() {
        local.publish(Kind::Channel, b"c", &[b'x'; 1900]);
        published += 1;
    }
    let (parts, messages) = deliver_in_parts(&mut local);
    let gone_after = messages - 199 * 2 * published;
    assert!(parts > 5 && gone_after < 2 * published, "{parts} parts, and who has gone gets {gone_after}");
}
