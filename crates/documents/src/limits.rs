//! The limits of documents that a server sets.

/// Size limits for documents that clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum bytes of a document's body, without white space.
    pub document_bytes_max: usize,
    /// The maximum bytes of an attachment.
    pub attachment_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { document_bytes_max: 8_000_000, attachment_bytes_max: 1 << 30 }
    }
}
