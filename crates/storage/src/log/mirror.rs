//! Mirrors: logs whose batches were closed by another server and are copied here whole, byte for byte, at the
//! same positions.
//!
//! ```text
//! Recovery::finish_as_mirror -> Log -> mirror -> append(whole batches)*  --ring--> the flusher writes runs
//!                                   -> promote: from now on an ordinary log, in a higher epoch
//!                                   -> resume: a mirror again, if all of the log is known to its next source
//! ```
//!
//! The transport is elsewhere. The bytes it delivers are not trusted: every record, number, position and
//! epoch is checked.
//!
//! Invariants
//! - The log of a mirror is a prefix of that of its source: same bytes, same positions. Only the [`Mirror`]
//!   appends to it; appenders from a time as a leader are idle when the log becomes a mirror again. Each
//!   batch must continue the chain of the log here ([`footer`](super::footer)), so a source with another
//!   history is detected at its first batch.
//! - Batches that became durable one after the other at their source are written here in runs of at most
//!   [`RUN_BYTES_MAX`] (the ring). On this disk, bytes that a footer calls durable may therefore have been
//!   part of the same, interrupted write as the footer. So a footer of a mirrored epoch vouches only for
//!   positions that are at least [`RUN_BYTES_MAX`] before its end (`Footer::vouches_for`). If this server
//!   does not sync every write, it syncs before it writes footers that vouch for more than it has synced.
//! - The epoch of a promoted mirror is durable before the first append, and higher than every epoch that the
//!   mirror has seen. An epoch that is not given by the votes of a group is also higher than the epochs that
//!   the source reaches by restarting, unless it starts tens of thousands of times in one reign: a promotion
//!   takes a large step ([`PROMOTION_STEP`]), a start a small one. Two mirrors promoted from the same source
//!   can get the same epoch: their reigns and chains distinguish them.

#![allow(unsafe_code)]

use std::{path::Path, sync::Arc};

use env::{Clock, Disk};
use lsn::Lsn;

use super::{
    Log,
    appender::Appender,
    control::{Control, MIRRORING},
    footer::{Footer, Predecessor},
    recovery::Recovery,
    walk::{BatchWalk, Walked},
};
use crate::{Error, LogStats, sync::Ordering};

/// The largest run of mirrored batches in one write, which is the largest ring of a mirror.
pub(crate) const RUN_BYTES_MAX: u64 = 4 << 20;

/// Epochs of promotions outside groups are multiples of this; the starts of one leader use the epochs between
/// two multiples.
const PROMOTION_STEP: u32 = 1 << 16;

/// Why batches are not appended.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The batches do not continue the log.
    #[error("the bytes at lsn {position} do not continue the log: {reason}")]
    Invalid {
        /// The start of the record or batch that does not continue the log.
        position: Lsn,
        /// The reason.
        reason: String,
    },
    /// A batch does not fit the ring, because its source has a larger ring.
    #[error("a batch of {bytes} bytes does not fit the ring")]
    TooLarge {
        /// The size of the batch.
        bytes: usize,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] Error),
}

/// The right to append batches of another server; for one thread.
pub struct Mirror {
    appender: Appender,
    /// The predecessor of the next batch.
    before: Predecessor,
    reign_step: u64,
}

impl Recovery {
    /// Does the same as [`Recovery::finish`], but opens the log as a mirror. The mirror is continued with
    /// [`Mirror::append`], in the epochs of its source.
    ///
    /// # Errors
    /// As [`Recovery::finish`].
    ///
    /// # Panics
    /// As [`Recovery::finish`], and if the ring is larger than `RUN_BYTES_MAX`, 4 MiB.
    pub fn finish_as_mirror(self, clock: Arc<dyn Clock>) -> Result<(Log, Mirror), Error> {
        assert!(self.options.ring_bytes <= RUN_BYTES_MAX);
        let old = self.reader.control();
        let (before, reign_step) = (self.reader.before(), self.reign_step);
        let epoch = old.epoch.max(before.epoch);
        let control = Control { epoch, mirrored_epoch: MIRRORING, clean_end: None, ..*old };
        let log = self.open_behind_end(control, before.reign, clock)?;
        let appender = log.appender();
        Ok((log, Mirror { appender, before, reign_step }))
    }
}

/// The epoch of a mirror that is promoted after it has seen the epoch `seen`: the next multiple of
/// [`PROMOTION_STEP`].
pub(super) fn promoted_epoch(seen: u32) -> u32 {
    (seen / PROMOTION_STEP + 1).saturating_mul(PROMOTION_STEP)
}

