//! The Sheaf server into which the data is copied: commands are pipelined without waiting for replies.
//!
//! Invariants
//! - Unanswered commands are bounded, in bytes and in number.
//! - `applied` is the position of an answered command. If the durability of the target is `strict`, the
//!   command is on the target's disk.

use std::collections::{HashSet, VecDeque};

use tokio::io::Interest;
use wire::{Limits, RequestBatch, RequestParser, Value};

use super::{
    address::Address,
    commands::Commands,
    peer::{Peer, PeerError},
    stream::shown_key,
};
use crate::client::plain;

/// The maximum bytes of unanswered commands; with more, nothing is read from the source.
const UNANSWERED_BYTES_MAX: usize = 8 << 20;
/// The maximum number of unanswered commands; with more, nothing is read from the source.
const UNANSWERED_COMMANDS_MAX: usize = 64 << 10;
/// Answered bytes at the front of the buffer are removed once there are this many.
const ANSWERED_BYTES_MAX: usize = 2 << 20;

/// Seconds without a reply after which the target is considered lost.
const SILENT_TICKS_MAX: u32 = 60;

/// A command that the target has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) command: String,
    pub(super) key: String,
    pub(super) error: String,
    /// The position up to which the target has applied everything, apart from earlier refusals.
    pub(super) offset: u64,
}

impl Refusal {
    /// Whether only this command failed, so that later ones can succeed.
    pub(super) fn is_of_the_command(&self) -> bool {
        let code = self.error.split(' ').next().unwrap_or_default();
        self.command != "SELECT" && ["ERR", "WRONGTYPE", "EXECABORT"].contains(&code)
    }
}

pub(super) struct Target {
    peer: Peer,
    /// Encoded commands, the last of which are unanswered; the first `written` bytes are sent, the first
    /// `answered` bytes are answered.
    outgoing: Vec<u8>,
    written: usize,
    answered: usize,
    /// For each unanswered command, its end in `outgoing`, and the position that its reply confirms.
    expected: VecDeque<(usize, u64)>,
    applied: u64,
    silent_ticks: u32,
}

impl Target {
    /// Connects to a server and declares this client an import source.
    pub(super) async fn open(address: &Address) -> Result<Target, PeerError> {
        let mut peer = Peer::open("target", address).await?;
        peer.ask(&["CLIENT", "SETNAME", "sheaf-import"]).await?;
        peer.ask(&["CLIENT", "IMPORT-SOURCE", "ON"]).await?;
        let (outgoing, expected) = (Vec::new(), VecDeque::new());
        Ok(Target { peer, outgoing, written: 0, answered: 0, expected, applied: 0, silent_ticks: 0 })
    }

