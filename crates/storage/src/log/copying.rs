//! What a copy of a running server's directory consists of: a snapshot, the log from where it begins up to a durable
//! position, and a control file that vouches for exactly that.
//!
//! ```text
//! snapshots/snap-*.part .. snapshots/snap-*.manifest .. log-*.seg .. control          the order in which they are copied
//! ```
//!
//! What it is not: the copying. It names files and lengths; whoever reads them reads durable bytes, which never change.
//!
//! Invariants
//! - While the plan lives, its files stay what they are: the log and the snapshot are pinned.
//! - The copy is a whole data directory once its control file is there, and nothing that recovers before.

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
    /// Its path below the data directory.
    pub name: String,
    /// How much of it belongs to the copy: all but the last segment of the log is copied whole.
    pub bytes: u64,
}

/// See the module documentation.
pub struct CopyPlan {
    /// Where the snapshot and the copied log begin.
    pub begin_lsn: Lsn,
    /// Where the copied log ends: everything acknowledged before the plan was made lies before.
    pub end_lsn: Lsn,
    /// What is copied from the directory, in this order.
    pub files: Vec<CopiedFile>,
    /// The control file of the copy, which comes last; it is not that of the server.
    pub control: Vec<u8>,
    /// Keeps the files.
    pub pin: Pin,
}

impl CopyPlan {
    /// The name of the control file.
    pub const CONTROL_NAME: &'static str = Control::FILE_NAME;
}

impl Log {
    /// Plans a copy that starts with the snapshot of `begin_lsn`. `None` if there is no such snapshot, any more. Makes
    /// durable what was appended so far: blocks. `has_documents`: files of documents are copied as well, and belong to it.
    ///
    /// # Errors
    /// I/O errors, also of the log; a damaged manifest.
    pub fn plan_copy(&self, begin_lsn: Lsn, has_documents: bool) -> Result<Option<CopyPlan>, Error> {
        let Some(pin) = self.pin(begin_lsn) else { return Ok(None) };
        let (disk, dir) = (&*self.shared.disk, &*self.shared.dir);
        let info = match snapshot::load(disk, dir, begin_lsn) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        self.make_durable(self.appended_lsn())?;
        if self.durable_lsn() == begin_lsn && !self.is_mirror() {
            // The end of its last batch is what a copy that becomes a replica is known by.
            self.mark_epoch()?;
        }
        let end_lsn = self.durable_lsn();
        let snapshots = snapshot::directory(dir);
        let below_dir = snapshots.strip_prefix(dir).unwrap_or(&snapshots);
        let mut files = Vec::new();
        for name in info.file_names() {
            let path = snapshots.join(&name);
            let file = disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
            let bytes = file.len().map_err(Error::io("measure", &path))?;
            files.push(CopiedFile { name: below_dir.join(name).to_string_lossy().into_owned(), bytes });
        }
        let old = *self.shared.control.lock();
        let mut start = begin_lsn.align_down(old.segment_bytes);
        while start < end_lsn || start <= begin_lsn {
            let log_bytes = end_lsn.bytes_since(start).min(old.segment_bytes);
            files.push(CopiedFile {
                name: segment::file_name(start),
                bytes: SEGMENT_HEADER_BYTES + log_bytes,
            });
            start = start.advance(old.segment_bytes);
        }
        let start = self.shared.start_at(begin_lsn)?;
        let control = Control {
            log_start: begin_lsn,
            clean_end: Some(end_lsn),
            needs_snapshot: true,
            start,
            has_documents,
            ..old
        };
        Ok(Some(CopyPlan { begin_lsn, end_lsn, files, control: control.encode().to_vec(), pin }))
    }
}