/// Fails if `epoch`, the next epoch after `seen`, does not fit the control file, which has room for epochs
/// below [`MIRRORING`].
pub(super) fn require_left(epoch: u32, seen: u32, dir: &Path) -> Result<(), Error> {
    if epoch < MIRRORING {
        return Ok(());
    }
    let reason = format!(
        "no epoch is left behind {seen}: restore the state into a new directory with `sheaf restore`"
    );
    Err(Error::Inconsistent { path: Control::path(dir), reason })
}

impl Mirror {
    /// The position at which the next batch must start.
    pub fn position(&self) -> Lsn {
        self.appender.appended_lsn()
    }

    /// Makes segments, on this thread, until `bytes` more can be written. Returns false if one cannot be
    /// made, usually because the disk is full. A caller that appends the bytes nevertheless may be unable to
    /// close the log.
    pub fn make_room_for(&self, bytes: u64) -> bool {
        let (shared, _) = self.appender.parts();
        shared.make_segments_to(self.position().get() + bytes)
    }

    /// Appends whole batches from the front of `bytes`, which start at [`Mirror::position`]; returns the
    /// number of bytes appended. If the ring is full at the moment, these are fewer than all; flushing makes
    /// room. A batch with an epoch above `epoch_max` is refused: an accepted epoch is permanent, and after
    /// the last possible epoch no promotion could follow.
    ///
    /// # Errors
    /// See [`MirrorError`]. The batches before the wrong one were appended.
    pub fn append(&mut self, bytes: &[u8], epoch_max: u32) -> Result<usize, MirrorError> {
        let mut taken = 0;
        while taken < bytes.len() {
            let position = self.position();
            let mut walk = BatchWalk::new(position, self.before);
            let batch = &bytes[taken..];
            let (batch_bytes, footer) = match walk.resume(batch) {
                Walked::Whole(batch_bytes, footer) => (batch_bytes, footer),
                Walked::Short(_) => {
                    let reason = "a batch is cut short".into();
                    return Err(MirrorError::Invalid { position: walk.position(), reason });
                }
                Walked::Invalid(stop) => {
                    return Err(MirrorError::Invalid { position: stop.position, reason: stop.reason });
                }
            };
            if footer.epoch > epoch_max {
                let reason =
                    format!("a batch of epoch {}, epoch {epoch_max} is the last that can be", footer.epoch);
                return Err(MirrorError::Invalid { position, reason });
            }
            if footer.closed_at_ms < self.before.closed_at_ms {
                let reason = "a batch that was closed before the one before it".into();
                return Err(MirrorError::Invalid { position, reason });
            }
            if !self.copy(&batch[..batch_bytes], &footer)? {
                break;
            }
            let stats = self.appender.log();
            LogStats::add(&stats.stats().records, walk.records());
            taken += batch_bytes;
        }
        Ok(taken)
    }

    /// Copies a verified batch into the ring. `false` if the ring has no room.
    fn copy(&mut self, batch: &[u8], footer: &Footer) -> Result<bool, MirrorError> {
        let (shared, index) = self.appender.parts();
        if shared.poisoned.load(Ordering::SeqCst) {
            let reason = shared.poison_reason.lock().clone().unwrap_or_default();
            return Err(Error::Poisoned { reason }.into());
        }
        if batch.len() as u64 > shared.options.ring_bytes {
            return Err(MirrorError::TooLarge { bytes: batch.len() });
        }
        let Some(start) = shared.sequencer.reserve_closed(index, batch.len() as u64) else {
            return Ok(false);
        };
        assert_eq!(footer.start.get(), start, "nobody else appends to a mirror");
        // SAFETY: the reservation [start, start + len) belongs to this appender alone until it publishes, and
        // is at most as long as the ring, which is mapped twice in a row.
        unsafe { shared.ring.slice_mut(start, batch.len()) }.copy_from_slice(batch);
        self.before = Predecessor::from(footer);
        shared.reign.store(footer.reign(), Ordering::SeqCst);
        shared.epoch.fetch_max(footer.epoch, Ordering::SeqCst);
        shared.mirror_vouched.fetch_max(footer.vouches_for(MIRRORING).get(), Ordering::SeqCst);
        shared.sequencer.publish(index);
        Ok(true)
    }

    /// Ends the mirroring: makes everything appended durable, and opens the log for appending in an epoch
    /// above all that were seen. Returns the new epoch. Blocks.
    ///
    /// # Errors
    /// If the log cannot be made durable, the control file cannot be written, or no epoch is left
    /// ([`Error::Inconsistent`]). The log is then still a mirror.
    pub fn promote(&self) -> Result<u32, Error> {
        self.begin_epoch(promoted_epoch)
    }

    /// Does the same as [`Mirror::promote`], in an epoch that the votes of a group have given to this server.
    ///
    /// # Errors
    /// As [`Mirror::promote`]; [`Error::Inconsistent`] if the epoch is not higher than every epoch seen.
    pub fn promote_in(&self, epoch: u32) -> Result<(), Error> {
        self.begin_epoch(|_| epoch).map(drop)
    }

