//! Why bytes are not what they should be.

/// See the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end too early.
    #[error("the bytes end inside a value")]
    Truncated,
    /// The bytes cannot be read; whoever reads them knows why.
    #[error("reading failed")]
    Unreadable,
    /// A length, an encoding or a number that cannot be.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A string that is longer than [`STRING_BYTES_MAX`](crate::STRING_BYTES_MAX).
    #[error("a string of {0} bytes; at most 512 MiB are possible")]
    TooLong(u64),
    /// A value type that this version does not know.
    #[error("unknown value type {0}")]
    UnknownType(u8),
    /// A value without elements.
    #[error("an empty collection")]
    Empty,
    /// A member or field that is there twice.
    #[error("a duplicate member")]
    Duplicate,
}
