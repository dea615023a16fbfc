//! The log before a FLUSHALL: it is not needed once the FLUSHALL is durable and the documents before it are
//! saved.

use std::sync::Arc;

use engine::DocumentsCell;
use lsn::Lsn;
use parking_lot::Mutex;

use crate::{attached_log::AttachedLog, documents::Saver};

/// Cuts the log before the last FLUSHALL.
pub(crate) struct DeadLog {
    log: Arc<AttachedLog>,
    documents: Arc<DocumentsCell>,
    saver: Arc<Saver>,
    /// The position of the record of the last FLUSHALL, and the position at which the log may be cut once the
    /// record is durable and the documents before that position are saved.
    pending: Mutex<Option<(Lsn, Lsn)>>,
}

impl DeadLog {
    pub(crate) fn new(log: Arc<AttachedLog>, documents: Arc<DocumentsCell>, saver: Arc<Saver>) -> DeadLog {
        DeadLog { log, documents, saver, pending: Mutex::new(None) }
    }

    /// A FLUSHALL has reserved the position `record`; once it is durable, no key needs the log before
    /// `boundary`.
    pub(crate) fn flushing_all(&self, record: Lsn, boundary: Lsn) {
        *self.pending.lock() = Some((record, boundary));
    }

    /// Cuts the log before the last FLUSHALL, if that is durable and the documents before it are saved.
    /// Called once a second.
    pub(crate) fn cut(&self) {
        let Some(log) = self.log.get() else { return };
        let Some((record, boundary)) = *self.pending.lock() else { return };
        if log.durable_lsn() < record {
            return;
        }
        let saved_lsn = self.documents.get().and_then(|documents| documents.saved_lsn());
        if saved_lsn.is_some_and(|saved_lsn| saved_lsn < boundary) {
            // FLUSHALL is about keys: documents need the log until they are saved. The next call tries again.
            self.saver.ask();
            return;
        }
        // The lock is not held during the checks above: a FLUSHALL takes it while it holds the locks of all
        // slots.
        let mut pending = self.pending.lock();
        if *pending != Some((record, boundary)) {
            return;
        }
        *pending = None;
        drop(pending);
        match log.truncate_before(boundary) {
            Ok(true) => {}
            // That part of the log is pinned, for example by a backup; the next call tries again, unless
            // there is a newer FLUSHALL.
            Ok(false) => _ = self.pending.lock().get_or_insert((record, boundary)),
            Err(error) => {
                tracing::warn!(target: "server", %error, "cannot remove the log before the last FLUSHALL");
            }
        }
    }
}
