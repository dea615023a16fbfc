//! Commands as the executor resolves and runs them.

use std::{cell::Cell, sync::atomic::Ordering::Relaxed};

use engine::{
    Call, Resolved,
    conversation::{Conversation, ConversationState, Round},
};
use wire::{Limits, OwnedArgs, RequestBatch};

use crate::testing::{START_MS, TestServer};

#[test]
fn resolving_does_not_depend_on_the_command_before() {
    let lines = [
        "GET a",
        "GET b",
        "get a",
        "SET a 1",
        "GET",
        "OBJECT ENCODING a",
        "OBJECT FREQ a",
        "OBJECT",
        "PING",
        "MSET a 1 b 2",
        "MSET b 2 a 1",
        "NOSUCH a",
        "NOSUCH b",
        "CONFIG GET a",
        "CONFIG SET a b",
    ];
    let requests = lines.map(|line| line.split(' ').map(str::as_bytes).collect::<OwnedArgs>());
    let server = TestServer::new();
    for before in &requests {
        for args in &requests {
            let resolve = |args: &OwnedArgs, before| server.executor.resolve(args.as_args(), before);
            let call = Call { args: before.as_args(), resolved: resolve(before, None) };
            let (after, alone) = (resolve(args, Some(call)), resolve(args, None));
            let row = |resolved: Resolved| resolved.found().map(|found| (found.row.name, found.index));
            assert_eq!((row(after), after.hash()), (row(alone), alone.hash()), "{args:?} after {before:?}");
        }
    }
}

#[test]
fn without_merging_the_last_command_of_a_turn_is_flushed_alone_too() {
    let mut server = TestServer::new();
    // A script takes the time of a whole turn.
    server.host.command_us.store(5_000, Relaxed);
    let flushed = Cell::new(0);
    let flush_alone = || flushed.set(flushed.get() + 1);
    let (mut conversation, mut batch) = (Conversation::new(server.connect()), RequestBatch::new());
    let mut round = Round {
        executor: &mut server.executor,
        batch: &mut batch,
        host: &server.services,
        now_ms: START_MS,
        limits: Limits::DEFAULT,
        is_congested: false,
        flush_alone: Some(&flush_alone),
    };
    let requests = b"EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 a\r\nSET b 1\r\n";
    assert_eq!((conversation.receive(requests, &mut round), flushed.get()), (ConversationState::More, 1));
    assert_eq!((conversation.resume(&mut round), flushed.get()), (ConversationState::Idle, 2));
}
