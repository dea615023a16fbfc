//! `TempDir`: a directory for one test of this crate, removed when the test ends.
//!
//! Invariants
//! - The name of the directory is unique per process and call, so tests can run in parallel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        Self::within(&std::env::temp_dir(), name)
    }

    pub(crate) fn within(parent: &Path, name: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("sheaf-env-{}-{number}-{name}", process::id()));
        fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}
