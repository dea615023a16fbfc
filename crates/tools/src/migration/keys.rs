//! Converts an RDB file to commands that create its keys.
//!
//! ```text
//! SELECT db
//! | SET key value [PXAT ms]
//! | RPUSH, SADD, ZADD, HSET key ... (in parts) [HPEXPIREAT key ...] [PEXPIREAT key ms]
//! | XADD key ... (in turn) XSETID key ... [XGROUP CREATE ..., XGROUP RESTORECONSUMER ...]    a stream
//! ```
//!
//! A visitor of the file sends the commands in batches to a channel. The file was verified before. Expired
//! keys are sent like all others, because only the source decides about expiry.
//!
//! Invariants
//! - Memory is independent of the size of collections.

use std::sync::Arc;

use env::File;
use rdb::{Element, FileError, Header, Key, Kind, PassedOver, Visitor, read_file};
use recovery::offline::Stream;
use tokio::sync::mpsc::Sender;

use super::commands::{Arguments, Commands};
use super::open_stream::OpenStream;

/// The approximate size of the commands that carry elements of a collection.
const PART_BYTES: usize = 256 << 10;
/// A batch is sent once it has this many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Commands, and how many bytes of the file had been read when they were sent, for the progress.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) commands: Commands,
    pub(super) position: u64,
    /// Number of keys that begin in the batch.
    pub(super) keys: u64,
}

/// Why a file was not converted completely.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read, although it could when it was verified.
    #[error("the copy of the source's data cannot be read again: {0}")]
    File(#[from] FileError),
    /// The receiver of the batches has ended.
    #[error("the copying has ended")]
    Ended,
}

/// Reads a file and sends the commands that create its keys. Blocks while `batches` is full, so it must not
/// run on an async thread.
pub(super) fn pass_on(file: Arc<dyn File>, batches: Sender<Batch>) -> Result<Header, KeysError> {
    let position = std::cell::Cell::new(0);
    let moved = |bytes| position.set(bytes);
    let send = |batch: Batch| {
        batches.blocking_send(Batch { position: position.get(), ..batch }).map_err(|_| KeysError::Ended)
    };
    let mut translation = Translation::new(send);
    let header = read_file(Stream::new(file, &moved), &mut translation)?;
    translation.finish()?;
    Ok(header)
}

/// The state of a conversion: the batch and the key that are being filled. `S` sends full batches.
struct Translation<S> {
    send: S,
    batch: Batch,
    db: Option<u64>,
    key: Vec<u8>,
    kind: Kind,
    expire_at_ms: Option<u64>,
    /// Elements that are not in a command yet.
    elements: Arguments,
    /// The fields in `elements` that have a deadline.
    deadlines: Vec<(u64, Vec<u8>)>,
    score: Vec<u8>,
    stream: OpenStream,
}

impl<S: FnMut(Batch) -> Result<(), KeysError>> Translation<S> {
    fn new(send: S) -> Self {
        Translation {
            send,
            batch: Batch::default(),
            db: None,
            key: Vec::new(),
            kind: Kind::String,
            expire_at_ms: None,
            elements: Arguments::default(),
            deadlines: Vec::new(),
            score: Vec::new(),
            stream: OpenStream::default(),
        }
    }

    fn finish(&mut self) -> Result<(), KeysError> {
        if self.batch.commands.ends.is_empty() {
            Ok(())
        } else {
            (self.send)(std::mem::take(&mut self.batch))
        }
    }

    /// Writes the collected elements as a command.
    fn write_part(&mut self) -> Result<(), KeysError> {
        let name: &[u8] = match self.kind {
            Kind::List => b"RPUSH",
            Kind::Set => b"SADD",
            Kind::Zset => b"ZADD",
            Kind::Hash => b"HSET",
            Kind::String => return self.send_full(),
            Kind::Stream => {
                self.stream.end_consumer(&self.key, &mut self.batch.commands);
                return self.send_full();
            }
        };
        if !self.elements.is_empty() {
            self.batch.commands.push_gathered(&[name, &self.key], &mut self.elements);
        }
        // One command for all fields with the same deadline.
        self.deadlines.sort_unstable();
        for group in self.deadlines.chunk_by(|(one, _), (other, _)| one == other) {
            let (mut deadline, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
            let Some((deadline_ms, _)) = group.first() else { continue };
            let mut command: Vec<&[u8]> = vec![b"HPEXPIREAT", &self.key];
            command.extend([deadline.format(*deadline_ms).as_bytes(), b"FIELDS"]);
            command.push(count.format(group.len()).as_bytes());
            command.extend(group.iter().map(|(_, field)| field.as_slice()));
            self.batch.commands.push(&command);
        }
        self.deadlines.clear();
        self.send_full()
    }

    /// Sends the batch if it is full.
    fn send_full(&mut self) -> Result<(), KeysError> {
        if self.batch.commands.bytes.len() >= BATCH_BYTES {
            return (self.send)(std::mem::take(&mut self.batch));
        }
        Ok(())
    }
}

impl<S: FnMut(Batch) -> Result<(), KeysError>> Visitor for Translation<S> {
    type Error = KeysError;

