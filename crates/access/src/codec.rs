//! A user as the payload of a record of the log.
//!
//! # Encoding
//! Numbers are LEB128 in their shortest form; `bytes` is a length and that many bytes.
//!
//! | field | content |
//! |-------|---------|
//! | version | one byte: 1 for a user without a birth, [`VERSION`] for one with it |
//! | marks | one byte: 1 enabled, 2 needs no password, 4 skips sanitizing |
//! | passwords | their number; then for each, one byte for its kind and the content, see below |
//! | selectors | their number, without the root; then the root and each of them |
//! | roles | their number; each is `bytes` |
//! | birth | 8 bytes, little endian, not 0 |
//!
//! The content of a password of kind 1, SHA-256, is 32 bytes. A password of kind 2, PBKDF2, occurs at most
//! once, and comes last; its content is the hash function (one byte), iterations, `bytes` of the salt,
//! `bytes` of the key.
//!
//! A selector:
//!
//! | field | content |
//! |-------|---------|
//! | marks | one byte: 1 begins with all commands, 2 all keys, 4 all channels |
//! | rules about commands | their number; each is one byte, 1 if it allows or 0, and its target as `bytes` |
//! | patterns of keys | their number, 0 with all keys; each is one byte, 1 reads + 2 writes, and `bytes` |
//! | patterns of channels | their number, 0 with all channels; each is `bytes` |
//!
//! The name of the user is not part of the payload. A user has exactly one encoding: a payload that can be
//! decoded is encoded to the same bytes again. A user without a birth was made by an earlier version, and is
//! encoded as by that version. Decoding does not check that no rule or pattern occurs twice.

use std::fmt;

use crate::command_rules::{CommandRule, CommandRules};
use crate::derived_password::{DerivedPassword, Prf};
use crate::password::{HASH_BYTES, PasswordHash};
use crate::patterns::{ChannelPatterns, KeyAccess, KeyPattern, KeyPatterns};
use crate::selector::Selector;
use crate::user::User;
use crate::words::is_word;

/// The version of users with a birth. It is not 0, so zeroed bytes do not decode.
pub const VERSION: u8 = 2;
/// The version of users without a birth.
const VERSION_WITHOUT_BIRTH: u8 = 1;

const ENABLED: u8 = 1;
const NEEDS_NO_PASSWORD: u8 = 2;
const SKIPS_SANITIZING: u8 = 4;

const ALL_COMMANDS: u8 = 1;
const ALL_KEYS: u8 = 2;
const ALL_CHANNELS: u8 = 4;

/// The kind of a password that is a SHA-256.
const SHA_256: u8 = 1;
/// The kind of a password that was derived.
const PBKDF2: u8 = 2;

/// The reason why bytes cannot be decoded as a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// A newer version has written the bytes.
    Version(u8),
    /// The bytes are damaged.
    Malformed,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Version(version) => write!(f, "a user in version {version} of the format"),
            DecodeError::Malformed => f.write_str("malformed user"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl User {
    /// The payload for the record of this user.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.birth == 0 { VERSION_WITHOUT_BIRTH } else { VERSION }];
        out.push(
            mark(self.is_enabled, ENABLED)
                | mark(self.needs_no_password, NEEDS_NO_PASSWORD)
                | mark(self.skips_sanitizing, SKIPS_SANITIZING),
        );
        self.put_passwords(&mut out);
        varint::put(&mut out, self.selectors.len() as u64);
        self.all_selectors().for_each(|selector| put_selector(&mut out, selector));
        put_all(&mut out, &self.roles, |out, role| put_bytes(out, role));
        self.put_birth(&mut out);
        out
    }

    /// A digest that changes when a password changes, when the need for a password changes, and when the
    /// birth changes, but at no other change of the user.
    pub fn login_digest(&self) -> [u8; 32] {
        let mut digested = vec![mark(self.needs_no_password, NEEDS_NO_PASSWORD)];
        self.put_passwords(&mut digested);
        self.put_birth(&mut digested);
        *PasswordHash::of(&digested).bytes()
    }

    fn put_birth(&self, out: &mut Vec<u8>) {
        if self.birth != 0 {
            out.extend_from_slice(&self.birth.to_le_bytes());
        }
    }

    fn put_passwords(&self, out: &mut Vec<u8>) {
        varint::put(out, (self.passwords.len() + usize::from(self.derived_password.is_some())) as u64);
        for password in &self.passwords {
            out.push(SHA_256);
            out.extend_from_slice(password.bytes());
        }
        if let Some(derived) = &self.derived_password {
            out.extend_from_slice(&[PBKDF2, derived.prf().number()]);
            varint::put(out, u64::from(derived.iterations()));
            put_bytes(out, derived.salt());
            put_bytes(out, derived.key());
        }
    }

    /// The user of a payload.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(payload: &[u8]) -> Result<User, DecodeError> {
        match payload.first() {
            Some(&version @ (VERSION_WITHOUT_BIRTH | VERSION)) => {
                decode(&mut &payload[1..], version == VERSION).ok_or(DecodeError::Malformed)
            }
            Some(&version) if version > VERSION => Err(DecodeError::Version(version)),
            _ => Err(DecodeError::Malformed),
        }
    }
}

