//! Plans a copy of a running server's directory. The copy has a snapshot, the log from the beginning of the
//! snapshot up to a durable position, and a control file that vouches for exactly these. A server that keeps
//! no state copies the log alone.
//!
//! ```text
//! snapshots/snap-*.part .. snapshots/snap-*.manifest .. log-*.seg .. control      (in the order of copying)
//! ```
//!
//! The caller does the copying. The plan names files and lengths; all bytes within these lengths are durable
//! and never change.
//!
//! Invariants
//! - The log and the snapshot are pinned while the plan lives.
//! - The copy is a complete data directory, apart from files of documents, once its control file is written.
//!   Before that, no server recovers from it.

use std::io;

use env::Access;
use lsn::Lsn;

use super::{
    Log, Pin,
    segment::{self, SEGMENT_HEADER_BYTES},
};
use crate::{Control, Error, snapshot};

/// A file of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its path relative to the data directory.
    pub name: String,
    /// Number of bytes that belong to the copy: the whole file, except for the last segment of the log.
    pub bytes: u64,
}

/// The plan of a copy of the data directory. Dropping it releases the pin on its files.
pub struct CopyPlan {
    /// The beginning of the copied log, and of the snapshot if there is one.
    pub begin_lsn: Lsn,
    /// The end of the copied log: everything acknowledged before the plan was made lies before it.
    pub end_lsn: Lsn,
    /// The files to copy from the directory, in this order.
    pub files: Vec<CopiedFile>,
    /// The control file of the copy, to be written last. It differs from the control file of the server.
    pub control: Vec<u8>,
    /// Keeps the files from being removed.
    pub pin: Pin,
}

impl CopyPlan {
    /// The name of the control file.
    pub const CONTROL_NAME: &'static str = Control::FILE_NAME;
}

impl Log {
    /// Plans a copy that starts with the snapshot of `begin_lsn`. `None` if that snapshot does not exist, or
    /// the log from there on is forgotten. Makes everything appended so far durable, so it blocks.
    /// `has_documents`: the copy will include files of documents, without which it is incomplete.
    ///
    /// # Errors
    /// If the log cannot be made durable or read, or the snapshot cannot be read.
    pub fn plan_copy(&self, begin_lsn: Lsn, has_documents: bool) -> Result<Option<CopyPlan>, Error> {
        let Some(pin) = self.pin(begin_lsn) else { return Ok(None) };
        let (disk, dir) = (&*self.shared.disk, &*self.shared.dir);
        let info = match snapshot::load(disk, dir, begin_lsn) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let snapshots = snapshot::directory(dir);
        let below_dir = snapshots.strip_prefix(dir).unwrap_or(&snapshots);
        let mut files = Vec::new();
        for name in info.file_names() {
            let path = snapshots.join(&name);
            let file = disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
            let bytes = file.len().map_err(Error::io("measure", &path))?;
            files.push(CopiedFile { name: below_dir.join(name).to_string_lossy().into_owned(), bytes });
        }
        let changed = |control| Control { needs_snapshot: true, has_documents, ..control };
        self.plan_from(begin_lsn, files, changed, pin).map(Some)
    }

    /// Plans a copy of the log alone, as far back as it is kept. As [`Log::plan_copy`], it blocks.
    ///
    /// # Errors
    /// If the log cannot be made durable or read.
    pub fn plan_copy_of_log(&self) -> Result<CopyPlan, Error> {
        loop {
            let begin_lsn = self.start_lsn();
            // Without a pin, this start was forgotten meanwhile: the loop tries again from the new start.
            if let Some(pin) = self.pin(begin_lsn) {
                return self.plan_from(begin_lsn, Vec::new(), |control| control, pin);
            }
        }
    }

    /// The plan of copying `files`, and then the log from `begin_lsn` on. `changed` makes the control file of
    /// the copy from the control file of the server, except for the beginning and the end of the log and the
    /// note of settings.
    fn plan_from(
        &self,
        begin_lsn: Lsn,
        mut files: Vec<CopiedFile>,
        changed: impl FnOnce(Control) -> Control,
        pin: Pin,
    ) -> Result<CopyPlan, Error> {
        self.make_durable(self.appended_lsn())?;
        if self.durable_lsn() == begin_lsn && !self.is_mirror() {
            // A copy that becomes a replica is identified by its last batch, so the copied log needs at least
            // one batch.
            self.mark_epoch()?;
        }
        let (end_lsn, own) = (self.durable_lsn(), *self.shared.control.lock());
        let segment_bytes = own.segment_bytes;
        let mut start = begin_lsn.align_down(segment_bytes);
        while start < end_lsn || start <= begin_lsn {
            let log_bytes = end_lsn.bytes_since(start).min(segment_bytes);
            files.push(CopiedFile {
                name: segment::file_name(start),
                bytes: SEGMENT_HEADER_BYTES + log_bytes,
            });
            start = start.advance(segment_bytes);
        }
        let start = self.shared.start_at(begin_lsn)?;
        let control = Control {
            log_start: begin_lsn,
            clean_end: Some(end_lsn),
            start,
            // Settings of this server are not copied.
            has_settings: false,
            ..changed(own)
        };
        Ok(CopyPlan { begin_lsn, end_lsn, files, control: control.encode().to_vec(), pin })
    }
}
