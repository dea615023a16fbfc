//! Requests that cannot be understood. After any of them the connection is closed: where the next request starts is unknown.

/// Why a request was refused. `Display` gives Redis' own words without the `ERR Protocol error: ` before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number after `*` is none, or there are too many arguments.
    #[error("invalid multibulk length")]
    InvalidMultibulkLength,
    /// The number after `$` is none, is negative or larger than a bulk string may be.
    #[error("invalid bulk length")]
    InvalidBulkLength,
    /// Something else than a bulk string within a request, and the byte it starts with.
    #[error("expected '$', got '{}'", printable(*.0) as char)]
    ExpectedBulk(u8),
    /// An inline command without a line end in sight.
    #[error("too big inline request")]
    TooBigInline,
    /// The header of an array without a line end in sight.
    #[error("too big mbulk count string")]
    TooBigMultibulkCount,
    /// The header of a bulk string without a line end in sight.
    #[error("too big bulk count string")]
    TooBigBulkCount,
    /// An inline command with a quote that is not closed, or closed in the middle of a word.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// More arguments than a client may send before it has authenticated.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// A longer bulk string than a client may send before it has authenticated.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// A request larger than `request_bytes_max` of the [`Limits`](super::Limits). Redis closes without a word here.
    #[error("too big request")]
    TooBigRequest,
    /// A line of HTTP, as a browser sends it when a page is made to post to this port. It is answered with nothing at all.
    #[error("a request of HTTP")]
    Http,
}

impl ProtocolError {
    /// Appends the whole error reply, line end included; nothing for [`ProtocolError::Http`].
    pub fn render(&self, out: &mut Vec<u8>) {
        if *self == Self::Http {
            return;
        }
        out.extend_from_slice(b"-ERR Protocol error: ");
        match self {
            // Not through Display: the byte goes out as it came in, not as UTF-8.
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

/// A byte that cannot end the error line early.
fn printable(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}
