//! The value that IDEMP stores at its key.
//!
//! | bytes | content |
//! |---|---|
//! | 5 | `IDEMP` |
//! | 1 | version of this form: 1 |
//! | 1 | version of the protocol of the reply: 2 or 3 |
//! | 16 | digest of the command |
//! | the rest | the reply, as it was sent |
//!
//! The digest is XXH3 of all arguments, each after its length as 8 bytes. Numbers are little endian. The name
//! of the command, and the SHA-1 of EVALSHA, are in lower case. EVAL counts as EVALSHA with the SHA-1 of its
//! script: clients send one for the other.
//!
//! If the client that repeats the command speaks the other version of the protocol, types that its version
//! does not have are translated: a map becomes an array. Nothing else is translated. For example, ZPOPMIN
//! with a count replies with an array of pairs in RESP3 and with a flat array in RESP2; a repetition gets the
//! array that was stored.
//!
//! The value is not trusted, because any client can set the key. IDEMP refuses a value of another form, or
//! without a complete reply.

use scripting::Sha;
use wire::{Args, DecodeLimits, Protocol, ReplyWriter, Value, decode};
use xxhash_rust::xxh3::Xxh3Default;

use super::REPLY_BYTES_MAX;

const MAGIC: &[u8; 5] = b"IDEMP";
const VERSION: u8 = 1;
const DIGEST_BYTES: usize = 16;

/// The maximum nesting of a kept reply.
const NESTING_MAX: usize = 1000;

/// A digest that tells commands apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    pub(super) fn of(call: Args<'_>) -> Digest {
        let name = call.at(0).to_ascii_lowercase();
        match (&name[..], call.get(1)) {
            (b"eval", Some(script)) => {
                Digest::of_words(&[b"evalsha", Sha::of(script).to_string().as_bytes()], call.skip(2))
            }
            (b"evalsha", Some(sha)) => Digest::of_words(&[&name, &sha.to_ascii_lowercase()], call.skip(2)),
            _ => Digest::of_words(&[&name], call.skip(1)),
        }
    }

    fn of_words(first: &[&[u8]], rest: Args<'_>) -> Digest {
        let mut hash = Xxh3Default::new();
        for word in first.iter().copied().chain(rest) {
            hash.update(&(word.len() as u64).to_le_bytes());
            hash.update(word);
        }
        Digest(hash.digest128().to_le_bytes())
    }
}

/// A value that was kept.
#[derive(Debug, PartialEq)]
pub(super) struct Stored<'v> {
    /// The digest of the command that has run.
    pub(super) digest: Digest,
    protocol: Protocol,
    reply: &'v [u8],
}

impl<'v> Stored<'v> {
    /// The value for a reply in a version of the protocol.
    pub(super) fn encode(digest: Digest, protocol: Protocol, reply: &[u8]) -> Vec<u8> {
        let version = match protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        [&MAGIC[..], &[VERSION, version], &digest.0, reply].concat()
    }

    /// Reads a value; `None` if the part before the reply has another form. The reply is not checked.
    pub(super) fn parse(value: &'v [u8]) -> Option<Stored<'v>> {
        let rest = value.strip_prefix(MAGIC)?.strip_prefix(&[VERSION])?;
        let (version, rest) = rest.split_first()?;
        let protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return None,
        };
        let (digest, reply) = rest.split_first_chunk::<DIGEST_BYTES>()?;
        Some(Stored { digest: Digest(*digest), protocol, reply })
    }

    /// Writes the reply in the writer's version of the protocol. Returns whether the stored bytes are a
    /// reply; if not, nothing is written.
    pub(super) fn write(&self, reply: &mut ReplyWriter<'_>) -> bool {
        let Some(value) = read(self.reply) else { return false };
        if self.protocol == reply.protocol() {
            reply.raw(self.reply);
        } else {
            value.write(reply);
        }
        true
    }
}

/// Whether these bytes are one complete reply, which can be sent again.
pub(super) fn is_reply(bytes: &[u8]) -> bool {
    read(bytes).is_some()
}

