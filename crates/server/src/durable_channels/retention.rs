//! Retention of the log for durable channels: a floor follows the end of the log at a distance in bytes and
//! in time.
//!
//! The floor is not exact: it lies between two batches, and only whole segments are removed.
//!
//! Invariants
//! - While durable channels are in use and the disk has room, the floor is never above the position from
//!   which the settings require the log.

use std::path::Path;

use env::RealDisk;
use lsn::Lsn;
use parking_lot::Mutex;
use recovery::snapshot_task::GENERATIONS;
use settings::Key;
use storage::{Admission, Error, Log, retain_snapshots};

use crate::config::Config;

/// The settings of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// The maximum bytes of log that are kept.
    pub(super) bytes: u64,
    /// The maximum age of kept log, in milliseconds; 0 means no limit.
    pub(super) ms: u64,
}

/// The current floor.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    floor: Mutex<Option<Lsn>>,
}

impl Retention {
    /// The position from which the log is kept, if durable channels need any of it.
    pub(crate) fn floor(&self) -> Option<Lsn> {
        *self.floor.lock()
    }

    /// Moves the floor, and removes segments that only the old floor has kept. Called once a second, and
    /// at the start, before anything else removes log. Blocks.
    pub(crate) fn renew(&self, config: &Config, dir: &Path, now_ms: u64, log: &Log) {
        if log.is_frozen() {
            return;
        }
        let is_wanted = config.hot().keeps_messages() && log.admit(0) != Admission::NoRoom;
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
            && let Err(error) = retain_snapshots(&RealDisk, dir, log, GENERATIONS)
        {
            tracing::warn!(
                target: "server", %error,
                "cannot remove the log that durable channels have kept; the next snapshot tries again"
            );
        }
    }
}

/// The position from which the log must be kept.
pub(super) fn floor(log: &Log, kept: Kept, now_ms: u64) -> Result<Lsn, Error> {
    let (start, end) = (log.start_lsn(), log.durable_lsn());
    let oldest = Lsn::new(end.get().saturating_sub(kept.bytes)).max(start);
    // The search begins at the start of the batch that has the first kept byte.
    let mut floor =
        if oldest == end { end } else { log.batch_at(oldest.advance(1))?.map_or(start, |it| it.start) };
    if kept.ms == 0 {
        return Ok(floor);
    }
    // The first batch that is young enough lies between `floor` and `young_from`.
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
