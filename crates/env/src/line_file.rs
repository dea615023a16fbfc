//! Files of lines for people and their tools, such as log lines: appended to, never read, and not durable.
//! They may be pipes or devices.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// A file that is open for appending.
#[derive(Debug)]
pub struct LineFile(fs::File);

impl LineFile {
    /// Opens the file at `path`; creates it if there is none, in a directory that exists. Nothing waits for
    /// the reader of a pipe: a write to a full pipe fails.
    ///
    /// # Errors
    /// If the file cannot be opened for writing, or is a pipe without a reader.
    pub fn open(path: &Path) -> io::Result<LineFile> {
        let mut options = fs::OpenOptions::new();
        options.append(true).create(true).mode(0o640).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        options.open(path).map(LineFile)
    }
}

impl Write for &LineFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn lines_are_appended_also_after_a_rename() {
        let dir = TempDir::new("line-file");
        let path = dir.path().join("a.log");
        let first = LineFile::open(&path).unwrap();
        (&first).write_all(b"one\n").unwrap();
        fs::rename(&path, dir.path().join("a.log.1")).unwrap();
        (&first).write_all(b"two\n").unwrap();
        let second = LineFile::open(&path).unwrap();
        (&second).write_all(b"three\n").unwrap();
        (&LineFile::open(&path).unwrap()).write_all(b"four\n").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a.log.1")).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\nfour\n");
        assert!(LineFile::open(&dir.path().join("none/a.log")).is_err());
    }
}
