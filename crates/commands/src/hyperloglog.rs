//! HyperLogLogs: strings that estimate the number of different elements added to them, in little more than
//! 12 KiB at most and with an error of about 0.8 %.
//!
//! The strings are those of Redis: a sketch dumped here works there, and vice versa. Sketches are no type of
//! their own: GET, SET, and STRLEN work on them as on any string.
//!
//! Redis' PFCOUNT of one key caches the cardinality in the string, so that the next call is immediate. Sheaf
//! uses such a cached cardinality but does not store one: read commands never write.
//!
//! Invariants
//! - A handler changes a copy of the sketch; the log gets the ranges that differ, or the whole string if it
//!   became shorter or its key is new (see `store`).
//! - For any content of a string, the commands end in an error or a reply, never in a panic.

mod add;
mod count;
mod debug;
mod dense;
mod estimate;
mod hash;
mod merge;
mod rows;
mod sketch;
mod sparse;
mod store;

use engine::CommandError;
use keyspace::EntryRef;
use sketch::{Corrupted, SketchRef};

use crate::string::string;
pub(crate) use rows::ROWS;

impl From<Corrupted> for CommandError {
    fn from(_: Corrupted) -> CommandError {
        CommandError::Text("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// The sketch in a string.
fn sketch(entry: EntryRef<'_>) -> Result<SketchRef<'_>, CommandError> {
    const NO_SKETCH: CommandError =
        CommandError::Text("WRONGTYPE Key is not a valid HyperLogLog string value.");
    SketchRef::new(string(entry)?).ok_or(NO_SKETCH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::testing::{TestServer, check};

    const NO_SKETCH: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
    const CORRUPTED: &str = "-INVALIDOBJ Corrupted HLL object detected";

    #[test]
    fn other_strings_are_no_sketches() {
        let mut server = TestServer::new();
        server.check(&[
            ("SET short HYLL", "+OK"),
            ("SET magic hyll\\x01aaaaaaaaaaaaa", "+OK"),
            (r#"SET encoding "HYLL\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x7f\xff""#, "+OK"),
            (r#"SET dense "HYLL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x7f\xff""#, "+OK"),
            ("PFADD a 1", ":1"),
        ]);
        for key in ["short", "magic", "encoding", "dense"] {
            for line in
                ["PFADD {key} 1", "PFCOUNT {key}", "PFCOUNT a {key}", "PFMERGE {key} a", "PFMERGE a {key}"]
            {
                assert_eq!(server.run(&line.replace("{key}", key)), NO_SKETCH, "{line} {key}");
            }
        }
    }

    #[test]
    fn other_types_are_refused() {
        const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("HSET h f v", ":1"),
            ("PFADD h", WRONG_TYPE),
            ("PFCOUNT h", WRONG_TYPE),
            ("PFCOUNT none h", WRONG_TYPE),
            ("PFMERGE h", WRONG_TYPE),
            ("PFMERGE none h", WRONG_TYPE),
            ("EXISTS none", ":0"),
        ]);
    }

    #[test]
    fn registers_that_make_no_sense_are_corrupted() {
        check(&[
            ("PFADD a 1 2 3", ":1"),
            // One register is missing.
            (r#"SET c "HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x7f\xfe""#, "+OK"),
            ("PFCOUNT c", CORRUPTED),
            ("PFCOUNT a c", CORRUPTED),
            ("PFMERGE c a", CORRUPTED),
            ("PFMERGE a c", CORRUPTED),
            ("PFMERGE new a c", CORRUPTED),
            ("EXISTS new", ":0"),
            // No registers. Without elements to add, none is looked up.
            (r#"SET c "HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80""#, "+OK"),
            ("PFADD c", ":0"),
            ("PFADD c 1", CORRUPTED),
            // Only the first 100 registers exist, and the elements hash to others.
            (r#"SET c "HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x40\x63""#, "+OK"),
            ("PFADD c 1 2 3", CORRUPTED),
            ("PFCOUNT a", ":3"),
        ]);
    }

    /// Strings with the header of a sketch, often valid ones with some bytes changed.
    fn strings() -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..200),
            1 => prop::collection::vec(any::<u8>(), 12288),
            2 => Just([[0x80; 60].as_slice(), &[0x7F, 0xC3]].concat()),
        ];
        let patch = prop::collection::vec((0..100usize, any::<u8>()), 0..4);
        (0..3u8, prop::bool::weighted(0.8), body, patch).prop_map(|(encoding, out_of_date, body, patch)| {
            let card = [0, 0, 0, 0, 0, 0, 0, u8::from(out_of_date) << 7];
            let mut bytes = [b"HYLL".as_slice(), &[encoding, 0, 0, 0], &card, &body].concat();
            for (index, value) in patch {
                if let Some(byte) = bytes.get_mut(index) {
                    *byte = value;
                }
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
        #[test]
        fn any_string_ends_in_a_reply(strings in prop::collection::vec(strings(), 8)) {
            let mut server = TestServer::new();
            for bytes in strings {
                server.run_args(&[b"SET", b"c", &bytes]);
                for line in ["PFCOUNT c", "PFCOUNT c d", "PFMERGE d c", "PFADD c 1 2 3", "PFMERGE c d", "PFCOUNT c"] {
                    let reply = server.run(line);
                    let is_known = reply == NO_SKETCH || reply == CORRUPTED;
                    prop_assert!(is_known || reply.starts_with(':') || reply == "+OK", "{line}: {reply}");
                }
            }
            server.assert_replays();
        }
    }
}
