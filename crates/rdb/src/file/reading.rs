//! Reading a file: [`read_file`] passes its keys, elements and libraries to a [`Visitor`].

use std::io::Read;

use super::source::Source;
use super::{FILE_VERSION_MAX, FILE_VERSION_VALKEY, FileError, VERSION_CHECKSUM, skip};
use crate::element::{Dialect, Element, Kind, kind_of, read_elements};
use crate::input::Input;
use crate::{Error, opcodes, types};

/// The format of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The server whose format the file has: `Redis` or `Valkey`.
    pub server: &'static str,
    /// The version of the format.
    pub version: u16,
}

/// A key, before its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    /// The number of the key's database.
    pub db: u64,
    /// The name of the key.
    pub name: &'a [u8],
    /// The type of the key's value.
    pub kind: Kind,
    /// Unix time in milliseconds at which the key expires; `None` if it does not expire.
    pub expire_at_ms: Option<u64>,
}

/// Data that is skipped, and reported to the visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedOver {
    /// Data that a module has stored outside the keys.
    ModuleData,
    /// The mark of the base of an append-only file: later writes of that server are in other files.
    AppendOnlyBase,
}

/// Receives the content of a file. An error ends the reading.
pub trait Visitor {
    /// The error of the visitor, which must be able to hold a [`FileError`].
    type Error: From<FileError>;

