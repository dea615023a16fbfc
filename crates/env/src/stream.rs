//! Files that are read once from their beginning. They may be pipes, which have no length and no positions,
//! and so cannot be a [`File`](crate::File).

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

/// Reads the file at `path` to its end, but no more than `bytes_max` bytes.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn read_to_end(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
