//! The incremental request parser: one small struct per connection.
//!
//! A pass over a buffer splits off the complete commands, up to a maximum number, and remembers its progress
//! within an incomplete command after them, relative to the first byte of that command. The next buffer must
//! begin with that byte, but may be at another address.

use super::args::Span;
use super::batch::RequestBatch;
use super::{Limits, ProtocolError, inline};
use crate::number::parse_i64;

/// The maximum bytes of a buffer that one pass examines, because offsets have 32 bits.
const WINDOW_BYTES_MAX: usize = u32::MAX as usize;

/// The maximum number of arguments in a well-formed request header, as in Redis.
const ARGS_CEILING: i64 = i32::MAX as i64;

/// The maximum number of arguments of an incomplete command that are always copied between parser and batch.
/// If there are more, and the batch has no complete commands, parser and batch exchange their vectors
/// instead.
const ARGS_COPIED_MAX: usize = 64;

/// The maximum number of argument slots that an idle parser keeps allocated (128 bytes).
const ARGS_KEPT_MAX: usize = 16;

/// Bytes of a line end, and of the end of a bulk string.
const LINE_END_BYTES: usize = 2;

/// The result of a pass.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Bytes of the commands in the batch, and of the empty requests that were read with them. The next
    /// buffer must begin after these bytes.
    pub consumed: usize,
    /// The error in the bytes after the consumed ones. The caller must send it once, after the replies of the
    /// batch's commands, and then close the connection.
    pub error: Option<ProtocolError>,
}

/// Divides the bytes of one connection into commands. Between commands, the struct takes less than 100 bytes,
/// and its vector at most 128 bytes of the heap.
#[derive(Debug, Default)]
pub struct RequestParser {
    progress: Progress,
    /// The arguments of the incomplete command so far, relative to its first byte.
    args: Vec<Span>,
}

/// The progress within the incomplete command; offsets are relative to its first byte.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Start of the next line or bulk string.
    at: usize,
    /// Bytes from `at` on that are known to have no line end.
    scanned: usize,
    /// Arguments still to come; 0 before the array header is read.
    args_left: u32,
    /// Length of the bulk string at `at`, once its header is read.
    bulk_len: Option<u32>,
    /// Bytes of the bulk string at `at`, including its line end, that have not arrived.
    missing: u32,
}

impl RequestParser {
    /// A parser at the start of a request.
    pub const fn new() -> Self {
        let progress = Progress { at: 0, scanned: 0, args_left: 0, bulk_len: None, missing: 0 };
        Self { progress, args: Vec::new() }
    }

    /// Replaces the contents of `batch` with the complete commands at the start of `buffer`, but with no more
    /// than `commands_max` commands.
    ///
    /// `buffer` must begin with the first byte that the previous call did not consume, followed by the same
    /// bytes as in that call. Requests without arguments (`*0`, `*-1`, empty lines) are consumed without
    /// adding a command.
    ///
    /// After an error the parser is reset: called again with the unconsumed bytes it returns the same error,
    /// or none if the limits have been raised since.
    pub fn parse(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
        batch: &mut RequestBatch,
        commands_max: usize,
    ) -> Parsed {
        batch.clear();
        if commands_max == 0 {
            return Parsed { consumed: 0, error: None };
        }
        self.hand_over_args(batch);
        let window = &buffer[..buffer.len().min(WINDOW_BYTES_MAX)];
        let mut pass = Pass { window, limits, batch, start: 0, progress: self.progress };
        let error = pass.run(commands_max).err();
        let (start, progress) = (pass.start, pass.progress);
        if error.is_some() {
            self.progress = Progress::default();
            batch.args.truncate(batch.open_args_start());
        } else {
            self.progress = Progress { at: progress.at - start, ..progress };
            self.take_back_args(batch, start);
        }
        Parsed { consumed: start, error }
    }

    /// The number of missing bytes of the bulk string being received, including its line end; 0 if none is
    /// being received. The number is at most the limit of a bulk string plus 2.
    pub fn bytes_missing(&self) -> usize {
        self.progress.missing as usize
    }

    /// Discards the incomplete command. This is for a caller that does not continue at the first unconsumed
    /// byte, because it has executed only some commands of the batch (see [`RequestBatch::end`]).
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    #[cfg(test)]
    pub(super) fn kept_args(&self) -> usize {
        self.args.capacity()
    }

