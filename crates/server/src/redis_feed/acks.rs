//! Reads the messages of a replica: how far it is (REPLCONF ACK), and newlines while it loads.
//!
//! A command that Redis would answer ends the connection, as in Redis: a reply would stand in the middle of
//! the stream.

use std::{
    io::Read,
    sync::atomic::Ordering::{Relaxed, SeqCst},
};

use engine::clients::Client;
use env::Clock;
use wire::{Args, Limits, RequestBatch, RequestParser, number::parse_u64};

use super::{row_of, sending::is_temporary};
use crate::replication::{Node, redis::RedisReplica};

/// The bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;
/// The maximum bytes that a replica may send without completing a command. Its commands are short.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// The commands that are parsed at a time.
const COMMANDS_MAX: usize = 32;

/// Hears a replica until its connection ends.
pub(super) fn hear((node, clock): (&Node, &dyn Clock), replica: &RedisReplica, client: &Client) {
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::default());
    let (mut bytes, mut unread) = ([0; READ_BYTES], Vec::new());
    let replconf = row_of(b"REPLCONF");
    while !replica.is_closed.load(SeqCst) {
        let read = match (&replica.socket).read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if is_temporary(&error) => continue,
            Err(_) => break,
        };
        replica.heard_ms.store(node.now_ms(), Relaxed);
        client.received(read as u64);
        unread.extend_from_slice(&bytes[..read]);
        loop {
            let parsed = parser.parse(&unread, &Limits::DEFAULT, &mut batch, COMMANDS_MAX);
            for words in (0..batch.len()).map(|index| batch.command(index, &unread)) {
                match Said::of(words) {
                    Said::Acknowledged(offset) => note(replica, offset),
                    Said::Nothing => {}
                    Said::Command => {
                        return replica.close_for("it sent a command that a replica does not send");
                    }
                }
                client.runs(replconf, clock.unix_ms());
            }
            unread.drain(..parsed.consumed);
            if parsed.error.is_some() {
                return replica.close_for("it sent what is no command");
            }
            if parsed.consumed == 0 || unread.is_empty() {
                break;
            }
        }
        if unread.len() > UNREAD_BYTES_MAX {
            return replica.close_for("it sent a command that is too long");
        }
    }
    replica.close();
}

/// The meaning of a command of a replica.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The replica has this many bytes of the stream.
    Acknowledged(u64),
    /// The replica sent a command that Redis does not answer either.
    Nothing,
    /// The replica sent any other command.
    Command,
}

impl Said {
    fn of(words: Args<'_>) -> Said {
        let is = |index: usize, word: &[u8]| words.get(index).is_some_and(|it| it.eq_ignore_ascii_case(word));
        if is(0, b"psync") || is(0, b"sync") {
            return Said::Nothing;
        }
        // REPLCONF takes pairs of option and value, so a valid command has an odd number of words. Redis
        // would answer an option without a value with an error.
        if !is(0, b"replconf") || words.len().is_multiple_of(2) {
            return Said::Command;
        }
        if is(1, b"ack") {
            return words.get(2).and_then(parse_u64).map_or(Said::Nothing, Said::Acknowledged);
        }
        if is(1, b"getack") { Said::Nothing } else { Said::Command }
    }
}

fn note(replica: &RedisReplica, offset: u64) {
    replica.acks.lock().acknowledged(offset);
    replica.has_acked.store(true, SeqCst);
    replica.thread.unpark();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Said {
        let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::default());
        let line = format!("{text}\r\n");
        let parsed = parser.parse(line.as_bytes(), &Limits::DEFAULT, &mut batch, COMMANDS_MAX);
        assert_eq!(parsed.consumed, line.len());
        Said::of(batch.command(0, line.as_bytes()))
    }

    #[test]
    fn what_redis_answers_is_a_command() {
        for (text, expected) in [
            ("REPLCONF ACK 12", Said::Acknowledged(12)),
            ("replconf ack 12 fack 9", Said::Acknowledged(12)),
            ("REPLCONF ACK -1", Said::Nothing),
            ("REPLCONF GETACK *", Said::Nothing),
            ("PSYNC ? -1", Said::Nothing),
            ("SYNC", Said::Nothing),
            ("REPLCONF ACK", Said::Command),
            ("REPLCONF ACK 12 FACK", Said::Command),
            ("REPLCONF capa eof", Said::Command),
            ("REPLCONF", Said::Command),
            ("PING", Said::Command),
            ("SET key value", Said::Command),
        ] {
            assert_eq!(said(text), expected, "{text}");
        }
    }
}
