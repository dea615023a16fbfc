//! The messages of durable channels in a salvaged log. No snapshot has such messages, so all of them, damaged
//! or not, are lost with the log once the loss is accepted.
//!
//! ```text
//! damaged log -> count -> report
//! frozen log  -> note: a setting of the data -> messages_lost_before: what readers of channels are told
//! ```
//!
//! Invariants
//! - Every reader that asks for a position of the old log, or for the oldest position, learns of the loss.
//!   The position of the loss is in the data, which snapshots and replicas carry.

use std::collections::BTreeMap;

use keyspace::{AccessClock, DataSettings, Effect, Freed, Item, Keyspace, LIBRARIES_SLOT, LoggedMessage};
use lsn::Lsn;
use storage::{Log, Recovery};

use super::Losses;
use crate::{error::RecoverError, replay::decode, source::Source};

/// The beginning of the names of this crate's settings of the data.
pub const OF_RECOVERY: &str = "recovery:";
/// The setting with the position before which all messages were lost.
const LOST_BEFORE: &str = "recovery:messages-lost-before";
/// The setting with the names of durable channels.
const DURABLE_CHANNELS: &[u8] = b"durable-channels";
/// The maximum number of channels that are named.
const CHANNELS_MAX: usize = 100;

/// The lost messages of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfChannel {
    pub(super) messages: u64,
    /// The positions of the records of the first and the last one.
    pub(super) lsns: (Lsn, Lsn),
}

/// The messages of a log.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages {
    pub(super) count: u64,
    pub(super) by_channel: BTreeMap<Box<[u8]>, OfChannel>,
    /// Messages of channels that are not in `by_channel`.
    pub(super) of_other_channels: u64,
    /// Whether the log has damaged parts, in which there may be more messages.
    pub(super) has_holes: bool,
    /// Why the messages could not be counted to the end.
    pub(super) failed: Option<String>,
}

impl Messages {
    /// Counts the messages of a damaged log, from its start to its end.
    pub(super) fn count(source: &Source<'_>) -> Messages {
        let mut messages = Messages::default();
        let counted = Recovery::salvage(source.disk.clone(), source.dir, source.options, source.entropy)
            .map_err(RecoverError::from)
            .and_then(|mut log| {
                log.replay(|lsn, payload| messages.add_record(lsn, payload), |_| {})?;
                messages.has_holes = log.holes().iter().any(|hole| hole.lsns.is_some());
                Ok(())
            });
        messages.failed = counted.err().map(|error| error.to_string());
        messages
    }

    fn add_record(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), RecoverError> {
        let mut rest = payload;
        while let Some(item) = decode(&mut rest, lsn)? {
            if let Item::Message(LoggedMessage { channel, .. }) = item {
                self.add(channel, lsn);
            }
        }
        Ok(())
    }

    fn add(&mut self, channel: &[u8], lsn: Lsn) {
        self.count += 1;
        if let Some(known) = self.by_channel.get_mut(channel) {
            known.messages += 1;
            known.lsns.1 = lsn;
        } else if self.by_channel.len() < CHANNELS_MAX {
            self.by_channel.insert(channel.into(), OfChannel { messages: 1, lsns: (lsn, lsn) });
        } else {
            self.of_other_channels += 1;
        }
    }
}

/// Notes in the data that all messages before the start of this log, which replaces a damaged one, are lost.
/// Without messages and durable channels there is nothing to note.
pub(crate) fn note(keyspace: &Keyspace, losses: &Losses, log: &Log) {
    let mut slot = keyspace.lock(LIBRARIES_SLOT);
    let has_channels = slot.data_settings().get(DURABLE_CHANNELS).is_some_and(|names| !names.is_empty());
    if losses.messages() == 0 && !has_channels {
        return;
    }
    let position = log.start_lsn().to_string();
    let effect = Effect::Setting { name: LOST_BEFORE.as_bytes(), value: Some(position.as_bytes()) };
    slot.apply(&effect, AccessClock::default(), &mut Freed::new());
    // Setting the slot's position, even to the same value, publishes the setting.
    let last = slot.last_lsn();
    slot.set_last_lsn(last);
}

/// The position before which a forced recovery has dropped all messages of durable channels, if one has.
pub fn messages_lost_before(data: &DataSettings) -> Option<Lsn> {
    let position = std::str::from_utf8(data.get(LOST_BEFORE.as_bytes())?).ok()?;
    position.parse().ok().map(Lsn::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_channels_are_named_and_all_messages_are_counted() {
        let mut messages = Messages::default();
        for round in 0..3 {
            for number in 0..CHANNELS_MAX + 7 {
                messages.add(format!("channel {number}").as_bytes(), Lsn::new(round * 1000 + number as u64));
            }
        }
        let first = messages.by_channel[&b"channel 0"[..]];
        assert_eq!(first, OfChannel { messages: 3, lsns: (Lsn::ZERO, Lsn::new(2000)) });
        assert_eq!((messages.by_channel.len(), messages.of_other_channels), (CHANNELS_MAX, 3 * 7));
        assert_eq!(messages.count, 3 * (CHANNELS_MAX as u64 + 7));
    }
}
