//! Malformed requests. After each of these errors the connection is closed, because the start of the next
//! request is unknown.

/// Why a request was refused. `Display` gives Redis' text without the prefix `ERR Protocol error: `.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number after `*` is malformed, or there are too many arguments.
    #[error("invalid multibulk length")]
    InvalidMultibulkLength,
    /// The number after `$` is malformed, negative or larger than a bulk string may be.
    #[error("invalid bulk length")]
    InvalidBulkLength,
    /// The request has this byte where the `$` of a bulk string must be.
    #[error("expected '$', got '{}'", printable(*.0) as char)]
    ExpectedBulk(u8),
    /// An inline command whose line is too long.
    #[error("too big inline request")]
    TooBigInline,
    /// The header of an array whose line is too long.
    #[error("too big mbulk count string")]
    TooBigMultibulkCount,
    /// The header of a bulk string whose line is too long.
    #[error("too big bulk count string")]
    TooBigBulkCount,
    /// An inline command with a quote that is not closed, or is closed within a word.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// More arguments than a client may send before authentication.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// A bulk string longer than a client may send before authentication.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// A request larger than `request_bytes_max` of the [`Limits`](super::Limits). Redis closes the
    /// connection without a reply here.
    #[error("too big request")]
    TooBigRequest,
    /// A line of HTTP, which a browser sends if a web page makes it post to this port. The connection is
    /// closed without a reply.
    #[error("a request of HTTP")]
    Http,
}

impl ProtocolError {
    /// Appends the whole error reply, including the line end; nothing for [`ProtocolError::Http`].
    pub fn render(&self, out: &mut Vec<u8>) {
        if *self == Self::Http {
            return;
        }
        out.extend_from_slice(b"-ERR Protocol error: ");
        match self {
            // `Display` is not used, because the byte must be sent unchanged, not as UTF-8.
            Self::ExpectedBulk(byte) => {
                out.extend_from_slice(b"expected '$', got '");
                out.push(printable(*byte));
                out.push(b'\'');
            }
            other => out.extend_from_slice(other.to_string().as_bytes()),
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Replaces bytes that would end the error line early.
fn printable(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}
