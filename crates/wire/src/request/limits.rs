//! The size limits of a request, before and after authentication.

/// Bounds of one request. All sizes in bytes.
///
/// A request can never exceed [`Limits::REQUEST_BYTES_CEILING`], in any configuration, because argument
/// offsets have 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length of a bulk string (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// The maximum number of arguments of a command, including its name. Redis had this limit before 7.0;
    /// since then its limit is 2^31 - 1.
    pub args_max: usize,
    /// The maximum length of a line (an inline command, or the header of an array or bulk string), without
    /// its line end.
    pub inline_bytes_max: usize,
    /// The maximum length of an array of arguments, including headers (`client-query-buffer-limit`). Inline
    /// commands have only the limit of their line.
    pub request_bytes_max: usize,
    /// Whether the client is authenticated. This determines only which error a request over the limits gets.
    pub authenticated: bool,
}

impl Limits {
    /// The limits of a client that is authenticated or needs no authentication.
    pub const DEFAULT: Limits = Limits {
        bulk_bytes_max: 512 * 1024 * 1024,
        args_max: 1024 * 1024,
        inline_bytes_max: 64 * 1024,
        request_bytes_max: 1024 * 1024 * 1024,
        authenticated: true,
    };

    /// The limits before authentication: enough for `AUTH` and `HELLO`, but not for taking much memory. Redis
    /// has the same `args_max` and `bulk_bytes_max`, but accepts a request of ten arguments that are all of
    /// the maximum length.
    ///
    /// While these limits are in force, parse with `commands_max = 1`: the command just parsed may lift them.
    pub const UNAUTHENTICATED: Limits = Limits {
        bulk_bytes_max: 16_384,
        args_max: 10,
        request_bytes_max: 64 * 1024,
        authenticated: false,
        ..Limits::DEFAULT
    };

    /// The largest `request_bytes_max` that has an effect: 2 GiB.
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
