//! The file that stands in a directory from the first byte an import writes until everything is durable.
//!
//! What it is: the reason why a directory that holds part of an import is never served as if it held all of it.
//! What it is not: a journal; an import that was interrupted starts over.

use std::path::{Path, PathBuf};

use env::{Access, Disk};

/// Its name.
const FILE_NAME: &str = "import-unfinished";

/// What the directory held when the import began, which is also what the file says.
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
    fn text(self) -> &'static str {
        match self {
            Before::Nothing => NOTHING,
            Before::Keys => KEYS,
        }
    }
}

/// An import into the directory was interrupted.
#[derive(Debug, thiserror::Error)]
#[error(
    "an import into {} did not finish, so the directory holds only a part of it: run the same `sheaf import` again, or \
     remove {} to use what is there", .path.parent().unwrap_or(.path).display(), .path.display()
)]
pub struct Unfinished {
    path: PathBuf,
}

/// Refuses a directory with an import that was interrupted.
///
/// # Errors
/// If there is one.
pub(crate) fn refuse_unfinished(disk: &dyn Disk, dir: &Path) -> Result<(), Unfinished> {
    let path = dir.join(FILE_NAME);
    match disk.open(&path, Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        // Also one that cannot be opened is there.
        _ => Err(Unfinished { path }),
    }
}

/// What the import that was interrupted here found; `None` if there was none.
pub(super) fn find(disk: &dyn Disk, dir: &Path) -> std::io::Result<Option<Before>> {
    let file = match disk.open(&dir.join(FILE_NAME), Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = vec![0; NOTHING.len()];
    let read = file.read_at(&mut text, 0)?;
    // Only what is known to hold nothing else may be thrown away.
    Ok(Some(if &text[..read] == NOTHING.as_bytes() { Before::Nothing } else { Before::Keys }))
}

/// Says, durably, that an import begins.
pub(super) fn begin(disk: &dyn Disk, dir: &Path, before: Before) -> std::io::Result<()> {
    env::crashsafe::write_atomically(disk, &dir.join(FILE_NAME), before.text().as_bytes())
}

/// Says, durably, that it is complete.
pub(super) fn end(disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
    env::crashsafe::remove_durably(disk, &dir.join(FILE_NAME))
}