    /// Moves the arguments of the incomplete command to the batch. If there are many, the vectors are
    /// exchanged, so that a command of a million arguments is not copied on every read.
    fn hand_over_args(&mut self, batch: &mut RequestBatch) {
        if self.args.is_empty() {
            return;
        }
        if self.args.len() > ARGS_COPIED_MAX {
            std::mem::swap(&mut self.args, &mut batch.args);
        } else {
            batch.args.extend_from_slice(&self.args);
        }
        self.args.clear();
        self.args.shrink_to(ARGS_KEPT_MAX);
    }

    /// Moves the arguments of the incomplete command, which begins at `start`, back from the batch.
    fn take_back_args(&mut self, batch: &mut RequestBatch, start: usize) {
        let open = batch.open_args_start();
        if open == batch.args.len() {
            return;
        }
        if open == 0 && batch.args.len() > ARGS_COPIED_MAX {
            std::mem::swap(&mut self.args, &mut batch.args);
        } else {
            self.args.extend_from_slice(&batch.args[open..]);
            batch.args.truncate(open);
        }
        if start > 0 {
            self.args.iter_mut().for_each(|span| span.start -= start as u32);
        }
    }
}

/// One pass over a buffer. The offsets of a pass are relative to the start of the buffer, unlike the offsets
/// of the parser.
struct Pass<'p> {
    window: &'p [u8],
    limits: &'p Limits,
    batch: &'p mut RequestBatch,
    /// First byte of the command being parsed.
    start: usize,
    progress: Progress,
}

/// `true` if the step is complete, `false` if bytes are missing.
type Step = Result<bool, ProtocolError>;

impl<'p> Pass<'p> {
    fn run(&mut self, commands_max: usize) -> Result<(), ProtocolError> {
        while self.batch.len() < commands_max && self.request()? {}
        Ok(())
    }

    /// Parses one request, or the rest of one, from `start` on.
    #[inline]
    fn request(&mut self) -> Step {
        if self.progress.args_left == 0 {
            match self.window.get(self.start) {
                None => return Ok(false),
                Some(b'*') => {
                    if !self.array_header()? {
                        return Ok(false);
                    }
                }
                Some(_) => return self.inline(),
            }
        }
        if !self.bulks()? {
            return Ok(false);
        }
        if self.batch.args.len() > self.batch.open_args_start() {
            self.batch.close_command(self.progress.at, false);
        }
        self.start = self.progress.at;
        Ok(true)
    }

    /// Reads `*<count>` and sets the number of arguments to come; 0 for an empty request.
    #[inline]
    fn array_header(&mut self) -> Step {
        if let Some((count, bytes)) = short_header(self.window, self.progress.at, b'*')
            && count as usize <= self.limits.args_max
        {
            self.progress.args_left = count;
            self.end_line(bytes);
            return Ok(true);
        }
        self.long_array_header()
    }

    #[cold]
    fn long_array_header(&mut self) -> Step {
        let Some(line) = self.line(b'\r', ProtocolError::TooBigMultibulkCount)? else {
            return Ok(false);
        };
        let count = parse_i64(&line[1..]).filter(|count| *count <= ARGS_CEILING);
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?.max(0);
        let header_bytes = line.len() + LINE_END_BYTES;
        if count as usize > self.limits.args_max {
            return Err(match self.limits.authenticated {
                true => ProtocolError::InvalidMultibulkLength,
                false => ProtocolError::UnauthenticatedMultibulkLength,
            });
        }
        self.progress.args_left = count as u32;
        self.end_line(header_bytes);
        Ok(true)
    }

    /// Reads the remaining bulk strings of the command.
    #[inline]
    fn bulks(&mut self) -> Step {
        while self.progress.args_left > 0 {
            let len = match self.progress.bulk_len.take() {
                Some(len) => len,
                None => match self.bulk_header()? {
                    Some(len) => len,
                    None => return Ok(false),
                },
            };
            let at = self.progress.at;
            let end = at + len as usize + LINE_END_BYTES;
            if end > self.window.len() {
                self.progress.bulk_len = Some(len);
                self.progress.missing = (end - self.window.len()) as u32;
                return Ok(false);
            }
            self.batch.args.push(Span::new(at, len as usize));
            self.progress.at = end;
            self.progress.args_left -= 1;
            self.progress.missing = 0;
        }
        Ok(true)
    }

