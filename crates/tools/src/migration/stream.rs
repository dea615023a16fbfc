//! The writes that a source sends after the RDB file: which of them are forwarded, and the offset reached.
//!
//! The module is a state machine that consumes bytes and classifies each command for the importer. It has no
//! connection. Of a command it checks only whether the target has it, and whether others replace it
//! (`adapting`).
//!
//! Invariants
//! - The offset counts every consumed byte as the source does: a lost connection is resumed from it.
//! - The division of the bytes into reads never changes the result.

use std::collections::HashSet;

use wire::{Args, Limits, ProtocolError, RequestBatch, RequestParser};

use super::adapting::adapted;

/// Maximum number of commands per pass.
const COMMANDS_PER_PASS: usize = 256;

/// The classification of a command of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Received<'a> {
    /// A command to be forwarded. After it the copy is in the source's state at `offset`.
    Write {
        /// The encoded bytes of the command.
        bytes: &'a [u8],
        /// The last offset outside of a transaction.
        offset: u64,
    },
    /// The source requests an acknowledgement.
    AckWanted,
    /// The target does not have this command.
    Unsupported {
        /// The name of the command.
        name: String,
        /// The first argument of the command, usually the key.
        key: String,
    },
}

#[derive(Debug)]
pub(super) struct Stream {
    parser: RequestParser,
    batch: RequestBatch,
    /// Names of the target's commands, in lower case.
    supported: HashSet<Vec<u8>>,
    offset: u64,
    /// The last offset outside of transactions.
    boundary: u64,
    is_in_transaction: bool,
}

impl Stream {
    /// The stream after an RDB file of position `offset`.
    pub(super) fn new(offset: u64, supported: HashSet<Vec<u8>>) -> Stream {
        Stream {
            parser: RequestParser::new(),
            batch: RequestBatch::new(),
            supported,
            offset,
            boundary: offset,
            is_in_transaction: false,
        }
    }

    /// Number of consumed bytes, by the source's count.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The last offset at which no transaction was open.
    pub(super) fn boundary(&self) -> u64 {
        self.boundary
    }

    /// Discards an incomplete command after a lost connection; the next connection continues at `offset`.
    pub(super) fn interrupt(&mut self) {
        self.parser.reset();
    }

    /// Passes the first commands of `buffer`, which must begin after the consumed bytes, to `show`. Returns
    /// the number of bytes consumed; 0 if there is no complete command.
    pub(super) fn take(
        &mut self,
        buffer: &[u8],
        mut show: impl FnMut(Received<'_>),
    ) -> Result<usize, ProtocolError> {
        let parsed = self.parser.parse(buffer, &Limits::DEFAULT, &mut self.batch, COMMANDS_PER_PASS);
        let (mut start, before) = (0, self.offset);
        for index in 0..self.batch.len() {
            let end = self.batch.end(index);
            let args = self.batch.command(index, buffer);
            self.offset = before + end as u64;
            let name = args.at(0).to_ascii_lowercase();
            let boundary_before = self.boundary;
            match name.as_slice() {
                b"multi" => self.is_in_transaction = true,
                b"exec" | b"discard" => self.is_in_transaction = false,
                _ => {}
            }
            if !self.is_in_transaction {
                self.boundary = self.offset;
            }
            let instead = adapted(args, self.is_in_transaction, |name| self.supported.contains(name));
            match name.as_slice() {
                b"ping" => {}
                b"replconf" if is_ack_wanted(args) => show(Received::AckWanted),
                b"replconf" => {}
                _ if instead.is_some() => {
                    let (commands, mut from) = (instead.unwrap_or_default(), 0);
                    for end in &commands.ends {
                        let is_last = *end == commands.bytes.len();
                        let offset = if is_last { self.boundary } else { boundary_before };
                        show(Received::Write { bytes: &commands.bytes[from..*end], offset });
                        from = *end;
                    }
                }
                _ if self.supported.contains(&name) => {
                    show(Received::Write { bytes: &buffer[start..end], offset: self.boundary });
                }
                _ => {
                    let name = name.to_ascii_uppercase().escape_ascii().to_string();
                    show(Received::Unsupported { name, key: shown_key(args) });
                }
            }
            start = end;
        }
        self.offset = before + parsed.consumed as u64;
        if !self.is_in_transaction {
            self.boundary = self.offset;
        }
        parsed.error.map_or(Ok(parsed.consumed), Err)
    }
}

fn is_ack_wanted(args: Args<'_>) -> bool {
    args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"getack"))
}

/// Maximum bytes of a key that are shown.
const SHOWN_BYTES_MAX: usize = 128;

