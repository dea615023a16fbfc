//! Passwords as documents of `_users` keep them: a key that PBKDF2 derives from the password and a salt.
//!
//! A check is not quick: at the 600,000 iterations of CouchDB 3.5, one takes a few hundred milliseconds.
//! [`User::accepts_at_once`] makes no such check.
//!
//! Invariants
//! - A comparison takes the same time wherever two keys differ.
//! - `Debug` shows neither salt nor key.
//! - [`ITERATIONS_MAX`] limits the work of a check, even for a record from another server.
//!
//! [`User::accepts_at_once`]: crate::User::accepts_at_once

use std::{fmt, num::NonZeroU32};

use ring::pbkdf2;

/// The iterations with which passwords are derived here, as in CouchDB 3.5.
pub const ITERATIONS_DEFAULT: u32 = 600_000;

/// The maximum number of iterations.
pub const ITERATIONS_MAX: u32 = 10_000_000;

/// The maximum bytes of a salt. A derived password with a longer salt is refused, even in a record of another
/// server.
pub const SALT_BYTES_MAX: usize = 256;

/// The possible numbers of bytes of a derived key: at least half of a SHA-256, and no more than a SHA-512.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// The beginning of the text of a derived password. By it, such a text is told from a SHA-256.
pub(crate) const TEXT_PREFIX: &[u8] = b"pbkdf2-";

/// The hash function in the pseudorandom function of PBKDF2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prf {
    /// HMAC with SHA-1, as in CouchDB before 3.4.
    Sha1,
    /// HMAC with SHA-256.
    Sha256,
    /// HMAC with SHA-384.
    Sha384,
    /// HMAC with SHA-512.
    Sha512,
}

impl Prf {
    const ALL: [Prf; 4] = [Prf::Sha1, Prf::Sha256, Prf::Sha384, Prf::Sha512];

    /// The name of the function in CouchDB's field `pbkdf2_prf`.
    pub const fn name(self) -> &'static str {
        match self {
            Prf::Sha1 => "sha",
            Prf::Sha256 => "sha256",
            Prf::Sha384 => "sha384",
            Prf::Sha512 => "sha512",
        }
    }

    /// The function of this name.
    pub fn named(name: &[u8]) -> Option<Prf> {
        Prf::ALL.into_iter().find(|prf| prf.name().as_bytes() == name)
    }

    const fn algorithm(self) -> pbkdf2::Algorithm {
        match self {
            Prf::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Prf::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Prf::Sha384 => pbkdf2::PBKDF2_HMAC_SHA384,
            Prf::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_number(number: u8) -> Option<Prf> {
        Prf::ALL.into_iter().find(|prf| prf.number() == number)
    }
}

/// A password of which only a key derived by PBKDF2 is kept.
#[derive(Clone)]
pub struct DerivedPassword {
    prf: Prf,
    iterations: NonZeroU32,
    salt: Box<[u8]>,
    key: Box<[u8]>,
}

impl DerivedPassword {
    /// Derives a password with SHA-256; `None` if the salt is too long, or the number of iterations is 0 or
    /// too large. Takes long with many iterations.
    pub fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Option<DerivedPassword> {
        let mut derived = DerivedPassword::new(Prf::Sha256, iterations, salt, &[0; 32])?;
        let algorithm = derived.prf.algorithm();
        pbkdf2::derive(algorithm, derived.iterations, &derived.salt, password, &mut derived.key);
        Some(derived)
    }

    /// A derived password of these parts; `None` if one of them is outside the limits.
    pub fn new(prf: Prf, iterations: u32, salt: &[u8], key: &[u8]) -> Option<DerivedPassword> {
        let iterations = NonZeroU32::new(iterations).filter(|count| count.get() <= ITERATIONS_MAX)?;
        let fits = salt.len() <= SALT_BYTES_MAX && KEY_BYTES.contains(&key.len());
        fits.then(|| DerivedPassword { prf, iterations, salt: salt.into(), key: key.into() })
    }

    /// Whether the key was derived from this password. Takes long with many iterations.
    pub fn accepts(&self, password: &[u8]) -> bool {
        pbkdf2::verify(self.prf.algorithm(), self.iterations, &self.salt, password, &self.key).is_ok()
    }

    /// The hash function with which the key was derived.
    pub fn prf(&self) -> Prf {
        self.prf
    }

    /// The iterations with which the key was derived.
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// The salt with which the key was derived.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// The derived key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Parses the text of a derived password: `pbkdf2-sha256$ITERATIONS$SALT$KEY`, with salt and key in
    /// hexadecimal digits. `None` if the text has another form, or a part is outside the limits.
    pub fn from_text(text: &[u8]) -> Option<DerivedPassword> {
        let mut parts = text.strip_prefix(TEXT_PREFIX)?.split(|byte| *byte == b'$');
        let (prf, iterations, salt, key) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let iterations = std::str::from_utf8(iterations).ok()?.parse().ok()?;
        let (salt, key) = (hex::decode(salt).ok()?, hex::decode(key).ok()?);
        DerivedPassword::new(Prf::named(prf)?, iterations, &salt, &key).filter(|_| parts.next().is_none())
    }

    /// The text of the derived password, as [`DerivedPassword::from_text`] parses it.
    pub fn to_text(&self) -> String {
        let (prf, iterations) = (self.prf.name(), self.iterations);
        format!("pbkdf2-{prf}${iterations}${}${}", hex::encode(&self.salt), hex::encode(&self.key))
    }
}

impl PartialEq for DerivedPassword {
    fn eq(&self, other: &DerivedPassword) -> bool {
        let is_same_key: bool = subtle::ConstantTimeEq::ct_eq(&*self.key, &*other.key).into();
        is_same_key && (self.prf, self.iterations, &self.salt) == (other.prf, other.iterations, &other.salt)
    }
}

impl Eq for DerivedPassword {}

impl fmt::Debug for DerivedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedPassword(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_rfc_6070_and_of_sha_256() {
        let key = |hex: &str| hex::decode(hex).unwrap();
        let sha1 = key("4b007901b765489abead49d926f721d065a429c1");
        let known = DerivedPassword::new(Prf::Sha1, 4096, b"salt", &sha1).unwrap();
        assert!(known.accepts(b"password") && !known.accepts(b"Password"));
        let derived = DerivedPassword::derive(b"password", b"salt", 4096).unwrap();
        let sha256 = key("c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a");
        assert_eq!(derived.key(), sha256);
        assert!(derived.accepts(b"password") && !derived.accepts(b""));
    }

    #[test]
    fn a_text_has_all_parts_within_the_limits() {
        let derived = DerivedPassword::derive(b"pw", b"a $b", 2).unwrap();
        let text = derived.to_text();
        assert!(text.starts_with("pbkdf2-sha256$2$61202462$"), "{text}");
        assert_eq!(DerivedPassword::from_text(text.as_bytes()).as_ref(), Some(&derived));
        let key = "0".repeat(32);
        for refused in [
            "pbkdf2-".into(),
            format!("pbkdf2-md5$1$00${key}"),
            format!("pbkdf2-sha$0$00${key}"),
            format!("pbkdf2-sha$10000001$00${key}"),
            format!("pbkdf2-sha$1$0${key}"),
            format!("pbkdf2-sha$1${}${key}", "0".repeat(514)),
            format!("pbkdf2-sha$1$00${key}$"),
            "pbkdf2-sha$1$00$00".into(),
        ] {
            assert_eq!(DerivedPassword::from_text(refused.as_bytes()), None, "{refused}");
        }
        assert_eq!(format!("{derived:?}"), "DerivedPassword(..)");
    }
}