fn mark(is_set: bool, mark: u8) -> u8 {
    if is_set { mark } else { 0 }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_all<T>(out: &mut Vec<u8>, items: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    varint::put(out, items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

fn put_selector(out: &mut Vec<u8>, selector: &Selector) {
    let (all_keys, keys) = match &selector.keys {
        KeyPatterns::All => (true, &[][..]),
        KeyPatterns::Of(patterns) => (false, &patterns[..]),
    };
    let (all_channels, channels) = match &selector.channels {
        ChannelPatterns::All => (true, &[][..]),
        ChannelPatterns::Of(patterns) => (false, &patterns[..]),
    };
    out.push(
        mark(selector.commands.begins_with_all, ALL_COMMANDS)
            | mark(all_keys, ALL_KEYS)
            | mark(all_channels, ALL_CHANNELS),
    );
    put_all(out, &selector.commands.rules, |out, rule| {
        out.push(u8::from(rule.allows));
        put_bytes(out, &rule.target);
    });
    put_all(out, keys, |out, known| {
        out.push(known.access.bits());
        put_bytes(out, &known.pattern);
    });
    put_all(out, channels, |out, pattern| put_bytes(out, pattern));
}

fn decode(input: &mut &[u8], has_birth: bool) -> Option<User> {
    let marks = take_marks(input, ENABLED | NEEDS_NO_PASSWORD | SKIPS_SANITIZING)?;
    let (passwords, derived_password) = take_passwords(input)?;
    let selector_count = varint::take(input)?;
    let root = take_selector(input)?;
    let selectors = take_count(input, selector_count, take_selector)?;
    let roles = take_all(input, |input| take_bytes(input).map(Box::from))?;
    let birth = if has_birth { take_birth(input)? } else { 0 };
    let user = User {
        is_enabled: marks & ENABLED != 0,
        needs_no_password: marks & NEEDS_NO_PASSWORD != 0,
        skips_sanitizing: marks & SKIPS_SANITIZING != 0,
        passwords,
        derived_password,
        root,
        selectors,
        roles,
        birth,
    };
    input.is_empty().then_some(user)
}

fn take_selector(input: &mut &[u8]) -> Option<Selector> {
    let marks = take_marks(input, ALL_COMMANDS | ALL_KEYS | ALL_CHANNELS)?;
    let rules = take_all(input, take_rule)?;
    let keys = take_all(input, take_key_pattern)?;
    let channels = take_all(input, |input| take_word(input).filter(|pattern| **pattern != *b"*"))?;
    let is_contradictory =
        (marks & ALL_KEYS != 0 && !keys.is_empty()) || (marks & ALL_CHANNELS != 0 && !channels.is_empty());
    let selector = Selector {
        commands: CommandRules { begins_with_all: marks & ALL_COMMANDS != 0, rules },
        keys: if marks & ALL_KEYS != 0 { KeyPatterns::All } else { KeyPatterns::Of(keys) },
        channels: if marks & ALL_CHANNELS != 0 {
            ChannelPatterns::All
        } else {
            ChannelPatterns::Of(channels)
        },
    };
    (!is_contradictory).then_some(selector)
}

fn take_passwords(input: &mut &[u8]) -> Option<(Vec<PasswordHash>, Option<DerivedPassword>)> {
    let (mut hashes, mut derived) = (Vec::new(), None);
    for _ in 0..varint::take(input)? {
        let (kind, rest) = input.split_first()?;
        *input = rest;
        match *kind {
            SHA_256 if derived.is_none() => hashes.push(take_hash(input)?),
            PBKDF2 if derived.is_none() => derived = Some(take_derived(input)?),
            _ => return None,
        }
    }
    Some((hashes, derived))
}

fn take_birth(input: &mut &[u8]) -> Option<u64> {
    let (birth, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u64::from_le_bytes(*birth)).filter(|birth| *birth != 0)
}

fn take_hash(input: &mut &[u8]) -> Option<PasswordHash> {
    let (hash, rest) = input.split_first_chunk::<HASH_BYTES>()?;
    *input = rest;
    Some(PasswordHash::from_bytes(*hash))
}

fn take_derived(input: &mut &[u8]) -> Option<DerivedPassword> {
    let (prf, rest) = input.split_first()?;
    *input = rest;
    let iterations = u32::try_from(varint::take(input)?).ok()?;
    let (salt, key) = (take_bytes(input)?, take_bytes(input)?);
    DerivedPassword::new(Prf::of_number(*prf)?, iterations, salt, key)
}

fn take_rule(input: &mut &[u8]) -> Option<CommandRule> {
    let allows = take_marks(input, 1)? != 0;
    let rule = CommandRule { allows, target: take_bytes(input)?.into() };
    rule.is_valid().then_some(rule)
}

fn take_key_pattern(input: &mut &[u8]) -> Option<KeyPattern> {
    let access = KeyAccess::from_bits(take_marks(input, KeyAccess::BOTH.bits())?)?;
    let pattern = take_word(input)?;
    let is_all = access == KeyAccess::BOTH && *pattern == *b"*";
    (access != KeyAccess::NONE && !is_all).then_some(KeyPattern { access, pattern })
}

/// Takes a byte. Refuses the byte if it has a bit that is not in `known`.
fn take_marks(input: &mut &[u8], known: u8) -> Option<u8> {
    let (&marks, rest) = input.split_first()?;
    *input = rest;
    (marks & !known == 0).then_some(marks)
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint::take(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

fn take_word(input: &mut &[u8]) -> Option<Box<[u8]>> {
    take_bytes(input).filter(|bytes| is_word(bytes)).map(Box::from)
}

fn take_all<T>(input: &mut &[u8], take: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = varint::take(input)?;
    take_count(input, count, take)
}

/// Takes `count` items. The memory is bounded by the input, however large `count` is, because each item takes
/// at least a byte.
fn take_count<T>(
    input: &mut &[u8],
    count: u64,
    mut take: impl FnMut(&mut &[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(take(input)?);
    }
    Some(items)
}
