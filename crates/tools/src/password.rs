//! Passwords for commands that connect to a server, read from a file: command lines are visible to all users
//! of the machine.

use std::{io, path::Path};

/// Maximum bytes read of a file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Returns the first line of a file. It may be a pipe, which has no length and no positions.
///
/// # Errors
/// If it cannot be opened or read, or the line is empty.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let text = env::stream::read_to_end(path, FILE_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&text);
    match text.lines().next().unwrap_or_default() {
        "" => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
        line => Ok(line.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_and_an_empty_one_is_refused() {
        let through_pipe = |pieces: &[&str]| {
            let (reader, mut writer) = io::pipe().unwrap();
            for piece in pieces {
                writer.write_all(piece.as_bytes()).unwrap();
            }
            drop(writer);
            read(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd())))
        };
        assert_eq!(through_pipe(&["gehe", "im\nsecond line\n"]).unwrap(), "geheim");
        for empty in [&[][..], &["\n"]] {
            let error = through_pipe(empty).unwrap_err();
            assert!(error.to_string().ends_with("it is empty"), "{error}");
        }
    }
}
