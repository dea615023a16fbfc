//! Files that are read once from their beginning. They may be pipes, which have no length and no positions,
//! and so cannot be a [`File`](crate::File).

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

/// Reads the file at `path` to its end.
///
/// # Errors
/// If the file cannot be opened or read, or holds more than `bytes_max` bytes.
pub fn read_to_end(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let refused = format!("it holds more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, refused));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_limit_is_refused_and_not_cut() {
        let path = std::env::temp_dir().join(format!("sheaf-read-to-end-{}", std::process::id()));
        fs::write(&path, [b'p'; 8]).unwrap();
        assert_eq!(read_to_end(&path, 8).unwrap(), [b'p'; 8]);
        assert_eq!(read_to_end(&path, 7).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        fs::remove_file(path).unwrap();
    }
}