    fn begin_epoch(&self, epoch_after: impl Fn(u32) -> u32) -> Result<u32, Error> {
        let log = self.appender.log();
        let shared = &*log.shared;
        log.make_durable(self.position())?;
        let mut flusher = shared.flusher.lock();
        let mut control = shared.control.lock();
        let seen = shared.epoch.load(Ordering::SeqCst).max(control.epoch);
        let epoch = epoch_after(seen);
        require_left(epoch, seen, &shared.dir)?;
        if epoch <= seen {
            let reason = format!("epoch {epoch} is to begin, but epoch {seen} has begun already");
            return Err(Error::Inconsistent { path: Control::path(&shared.dir), reason });
        }
        let promoted = Control { epoch, mirrored_epoch: seen, clean_end: None, ..*control };
        shared.replace_control(&mut control, promoted)?;
        flusher.continue_behind(self.before);
        let reign = self.before.reign.saturating_add(self.reign_step);
        shared.reign.store(reign, Ordering::SeqCst);
        shared.epoch.store(promoted.epoch, Ordering::SeqCst);
        shared.mirroring.store(false, Ordering::SeqCst);
        Ok(promoted.epoch)
    }
}

impl Mirror {
    /// After a promotion: mirrors again, from `end` on, durably. The caller vouches that the next source has
    /// the log up to there, and that nobody appends any more. Returns false, and changes nothing, if the log
    /// does not end there, is not durable up to there, is poisoned, or is a mirror already. Blocks.
    ///
    /// # Errors
    /// I/O errors. This log is then unchanged, but its control file may have been replaced.
    pub fn resume(&mut self, end: Lsn) -> Result<bool, Error> {
        let log = self.appender.log();
        let shared = &*log.shared;
        let mut flusher = shared.flusher.lock();
        // Under this lock no other thread closes a batch, which would move the end of the log.
        let ends_there = log.appended_lsn() == end && log.written_lsn() == end && log.durable_lsn() == end;
        if !ends_there || shared.poisoned.load(Ordering::SeqCst) || log.is_mirror() {
            return Ok(false);
        }
        let mut control = shared.control.lock();
        let epoch = shared.epoch.load(Ordering::SeqCst).max(control.epoch);
        let resumed = Control { epoch, mirrored_epoch: MIRRORING, clean_end: None, ..*control };
        shared.replace_control(&mut control, resumed)?;
        self.before = flusher.stop_closing();
        shared.mirroring.store(true, Ordering::SeqCst);
        Ok(true)
    }
}

impl Log {
    /// Whether the batches of this log come from another server.
    pub fn is_mirror(&self) -> bool {
        self.shared.mirroring.load(Ordering::SeqCst)
    }

    /// Notes in the control file, durably, that `epoch` exists: this server will begin only higher epochs.
    /// Does nothing if `epoch` is not higher than the one noted there. A frozen log writes the note when it
    /// is [adopted](Log::adopt).
    ///
    /// # Errors
    /// I/O errors; [`Error::Inconsistent`] if no log can have `epoch`.
    pub fn note_epoch(&self, epoch: u32) -> Result<(), Error> {
        let mut control = self.shared.control.lock();
        if epoch <= control.epoch {
            return Ok(());
        }
        require_left(epoch, control.epoch, &self.shared.dir)?;
        let noted = Control { epoch, ..*control };
        self.shared.replace_control(&mut control, noted)
    }

    /// Notes in the control file, durably, that the next start of this server is to lead although another
    /// server has begun `epoch`. That start will use the epoch that a promotion after `epoch` would begin, or
    /// a higher one.
    ///
    /// # Errors
    /// As [`Log::note_epoch`].
    pub fn outbid_epoch(&self, epoch: u32) -> Result<(), Error> {
        self.note_epoch(last_below_promotion(epoch))
    }
}

/// Does the same as [`Log::outbid_epoch`], for a directory that is not in use. Does nothing if the directory
/// has no log.
///
/// # Errors
/// I/O errors; a control file that is damaged or of another version; [`Error::Inconsistent`] if no epoch is
/// left.
pub fn outbid_epoch(disk: &dyn Disk, dir: &Path, epoch: u32) -> Result<(), Error> {
    match Control::load(disk, dir)? {
        Some(control) if control.epoch < last_below_promotion(epoch) => {
            require_left(last_below_promotion(epoch), control.epoch, dir)?;
            Control { epoch: last_below_promotion(epoch), ..control }.store(disk, dir)
        }
        _ => Ok(()),
    }
}

/// The last epoch before the one that a promotion after `epoch` would begin.
fn last_below_promotion(epoch: u32) -> u32 {
    promoted_epoch(epoch) - 1
}

#[cfg(all(test, not(loom)))]
mod tests;