fn read(bytes: &[u8]) -> Option<Value> {
    let limits =
        DecodeLimits { bytes_max: REPLY_BYTES_MAX, elements_max: REPLY_BYTES_MAX, nesting_max: NESTING_MAX };
    let (value, len) = decode(bytes, &limits).ok()??;
    (len == bytes.len()).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::parse;

    const DIGEST: Digest = Digest([7; DIGEST_BYTES]);

    fn told(value: &[u8], protocol: Protocol) -> Option<String> {
        let (stored, mut out) = (Stored::parse(value)?, Vec::new());
        let is_reply = stored.write(&mut ReplyWriter::new(&mut out, protocol));
        is_reply.then(|| out.escape_ascii().to_string())
    }

    #[test]
    fn replies_are_told_in_either_version() {
        for (kept_by, reply, resp2, resp3) in [
            (Protocol::Resp2, &b":1\r\n"[..], ":1\r\n", ":1\r\n"),
            (Protocol::Resp2, b"$-1\r\n", "$-1\r\n", "_\r\n"),
            (Protocol::Resp2, b"*-1\r\n", "*-1\r\n", "_\r\n"),
            (Protocol::Resp2, b"*2\r\n$-1\r\n+OK\r\n", "*2\r\n$-1\r\n+OK\r\n", "*2\r\n_\r\n+OK\r\n"),
            (Protocol::Resp3, b"_\r\n", "$-1\r\n", "_\r\n"),
            (
                Protocol::Resp3,
                b"%1\r\n$1\r\na\r\n,1.5\r\n",
                "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n",
                "%1\r\n$1\r\na\r\n,1.5\r\n",
            ),
            (Protocol::Resp3, b"~1\r\n#t\r\n", "*1\r\n:1\r\n", "~1\r\n#t\r\n"),
            (Protocol::Resp3, b"-ERR no\r\n", "-ERR no\r\n", "-ERR no\r\n"),
        ] {
            let value = Stored::encode(DIGEST, kept_by, reply);
            for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
                let expected = expected.as_bytes().escape_ascii().to_string();
                assert_eq!(told(&value, protocol), Some(expected), "{}", reply.escape_ascii());
            }
        }
    }

    #[test]
    fn invalid_stored_values_are_not_parsed() {
        let value = Stored::encode(DIGEST, Protocol::Resp2, b":1\r\n");
        for end in 0..value.len() {
            assert_eq!(told(&value[..end], Protocol::Resp2), None, "{end} bytes");
        }
        for (at, byte) in [(0, b'X'), (5, 2), (6, 1)] {
            let mut other = value.clone();
            other[at] = byte;
            assert_eq!(Stored::parse(&other), None);
        }
        assert_eq!(told(&[&value[..], b":1\r\n"].concat(), Protocol::Resp2), None, "two replies");
    }

    #[test]
    fn commands_are_told_apart() {
        let of = |line: &str| Digest::of(parse(line).as_args());
        assert_eq!(of("INCR c"), of("incr c"));
        let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(of("EVAL 'return 1' 1 k"), of(&format!("EvalSha {} 1 k", sha.to_uppercase())));
        assert_ne!(of("EVAL 'return 1' 1 k"), of(&format!("EVALSHA {sha} 1 l")));
        for (one, other) in
            [("INCR c", "INCR d"), ("INCR c", "DECR c"), ("DEL ab c", "DEL a bc"), ("DEL a", "DEL a a")]
        {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
        // Digests are on disk, so the function must not change.
        assert_eq!(
            u128::from_le_bytes(of("INCR counter").0),
            297_205_774_860_029_058_710_501_217_445_882_764_516
        );
    }

    proptest! {
        #[test]
        fn arbitrary_stored_values_are_readable(mut value in proptest::collection::vec(any::<u8>(), 0..60), has_head in any::<bool>()) {
            if has_head {
                value = Stored::encode(DIGEST, Protocol::Resp3, &value);
            }
            told(&value, Protocol::Resp2);
            told(&value, Protocol::Resp3);
        }
    }
}
