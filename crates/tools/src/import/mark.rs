//! The marker of an unfinished import: the state of the directory before it, and its source.
//!
//! ```text
//! An import into this directory did not finish. It held no keys before.
//! Source: "/backups/dump.rdb"
//! ```
//!
//! Invariants
//! - Only with exactly the first line above may keys be removed.
//! - The marker of an earlier version has no source; any source may then continue the import.

use std::{io, path::Path};

use env::Disk;
use recovery::unfinished::{self, Work};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// No keys: all present keys are from the import.
    Nothing,
    /// There were keys before the import.
    Keys,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) before: Before,
    /// The path of the file, or the URL of the server, quoted.
    source: Option<String>,
}

const NOTHING: &str = "An import into this directory did not finish. It held no keys before.\n";
const KEYS: &str = "An import into this directory did not finish. It held keys before.\n";
const SOURCE: &str = "Source: ";
/// The maximum size of a marker: paths have at most 4096 bytes, and an escaped byte takes at most six.
const BYTES_MAX: usize = 32 << 10;

impl Mark {
    pub(super) fn new(before: Before, source: &str) -> Mark {
        Mark { before, source: Some(format!("{source:?}")) }
    }

    /// The source of the interrupted import, quoted, if that is not `source`.
    pub(super) fn other_source(&self, source: &str) -> Option<&str> {
        self.source.as_deref().filter(|found| *found != format!("{source:?}"))
    }

    pub(super) fn text(&self) -> String {
        let before = match self.before {
            Before::Nothing => NOTHING,
            Before::Keys => KEYS,
        };
        let source = self.source.as_ref().map(|source| format!("{SOURCE}{source}\n"));
        format!("{before}{}", source.unwrap_or_default())
    }

    /// The marker of an interrupted import; `None` if there was none.
    pub(super) fn find(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Mark>> {
        let text = unfinished::find(disk, dir, Work::Import, BYTES_MAX)?;
        Ok(text.map(|text| Mark::parse(&text)))
    }

    fn parse(text: &[u8]) -> Mark {
        let rest = text.strip_prefix(NOTHING.as_bytes());
        let before = if rest.is_some() { Before::Nothing } else { Before::Keys };
        let source = rest.or(text.strip_prefix(KEYS.as_bytes())).unwrap_or_default();
        let source = source.strip_prefix(SOURCE.as_bytes()).and_then(|source| source.strip_suffix(b"\n"));
        Mark { before, source: source.map(|source| String::from_utf8_lossy(source).into_owned()) }
    }
}