    /// Begins the value of this key.
    fn begin(&mut self, key: &Key<'_>) -> Result<(), Self::Error>;

    /// Receives the next element of the value. Not called for an empty collection, which old versions could
    /// write.
    fn element(&mut self, element: Element<'_>) -> Result<(), Self::Error>;

    /// Ends the value.
    fn end(&mut self) -> Result<(), Self::Error>;

    /// Receives the source of a function library.
    fn library(&mut self, source: &[u8]) -> Result<(), Self::Error>;

    /// Reports data that is skipped.
    fn passed_over(&mut self, what: PassedOver) -> Result<(), Self::Error>;
}

/// Reads a file to its end and verifies its checksum. Data passed to the visitor is valid only if this
/// function succeeds.
///
/// # Errors
/// A [`FileError`], or an error of the visitor.
pub fn read_file<V: Visitor>(file: impl Read, visitor: &mut V) -> Result<Header, V::Error> {
    let mut reading = Reading { source: Source::new(file), db: 0, name: Vec::new(), is_in_value: false };
    reading.run(visitor).map_err(|stop| match stop {
        Stop::Visitor(error) => error,
        Stop::File(error) => error.into(),
        Stop::Bytes(error) => reading.located(error).into(),
    })
}

/// Why reading stops.
enum Stop<E> {
    /// The bytes are invalid or cannot be read; [`Reading::located`] adds the position.
    Bytes(Error),
    File(FileError),
    Visitor(E),
}

impl<E> From<Error> for Stop<E> {
    fn from(error: Error) -> Self {
        Stop::Bytes(error)
    }
}

struct Reading<R> {
    source: Source<R>,
    db: u64,
    /// The name of the key being read; also a buffer for strings that belong to no key.
    name: Vec<u8>,
    is_in_value: bool,
}

impl<R: Read> Reading<R> {
    fn located(&mut self, error: Error) -> FileError {
        let offset = self.source.offset();
        match self.source.take_io_error() {
            Some(error) => FileError::Io { offset, error },
            None => {
                let key = self.is_in_value.then(|| (self.db, self.name.clone()));
                FileError::Malformed { offset, key, error }
            }
        }
    }

    fn run<V: Visitor>(&mut self, visitor: &mut V) -> Result<Header, Stop<V::Error>> {
        let (header, dialect) = self.header()?;
        let mut expire_at_ms = None;
        loop {
            let code = self.source.byte()?;
            match code {
                opcodes::END => break,
                opcodes::SELECT_DB => self.db = self.source.number()?,
                // Deadlines are signed seconds or milliseconds; deadlines before 1970 are clamped to 0, which
                // is in the past as well.
                opcodes::EXPIRE_TIME => {
                    let seconds = i32::from_le_bytes(self.source.array()?);
                    expire_at_ms = Some(u64::try_from(seconds).unwrap_or(0) * 1000);
                }
                opcodes::EXPIRE_TIME_MS => {
                    let deadline_ms = i64::from_le_bytes(self.source.array()?);
                    expire_at_ms = Some(u64::try_from(deadline_ms).unwrap_or(0));
                }
                _ if self.passes_over(code, visitor)? => {}
                value_type => self.value(value_type, dialect, expire_at_ms.take(), visitor)?,
            }
        }
        self.finish(header.version)?;
        Ok(header)
    }

    fn header<E>(&mut self) -> Result<(Header, Dialect), Stop<E>> {
        let magic: [u8; 9] = self.source.array().map_err(|error| match error {
            Error::Truncated => Stop::File(FileError::NotRdb),
            other => Stop::Bytes(other),
        })?;
        let (server, digits, dialect) = if magic.starts_with(b"REDIS") {
            ("Redis", &magic[5..], Dialect::Redis)
        } else if magic.starts_with(b"VALKEY") {
            ("Valkey", &magic[6..], Dialect::Valkey)
        } else if magic.starts_with(b"*") {
            return Err(Stop::File(FileError::AppendOnly));
        } else {
            return Err(Stop::File(FileError::NotRdb));
        };
        let digits = digits.iter().try_fold(0u16, |version, digit| {
            digit.is_ascii_digit().then(|| version * 10 + u16::from(digit - b'0'))
        });
        let version = digits.ok_or(Stop::File(FileError::NotRdb))?;
        let is_known = match dialect {
            Dialect::Redis => (1..=FILE_VERSION_MAX).contains(&version),
            Dialect::Valkey => version == FILE_VERSION_VALKEY,
        };
        if is_known {
            Ok((Header { server, version }, dialect))
        } else {
            Err(Stop::File(FileError::Version { server, version }))
        }
    }

    /// Reads the operands of an opcode. Returns `false` if the code is the type of a value.
    fn passes_over<V: Visitor>(&mut self, code: u8, visitor: &mut V) -> Result<bool, Stop<V::Error>> {
        let source = &mut self.source;
        let what = match code {
            opcodes::AUX => {
                source.string(&mut self.name)?;
                let is_base = self.name == b"aof-base";
                source.string(&mut self.name)?;
                if !is_base || self.name != b"1" {
                    return Ok(true);
                }
                PassedOver::AppendOnlyBase
            }
            opcodes::RESIZE_DB => return Ok(skip::numbers(source, 2).map(|()| true)?),
            opcodes::SLOT_INFO => return Ok(skip::numbers(source, 3).map(|()| true)?),
            opcodes::SLOT_IMPORT => return Ok(skip::slot_import(source).map(|()| true)?),
            opcodes::IDLE_TIME => return Ok(skip::numbers(source, 1).map(|()| true)?),
            opcodes::FREQUENCY => return Ok(source.byte().map(|_| true)?),
            opcodes::FUNCTION => {
                source.string(&mut self.name)?;
                return visitor.library(&self.name).map(|()| true).map_err(Stop::Visitor);
            }
            opcodes::FUNCTION_PRE_GA => return Err(Error::Malformed("functions of a 7.0 preview").into()),
            opcodes::MODULE_AUX => {
                skip::module_aux(source)?;
                PassedOver::ModuleData
            }
            _ => return Ok(false),
        };
        visitor.passed_over(what).map_err(Stop::Visitor)?;
        Ok(true)
    }

    fn value<V: Visitor>(
        &mut self,
        value_type: u8,
        dialect: Dialect,
        expire_at_ms: Option<u64>,
        visitor: &mut V,
    ) -> Result<(), Stop<V::Error>> {
        let kind = kind_of(value_type, dialect);
        let is_module = matches!(value_type, types::MODULE | types::MODULE_2);
        if kind.is_none() && !is_module {
            return Err(Error::UnknownType(value_type).into());
        }
        self.source.string(&mut self.name)?;
        self.is_in_value = true;
        let (db, name) = (self.db, self.name.as_slice());
        if let Some(kind) = kind {
            visitor.begin(&Key { db, name, kind, expire_at_ms }).map_err(Stop::Visitor)?;
            read_elements(value_type, dialect, &mut self.source, &mut |element| {
                visitor.element(element).map_err(Stop::Visitor)
            })?;
            visitor.end().map_err(Stop::Visitor)?;
        } else {
            let (offset, key) = (self.source.offset(), self.name.clone());
            return Err(Stop::File(FileError::Module { offset, db, key }));
        }
        self.is_in_value = false;
        Ok(())
    }

    fn finish<E>(&mut self, version: u16) -> Result<(), Stop<E>> {
        if version >= VERSION_CHECKSUM {
            let (computed, offset) = (self.source.checksum(), self.source.offset());
            let written = u64::from_le_bytes(self.source.array()?);
            // Zero stands for no checksum.
            if written != 0 && written != computed {
                return Err(Stop::File(FileError::Checksum { offset }));
            }
        }
        if self.source.is_at_end()? {
            return Ok(());
        }
        Err(Stop::File(FileError::GoesOn { offset: self.source.offset() }))
    }
}
