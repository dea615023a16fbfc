//! The names of scripts: the SHA-1 of their source, as hexadecimal digits.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use sha1::{Digest, Sha1};

/// The name of a script. Compares whatever the case of its digits was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sha([u8; 20]);

/// A part of the digest spreads as well as all of it.
impl Hash for Sha {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [part, ..] = self.0.as_chunks::<8>().0 else { return };
        state.write_u64(u64::from_le_bytes(*part));
    }
}

impl Sha {
    /// Digits of a name.
    pub const DIGITS: usize = 40;

    /// The name of this source.
    pub fn of(source: &[u8]) -> Sha {
        Sha(Sha1::digest(source).into())
    }

    /// The name that these digits are; `None` if they are none.
    pub fn parse(digits: &[u8]) -> Option<Sha> {
        if digits.len() != Sha::DIGITS {
            return None;
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Sha(bytes))
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The SHA-1 of bytes as hexadecimal digits.
pub fn sha1_hex(bytes: &[u8]) -> String {
    Sha::of(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_digits_of_any_case() {
        let sha = Sha::of(b"return 1");
        assert_eq!(sha.to_string(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(Sha::parse(sha.to_string().to_uppercase().as_bytes()), Some(sha));
        for bad in [
            "",
            "e0",
            "g0e1f9fabfc9d4800c877a703b823ac0578ff8db",
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db0",
        ] {
            assert_eq!(Sha::parse(bad.as_bytes()), None);
        }
    }
}