/// The first argument in readable form.
pub(super) fn shown_key(args: Args<'_>) -> String {
    let key = args.get(1).unwrap_or_default();
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    let more = if shown.len() < key.len() { "..." } else { "" };
    format!("{}{more}", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::migration::commands::Commands;

    fn encoded(commands: &[&str]) -> Vec<u8> {
        let mut all = Commands::default();
        for command in commands {
            all.push(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        }
        all.bytes
    }

    fn stream() -> Stream {
        let names = ["set", "select", "multi", "exec"];
        Stream::new(1000, names.iter().map(|name| name.as_bytes().to_vec()).collect())
    }

    /// The results for pieces of a stream, as words; offsets are relative to 1000.
    fn shown(pieces: &[&[u8]]) -> (Vec<String>, u64, u64) {
        let (mut stream, mut words, mut buffer) = (stream(), Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                let taken = stream.take(&buffer, |received| {
                    words.push(match received {
                        Received::Write { bytes, offset } => {
                            format!(
                                "{} at {}",
                                String::from_utf8_lossy(bytes).replace("\r\n", " "),
                                offset - 1000
                            )
                        }
                        Received::AckWanted => "ack".into(),
                        Received::Unsupported { name, key } => format!("no {name} of {key}"),
                    });
                });
                match taken.unwrap() {
                    0 => break,
                    taken => _ = buffer.drain(..taken),
                }
            }
        }
        (words, stream.offset() - 1000, stream.boundary() - 1000)
    }

    #[test]
    fn every_command_is_forwarded_or_named_or_meant_for_the_importer() {
        let sent = encoded(&["PING", "SELECT 2", "SET a 1", "XADD s *", "REPLCONF GETACK *", "REPLCONF x y"]);
        let (words, offset, boundary) = shown(&[&sent]);
        let expected = ["*2 $6 SELECT $1 2  at 37", "*3 $3 SET $1 a $1 1  at 64", "no XADD of s", "ack"];
        assert_eq!(words, expected);
        assert_eq!((offset, boundary), (sent.len() as u64, sent.len() as u64));
    }

    #[test]
    fn within_a_transaction_the_copy_is_where_it_was_before() {
        let sent = encoded(&["SET a 1", "MULTI", "SET b 2"]);
        let (words, offset, boundary) = shown(&[&sent]);
        assert_eq!(words.last().map(String::as_str), Some("*3 $3 SET $1 b $1 2  at 27"));
        assert_eq!((offset, boundary), (sent.len() as u64, 27));
        let sent = encoded(&["MULTI", "SET b 2", "EXEC"]);
        let (words, offset, boundary) = shown(&[&sent]);
        assert_eq!(words.last(), Some(&format!("*1 $4 EXEC  at {}", sent.len())));
        assert_eq!((offset, boundary), (sent.len() as u64, sent.len() as u64));
    }

    #[test]
    fn a_write_that_becomes_several_is_reached_with_the_last() {
        let sent = encoded(&["SET a 1", "MSETEX 2 b 2 c 3 NX"]);
        let (words, offset, _) = shown(&[&sent]);
        let expected = [
            "*3 $3 SET $1 a $1 1  at 27".into(),
            "*1 $5 MULTI  at 27".into(),
            "*3 $3 SET $1 b $1 2  at 27".into(),
            "*3 $3 SET $1 c $1 3  at 27".into(),
            format!("*1 $4 EXEC  at {}", sent.len()),
        ];
        assert_eq!((words, offset), (expected.to_vec(), sent.len() as u64));
    }

    #[test]
    fn a_connection_that_was_lost_goes_on_behind_the_last_whole_command() {
        let mut stream = stream();
        let sent = encoded(&["SET a 1", "SET b 2"]);
        assert_eq!(stream.take(&sent[..40], |_| {}), Ok(27));
        assert_eq!(stream.take(&sent[27..40], |_| panic!("it is not whole")), Ok(0));
        stream.interrupt();
        let mut writes = 0;
        assert_eq!(stream.take(&sent[27..], |_| writes += 1), Ok(27));
        assert_eq!((stream.offset(), writes), (1054, 1));
    }

    #[test]
    fn an_invalid_command_is_an_error() {
        assert!(stream().take(b"*1\r\n!3\r\n", |_| {}).is_err());
    }

    proptest! {
        #[test]
        fn a_stream_does_not_depend_on_its_division_into_reads(
            picks in prop::collection::vec(0..6usize, 0..30),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let kinds = ["PING", "SET a 1", "MULTI", "EXEC", "XADD s *", "REPLCONF GETACK *"];
            let sent = encoded(&picks.iter().map(|pick| kinds[*pick]).collect::<Vec<_>>());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(sent.len().max(1))).collect();
            cuts.extend([0, sent.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &sent[cut[0]..cut[1]]).collect();
            prop_assert_eq!(shown(&pieces), shown(&[&sent]));
        }
    }
}
