//! The limits of documents that a server sets.

/// Size limits for documents that clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The body of a document, in bytes without white space.
    pub document_bytes_max: usize,
    /// One attachment, in bytes.
    pub attachment_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { document_bytes_max: 8_000_000, attachment_bytes_max: 1 << 30 }
    }
}
