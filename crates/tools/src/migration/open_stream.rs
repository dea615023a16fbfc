//! The commands that create a stream, made from its parts one after the other.
//!
//! ```text
//! XADD key id ... (for each entry), XSETID key ...
//! for each group: XGROUP CREATE key group ...
//!     for each consumer: XGROUP RESTORECONSUMER key group consumer ... (in parts)
//! ```
//!
//! The module remembers names that later parts refer to, and collects the pending entries of a consumer.
//! RESTORECONSUMER is a command of Sheaf: no command of Redis makes an entry pending that is no longer in the
//! stream.

use rdb::{StreamElement, StreamHead, StreamId};

use super::commands::{Arguments, Commands};

/// The approximate size of a command that carries pending entries.
const PART_BYTES: usize = 64 << 10;
/// The time of activity of a consumer that never got an entry.
const NEVER: &str = "-1";

#[derive(Default)]
pub(super) struct OpenStream {
    has_entries: bool,
    group: Vec<u8>,
    consumer: Option<Consumer>,
    /// Pending entries of the consumer that are in no command yet.
    pending: Arguments,
}

/// The consumer whose pending entries follow.
struct Consumer {
    name: Vec<u8>,
    seen: String,
    active: String,
    /// Whether a command has made the consumer.
    is_made: bool,
}

impl OpenStream {
    /// Adds the commands for a part of the stream at `key`.
    pub(super) fn write(&mut self, element: StreamElement<'_>, key: &[u8], commands: &mut Commands) {
        match element {
            StreamElement::Entry { id, pairs } => {
                self.has_entries = true;
                let id = shown(id);
                let mut command: Vec<&[u8]> = vec![b"XADD", key, id.as_bytes()];
                command.extend(pairs.iter().map(Vec::as_slice));
                commands.push(&command);
            }
            StreamElement::Head(StreamHead { last_id, max_deleted_id, entries_added }) => {
                if !self.has_entries {
                    // No other command creates a stream without entries and groups.
                    let id = shown(last_id.max((0, 1)));
                    commands.push(&[b"XADD", key, b"MAXLEN", b"0", id.as_bytes(), b"f", b"v"]);
                }
                let (last, deleted) = (shown(last_id), shown(max_deleted_id));
                let (last, deleted, added) = (last.as_bytes(), deleted.as_bytes(), entries_added.to_string());
                let added = added.as_bytes();
                commands.push(&[b"XSETID", key, last, b"ENTRIESADDED", added, b"MAXDELETEDID", deleted]);
            }
            StreamElement::Group { name, last_id, entries_read } => {
                self.end_consumer(key, commands);
                self.group = name.to_vec();
                let last = shown(last_id);
                let mut command: Vec<&[u8]> = vec![b"XGROUP", b"CREATE", key, name, last.as_bytes()];
                let read = entries_read.map(|read| read.to_string());
                if let Some(read) = &read {
                    command.extend([b"ENTRIESREAD", read.as_bytes()]);
                }
                commands.push(&command);
            }
            StreamElement::Consumer { name, seen_ms, active_ms } => {
                self.end_consumer(key, commands);
                let (name, seen) = (name.to_vec(), seen_ms.to_string());
                let active = active_ms.map_or(NEVER.into(), |ms| ms.to_string());
                self.consumer = Some(Consumer { name, seen, active, is_made: false });
            }
            StreamElement::Pending { id, time_ms, count } => {
                for word in [shown(id), time_ms.to_string(), count.to_string()] {
                    self.pending.push(word.as_bytes());
                }
                if self.pending.bytes.len() >= PART_BYTES {
                    self.write_consumer(key, commands);
                }
            }
        }
    }

    /// Adds the remaining pending entries of the last consumer. To be called before the next consumer or
    /// group, and at the end of the stream.
    pub(super) fn end_consumer(&mut self, key: &[u8], commands: &mut Commands) {
        let has_more = !self.pending.is_empty();
        if self.consumer.as_ref().is_some_and(|consumer| has_more || !consumer.is_made) {
            self.write_consumer(key, commands);
        }
        self.consumer = None;
    }

    fn write_consumer(&mut self, key: &[u8], commands: &mut Commands) {
        let Some(Consumer { name, seen, active, is_made }) = &mut self.consumer else { return };
        let first: [&[u8]; 7] =
            [b"XGROUP", b"RESTORECONSUMER", key, &self.group, name, seen.as_bytes(), active.as_bytes()];
        commands.push_gathered(&first, &mut self.pending);
        *is_made = true;
    }
}

fn shown((ms, seq): StreamId) -> String {
    format!("{ms}-{seq}")
}
