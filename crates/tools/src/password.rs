//! Passwords for commands that connect to a server, read from a file: command lines are visible to all users
//! of the machine.

use std::{io, path::Path};

use env::{Access, Disk, RealDisk};

/// Maximum bytes read of a file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Returns the first line of a file.
///
/// # Errors
/// If it cannot be opened or read.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let file = RealDisk.open(path, Access::Read)?;
    let mut text = vec![0; file.len()?.min(FILE_BYTES_MAX) as usize];
    let read = file.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..read]).into_owned();
    Ok(text.lines().next().unwrap_or_default().into())
}
