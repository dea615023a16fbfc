//! Passwords for the commands that speak to a server: from a file, as a command line is seen by every user of the machine.

use std::{io, path::Path};

use env::{Access, Disk, RealDisk};

/// More than this of a file is not read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The first line of a file.
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
