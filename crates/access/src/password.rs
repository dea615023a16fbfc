//! Hashes of passwords, as Redis keeps them: SHA-256 without salt.
//!
//! Invariants
//! - A comparison takes the same time wherever two hashes differ.
//! - `Debug` does not show the hash.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The length of a hash, in bytes.
pub(crate) const HASH_BYTES: usize = 32;

/// The SHA-256 of a password.
#[derive(Clone, Copy)]
pub struct PasswordHash([u8; HASH_BYTES]);

impl PasswordHash {
    /// The hash of a password.
    pub fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// The hash with these bytes.
    pub(crate) const fn from_bytes(bytes: [u8; HASH_BYTES]) -> PasswordHash {
        PasswordHash(bytes)
    }

    /// The bytes of the hash.
    pub const fn bytes(&self) -> &[u8; HASH_BYTES] {
        &self.0
    }

    /// The hash that this text shows; `None` unless it is 64 hexadecimal digits in lower case.
    pub fn from_hex(text: &[u8]) -> Option<PasswordHash> {
        let mut bytes = [0; HASH_BYTES];
        let is_lower = !text.iter().any(u8::is_ascii_uppercase);
        (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(PasswordHash(bytes))
    }

    /// The text that [`PasswordHash::from_hex`] reads.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl ConstantTimeEq for PasswordHash {
    fn ct_eq(&self, other: &PasswordHash) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl PartialEq for PasswordHash {
    fn eq(&self, other: &PasswordHash) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for PasswordHash {}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_digits_in_lower_case_are_a_hash() {
        let hash = PasswordHash::of(b"a");
        assert_eq!(hash.to_hex(), "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
        assert_eq!(PasswordHash::from_hex(hash.to_hex().as_bytes()), Some(hash));
        for text in ["", "zz", &hash.to_hex().to_uppercase(), &"g".repeat(64), &"a".repeat(63)] {
            assert_eq!(PasswordHash::from_hex(text.as_bytes()), None, "{text}");
        }
        assert!(!format!("{hash:?}").contains("ca97"));
    }
}
