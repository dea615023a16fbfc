//! Streams: entries with ids at one key, and groups of consumers that share them.
//!
//! The memory layout of streams is in `keyspace`.
//!
//! Invariants
//! - Effects do not depend on the time of replay: ids, times and counts are decided here. Trimming is logged
//!   as the last id that is removed, or with ACKED as all removed ids.
//! - A request that makes nothing pending for its consumer logs the consumer as seen at most once per
//!   [`SEEN_PERIOD_MS`], so that polling does not fill the log.

mod acknowledge;
mod add;
mod blocking;
mod claim;
mod deliver;
mod edit;
mod group;
mod id;
mod info;
mod lag;
mod pending;
mod range;
mod read;
mod references;
mod reply;
mod rows;
mod trim;

use engine::{CommandError, Context, EventClass};
use keyspace::{ConsumerTimes, EntryRef, GroupView, KeyOp, StreamView, View};

pub(crate) use rows::ROWS;

/// The age from which the logged time of a consumer is renewed by a request that makes nothing pending.
const SEEN_PERIOD_MS: u64 = 1000;

/// The stream at a key; `None` if the key is absent.
///
/// # Errors
/// The key holds another type.
#[inline]
fn stream(entry: Option<EntryRef<'_>>) -> Result<Option<StreamView<'_>>, CommandError> {
    match entry.map(|entry| entry.view()) {
        None => Ok(None),
        Some(View::Stream(stream)) => Ok(Some(stream)),
        Some(_) => Err(CommandError::WrongType),
    }
}

/// The group of a stream, or the error that the key or the group does not exist.
fn group<'a>(
    stream: Option<StreamView<'a>>,
    key: &[u8],
    group: &[u8],
) -> Result<GroupView<'a>, CommandError> {
    stream.and_then(|stream| stream.group(group)).ok_or_else(|| {
        let (key, group) = (shown(key), shown(group));
        CommandError::Composed(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
    })
}

/// As `group`, for commands whose error names the group first.
fn named_group<'a>(stream: StreamView<'a>, key: &[u8], group: &[u8]) -> Result<GroupView<'a>, CommandError> {
    stream.group(group).ok_or_else(|| {
        let (key, group) = (shown(key), shown(group));
        CommandError::Composed(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
    })
}

/// A name as errors show it: bytes that are not UTF-8 are replaced.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Notes that a consumer has requested entries, and creates the consumer if necessary. `before` has the
/// logged times of the consumer; `None` for a new consumer. The request is logged if the consumer is new, if
/// the logged time is at least [`SEEN_PERIOD_MS`] old, or if `is_active` (an entry becomes pending for it).
fn see_consumer(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    group: &[u8],
    consumer: &[u8],
    before: Option<ConsumerTimes>,
    is_active: bool,
) {
    let seen_ms = cx.now_ms();
    let is_due = before.is_none_or(|before| seen_ms >= before.seen_ms.saturating_add(SEEN_PERIOD_MS));
    if is_active || is_due {
        let active_ms = if is_active { Some(seen_ms) } else { before.and_then(|before| before.active_ms) };
        let times = ConsumerTimes { seen_ms, active_ms };
        cx.apply(key, KeyOp::StreamPutConsumer { group, consumer, times });
    }
    if before.is_none() {
        cx.notify(EventClass::STREAM, "xgroup-createconsumer", key);
    }
}

#[cfg(test)]
mod tests;
