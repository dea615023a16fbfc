//! Writing a file.

use std::io::{self, Write};

use super::{VERSION_ACTIVE_TIMES, VERSION_EXPIRING_FIELDS};
use crate::writer::{Output, Writer};
use crate::{CRC, opcodes};

/// The number of bytes that are collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a file in the format of Redis.
pub struct FileWriter<W> {
    values: Writer<FileOutput<W>>,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file of a version from 10 to 12. Below 12, fields of hashes lose their expiry.
    pub fn begin(file: W, version: u16) -> Self {
        static ALGORITHM: crc::Crc<u64, crc::Table<16>> = CRC;
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut out = FileOutput { file, buffer, digest: ALGORITHM.digest(), error: None };
        out.put(format!("REDIS{version:04}").as_bytes());
        FileWriter {
            values: Writer::into_output(
                out,
                version >= VERSION_EXPIRING_FIELDS,
                version >= VERSION_ACTIVE_TIMES,
            ),
        }
    }

    /// Writes an auxiliary field; readers ignore fields that they do not know.
    pub fn note(&mut self, name: &str, text: &str) {
        self.values.output().put(&[opcodes::AUX]);
        self.values.string(name.as_bytes());
        self.values.string(text.as_bytes());
    }

    /// Writes the source of a function library. Readers take libraries before, after and between keys.
    pub fn library(&mut self, source: &[u8]) {
        self.values.library(source);
    }

    /// Selects the database of the following keys; `keys` is the number of its keys, `expiring` the number of
    /// its keys with a deadline.
    pub fn select(&mut self, db: u64, keys: u64, expiring: u64) {
        self.switch(db);
        self.values.output().put(&[opcodes::RESIZE_DB]);
        self.values.number(keys);
        self.values.number(expiring);
    }

    /// Selects the database of the following keys, whose number is not known.
    pub fn switch(&mut self, db: u64) {
        self.values.output().put(&[opcodes::SELECT_DB]);
        self.values.number(db);
    }

    /// Begins a key. Exactly one value must be written with the returned writer.
    pub fn key(&mut self, name: &[u8], expire_at_ms: Option<u64>) -> &mut Writer<impl Output + use<W>> {
        if let Some(deadline_ms) = expire_at_ms {
            self.values.output().put(&[opcodes::EXPIRE_TIME_MS]);
            self.values.output().put(&deadline_ms.to_le_bytes());
        }
        self.values.set_key(name);
        &mut self.values
    }

    /// Ends the file and returns the underlying writer.
    ///
    /// # Errors
    /// The first error since [`FileWriter::begin`].
    pub fn finish(mut self) -> io::Result<W> {
        self.values.output().put(&[opcodes::END]);
        self.values.output().flush();
        let mut out = self.values.into_inner();
        let checksum = out.digest.clone().finalize();
        out.put(&checksum.to_le_bytes());
        out.flush();
        match out.error {
            None => Ok(out.file),
            Some(error) => Err(error),
        }
    }
}

/// A buffered file with its checksum and the first write error.
struct FileOutput<W> {
    file: W,
    buffer: Vec<u8>,
    digest: crc::Digest<'static, u64, crc::Table<16>>,
    error: Option<io::Error>,
}

impl<W: Write> Output for FileOutput<W> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush();
        }
        if bytes.len() > BUFFER_BYTES {
            self.write(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }
}

impl<W: Write> FileOutput<W> {
    fn flush(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer);
        buffer.clear();
        self.buffer = buffer;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        if self.error.is_none() {
            self.error = self.file.write_all(bytes).err();
        }
    }
}
