//! Finds the positions and times to which a source can be restored, and the position of a target.

use env::Access;
use keyspace::{Effect, GlobalOp};
use lsn::Lsn;
use recovery::{
    offline::{Place, Report, Stage},
    unix_time,
};
use storage::{Batch, Control, LogReader, Recovery, snapshot};

use super::{RestoreError, Target};

/// The restorable range of a source, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first position. If the log needs a snapshot, this is the end of the oldest one. If a FLUSHALL has
    /// let the log forget its beginning, this is the end of that FLUSHALL. Else it is the start of the log.
    pub first_lsn: Lsn,
    /// The first time known to be at or after that position.
    pub first_ms: u64,
    /// The end of the log.
    pub last_lsn: Lsn,
    /// The last time at which the state is known.
    pub last_ms: u64,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Range { first_lsn, first_ms, last_lsn, last_ms } = self;
        let (first, last) = (unix_time::shown(*first_ms), unix_time::shown(*last_ms));
        write!(f, "lsn {first_lsn} ({first}) to lsn {last_lsn} ({last})")
    }
}

/// The oldest restorable state.
struct Oldest {
    lsn: Lsn,
    /// The time of that state; `None`: the time at which the first batch that ends at or after `lsn` was
    /// closed.
    unix_ms: Option<u64>,
}

/// Verifies the whole log and returns the position of `target`.
pub(super) fn survey(
    source: &Place<'_>,
    known_until_ms: Option<u64>,
    target: Target,
    report: Report<'_>,
) -> Result<Lsn, RestoreError> {
    let mut reader = LogReader::open(source.disk.clone(), source.dir, Access::Read)?;
    let oldest = oldest(source, reader.control())?;
    let (log_start, segments_end) = (reader.position(), reader.segments_end());
    let mut until = oldest.lsn;
    let (mut first_ms, mut last_ms) = (oldest.unix_ms, oldest.unix_ms.max(known_until_ms).unwrap_or(0));
    let last_lsn = loop {
        match reader.next_batch()? {
            Ok(Batch { end, closed_at_ms, .. }) => {
                if end >= oldest.lsn {
                    first_ms.get_or_insert(closed_at_ms);
                }
                last_ms = last_ms.max(closed_at_ms);
                if matches!(target, Target::Time(unix_ms) if closed_at_ms <= unix_ms) {
                    until = until.max(end);
                }
                report(Stage::Verifying, end.bytes_since(log_start), segments_end.bytes_since(log_start));
            }
            Err(tail) => break tail.end,
        }
    };
    let range = Range { first_lsn: oldest.lsn, first_ms: first_ms.unwrap_or(last_ms), last_lsn, last_ms };
    let (is_early, is_late) = match target {
        Target::End => (false, false),
        Target::Lsn(lsn) => (lsn < range.first_lsn, lsn > range.last_lsn),
        Target::Time(unix_ms) => (unix_ms < range.first_ms, unix_ms > range.last_ms),
    };
    let refused = |hint| RestoreError::OutOfRange { target, dir: source.dir.to_path_buf(), range, hint };
    match target {
        _ if is_early => Err(refused("; earlier states need an older backup")),
        _ if is_late => Err(refused("; without a target, all of it is restored")),
        Target::Lsn(lsn) => Ok(lsn),
        Target::Time(_) => Ok(until),
        Target::End => Ok(last_lsn),
    }
}

fn oldest(source: &Place<'_>, control: &Control) -> Result<Oldest, storage::Error> {
    if !control.needs_snapshot {
        let was_cut = control.log_start > Lsn::ZERO;
        let lsn = if was_cut { first_flush(source)? } else { control.log_start };
        return Ok(Oldest { lsn, unix_ms: None });
    }
    let snapshots = snapshot::list(&*source.disk, source.dir)?.into_iter();
    let usable =
        snapshots.filter(|info| info.log_id == control.log_id && info.begin_lsn >= control.log_start);
    match usable.min_by_key(|info| info.end_lsn) {
        Some(info) => {
            // A snapshot taken while nothing was written is the state at its creation time, even if later
            // batches have earlier times because the clock was set back.
            let unix_ms = (info.begin_lsn == info.end_lsn).then_some(info.created_unix_ms);
            Ok(Oldest { lsn: info.end_lsn, unix_ms })
        }
        None => Err(snapshot::missing(source.dir, control.log_start)),
    }
}

/// The outcome of the search for a FLUSHALL.
enum Search {
    Found(Lsn),
    Failed(storage::Error),
}

impl From<storage::Error> for Search {
    fn from(error: storage::Error) -> Self {
        Search::Failed(error)
    }
}

/// The end of the first record that removes all keys; the end of the log if there is none. A log that has
/// forgotten its beginning and needs no snapshot has forgotten it because of a FLUSHALL. This record is near
/// the start of the log, and makes the changes by the records before it void.
fn first_flush(source: &Place<'_>) -> Result<Lsn, storage::Error> {
    let mut recovery = Recovery::open_to_read(source.disk.clone(), source.dir)?;
    let search = |lsn, mut payload: &[u8]| {
        while let Ok(Some(effect)) = Effect::decode_next(&mut payload) {
            if effect == Effect::Global(GlobalOp::FlushAll) {
                return Err(Search::Found(lsn));
            }
        }
        Ok(())
    };
    match recovery.replay(search, |_| {}) {
        Err(Search::Found(lsn)) => Ok(lsn),
        Err(Search::Failed(error)) => Err(error),
        Ok(()) => Ok(recovery.reached().lsn),
    }
}
