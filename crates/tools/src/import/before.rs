//! The state of a directory before an import, as recorded in its marker during the import.

use std::{io, path::Path};

use env::Disk;
use recovery::unfinished::{self, Work};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// No keys: all present keys are from the import.
    Nothing,
    /// Keys from before the import.
    Keys,
}

const NOTHING: &str = "An import into this directory did not finish. It held no keys before.\n";
const KEYS: &str = "An import into this directory did not finish. It held keys before.\n";

impl Before {
    /// The text of the marker.
    pub(super) fn text(self) -> &'static str {
        match self {
            Before::Nothing => NOTHING,
            Before::Keys => KEYS,
        }
    }

    /// The state recorded by an interrupted import; `None` if there was none.
    pub(super) fn find(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Before>> {
        let text = unfinished::find(disk, dir, Work::Import, NOTHING.len())?;
        // Only with the exact marker text may keys be removed.
        let known = |text: Vec<u8>| if text == NOTHING.as_bytes() { Before::Nothing } else { Before::Keys };
        Ok(text.map(known))
    }
}
