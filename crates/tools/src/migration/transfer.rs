//! Extracts the RDB file from the bytes that a source sends after `+FULLRESYNC`.
//!
//! ```text
//! "\n" ...                                                  while the source prepares the file
//! "$<length>\r\n" and that many bytes                       a file on the source's disk
//! "$EOF:<mark of 40 bytes>\r\n", bytes, the mark again      a file sent while it is created
//! ```
//!
//! The module is a state machine that consumes bytes as they arrive and returns the bytes of the file. It
//! does not parse RDB.
//!
//! Invariants
//! - The division of the bytes into reads never changes the result. Bytes after the file are not consumed.
//! - Between two calls, a transfer holds at most the header, or less than a mark.

const MARK_BYTES: usize = 40;
/// Maximum length of a line before the file; it may be an error text.
const HEADER_BYTES_MAX: usize = 4096;

/// The source sent something other than a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The source has answered with this error.
    #[error("the source cannot make a copy of its data: {0}")]
    Refused(String),
    /// The source has sent this other line.
    #[error("the source sends no RDB file but \"{0}\"")]
    Unexpected(String),
}

#[derive(Debug)]
pub(super) struct Transfer {
    state: State,
}

#[derive(Debug)]
enum State {
    Header {
        line: Vec<u8>,
    },
    Sized {
        len: u64,
        left: u64,
    },
    /// `held` are bytes that may be the beginning of the mark.
    Marked {
        mark: [u8; MARK_BYTES],
        held: Vec<u8>,
    },
    Ended,
}

impl Transfer {
    pub(super) fn new() -> Transfer {
        Transfer { state: State::Header { line: Vec::new() } }
    }

    /// Whether the file is complete.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Length of the file that is being received; `None` if it is not known, and after the file.
    pub(super) fn len(&self) -> Option<u64> {
        match self.state {
            State::Sized { len, .. } => Some(len),
            _ => None,
        }
    }

    /// Consumes bytes, and appends the bytes of the file to `file`. Returns the number of bytes consumed:
    /// all, until the file is complete.
    pub(super) fn take(&mut self, bytes: &[u8], file: &mut Vec<u8>) -> Result<usize, TransferError> {
        let mut taken = 0;
        while taken < bytes.len() && !self.has_ended() {
            taken += self.step(&bytes[taken..], file)?;
        }
        Ok(taken)
    }

    fn step(&mut self, bytes: &[u8], file: &mut Vec<u8>) -> Result<usize, TransferError> {
        match &mut self.state {
            State::Header { line } => {
                let end = memchr::memchr(b'\n', bytes);
                let taken = end.map_or(bytes.len(), |end| end + 1);
                line.extend_from_slice(&bytes[..taken.min(HEADER_BYTES_MAX)]);
                if end.is_some() || line.len() >= HEADER_BYTES_MAX {
                    let line = std::mem::take(line);
                    self.state = header(line.trim_ascii())?;
                }
                Ok(taken)
            }
            State::Sized { left, .. } => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                file.extend_from_slice(&bytes[..taken]);
                *left -= taken as u64;
                if *left == 0 {
                    self.state = State::Ended;
                }
                Ok(taken)
            }
            State::Marked { mark, held } => {
                let held_before = held.len();
                held.extend_from_slice(bytes);
                let Some(at) = memchr::memmem::find(held, mark) else {
                    let known = held.len().saturating_sub(MARK_BYTES - 1);
                    file.extend(held.drain(..known));
                    return Ok(bytes.len());
                };
                file.extend_from_slice(&held[..at]);
                self.state = State::Ended;
                Ok(at + MARK_BYTES - held_before)
            }
            State::Ended => Ok(0),
        }
    }
}

/// The state after a header line. An empty line only keeps the connection alive.
fn header(line: &[u8]) -> Result<State, TransferError> {
    let shown = |line: &[u8]| line.escape_ascii().to_string();
    let unexpected = || TransferError::Unexpected(shown(line));
    match line.split_first() {
        None => Ok(State::Header { line: Vec::new() }),
        Some((b'-', text)) => Err(TransferError::Refused(shown(text))),
        Some((b'$', size)) => {
            if let Some(mark) = size.strip_prefix(b"EOF:") {
                let mark = mark.try_into().map_err(|_| unexpected())?;
                return Ok(State::Marked { mark, held: Vec::new() });
            }
            let digits = std::str::from_utf8(size).map_err(|_| unexpected())?;
            match digits.parse() {
                Ok(0) => Ok(State::Ended),
                Ok(len) => Ok(State::Sized { len, left: len }),
                Err(_) => Err(unexpected()),
            }
        }
        Some(_) => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARK: &[u8; MARK_BYTES] = b"0123456789abcdefghijklmnopqrstuvwxyzABCD";

    /// The result of consuming the pieces: the file, the rest, and whether the file is complete.
    fn transferred(pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, bool), TransferError> {
        let (mut transfer, mut file, mut rest) = (Transfer::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let taken = transfer.take(piece, &mut file)?;
            rest.extend_from_slice(&piece[taken..]);
        }
        Ok((file, rest, transfer.has_ended()))
    }

    #[test]
    fn an_invalid_transfer_is_refused() {
        let refused = |text: &str| transferred(&[text.as_bytes()]).unwrap_err();
        assert_eq!(refused("\n-ERR no fork\r\n"), TransferError::Refused("ERR no fork".into()));
        for text in ["+OK\r\n", "$\r\n", "$-1\r\n", "$EOF:short\r\n", "$12x\r\n", "HTTP/1.1 400\r\n"] {
            assert!(matches!(refused(text), TransferError::Unexpected(_)), "{text}");
        }
        assert!(matches!(refused(&"x".repeat(1 << 20)), TransferError::Unexpected(_)));
    }

    #[test]
    fn the_length_is_known_of_a_file_that_is_on_disk() {
        let (mut transfer, mut file) = (Transfer::new(), Vec::new());
        assert_eq!(transfer.take(b"\n\n$5\r\nab", &mut file), Ok(8));
        assert_eq!((transfer.len(), transfer.has_ended(), file.as_slice()), (Some(5), false, &b"ab"[..]));
    }

    proptest! {
        #[test]
        fn a_file_does_not_depend_on_its_division_into_reads(
            file in prop::collection::vec(prop::sample::select(&b"0123a\n"[..]), 0..200),
            ends_like_the_mark in 0..MARK_BYTES,
            is_marked: bool,
            alive in 0..3usize,
            behind in prop::collection::vec(any::<u8>(), 0..60),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let file = [&file, &MARK[..ends_like_the_mark]].concat();
            let mut sent = vec![b'\n'; alive];
            if is_marked {
                sent.extend_from_slice(&[b"$EOF:", &MARK[..], b"\r\n", &file, MARK].concat());
            } else {
                sent.extend_from_slice(&[format!("${}\r\n", file.len()).as_bytes(), &file].concat());
            }
            sent.extend_from_slice(&behind);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(sent.len())).collect();
            cuts.extend([0, sent.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &sent[cut[0]..cut[1]]).collect();
            prop_assert_eq!(transferred(&pieces), Ok((file, behind, true)));
        }
    }
}
