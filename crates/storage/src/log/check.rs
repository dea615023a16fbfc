//! `check`: reads a whole log as recovery does and reports the result. Changes nothing.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use env::{Access, Disk};
use lsn::Lsn;

use super::reader::{LogReader, Tail};
use crate::Error;

/// The contents of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The position at which the check starts: the start of the log, or `from` of [`check_behind`].
    pub start: Lsn,
    /// The end of the log.
    pub tail: Tail,
    /// The chain value at the end, which identifies the whole log. `None` if unknown.
    pub end_chain: Option<u64>,
    /// Complete batches that were read.
    pub batches: u64,
    /// Records in the complete batches.
    pub records: u64,
    /// Number of epochs with batches.
    pub epochs: u64,
    /// Whether the last server closed the log in order.
    pub closed_cleanly: bool,
    /// When the last batch was closed, in milliseconds since 1970; `None` if no batch was read.
    pub closed_at_ms: Option<u64>,
    /// Whether the state before the start of the log is in a snapshot, so the log alone is not enough.
    pub needs_snapshot: bool,
}

/// Verifies the log in `dir` from its start to its end. `progress` is called with (position, end of the
/// segments) after every batch, and may end the check.
///
/// # Errors
/// [`Error::Corrupt`] and [`Error::Inconsistent`] for damage, or if there is no log; [`Error::Io`] if files
/// cannot be read; [`Error::Ended`] if `progress` ended the check.
pub fn check(
    disk: Arc<dyn Disk>,
    dir: &Path,
    progress: impl FnMut(Lsn, Lsn) -> ControlFlow<()>,
) -> Result<CheckReport, Error> {
    check_rest(LogReader::open(disk, dir, Access::Read)?, progress)
}

/// Does the same as [`check`], but only for the log after the batch that ends at `from`.
///
/// # Errors
/// As [`check`], and [`Error::Inconsistent`] if no batch ends at `from`.
pub fn check_behind(
    disk: Arc<dyn Disk>,
    dir: &Path,
    from: Lsn,
    progress: impl FnMut(Lsn, Lsn) -> ControlFlow<()>,
) -> Result<CheckReport, Error> {
    let mut reader = LogReader::open(disk, dir, Access::Read)?;
    reader.pass_to(from)?;
    check_rest(reader, progress)
}

fn check_rest(
    mut reader: LogReader,
    mut progress: impl FnMut(Lsn, Lsn) -> ControlFlow<()>,
) -> Result<CheckReport, Error> {
    let (start, segments_end) = (reader.position(), reader.segments_end());
    let (mut batches, mut records, mut epochs, mut last_epoch) = (0, 0, 0, 0);
    loop {
        match reader.next_batch()? {
            Ok(batch) => {
                batches += 1;
                records += batch.records().count() as u64;
                epochs += u64::from(batch.epoch != last_epoch);
                last_epoch = batch.epoch;
                if progress(batch.end, segments_end).is_break() {
                    return Err(Error::Ended);
                }
            }
            Err(tail) => {
                let closed_cleanly = reader.control().clean_end == Some(tail.end);
                let needs_snapshot = reader.control().needs_snapshot;
                let closed_at_ms = (batches > 0).then(|| reader.before().closed_at_ms);
                return Ok(CheckReport {
                    start,
                    tail,
                    end_chain: reader.before().chain,
                    batches,
                    records,
                    epochs,
                    closed_cleanly,
                    closed_at_ms,
                    needs_snapshot,
                });
            }
        }
    }
}
