//! Passwords from files: all users of the machine can read command lines, and some users can read variables.
//!
//! This module reads the first line of a file, and knows the settings that name such files. A password file
//! is not a source of its own: its password counts as if a flag gave it, so that no other file gets it.

use std::{io, path::Path};

use super::{ConfigError, Given, Key, Origin, Settings};

/// The settings that name files, and the settings whose values the files hold.
const FILES: [(Key, Key, &str); 3] = [
    (Key::RequirepassFile, Key::Requirepass, "requirepass"),
    (Key::MasterauthFile, Key::Masterauth, "masterauth"),
    (Key::AdminPasswordFile, Key::AdminPassword, "admin-password"),
];

/// The maximum bytes of a file with a password.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Returns the first line of a file. The file may be a pipe, which has no length and no positions.
///
/// # Errors
/// If the file cannot be opened or read, is too large, or its first line is empty or not UTF-8.
pub fn read_password(path: &Path) -> io::Result<String> {
    let text = env::stream::read_to_end(path, FILE_BYTES_MAX)?;
    let refused = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) {
        Ok("") => Err(refused("it is empty")),
        Ok(line) => Ok(line.into()),
        // The value of a setting is text.
        Err(_) => Err(refused("its first line is not UTF-8")),
    }
}

/// The passwords in the files that `settings` name.
///
/// # Errors
/// A file has no password that can be read, or the password is given without a file, too.
pub(super) fn given(settings: &Settings) -> Result<Vec<Given>, ConfigError> {
    let mut passwords = Vec::new();
    for (file, key, name) in FILES {
        let path = settings.text(file);
        if path.is_empty() {
            continue;
        }
        if !settings.text(key).is_empty() {
            return Err(ConfigError::PasswordTwice { name });
        }
        let value = read_password(Path::new(path))
            .map_err(|error| ConfigError::PasswordFile { path: path.into(), reason: error.to_string() })?;
        passwords.push(Given { name: name.into(), value, origin: Origin::Flag });
    }
    Ok(passwords)
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
            read_password(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd())))
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
