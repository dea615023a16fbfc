//! Document databases in the server: when their changes are saved in files, compacted and copied.
//!
//! ```text
//! threads "http-n": crate couch -> log -> memory
//! recovery, replicas: log -> Documents::apply -> memory
//! thread "documents": dirty layers -> log durable up to there -> tree file -> the log before is obsolete
//! thread "compaction": the next generation of a file, in steps
//! ```
//!
//! This module has the background jobs.
//! Documents are in the crate `documents`, their protocol is in the crate `couch`.

mod compacting;
mod copying;
mod saving;

pub(crate) use self::{
    compacting::Compactor,
    copying::{CopiedTree, DocumentsCopy},
    saving::Saver,
};
