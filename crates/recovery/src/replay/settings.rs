//! The replay of settings of the data, and of nothing else: for a server that keeps the log and no memory.
//!
//! Among these settings is the list of a group's members. Records that were split into parts are passed over.
//!
//! Invariants
//! - Nothing but settings comes into memory, whatever the log holds.

use keyspace::{AccessClock, Effect, Freed, Item, Keyspace, LIBRARIES_SLOT};
use storage::{Record, RecordKind, Recovery};

use super::decode;
use crate::{error::RecoverError, progress::LoadProgress};

/// Applies the settings in a record.
///
/// # Errors
/// If the record cannot be decoded.
pub(super) fn apply_settings(keyspace: &Keyspace, record: &Record<'_>) -> Result<(), RecoverError> {
    if record.kind != RecordKind::Whole {
        return Ok(());
    }
    let mut rest = record.payload;
    while let Some(item) = decode(&mut rest, record.lsn)? {
        if let Item::Effect(effect @ Effect::Setting { .. }) = item {
            let mut slot = keyspace.lock(LIBRARIES_SLOT);
            slot.apply(&effect, AccessClock::default(), &mut Freed::new());
            slot.set_last_lsn(record.lsn);
        }
    }
    Ok(())
}

/// Replays the settings of a whole log.
///
/// # Errors
/// As [`Recovery::next_batch`], and if a record cannot be decoded.
pub(crate) fn replay_settings(
    recovery: &mut Recovery,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    progress.begin(0, recovery.start(), recovery.end_estimate());
    while let Some(batch) = recovery.next_batch()? {
        for record in batch.records() {
            apply_settings(keyspace, &record)?;
        }
        progress.reached(batch.end);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
