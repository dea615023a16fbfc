//! Why bytes cannot be decoded.

/// Why a value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end too early.
    #[error("the bytes end inside a value")]
    Truncated,
    /// Reading failed; the source of the bytes has the reason.
    #[error("reading failed")]
    Unreadable,
    /// The named part has bytes that are not valid in its encoding, or a form that is not supported.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A string that is longer than [`STRING_BYTES_MAX`](crate::STRING_BYTES_MAX).
    #[error("a string of {0} bytes; at most 512 MiB are possible")]
    TooLong(u64),
    /// A value type unknown to this version.
    #[error("unknown value type {0}")]
    UnknownType(u8),
    /// A list, set, sorted set or hash without elements.
    #[error("an empty collection")]
    Empty,
    /// A duplicate member or field.
    #[error("a duplicate member")]
    Duplicate,
}