    /// Reads `$<length>`; `None` if it is incomplete.
    #[inline]
    fn bulk_header(&mut self) -> Result<Option<u32>, ProtocolError> {
        let (len, bytes) = match short_header(self.window, self.progress.at, b'$') {
            Some((len, bytes)) if len as usize <= self.limits.bulk_bytes_max => (len, bytes),
            _ => match self.long_bulk_header()? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        let request_bytes = self.progress.at - self.start + bytes + len as usize + LINE_END_BYTES;
        if request_bytes > self.limits.request_bytes_max() {
            return Err(ProtocolError::TooBigRequest);
        }
        self.end_line(bytes);
        Ok(Some(len))
    }

    /// The length of the bulk string and of its header, read by the general path.
    #[cold]
    fn long_bulk_header(&mut self) -> Result<Option<(u32, usize)>, ProtocolError> {
        let Some(line) = self.line(b'\r', ProtocolError::TooBigBulkCount)? else {
            return Ok(None);
        };
        let digits = match line {
            [b'$', digits @ ..] => digits,
            [other, ..] => return Err(ProtocolError::ExpectedBulk(*other)),
            // The line is empty, so its end is in the place of the `$`.
            [] => return Err(ProtocolError::ExpectedBulk(b'\r')),
        };
        let len = parse_i64(digits).and_then(|len| u32::try_from(len).ok());
        let len = len.ok_or(ProtocolError::InvalidBulkLength)?;
        if len as usize > self.limits.bulk_bytes_max {
            let only_unauthenticated =
                !self.limits.authenticated && len as usize <= Limits::DEFAULT.bulk_bytes_max;
            return Err(match only_unauthenticated {
                true => ProtocolError::UnauthenticatedBulkLength,
                false => ProtocolError::InvalidBulkLength,
            });
        }
        Ok(Some((len, line.len() + LINE_END_BYTES)))
    }

    #[cold]
    fn inline(&mut self) -> Step {
        let Some(line) = self.line(b'\n', ProtocolError::TooBigInline)? else {
            return Ok(false);
        };
        let line_bytes = line.len() + 1;
        if inline::is_http(line) {
            return Err(ProtocolError::Http);
        }
        inline::split_line(line, self.batch)?;
        self.end_line(line_bytes);
        if self.batch.args.len() > self.batch.open_args_start() {
            self.batch.close_command(self.progress.at, true);
        }
        self.start = self.progress.at;
        Ok(true)
    }

    /// The line at the current position, up to the byte `end`: a `\n`, or a `\r` that at least one more byte
    /// follows. `None` if the end has not arrived; the error `too_long` if the line exceeds the limit.
    fn line(&mut self, end: u8, too_long: ProtocolError) -> Result<Option<&'p [u8]>, ProtocolError> {
        let rest = &self.window[self.progress.at..];
        let reach = &rest[..rest.len().min(self.limits.line_bytes_max() + 1)];
        let Some(offset) = memchr::memchr(end, &reach[self.progress.scanned.min(reach.len())..]) else {
            self.progress.scanned = reach.len();
            return if reach.len() > self.limits.line_bytes_max() { Err(too_long) } else { Ok(None) };
        };
        self.progress.scanned += offset;
        let length = self.progress.scanned;
        if end == b'\r' && length + LINE_END_BYTES > rest.len() {
            return Ok(None);
        }
        Ok(Some(&rest[..length]))
    }

    #[inline]
    fn end_line(&mut self, bytes: usize) {
        self.progress.at += bytes;
        self.progress.scanned = 0;
    }
}

/// The value and the size of a header with one to three digits, which is the most frequent kind. `None` for
/// other headers, which the general path reads.
#[inline]
fn short_header(window: &[u8], at: usize, kind: u8) -> Option<(u32, usize)> {
    let digit = |byte: u8| u32::from(byte - b'0');
    match window.get(at..)? {
        [first, a @ b'0'..=b'9', b'\r', _, ..] if *first == kind => Some((digit(*a), 4)),
        [first, a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', _, ..] if *first == kind => {
            Some((digit(*a) * 10 + digit(*b), 5))
        }
        [first, a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', _, ..] if *first == kind => {
            Some((digit(*a) * 100 + digit(*b) * 10 + digit(*c), 6))
        }
        _ => None,
    }
}
