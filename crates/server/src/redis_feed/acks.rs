//! What a replica says on its connection: how far it is (REPLCONF ACK), and newlines while it loads.

use std::{
    io::{self, Read},
    sync::atomic::Ordering::{Relaxed, SeqCst},
};

use wire::{Args, Limits, RequestBatch, RequestParser, number::parse_u64};

use crate::replication::{Node, redis::RedisReplica};

/// The bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;
/// The bytes that a replica may send without ending a command: what it says is short.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// The commands that are parsed at a time.
const COMMANDS_MAX: usize = 32;

/// Hears a replica until its connection ends.
pub(super) fn hear(node: &Node, replica: &RedisReplica) {
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::default());
    let (mut bytes, mut unread) = ([0; READ_BYTES], Vec::new());
    while !replica.is_closed.load(SeqCst) {
        let read = match (&replica.socket).read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if is_temporary(&error) => continue,
            Err(_) => break,
        };
        replica.heard_ms.store(node.now_ms(), Relaxed);
        unread.extend_from_slice(&bytes[..read]);
        loop {
            let parsed = parser.parse(&unread, &Limits::DEFAULT, &mut batch, COMMANDS_MAX);
            (0..batch.len()).for_each(|index| note(replica, batch.command(index, &unread)));
            unread.drain(..parsed.consumed);
            if parsed.error.is_some() {
                return replica.close();
            }
            if parsed.consumed == 0 || unread.is_empty() {
                break;
            }
        }
        if unread.len() > UNREAD_BYTES_MAX {
            break;
        }
    }
    replica.close();
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn note(replica: &RedisReplica, words: Args<'_>) {
    let is_ack = words.len() >= 3
        && words.at(0).eq_ignore_ascii_case(b"replconf")
        && words.at(1).eq_ignore_ascii_case(b"ack");
    if let Some(offset) = is_ack.then(|| parse_u64(words.at(2))).flatten() {
        replica.acks.lock().acknowledged(offset);
        replica.has_acked.store(true, SeqCst);
        replica.thread.unpark();
    }
}
