//! How long the log is kept for durable channels: from a floor on that follows its end, by bytes and by time.
//!
//! What it is not: exact. The floor is a place between batches; segments are removed whole.
//!
//! Invariants
//! - While there are durable channels and the disk has room, the floor is never above what the settings keep.

use std::path::Path;

use env::RealDisk;
use lsn::Lsn;
use parking_lot::Mutex;
use recovery::snapshot_task::GENERATIONS;
use settings::Key;
use storage::{Admission, Error, Log, snapshot};

use crate::config::Config;

/// What is kept, as the settings have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// Bytes of log.
    pub(super) bytes: u64,
    /// Milliseconds; 0 for no limit.
    pub(super) ms: u64,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    floor: Mutex<Option<Lsn>>,
}

impl Retention {
    /// From where on the log is kept.
    pub(crate) fn floor(&self) -> Option<Lsn> {
        *self.floor.lock()
    }

    /// Moves the floor to where it is due, and removes what it alone has kept. To be called once a second, and before the log
    /// can be cut. Blocks.
    pub(crate) fn renew(&self, config: &Config, dir: &Path, now_ms: u64, log: &Log) {
        if log.is_frozen() {
            return;
        }
        let is_wanted = config.hot().has_durable_channels() && log.admit(0) != Admission::NoRoom;
        let kept = {
            let settings = config.current();
            let bytes = settings.integer(Key::DurableChannelsRetentionBytes);
            Kept { bytes, ms: settings.integer(Key::DurableChannelsRetentionMs) }
        };
        let due = if is_wanted { floor(log, kept, now_ms).map(Some) } else { Ok(None) };
        let due = match due {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(target: "server", %error, "cannot compute the log that durable channels need");
                return;
            }
        };
        *self.floor.lock() = due;
        let before = log.retain_from(due);
        let segment = |lsn: Lsn| lsn.align_down(log.segment_bytes());
        if before.is_some_and(|before| due.is_none_or(|due| segment(before) < segment(due)))
            && let Err(error) = snapshot::retain(&RealDisk, dir, log, GENERATIONS)
        {
            tracing::warn!(
                target: "server", %error,
                "cannot remove the log that durable channels have kept; the next snapshot tries again"
            );
        }
    }
}

/// Where the log is kept from.
pub(super) fn floor(log: &Log, kept: Kept, now_ms: u64) -> Result<Lsn, Error> {
    let (start, end) = (log.start_lsn(), log.durable_lsn());
    let oldest = Lsn::new(end.get().saturating_sub(kept.bytes)).max(start);
    // Where the batch begins that holds the first byte that is kept.
    let mut floor =
        if oldest == end { end } else { log.batch_at(oldest.advance(1))?.map_or(start, |it| it.start) };
    if kept.ms == 0 {
        return Ok(floor);
    }
    // The first batch that is young enough lies between both.
    let since_ms = now_ms.saturating_sub(kept.ms);
    let mut young_from = end;
    while floor < young_from {
        let middle = floor.advance(young_from.bytes_since(floor) / 2 + 1).min(young_from);
        let Some(batch) = log.batch_at(middle)? else { break };
        if batch.closed_at_ms >= since_ms {
            young_from = batch.start;
        } else {
            floor = batch.end;
        }
    }
    Ok(floor)
}
