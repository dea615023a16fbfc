//! The bytes of a file, read in order, counted and checksummed.

use std::io::{self, Read};

use crate::input::{Input, STRING_BYTES_MAX};
use crate::{CRC, Error};

/// The maximum bytes of one read.
const BUFFER_BYTES: usize = 256 << 10;
/// The memory of a long string is allocated in steps, each when the memory of the steps before is filled. The
/// first step has at most this many bytes.
const STEP_BYTES: usize = 1 << 20;

/// An [`Input`] over a file.
pub(super) struct Source<R> {
    file: R,
    buffer: Vec<u8>,
    /// `filled` bytes of the buffer hold bytes of the file, of which `taken` are consumed.
    filled: usize,
    taken: usize,
    /// The number of bytes of the buffer that are in the checksum.
    summed: usize,
    /// The number of bytes of the file before the buffer.
    before: u64,
    digest: crc::Digest<'static, u64, crc::Table<16>>,
    /// The error of a failed read.
    io_error: Option<io::Error>,
}

impl<R: Read> Source<R> {
    pub(super) fn new(file: R) -> Self {
        static ALGORITHM: crc::Crc<u64, crc::Table<16>> = CRC;
        Source {
            file,
            buffer: vec![0; BUFFER_BYTES],
            filled: 0,
            taken: 0,
            summed: 0,
            before: 0,
            digest: ALGORITHM.digest(),
            io_error: None,
        }
    }

    /// The position in the file.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.taken as u64
    }

    /// The checksum of all consumed bytes.
    pub(super) fn checksum(&mut self) -> u64 {
        self.sum();
        self.digest.clone().finalize()
    }

    pub(super) fn take_io_error(&mut self) -> Option<io::Error> {
        self.io_error.take()
    }

    /// Whether all bytes of the file are consumed.
    pub(super) fn is_at_end(&mut self) -> Result<bool, Error> {
        match self.fill() {
            Err(Error::Truncated) => Ok(true),
            other => other.map(|()| false),
        }
    }

    fn sum(&mut self) {
        self.digest.update(&self.buffer[self.summed..self.taken]);
        self.summed = self.taken;
    }

    /// Reads the next bytes of the file if the buffer is consumed.
    fn fill(&mut self) -> Result<(), Error> {
        if self.taken < self.filled {
            return Ok(());
        }
        self.sum();
        self.before += self.taken as u64;
        (self.taken, self.summed, self.filled) = (0, 0, 0);
        self.filled = loop {
            match self.file.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.io_error = Some(error);
                    return Err(Error::Unreadable);
                }
                Ok(read) => break read,
            }
        };
        if self.filled == 0 { Err(Error::Truncated) } else { Ok(()) }
    }

    /// Consumes up to `max` bytes, at least one, and returns them.
    fn some(&mut self, max: usize) -> Result<&[u8], Error> {
        self.fill()?;
        let start = self.taken;
        self.taken = self.filled.min(start.saturating_add(max));
        Ok(&self.buffer[start..self.taken])
    }
}

impl<R: Read> Input for Source<R> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        if let Some(array) = self.buffer[self.taken..self.filled].first_chunk() {
            self.taken += N;
            return Ok(*array);
        }
        let mut array = [0; N];
        let mut rest = array.as_mut_slice();
        while !rest.is_empty() {
            let some = self.some(rest.len())?;
            let (now, later) = rest.split_at_mut(some.len());
            now.copy_from_slice(some);
            rest = later;
        }
        Ok(array)
    }

    fn bytes(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        if len > STRING_BYTES_MAX {
            return Err(Error::TooLong(len));
        }
        out.clear();
        let mut rest = len as usize;
        while rest > 0 {
            if out.len() == out.capacity() {
                out.reserve(rest.min(STEP_BYTES));
            }
            let some = self.some(rest)?;
            out.extend_from_slice(some);
            rest -= some.len();
        }
        Ok(())
    }
}
