//! `DbId`, `DocId`, `UploadId`: the ids of databases, documents and unfinished attachments.
//!
//! [`DbId`] and [`UploadId`] are distinct types, so that they cannot be confused. The rules for names are in
//! `names`.
//!
//! Invariants
//! - A [`DbId`] is the LSN of the record that created the database, so no other database of the same log has
//!   the same id.
//! - An [`UploadId`] is never reused in its database.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lsn::Lsn;

/// The id of a document, or of a `_local` document without the prefix `_local/`.
pub type DocId = Arc<str>;

/// The id of a database, independent of its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DbId(u64);

impl DbId {
    /// The id of the database that the record at `lsn` creates.
    pub const fn new(lsn: Lsn) -> DbId {
        DbId(lsn.get())
    }

    /// The LSN of the record that created the database.
    pub const fn lsn(self) -> Lsn {
        Lsn::new(self.0)
    }

    /// The id as a number, for encodings.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for DbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The error of parsing text that is not 16 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 16 hex digits")]
pub struct DbIdError;

impl FromStr for DbId {
    type Err = DbIdError;

    fn from_str(text: &str) -> Result<DbId, DbIdError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 16 || !text.bytes().all(is_digit) {
            return Err(DbIdError);
        }
        u64::from_str_radix(text, 16).map(DbId).map_err(|_| DbIdError)
    }
}

/// The id of an attachment that is uploaded in chunks; unique in its database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UploadId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_16_hex_digits() {
        let id = DbId::new(Lsn::new(0xab_cdef));
        assert_eq!(id.to_string(), "0000000000abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "0", "0000000000ABCDEF", "+000000000abcdef", "0000000000abcdef0"] {
            assert_eq!(bad.parse::<DbId>(), Err(DbIdError), "{bad}");
        }
    }
}
