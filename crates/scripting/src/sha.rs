//! The names of scripts: the SHA-1 of their source in hexadecimal digits.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use sha1::{Digest, Sha1};

/// The name of a script. The case of its digits is not significant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sha([u8; 20]);

/// Only 8 bytes of the digest are hashed, because they are as evenly distributed as all 20.
impl Hash for Sha {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [part, ..] = self.0.as_chunks::<8>().0 else { return };
        state.write_u64(u64::from_le_bytes(*part));
    }
}

impl Sha {
    /// Number of hexadecimal digits in a name.
    pub const DIGITS: usize = 40;

    /// The name of this source.
    pub fn of(source: &[u8]) -> Sha {
        Sha(Sha1::digest(source).into())
    }

    /// Parses a name; `None` if it does not consist of [`Sha::DIGITS`] hexadecimal digits.
    pub fn parse(digits: &[u8]) -> Option<Sha> {
        if digits.len() != Sha::DIGITS {
            return None;
        }
        let (mut bytes, mut seen) = ([0; 20], 0);
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| DIGITS[usize::from(digit)]);
            seen |= high | low;
            *byte = high << 4 | low;
        }
        (seen < NO_DIGIT).then_some(Sha(bytes))
    }
}

/// The value in [`DIGITS`] of bytes that are no hexadecimal digit.
const NO_DIGIT: u8 = 16;

/// The value of each byte as a hexadecimal digit.
const DIGITS: [u8; 256] = {
    let (mut digits, mut value) = ([NO_DIGIT; 256], 0);
    while value < 16 {
        let digit = b"0123456789abcdef"[value as usize];
        digits[digit as usize] = value;
        digits[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    digits
};

impl fmt::Display for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The SHA-1 of bytes in hexadecimal digits.
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
