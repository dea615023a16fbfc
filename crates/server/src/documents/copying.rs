//! The document part of a copy of a running server's directory: beginnings of tree files, and the catalog as
//! it is in memory.
//!
//! Invariants
//! - The copy is planned before the copy of the log, so the copied log reaches at least as far as the files.

use std::{path::Path, sync::Arc};

use documents::{StoreError, directory};
use env::File;
use lsn::Lsn;

use engine::DocumentsCell;

/// The document files of one copy.
#[derive(Default)]
pub(crate) struct DocumentsCopy {
    /// The beginnings of tree files.
    pub(crate) trees: Vec<CopiedTree>,
    /// The catalog: its name below the data directory and its bytes; `None` if no documents were saved yet.
    pub(crate) catalog: Option<(String, Vec<u8>)>,
    /// The copy needs the log after this position; `None` without documents.
    pub(crate) saved_lsn: Option<Lsn>,
}

/// A tree file to copy, up to a length within which it never changes.
pub(crate) struct CopiedTree {
    /// Path below the data directory.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Stays readable when the file is replaced or removed.
    pub(crate) file: Arc<dyn File>,
}

impl DocumentsCopy {
    /// Plans a copy of the current saved state.
    ///
    /// # Errors
    /// If a file to be copied cannot be opened.
    pub(crate) fn plan(documents: &DocumentsCell) -> Result<DocumentsCopy, StoreError> {
        let Some(documents) = documents.get() else { return Ok(DocumentsCopy::default()) };
        // This position is read first: changes saved after this read are in the copied log as well.
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

    /// Whether a copy of the log from `begin_lsn` contains all changes that the files lack.
    pub(crate) fn goes_with_log_from(&self, begin_lsn: Lsn) -> bool {
        self.saved_lsn.is_none_or(|saved_lsn| saved_lsn >= begin_lsn)
    }
}
