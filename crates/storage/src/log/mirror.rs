//! Mirrors: logs whose batches were closed by another server and come here whole, byte for byte, at the same positions.
//!
//! ```text
//! Recovery::finish_as_mirror -> Log -> mirror -> append(whole batches)*  --ring--> the flusher writes what has come, in one write
//!                                   -> promote: from now on it is a log as any other, in a higher epoch
//! ```
//!
//! What it is not: the transport. It is handed bytes and trusts none: every record, number, position and epoch is checked.
//!
//! Invariants
//! - The log of a mirror is a prefix of that of its source: same bytes, same positions. Nobody else appends. Each batch continues the
//!   chain of what is here ([`footer`](super::footer)), so a source with another history is noticed at its first batch.
//! - Batches that were durable one after the other at their source are written here in runs of at most [`RUN_BYTES_MAX`] (the
//!   ring), so what their footers call durable may have been part of the same, interrupted write. A footer of a mirrored epoch
//!   therefore vouches only for what lies that much before its end (`Footer::vouches_for`). Where this server does not sync
//!   every write, it syncs before it writes footers that vouch for more than it has synced.
//! - The epoch of a promoted mirror is higher than any it has seen, on disk before it appends, and higher than any that its
//!   source comes to by starting again: a promotion takes a large step ([`PROMOTION_STEP`]), a start a small one. Two mirrors that
//!   are promoted from the same source take the same epoch: their reigns and their chains tell them apart.

#![allow(unsafe_code)]

use std::{path::Path, sync::Arc};

use env::Clock;
use lsn::Lsn;

use super::{
    Log,
    appender::Appender,
    footer::{Footer, Predecessor},
    recovery::Recovery,
    walk::{BatchWalk, Walked},
};
use crate::{Control, Error, LogStats, control::MIRRORING, sync::Ordering};

/// The largest run of mirrored batches in one write: the largest ring.
pub(crate) const RUN_BYTES_MAX: u64 = 4 << 20;

/// Epochs of promotions are multiples of this: the starts of one leader fill the space between two of them.
const PROMOTION_STEP: u32 = 1 << 16;

/// Why batches are not taken.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// They are not what follows.
    #[error("the bytes at lsn {position} do not continue the log: {reason}")]
    Invalid {
        /// The first byte that is wrong.
        position: Lsn,
        /// What is wrong.
        reason: String,
    },
    /// A batch that does not fit: its source has a larger ring.
    #[error("a batch of {bytes} bytes does not fit the ring")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] Error),
}

/// The right to append batches of another server, for one thread.
pub struct Mirror {
    appender: Appender,
    /// What the next batch has to continue.
    before: Predecessor,
    reign_step: u64,
}

impl Recovery {
    /// As [`Recovery::finish`], but opens the log as a mirror, to be continued by [`Mirror::append`] in the epochs of its source.
    ///
    /// # Errors
    /// As [`Recovery::finish`].
    ///
    /// # Panics
    /// As [`Recovery::finish`], and if the ring is larger than what a mirror may write at once.
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

/// The epoch in which a mirror begins to lead that has seen this one: behind all that its source comes to by starting again.
pub(super) fn promoted_epoch(seen: u32) -> u32 {
    (seen / PROMOTION_STEP + 1).saturating_mul(PROMOTION_STEP)
}

/// Whether there is an epoch behind `seen`: the control file has room for those below [`MIRRORING`].
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
    /// Where the next batch must start.
    pub fn position(&self) -> Lsn {
        self.appender.appended_lsn()
    }

    /// Takes whole batches from the front of `bytes`, which start at [`Mirror::position`]; how many bytes. Less than all if the
    /// ring has no room for more at the moment: flushing makes it. A batch of an epoch above `epoch_max` is refused: an epoch is
    /// believed for ever, and behind the last one there is none for whoever is promoted.
    ///
    /// # Errors
    /// See [`MirrorError`]. What came before the wrong batch was taken.
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

    /// Copies a verified batch into the ring. `false`: there is no room.
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
        // SAFETY: the reservation [start, start + len) belongs to this appender alone until it publishes, and is at most the
        // ring, which is mapped twice in a row.
        unsafe { shared.ring.slice_mut(start, batch.len()) }.copy_from_slice(batch);
        self.before = Predecessor::from(footer);
        shared.reign.store(footer.reign(), Ordering::SeqCst);
        shared.epoch.fetch_max(footer.epoch, Ordering::SeqCst);
        shared.mirror_vouched.fetch_max(footer.vouches_for(MIRRORING).get(), Ordering::SeqCst);
        shared.sequencer.publish(index);
        Ok(true)
    }

    /// Ends the mirroring: makes durable what has come, and opens the log for appending in a higher epoch than any that was
    /// seen. Returns that epoch. Blocks.
    ///
    /// # Errors
    /// I/O errors. If the control file could not be replaced, it is still a mirror.
    pub fn promote(&self) -> Result<u32, Error> {
        let log = self.appender.log();
        let shared = &*log.shared;
        log.make_durable(self.position())?;
        let mut flusher = shared.flusher.lock();
        let mut control = shared.control.lock();
        let seen = shared.epoch.load(Ordering::SeqCst).max(control.epoch);
        let epoch = promoted_epoch(seen);
        require_left(epoch, seen, &shared.dir)?;
        let promoted = Control { epoch, mirrored_epoch: seen, clean_end: None, ..*control };
        promoted.store(&*shared.disk, &shared.dir)?;
        *control = promoted;
        flusher.continue_behind(self.before);
        let reign = self.before.reign.saturating_add(self.reign_step);
        shared.reign.store(reign, Ordering::SeqCst);
        shared.epoch.store(promoted.epoch, Ordering::SeqCst);
        shared.mirroring.store(false, Ordering::SeqCst);
        Ok(promoted.epoch)
    }
}

impl Log {
    /// Whether its batches come from another server.
    pub fn is_mirror(&self) -> bool {
        self.shared.mirroring.load(Ordering::SeqCst)
    }

    /// Remembers, durably, that `epoch` exists: a later one of this server is higher.
    ///
    /// # Errors
    /// I/O errors.
    pub fn note_epoch(&self, epoch: u32) -> Result<(), Error> {
        let mut control = self.shared.control.lock();
        if epoch <= control.epoch {
            return Ok(());
        }
        let noted = Control { epoch, ..*control };
        noted.store(&*self.shared.disk, &self.shared.dir)?;
        *control = noted;
        Ok(())
    }

    /// Remembers, durably, that the next start of this server is to lead although another has begun `epoch`: in the one that a
    /// promotion there would begin.
    ///
    /// # Errors
    /// As [`Log::note_epoch`].
    pub fn outbid_epoch(&self, epoch: u32) -> Result<(), Error> {
        self.note_epoch((epoch / PROMOTION_STEP).saturating_add(1).saturating_mul(PROMOTION_STEP) - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
