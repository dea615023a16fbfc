//! Strings that change only if they hold what the client expects: the conditions of SET and DELEX, DELIFEQ,
//! DIGEST.

use engine::{CommandError, Context, EventClass};
use keyspace::{EntryRef, KeyOp};
use wire::{Args, ArgsIter};
use xxhash_rust::xxh3::xxh3_64;

use super::string;

/// The length of a digest in hexadecimal digits.
const DIGEST_DIGITS: usize = 16;

/// The value or the digest that a string is compared with.
#[derive(Debug, Clone, Copy)]
enum Expected<'a> {
    Value(&'a [u8]),
    /// The digest of the value.
    Digest(u64),
}

/// A condition on the string at a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparison<'a> {
    expected: Expected<'a>,
    /// Whether the condition holds if the string differs, rather than if it is as expected.
    holds_if_different: bool,
}

impl<'a> Comparison<'a> {
    /// The condition that begins with this word, if any does; its operand comes from `rest`.
    ///
    /// # Errors
    /// The operand is missing, or no digest.
    pub(super) fn read(word: &[u8], rest: &mut ArgsIter<'a>) -> Result<Option<Comparison<'a>>, CommandError> {
        const WORDS: [(&[u8], bool, bool); 4] = [
            (b"ifeq", false, false),
            (b"ifne", false, true),
            (b"ifdeq", true, false),
            (b"ifdne", true, true),
        ];
        let Some(&(_, is_digest, holds_if_different)) =
            WORDS.iter().find(|(name, ..)| word.eq_ignore_ascii_case(name))
        else {
            return Ok(None);
        };
        let operand = rest.next().ok_or(CommandError::Syntax)?;
        let expected = if is_digest { parse_digest(operand)? } else { Expected::Value(operand) };
        Ok(Some(Comparison { expected, holds_if_different }))
    }

    /// Whether the condition holds. An absent key differs from everything.
    ///
    /// # Errors
    /// The key holds another type.
    pub(super) fn holds(&self, entry: Option<EntryRef<'_>>) -> Result<bool, CommandError> {
        let Some(entry) = entry else { return Ok(self.holds_if_different) };
        let value = string(entry)?;
        let is_as_expected = match self.expected {
            Expected::Value(expected) => value == expected,
            Expected::Digest(expected) => xxh3_64(value) == expected,
        };
        Ok(is_as_expected != self.holds_if_different)
    }
}

/// Whether a word begins a condition.
pub(super) fn is_comparison(word: &[u8]) -> bool {
    [&b"ifeq"[..], b"ifne", b"ifdeq", b"ifdne"].iter().any(|name| word.eq_ignore_ascii_case(name))
}

fn parse_digest<'a>(text: &[u8]) -> Result<Expected<'a>, CommandError> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.len() == DIGEST_DIGITS);
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    let digits = digits.filter(|text| text.bytes().all(is_digit));
    let digest = digits.and_then(|text| u64::from_str_radix(text, 16).ok());
    digest
        .map(Expected::Digest)
        .ok_or(CommandError::Text("ERR a digest must be exactly 16 hexadecimal characters"))
}

/// `DIGEST key`: the XXH3 of the string, in 16 hexadecimal digits; null without a key.
pub(super) fn digest(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    match cx.unit.read(cx.session.db, args.at(1)) {
        Some(entry) => {
            let digest = format!("{:016x}", xxh3_64(string(entry)?));
            cx.reply.bulk(digest.as_bytes());
        }
        None => cx.reply.null(),
    }
    Ok(())
}

/// `DELIFEQ key value`
pub(super) fn delifeq(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let expected = Expected::Value(args.at(2));
    delete_if(cx, args.at(1), Some(Comparison { expected, holds_if_different: false }))
}

/// `DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]`
pub(super) fn delex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut words = args.skip(2).iter();
    let comparison = match words.next() {
        None => None,
        Some(word) => Some(Comparison::read(word, &mut words)?.ok_or(CommandError::Syntax)?),
    };
    if words.next().is_some() {
        return Err(CommandError::WrongArity("delex"));
    }
    delete_if(cx, args.at(1), comparison)
}

