//! Removes the log before a FLUSHALL. That part is not needed once the FLUSHALL is durable, and the changes
//! of documents in it are saved.

use std::sync::Arc;

use engine::DocumentsCell;
use lsn::Lsn;
use parking_lot::Mutex;
use storage::Log;

use crate::{attached_log::AttachedLog, documents::Saver};

/// Cuts the log before the last FLUSHALL.
pub(crate) struct DeadLog {
    log: Arc<AttachedLog>,
    documents: Arc<DocumentsCell>,
    saver: Arc<Saver>,
    pending: Pending,
}

/// The last FLUSHALL, until the log before it is cut.
#[derive(Default)]
struct Pending(Mutex<Option<Flushed>>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Flushed {
    /// The position of the record of the FLUSHALL.
    record: Lsn,
    /// The log may be cut here once the record is durable and the documents before this position are saved.
    boundary: Lsn,
    /// Whether an attempt to cut the log has failed.
    has_failed: bool,
}

impl DeadLog {
    pub(crate) fn new(log: Arc<AttachedLog>, documents: Arc<DocumentsCell>, saver: Arc<Saver>) -> DeadLog {
        DeadLog { log, documents, saver, pending: Pending::default() }
    }

    /// Notes a FLUSHALL, whose record has the position `record`. Once the record is durable, no key needs the
    /// log before `boundary`.
    pub(crate) fn flushing_all(&self, record: Lsn, boundary: Lsn) {
        *self.pending.0.lock() = Some(Flushed { record, boundary, has_failed: false });
    }

    /// Cuts the log before the last FLUSHALL, if the FLUSHALL is durable and the documents before it are
    /// saved. Called once a second.
    pub(crate) fn cut(&self) {
        let Some(log) = self.log.get() else { return };
        self.pending.cut(log, |boundary| {
            let saved_lsn = self.documents.get().and_then(|documents| documents.saved_lsn());
            let is_saved = saved_lsn.is_none_or(|saved_lsn| saved_lsn >= boundary);
            if !is_saved {
                // FLUSHALL removes keys, not documents: unsaved documents still need the log. The next call
                // tries again.
                self.saver.ask();
            }
            is_saved
        });
    }
}

impl Pending {
    /// Cuts the log before the last FLUSHALL, if the FLUSHALL is durable and `is_free` returns true.
    /// `is_free` gets a position and says whether nothing else needs the log before it.
    fn cut(&self, log: &Log, is_free: impl FnOnce(Lsn) -> bool) {
        let Some(flushed) = *self.0.lock() else { return };
        if log.durable_lsn() < flushed.record || !is_free(flushed.boundary) {
            return;
        }
        // The lock is free during the checks above, because a FLUSHALL takes it while it holds the locks of
        // all slots.
        let mut pending = self.0.lock();
        if *pending != Some(flushed) {
            return;
        }
        *pending = None;
        drop(pending);
        let has_failed = match log.truncate_before(flushed.boundary) {
            Ok(true) => return,
            // That part of the log is pinned, for example by a backup.
            Ok(false) => flushed.has_failed,
            Err(error) => {
                if !flushed.has_failed {
                    tracing::warn!(
                        target: "server", %error,
                        "cannot remove the log before the last FLUSHALL; it is tried again every second"
                    );
                }
                true
            }
        };
        // The next call tries again, unless there is a newer FLUSHALL.
        self.0.lock().get_or_insert(Flushed { has_failed, ..flushed });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use env::{
        SimClock, SimDisk, SimEntropy,
        sim::{FaultKind, FaultPlan, SimDiskOptions},
    };
    use storage::{LogOptions, Recovery};

    use super::*;

    #[test]
    fn a_log_that_could_not_be_cut_is_cut_later() {
        let disk = SimDisk::new(SimDiskOptions::default());
        let options = LogOptions { segment_bytes: 256 << 10, ..LogOptions::default() }.fitting();
        let recovery = Recovery::open(disk.clone(), Path::new("/data"), options, &SimEntropy::new(1));
        let mut recovery = recovery.expect("a sound disk");
        while recovery.next_batch().expect("a sound disk").is_some() {}
        let log = recovery.finish(Arc::new(SimClock::new(0))).expect("a sound disk");
        let append = || {
            log.appender().reserve_marked(b"record", false).expect("room").publish();
            log.flush_all().expect("a sound disk");
            log.durable_lsn()
        };
        let boundary = append();
        let pending = Pending(Mutex::new(Some(Flushed { record: append(), boundary, has_failed: false })));
        let start = log.start_lsn();
        pending.cut(&log, |_| false);
        assert_eq!(log.start_lsn(), start, "documents need it");
        disk.set_fault_plan(FaultPlan {
            fail_io: Some((disk.io_count(), FaultKind::Enospc)),
            ..Default::default()
        });
        pending.cut(&log, |_| true);
        assert_eq!(log.start_lsn(), start, "there was no room for the control file");
        pending.cut(&log, |_| true);
        assert_eq!(log.start_lsn(), boundary);
        assert!(pending.0.lock().is_none());
    }
}
