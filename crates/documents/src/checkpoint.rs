//! Checkpoints: writing the pending changes of a database to the end of its file, with one sync.
//!
//! ```text
//! freeze the fresh layer (gate held, O(1)) -> the log commits its last change -> blobs, rows, header, sync
//!   -> the layer is dropped
//! ```
//!
//! This module saves one database if that is due; [`crate::Documents::checkpoint`] calls it for all of them.
//! Durability does not depend on checkpoints: the log keeps all changes until the file has them.
//!
//! Invariants
//! - A file holds only changes that the log has committed, so it never has changes that the log lost in a
//!   crash.
//! - Writers continue while a layer is written; readers see the layer until the file has it.
//! - After an error, the layer stays in memory, and its changes in the log. After a failed write, the page
//!   cache of the file is dropped, and the file is opened again at its previous checkpoint. All bytes after
//!   that checkpoint are cut off, which frees space on a full disk. Nothing else is written to the file
//!   before these steps have succeeded.

use std::sync::Arc;

use lsn::Lsn;

use crate::catalog::Vouched;
use crate::database::Database;
use crate::database_file::{DatabaseFile, Shelf};
use crate::layer::Layer;
use crate::state::State;
use crate::store_error::StoreError;
use crate::unnamed::Unnamed;

/// A database with this many bytes in its fresh layer, as estimated, is saved.
pub const DIRTY_BYTES_MAX: u64 = 8 << 20;
/// A database whose file has lacked changes for this long is saved. The time counts from the first call that
/// has found such changes since the last save.
pub const DIRTY_AGE_MS_MAX: u64 = 10_000;
/// A database for which the log must keep this many bytes is saved.
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// The conditions of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The time in milliseconds, of any monotonic clock.
    pub now_ms: u64,
    /// A position that was taken before the call: at that time, all records up to it were applied or were
    /// being applied.
    pub upto: Lsn,
    /// Whether all databases are saved, even if none of the thresholds is reached.
    pub everything: bool,
}

impl Database {
    /// Saves the pending changes, if a threshold is reached or `due` asks for everything; if an earlier save
    /// failed, it saves only the layer of that save. Returns the newest checkpoint of the file, and the
    /// position up to which this database does not need the log: `due.upto`, or the position of the
    /// checkpoint if changes may remain unsaved.
    pub(crate) fn save_if_due(
        &self,
        shelf: &Shelf,
        unnamed: &Unnamed,
        due: &Due,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(Option<Vouched>, Lsn), StoreError> {
        let mut file = self.file.lock();
        // A writer whose change has a position up to `due.upto` holds the gate until the change is visible,
        // so this thread waits for the gate before it reads the state.
        drop(self.gate());
        let state = self.state();
        if !state.is_dirty() {
            file.dirty_since_ms = None;
            return Ok((file.vouched(), due.upto));
        }
        let since_ms = *file.dirty_since_ms.get_or_insert(due.now_ms);
        let is_due = due.everything
            || state.fresh.bytes >= DIRTY_BYTES_MAX
            || due.now_ms.saturating_sub(since_ms) >= DIRTY_AGE_MS_MAX
            || due.upto.get().saturating_sub(state.saved_lsn().get()) >= LOG_BYTES_MAX;
        if !is_due {
            return Ok((file.vouched(), state.saved_lsn()));
        }
        let is_retried = file.frozen.is_some();
        self.save(&mut file, shelf, unnamed, committed)?;
        file.dirty_since_ms = None;
        let saved_lsn = if is_retried { self.state().saved_lsn() } else { due.upto };
        Ok((file.vouched(), saved_lsn))
    }

    /// The newest checkpoint of the file, and the position up to which this database does not need the log.
    pub(crate) fn saved_state(&self) -> (Option<Vouched>, Lsn) {
        let file = self.file.lock();
        (file.vouched(), self.state().saved_lsn())
    }

    fn save(
        &self,
        file: &mut DatabaseFile,
        shelf: &Shelf,
        unnamed: &Unnamed,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(), StoreError> {
        // A frozen layer whose save has failed is saved before the fresh layer is frozen.
        let frozen = file.frozen.get_or_insert_with(|| self.freeze()).clone();
        if !committed(frozen.last_lsn) {
            return Err(StoreError::NotCommitted);
        }
        if file.is_suspect {
            file.go_back(shelf, self.id())?;
        }
        let saved = file.write(shelf, unnamed, &frozen).inspect_err(|_| {
            file.failures = file.failures.wrapping_add(1);
            file.is_suspect = true;
            // The bytes of the failed save are cut off at once, to free disk space. If this fails, too, they
            // are cut off before the next save.
            let _ = file.go_back(shelf, self.id());
        })?;
        let gate = self.gate();
        self.publish(State { frozen: None, tree: Some(saved), ..State::clone(&self.state()) });
        drop(gate);
        file.frozen = None;
        Ok(())
    }

    /// Begins a new fresh layer. Returns the state with the frozen layer that is to be saved.
    fn freeze(&self) -> Arc<State> {
        let gate = self.gate();
        let mut next = State::clone(&self.state());
        let fresh = std::mem::replace(&mut next.fresh, Layer::new(next.update_seq));
        next.frozen = Some(Arc::new(fresh));
        let frozen = Arc::new(next.clone());
        self.publish(next);
        drop(gate);
        frozen
    }
}
