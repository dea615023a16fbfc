//! `Rev`: the id of one revision of a document, `N-<32 hex digits>`.
//!
//! A `Rev` consists of the number of edits since the document began, and 16 bytes that identify the edit.
//! Revisions are ordered as in CouchDB: by number, then by the bytes. The position of a revision in its tree
//! is in [`crate::RevTree`]; the rev of a `_local` document (`0-N`) is a different type.
//!
//! Invariants
//! - The number is at least 1. Revisions of other servers are rejected if their hash is not 32 hex digits.
//! - The encoding has 20 bytes: number (u32, big endian), hash. The order of encodings is the order of
//!   revisions.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The maximum bytes of the text of a revision: ten digits, a dash, 32 hex digits.
pub const REV_TEXT_BYTES: usize = 43;

/// The id of a revision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rev {
    number: NonZeroU32,
    hash: [u8; 16],
}

/// The error of parsing text that is not a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Invalid rev format")]
pub struct RevError;

impl Rev {
    /// The size of [`Rev::to_bytes`].
    pub const BYTES: usize = 20;

    /// The revision with this number and hash; `None` for number 0.
    pub const fn new(number: u32, hash: [u8; 16]) -> Option<Rev> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Rev { number, hash }),
            None => None,
        }
    }

    /// The first revision of a document.
    pub const fn first(hash: [u8; 16]) -> Rev {
        Rev { number: NonZeroU32::MIN, hash }
    }

    /// The revision that follows this one and has the hash `hash`; `None` if numbers are exhausted.
    pub fn next(self, hash: [u8; 16]) -> Option<Rev> {
        Some(Rev { number: self.number.checked_add(1)?, hash })
    }

    /// The number, which its text begins with: 1 for a first revision, else one more than that of its parent.
    pub const fn number(self) -> u32 {
        self.number.get()
    }

    /// The hash of the edit.
    pub const fn hash(self) -> [u8; 16] {
        self.hash
    }

    /// The encoding; see the module documentation.
    pub fn to_bytes(self) -> [u8; Rev::BYTES] {
        let mut bytes = [0; Rev::BYTES];
        let (number, hash) = bytes.split_at_mut(4);
        number.copy_from_slice(&self.number().to_be_bytes());
        hash.copy_from_slice(&self.hash);
        bytes
    }

    /// Decodes a revision; `None` for bytes of another length or number 0.
    pub fn from_bytes(bytes: &[u8]) -> Option<Rev> {
        let (number, hash) = bytes.split_first_chunk::<4>()?;
        Rev::new(u32::from_be_bytes(*number), hash.try_into().ok()?)
    }

    /// The hash as text, as `_revisions` lists it.
    pub fn hash_text(self) -> HashText {
        HashText(self.hash)
    }
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, HashText(self.hash))
    }
}

impl fmt::Debug for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hash of a revision, shown as 32 hex digits. See [`Rev::hash_text`].
#[derive(Clone, Copy)]
pub struct HashText([u8; 16]);

impl fmt::Display for HashText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 32];
        hex::encode_to_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Rev {
    type Err = RevError;

    fn from_str(text: &str) -> Result<Rev, RevError> {
        let (number, hash) = text.split_once('-').ok_or(RevError)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RevError);
        }
        let number = number.parse().map_err(|_| RevError)?;
        Rev::new(number, parse_hash(hash).ok_or(RevError)?).ok_or(RevError)
    }
}

/// Parses 32 hex digits in lower or upper case.
pub(crate) fn parse_hash(text: &str) -> Option<[u8; 16]> {
    let mut hash = [0; 16];
    hex::decode_to_slice(text, &mut hash).ok().map(|()| hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_number_and_32_hex_digits_name_a_revision() {
        let rev: Rev = "3-00FFa1b2c3d4e5f60718293a4b5c6d7e".parse().expect("a revision");
        assert_eq!((rev.number(), rev.hash()[1]), (3, 0xff));
        assert_eq!(rev.to_string(), "3-00ffa1b2c3d4e5f60718293a4b5c6d7e");
        let hash = "00ffa1b2c3d4e5f60718293a4b5c6d7e";
        for bad in ["", "3", "-", "3-", "3-abc", "x-y", "foo"] {
            assert_eq!(bad.parse::<Rev>(), Err(RevError), "{bad}");
        }
        for number in ["", "0", "+3", "-3", " 3", "4294967296", "3.0"] {
            assert_eq!(format!("{number}-{hash}").parse::<Rev>(), Err(RevError), "{number}");
        }
        for hash in [format!("{hash}0"), hash.replace('a', "g"), hash.replace("0718", "é8")] {
            assert_eq!(format!("3-{hash}").parse::<Rev>(), Err(RevError), "{hash}");
        }
    }

    #[test]
    fn the_last_generation_has_no_successor() {
        let last = Rev::new(u32::MAX, [1; 16]).expect("not 0");
        assert_eq!(last.next([2; 16]), None);
        assert_eq!(last.to_string().len(), REV_TEXT_BYTES);
        assert_eq!(Rev::first([7; 16]).next([8; 16]).map(Rev::number), Some(2));
    }

    proptest! {
        #[test]
        fn text_and_bytes_name_the_same(number in 1u32.., hash: [u8; 16], other_number in 1u32.., other_hash: [u8; 16]) {
            let rev = Rev::new(number, hash).expect("not 0");
            let other = Rev::new(other_number, other_hash).expect("not 0");
            prop_assert_eq!(rev.to_string().parse::<Rev>(), Ok(rev));
            prop_assert_eq!(Rev::from_bytes(&rev.to_bytes()), Some(rev));
            prop_assert_eq!(Rev::from_bytes(&rev.to_bytes()[1..]), None);
            prop_assert_eq!(rev.cmp(&other), rev.to_bytes().cmp(&other.to_bytes()));
        }
    }
}
