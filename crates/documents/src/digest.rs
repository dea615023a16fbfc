//! `Digest`: the MD5 of an attachment, as CouchDB shows it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

/// The MD5 of the bytes of an attachment, shown as `md5-<base64>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Md5::digest(bytes).into())
    }

    /// The digest as base64, as in the header `Content-MD5`.
    pub fn base64(self) -> String {
        STANDARD.encode(self.0)
    }

    /// Parses `md5-<base64>`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Digest> {
        text.strip_prefix("md5-").and_then(Digest::of_base64)
    }

    /// Parses base64, as in the header `Content-MD5`; `None` for any other text.
    pub fn of_base64(text: &str) -> Option<Digest> {
        STANDARD.decode(text).ok()?.try_into().ok().map(Digest)
    }
}
