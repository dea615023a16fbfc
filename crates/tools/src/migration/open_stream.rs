//! The stream whose commands are being made.
//!
//! ```text
//! XADD key id ... (in turn) | XSETID | XGROUP CREATE | XGROUP CREATECONSUMER
//!                           | XCLAIM key group consumer 0 id ... FORCE
//! ```
//!
//! It remembers names that later parts refer to. Pending entries that are no longer in the stream cannot be
//! claimed, and are not pending in the target.

use rdb::{StreamElement, StreamHead, StreamId};

use super::commands::Commands;

#[derive(Default)]
pub(super) struct OpenStream {
    has_entries: bool,
    group: Vec<u8>,
    consumer: Vec<u8>,
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
                self.group = name.to_vec();
                let last = shown(last_id);
                let mut command: Vec<&[u8]> = vec![b"XGROUP", b"CREATE", key, name, last.as_bytes()];
                let read = entries_read.map(|read| read.to_string());
                if let Some(read) = &read {
                    command.extend([b"ENTRIESREAD", read.as_bytes()]);
                }
                commands.push(&command);
            }
            StreamElement::Consumer { name, .. } => {
                self.consumer = name.to_vec();
                commands.push(&[b"XGROUP", b"CREATECONSUMER", key, &self.group, name]);
            }
            StreamElement::Pending { id, time_ms, count } => {
                let (id, time, count) = (shown(id), time_ms.to_string(), count.to_string());
                let (group, consumer) = (self.group.as_slice(), self.consumer.as_slice());
                let place: [&[u8]; 6] = [b"XCLAIM", key, group, consumer, b"0", id.as_bytes()];
                let how: [&[u8]; 6] =
                    [b"TIME", time.as_bytes(), b"RETRYCOUNT", count.as_bytes(), b"FORCE", b"JUSTID"];
                commands.push(&[place, how].concat());
            }
        }
    }
}

fn shown((ms, seq): StreamId) -> String {
    format!("{ms}-{seq}")
}
