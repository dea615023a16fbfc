//! Passwords for commands that connect to a server, read from a file: command lines are visible to all users
//! of the machine.

use std::{io, path::Path};

/// Maximum bytes read of a file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Returns the first line of a file. It may be a pipe, which has no length and no positions.
///
/// # Errors
/// If it cannot be opened or read, or the line is empty or not UTF-8.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let text = env::stream::read_to_end(path, FILE_BYTES_MAX)?;
    let refused = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) {
        Ok("") => Err(refused("it is empty")),
        Ok(line) => Ok(line.into()),
        // No password is: CONFIG SET refuses it.
        Err(_) => Err(refused("its first line is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_and_an_empty_one_is_refused() {
        let through_pipe = |pieces: &[&[u8]]| {
            let (reader, mut writer) = io::pipe().unwrap();
            for piece in pieces {
                writer.write_all(piece).unwrap();
            }
            drop(writer);
            read(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd())))
        };
        assert_eq!(through_pipe(&[b"gehe", b"im\r\nsecond line, \xff\n"]).unwrap(), "geheim");
        let error = through_pipe(&[b"gehe\xffim\n"]).unwrap_err();
        assert!(error.to_string().ends_with("its first line is not UTF-8"), "{error}");
        for empty in [&[] as &[&[u8]], &[b"\n"]] {
            let error = through_pipe(empty).unwrap_err();
            assert!(error.to_string().ends_with("it is empty"), "{error}");
        }
    }
}
