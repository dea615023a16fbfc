//! What one request may take, before and after authentication.

/// Bounds of one request. All sizes in bytes.
///
/// A request can never take more than [`Limits::REQUEST_BYTES_CEILING`], whatever is configured, because offsets of
/// arguments are kept in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Most arguments of one command, its name included. Redis had this bound until 7.0 and allows 2^31 - 1 since.
    pub args_max: usize,
    /// Longest line: an inline command or the header of an array or bulk string, without its line end.
    pub inline_bytes_max: usize,
    /// Longest request, headers included (`client-query-buffer-limit`).
    pub request_bytes_max: usize,
    /// Whether the client has proved who it is; decides only which error tells about a request over the limits.
    pub authenticated: bool,
}

impl Limits {
    /// What a client may send once authenticated, or if no password is asked for.
    pub const DEFAULT: Limits = Limits {
        bulk_bytes_max: 512 * 1024 * 1024,
        args_max: 1024 * 1024,
        inline_bytes_max: 64 * 1024,
        request_bytes_max: 1024 * 1024 * 1024,
        authenticated: true,
    };

    /// What a client may send that has yet to authenticate: enough for `AUTH` and `HELLO`, not to take memory.
    ///
    /// While these limits are in force, parse with `commands_max = 1`: the command just parsed may lift them.
    pub const UNAUTHENTICATED: Limits =
        Limits { bulk_bytes_max: 16_384, args_max: 10, authenticated: false, ..Limits::DEFAULT };

    /// The longest request that any configuration can allow: 2 GiB.
    pub const REQUEST_BYTES_CEILING: usize = 1 << 31;

    pub(super) fn request_bytes_max(&self) -> usize {
        self.request_bytes_max.min(Self::REQUEST_BYTES_CEILING)
    }

    pub(super) fn line_bytes_max(&self) -> usize {
        self.inline_bytes_max.min(Self::REQUEST_BYTES_CEILING / 2)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