    fn begin(&mut self, key: &Key<'_>) -> Result<(), KeysError> {
        if self.db.replace(key.db) != Some(key.db) {
            self.batch.commands.push(&[b"SELECT", itoa::Buffer::new().format(key.db).as_bytes()]);
        }
        self.key.clear();
        self.key.extend_from_slice(key.name);
        (self.kind, self.expire_at_ms) = (key.kind, key.expire_at_ms);
        self.batch.keys += 1;
        self.stream = OpenStream::default();
        Ok(())
    }

    fn element(&mut self, element: Element<'_>) -> Result<(), KeysError> {
        match element {
            Element::String(value) => {
                let mut deadline = itoa::Buffer::new();
                let mut command: Vec<&[u8]> = vec![b"SET", &self.key, value];
                if let Some(deadline_ms) = self.expire_at_ms {
                    command.extend([b"PXAT", deadline.format(deadline_ms).as_bytes()]);
                }
                self.batch.commands.push(&command);
            }
            Element::Stream(element) => {
                self.stream.write(element, &self.key, &mut self.batch.commands);
                return self.send_full();
            }
            Element::Item(item) | Element::Member(item) => self.elements.push(item),
            Element::Scored(score, member) => {
                self.score.clear();
                wire::double::format_double(score, &mut self.score);
                self.elements.push(&self.score);
                self.elements.push(member);
            }
            Element::Field { name, value, expire_at_ms } => {
                self.elements.push(name);
                self.elements.push(value);
                self.deadlines.extend(expire_at_ms.map(|deadline_ms| (deadline_ms, name.to_vec())));
            }
        }
        if self.elements.bytes.len() >= PART_BYTES { self.write_part() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<(), KeysError> {
        let is_string = self.kind == Kind::String;
        self.write_part()?;
        if let (false, Some(deadline_ms)) = (is_string, self.expire_at_ms) {
            let mut deadline = itoa::Buffer::new();
            self.batch.commands.push(&[b"PEXPIREAT", &self.key, deadline.format(deadline_ms).as_bytes()]);
        }
        self.send_full()
    }

    fn library(&mut self, source: &[u8]) -> Result<(), KeysError> {
        self.batch.commands.push(&[b"FUNCTION", b"LOAD", b"REPLACE", source]);
        self.send_full()
    }

    fn passed_over(&mut self, _: PassedOver) -> Result<(), KeysError> {
        // Data that is passed over was counted during the verification.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rdb::{StreamElement, StreamHead};

    use super::*;

    /// The commands made by a visit, as words, batch by batch.
    fn translated(visit: impl FnOnce(&mut dyn Visitor<Error = KeysError>)) -> Vec<Vec<String>> {
        let mut batches = Vec::new();
        let mut translation = Translation::new(|batch: Batch| {
            let (mut start, mut words) = (0, Vec::new());
            for end in &batch.commands.ends {
                let command = String::from_utf8_lossy(&batch.commands.bytes[start..*end]).into_owned();
                // Every other line is an argument.
                words.push(command.split("\r\n").skip(2).step_by(2).collect::<Vec<_>>().join(" "));
                start = *end;
            }
            batches.push(words);
            Ok(())
        });
        visit(&mut translation);
        translation.finish().unwrap();
        batches
    }

    fn key<'a>(db: u64, name: &'a str, kind: Kind, expire_at_ms: Option<u64>) -> Key<'a> {
        Key { db, name: name.as_bytes(), kind, expire_at_ms }
    }

    #[test]
    fn every_type_has_its_command() {
        let field = |name: &'static str, expire_at_ms| Element::Field {
            name: name.as_bytes(),
            value: b"v",
            expire_at_ms,
        };
        let pairs = [b"f".to_vec(), b"v".to_vec()];
        let keys = [
            (key(0, "s", Kind::String, None), vec![Element::String(b"x")]),
            (key(0, "t", Kind::String, Some(7)), vec![Element::String(b"y")]),
            (key(2, "l", Kind::List, None), vec![Element::Item(b"a"), Element::Item(b"b")]),
            (key(2, "m", Kind::Set, Some(9)), vec![Element::Member(b"a")]),
            (
                key(2, "z", Kind::Zset, None),
                vec![Element::Scored(0.1, b"a"), Element::Scored(f64::NEG_INFINITY, b"b")],
            ),
            (key(2, "h", Kind::Hash, None), vec![field("a", Some(5)), field("b", None), field("c", Some(5))]),
            (key(2, "e", Kind::Set, None), vec![]),
            (
                key(2, "x", Kind::Stream, Some(11)),
                [
                    StreamElement::Entry { id: (1, 2), pairs: &pairs },
                    StreamElement::Head(StreamHead {
                        last_id: (4, 0),
                        max_deleted_id: (3, 0),
                        entries_added: 9,
                    }),
                    StreamElement::Group { name: b"g", last_id: (1, 2), entries_read: Some(1) },
                    StreamElement::Consumer { name: b"c", seen_ms: 5, active_ms: None },
                    StreamElement::Pending { id: (1, 2), time_ms: 77, count: 3 },
                    StreamElement::Pending { id: (1, 1), time_ms: 78, count: 1 },
                    StreamElement::Consumer { name: b"d", seen_ms: 6, active_ms: Some(5) },
                ]
                .map(Element::Stream)
                .to_vec(),
            ),
            (
                key(2, "y", Kind::Stream, None),
                [
                    StreamElement::Head(StreamHead::default()),
                    StreamElement::Group { name: b"g", last_id: (0, 0), entries_read: None },
                ]
                .map(Element::Stream)
                .to_vec(),
            ),
        ];
        let batches = translated(|visitor| {
            for (key, elements) in &keys {
                visitor.begin(key).unwrap();
                elements.iter().for_each(|element| visitor.element(*element).unwrap());
                visitor.end().unwrap();
            }
        });
        let expected = [
            "SELECT 0",
            "SET s x",
            "SET t y PXAT 7",
            "SELECT 2",
            "RPUSH l a b",
            "SADD m a",
            "PEXPIREAT m 9",
            "ZADD z 0.1 a -inf b",
            "HSET h a v b v c v",
            "HPEXPIREAT h 5 FIELDS 2 a c",
            "XADD x 1-2 f v",
            "XSETID x 4-0 ENTRIESADDED 9 MAXDELETEDID 3-0",
            "XGROUP CREATE x g 1-2 ENTRIESREAD 1",
            "XGROUP RESTORECONSUMER x g c 5 -1 1-2 77 3 1-1 78 1",
            "XGROUP RESTORECONSUMER x g d 6 5",
            "PEXPIREAT x 11",
            "XADD y MAXLEN 0 0-1 f v",
            "XSETID y 0-0 ENTRIESADDED 0 MAXDELETEDID 0-0",
            "XGROUP CREATE y g 0-0",
        ];
        assert_eq!(batches, [expected.map(String::from).to_vec()]);
    }

    #[test]
    fn a_large_collection_comes_in_parts() {
        let member = vec![b'x'; 1000];
        let batches = translated(|visitor| {
            visitor.begin(&key(0, "l", Kind::List, None)).unwrap();
            (0..1000).for_each(|_| visitor.element(Element::Item(&member)).unwrap());
            visitor.end().unwrap();
        });
        let commands: Vec<&String> = batches.iter().flatten().collect();
        assert_eq!(commands.len(), 1 + 4, "SELECT and the parts");
        let members = commands.iter().skip(1).map(|command| command.split(' ').count() - 2);
        assert_eq!(members.sum::<usize>(), 1000);
        assert!(batches.iter().flatten().all(|command| command.len() < PART_BYTES + 2 * member.len()));
    }
}
