//! What a copy of a running server's directory has of documents: beginnings of tree files, and the catalog as it is in memory.
//!
//! Invariants
//! - The copy is made before that of the log is planned: the log that is copied reaches at least as far as the files.

use std::{path::Path, sync::Arc};

use documents::{StoreError, directory};
use env::File;
use lsn::Lsn;

use engine::DocumentsCell;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct DocumentsCopy {
    /// The beginnings of files.
    pub(crate) trees: Vec<CopiedTree>,
    /// The catalog: its name below the data directory and its bytes; `None` if nothing was saved yet, or there is nothing.
    pub(crate) catalog: Option<(String, Vec<u8>)>,
    /// The log behind this position belongs to the copy; `None`: all that there is.
    pub(crate) saved_lsn: Option<Lsn>,
}

/// The beginning of a file that never changes.
pub(crate) struct CopiedTree {
    /// Its name below the data directory.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Stays readable when the file is replaced or removed.
    pub(crate) file: Arc<dyn File>,
}

impl DocumentsCopy {
    /// Plans a copy of what is saved now.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn plan(documents: &DocumentsCell) -> Result<DocumentsCopy, StoreError> {
        let Some(documents) = documents.get() else { return Ok(DocumentsCopy::default()) };
        // Before: what is saved meanwhile is in the log as well.
        let saved_lsn = documents.saved_lsn();
        let Some(plan) = documents.plan_copy()? else {
            return Ok(DocumentsCopy { saved_lsn, ..DocumentsCopy::default() });
        };
        let below = |name: &str| directory(Path::new("")).join(name).to_string_lossy().into_owned();
        let tree = |copied: documents::CopyFile| CopiedTree {
            name: below(&copied.name),
            bytes: copied.bytes,
            file: copied.file,
        };
        let trees = plan.files.into_iter().map(tree).collect();
        Ok(DocumentsCopy { trees, catalog: Some((below(plan.catalog_name), plan.catalog)), saved_lsn })
    }

    /// Whether a copy of the log that begins here has all that the files have not.
    pub(crate) fn goes_with_log_from(&self, begin_lsn: Lsn) -> bool {
        self.saved_lsn.is_none_or(|saved_lsn| saved_lsn >= begin_lsn)
    }
}
