//! What a directory held before an import, which its mark says while the import lasts.

use std::{io, path::Path};

use env::Disk;
use recovery::unfinished::{self, Work};

/// What the directory held when the import began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// No keys: whatever is there now is of the import.
    Nothing,
    /// Keys of its own.
    Keys,
}

const NOTHING: &str = "An import into this directory did not finish. It held no keys before.\n";
const KEYS: &str = "An import into this directory did not finish. It held keys before.\n";

impl Before {
    /// What the mark says.
    pub(super) fn text(self) -> &'static str {
        match self {
            Before::Nothing => NOTHING,
            Before::Keys => KEYS,
        }
    }

    /// What the import that was interrupted here found; `None` if there was none.
    pub(super) fn find(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Before>> {
        let text = unfinished::find(disk, dir, Work::Import, NOTHING.len())?;
        // Only what is known to hold nothing else may be thrown away.
        let known = |text: Vec<u8>| if text == NOTHING.as_bytes() { Before::Nothing } else { Before::Keys };
        Ok(text.map(known))
    }
}