    /// Names of the target's commands, in lower case.
    pub(super) async fn command_names(&mut self) -> Result<HashSet<Vec<u8>>, PeerError> {
        let (Value::Array(names) | Value::Set(names)) = self.peer.ask(&["COMMAND", "LIST"]).await? else {
            return Err(self.peer.foreign("the answer to COMMAND LIST is not a list"));
        };
        let name = |value| match value {
            Value::Bulk(name) | Value::Simple(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        };
        Ok(names.into_iter().filter_map(name).collect())
    }

    /// Number of keys in all databases.
    pub(super) async fn key_count(&mut self) -> Result<u64, PeerError> {
        let text = match self.peer.ask(&["INFO", "keyspace"]).await? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => text,
            _ => return Err(self.peer.foreign("the answer to INFO is not a text")),
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let counts = text.lines().filter_map(|line| line.split_once("keys=")?.1.split(',').next());
        Ok(counts.filter_map(|count| count.parse::<u64>().ok()).sum())
    }

    /// Removes all keys and function libraries.
    pub(super) async fn flush(&mut self) -> Result<(), PeerError> {
        self.peer.ask(&["FLUSHALL"]).await?;
        self.peer.ask(&["FUNCTION", "FLUSH"]).await.map(|_| ())
    }

    /// Whether the bounds of unanswered commands allow more of them.
    pub(super) fn has_room(&self) -> bool {
        self.outgoing.len() - self.answered < UNANSWERED_BYTES_MAX
            && self.expected.len() < UNANSWERED_COMMANDS_MAX
    }

    /// Whether all commands are answered.
    pub(super) fn is_settled(&self) -> bool {
        self.expected.is_empty()
    }

    /// The position of the last answered command.
    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// Queues a command whose reply confirms `position`.
    pub(super) fn push(&mut self, command: &[u8], position: u64) {
        self.outgoing.extend_from_slice(command);
        self.expected.push_back((self.outgoing.len(), position));
    }

    /// Queues commands that all confirm `position`.
    pub(super) fn push_all(&mut self, commands: &Commands, position: u64) {
        let start = self.outgoing.len();
        self.outgoing.extend_from_slice(&commands.bytes);
        self.expected.extend(commands.ends.iter().map(|end| (start + end, position)));
    }

    /// Waits until the connection is readable or writable, and transfers bytes. Cancel-safe.
    pub(super) async fn exchange(&mut self) -> Result<(), PeerError> {
        let has_more = self.written < self.outgoing.len();
        let wants_to_write = has_more || self.peer.client.stream.has_unsent();
        let interest =
            if wants_to_write { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let ready = self.peer.client.stream.ready(interest).await.map_err(|error| self.peer.lost(error))?;
        if ready.is_readable() {
            self.peer.try_receive()?;
        }
        if wants_to_write && ready.is_writable() {
            match self.peer.client.stream.try_write(&self.outgoing[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(self.peer.lost(error)),
            }
        }
        Ok(())
    }

    /// Fails if the target has owed replies for too long; to be called once a second.
    pub(super) fn look_after(&mut self) -> Result<(), PeerError> {
        self.silent_ticks = if self.is_settled() { 0 } else { self.silent_ticks + 1 };
        if self.silent_ticks > SILENT_TICKS_MAX { Err(self.peer.lost("it does not answer")) } else { Ok(()) }
    }

    /// Handles received replies up to the next error.
    pub(super) fn next_refusal(&mut self) -> Result<Option<Refusal>, PeerError> {
        while let Some(reply) = self.peer.next_value()? {
            let Some((end, position)) = self.expected.pop_front() else {
                return Err(self.peer.foreign("a reply to nothing"));
            };
            let command = &self.outgoing[self.answered..end];
            let refusal = error_of(&reply).map(|error| refusal(command, error, self.applied));
            self.silent_ticks = 0;
            self.applied = position;
            self.answered = end;
            self.forget_answered();
            if refusal.is_some() {
                return Ok(refusal);
            }
        }
        Ok(None)
    }

    fn forget_answered(&mut self) {
        let is_all = self.answered == self.outgoing.len();
        if !is_all && self.answered < ANSWERED_BYTES_MAX {
            return;
        }
        self.outgoing.drain(..self.answered);
        self.written -= self.answered;
        self.expected.iter_mut().for_each(|(end, _)| *end -= self.answered);
        self.answered = 0;
    }
}

/// The error in a reply, or in one of the replies of a transaction.
fn error_of(reply: &Value) -> Option<&[u8]> {
    match reply {
        Value::Error(text) => Some(text),
        Value::Array(replies) => replies.iter().find_map(|reply| match reply {
            Value::Error(text) => Some(text.as_slice()),
            _ => None,
        }),
        _ => None,
    }
}

fn refusal(command: &[u8], error: &[u8], offset: u64) -> Refusal {
    let mut batch = RequestBatch::new();
    let parsed = RequestParser::new().parse(command, &Limits::DEFAULT, &mut batch, 1);
    debug_assert!(parsed.error.is_none(), "it was sent");
    let (name, key) = if batch.is_empty() {
        Default::default()
    } else {
        let args = batch.command(0, command);
        (args.at(0).to_ascii_uppercase().escape_ascii().to_string(), shown_key(args))
    };
    Refusal { command: name, key, error: plain(error), offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_command_and_key() {
        let found = refusal(b"*3\r\n$4\r\nxadd\r\n$1\r\ns\r\n$1\r\n*\r\n", b"ERR no", 7);
        let expected = Refusal { command: "XADD".into(), key: "s".into(), error: "ERR no".into(), offset: 7 };
        assert_eq!(found, expected);
        for (command, error, expected) in [
            (&b"*1\r\n$1\r\nx\r\n"[..], &b"ERR unknown command"[..], true),
            (b"*1\r\n$1\r\nx\r\n", b"WRONGTYPE Operation", true),
            (b"*1\r\n$1\r\nx\r\n", b"OOM command not allowed", false),
            (b"*1\r\n$1\r\nx\r\n", b"MISCONF no room", false),
            (b"*2\r\n$6\r\nSELECT\r\n$2\r\n20\r\n", b"ERR DB index is out of range", false),
        ] {
            assert_eq!(refusal(command, error, 0).is_of_the_command(), expected, "{error:?}");
        }
    }

    #[test]
    fn an_error_within_a_transaction_is_one() {
        let error = || Value::Error(b"ERR no".to_vec());
        assert_eq!(error_of(&error()), Some(&b"ERR no"[..]));
        assert_eq!(error_of(&Value::Array(vec![Value::Integer(1), error()])), Some(&b"ERR no"[..]));
        assert_eq!(error_of(&Value::Array(vec![Value::Integer(1)])), None);
    }
}
