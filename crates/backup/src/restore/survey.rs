//! Which positions and times a source can be restored to, and which position a target is.

use env::Access;
use keyspace::{Effect, GlobalOp};
use lsn::Lsn;
use recovery::{
    offline::{Place, Report, Stage},
    unix_time,
};
use storage::{Batch, Control, LogReader, Recovery, snapshot};

use super::{RestoreError, Target};

/// What a source holds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first position: that of the oldest snapshot's end, of a FLUSHALL that the log was cut for, or the beginning of a log
    /// that was never cut.
    pub first_lsn: Lsn,
    /// The first time that is known to be behind it.
    pub first_ms: u64,
    /// The end of the log.
    pub last_lsn: Lsn,
    /// The last time of which the state is known.
    pub last_ms: u64,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Range { first_lsn, first_ms, last_lsn, last_ms } = self;
        let (first, last) = (unix_time::shown(*first_ms), unix_time::shown(*last_ms));
        write!(f, "lsn {first_lsn} ({first}) to lsn {last_lsn} ({last})")
    }
}

/// Where the oldest state is that can be restored.
struct Oldest {
    lsn: Lsn,
    /// When it was the state; `None` if a batch of the log says so.
    unix_ms: Option<u64>,
}

/// Verifies the whole log and returns the position that `target` is.
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
            // One that was taken while nothing was written is the state of its time, whatever the log says behind it.
            let unix_ms = (info.begin_lsn == info.end_lsn).then_some(info.created_unix_ms);
            Ok(Oldest { lsn: info.end_lsn, unix_ms })
        }
        None => Err(snapshot::missing(source.dir, control.log_start)),
    }
}

/// Why the search for a FLUSHALL has ended.
enum Search {
    Found(Lsn),
    Failed(storage::Error),
}

impl From<storage::Error> for Search {
    fn from(error: storage::Error) -> Self {
        Search::Failed(error)
    }
}

/// The first record that removes all keys. A log that was cut and needs no snapshot was cut for a FLUSHALL that comes a little
/// behind its beginning: what the records till then changed is gone.
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