/// Deletes a key that exists, if the condition holds for it, and replies whether the key was deleted.
fn delete_if(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    comparison: Option<Comparison<'_>>,
) -> Result<(), CommandError> {
    let entry = cx.unit.get(cx.session.db, key);
    let exists = entry.is_some();
    let holds = comparison.map_or(Ok(true), |comparison| comparison.holds(entry))?;
    if exists && holds {
        cx.apply(key, KeyOp::Delete);
        cx.notify(EventClass::GENERIC, "del", key);
    }
    cx.reply.integer((exists && holds).into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn a_string_is_set_if_it_is_as_expected() {
        check(&[
            ("SET k v", "+OK"),
            ("SET k w IFEQ v", "+OK"),
            ("SET k x ifeq nope", "nil"),
            ("SET k x IFEQ nope GET", "\"w\""),
            ("SET k x IFEQ w GET EX 10", "\"w\""),
            ("TTL k", ":10"),
            ("SET k y IFEQ x KEEPTTL", "+OK"),
            ("TTL k", ":10"),
            ("SET none x IFEQ a", "nil"),
            ("SET none x IFEQ a GET", "nil"),
            ("EXISTS none", ":0"),
            ("SET k z IFNE y", "nil"),
            ("SET k z IFNE x", "+OK"),
            ("SET new z IFNE x", "+OK"),
            ("GET new", "\"z\""),
            ("SET k a IFEQ z NX", "-ERR syntax error"),
            ("SET k a XX IFEQ z", "-ERR syntax error"),
            ("SET k a IFEQ z IFNE z", "-ERR syntax error"),
            ("SET k a IFEQ", "-ERR syntax error"),
            ("RPUSH l a", ":1"),
            ("SET l a IFEQ a", WRONG_TYPE),
            ("SET l a IFNE a", WRONG_TYPE),
        ]);
    }

    #[test]
    fn a_digest_stands_for_the_string() {
        let mut server = TestServer::new();
        server.check(&[
            ("DIGEST k", "nil"),
            ("SET k ''", "+OK"),
            // The XXH3 of the empty string, as in the specification of XXH3.
            ("DIGEST k", "\"2d06800538d394c2\""),
            ("SET k v IFDEQ 2D06800538D394C2", "+OK"),
            ("SET k w IFDEQ 2d06800538d394c2", "nil"),
            ("SET k w IFDNE 2d06800538d394c2", "+OK"),
            ("SET k x IFDEQ 2d06", "-ERR a digest must be exactly 16 hexadecimal characters"),
            ("SET k x IFDEQ +d06800538d394c2", "-ERR a digest must be exactly 16 hexadecimal characters"),
            ("RPUSH l a", ":1"),
            ("DIGEST l", WRONG_TYPE),
        ]);
        let digest = server.run("DIGEST k");
        let delete = format!("DELEX k IFDEQ {}", digest.trim_matches('"'));
        server.check(&[(&delete, ":1"), ("EXISTS k", ":0")]);
    }

    #[test]
    fn a_key_is_deleted_if_it_is_as_expected() {
        check(&[
            ("SET k v", "+OK"),
            ("DELIFEQ k w", ":0"),
            ("DELIFEQ k v", ":1"),
            ("DELIFEQ k v", ":0"),
            ("DELIFEQ k", "-ERR wrong number of arguments for 'delifeq' command"),
            ("RPUSH l a", ":1"),
            ("DELIFEQ l a", WRONG_TYPE),
            ("DELEX l IFEQ a", WRONG_TYPE),
            ("DELEX l", ":1"),
            ("DELEX l", ":0"),
            ("SET k v", "+OK"),
            ("DELEX k IFNE v", ":0"),
            ("DELEX k IFEQ w", ":0"),
            ("DELEX k IFNE w", ":1"),
            ("DELEX k IFNE w", ":0"),
            ("DELEX k IF w", "-ERR syntax error"),
            ("DELEX k IFEQ", "-ERR syntax error"),
            ("DELEX k IFEQ a IFEQ b", "-ERR wrong number of arguments for 'delex' command"),
        ]);
    }
}
