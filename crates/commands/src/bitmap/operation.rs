//! BITOP: bitwise operations on whole strings.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, Value};
use wire::Args;

use crate::string::string;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// Bits of the first source that no other source has.
    Diff,
    /// Bits that any other source has and the first has not.
    Diff1,
    /// Bits of the first source that any other source has.
    AndOr,
    /// Bits that exactly one source has.
    One,
}

impl Operation {
    fn parse(name: &[u8]) -> Result<Operation, CommandError> {
        match name.to_ascii_lowercase().as_slice() {
            b"and" => Ok(Operation::And),
            b"or" => Ok(Operation::Or),
            b"xor" => Ok(Operation::Xor),
            b"not" => Ok(Operation::Not),
            b"diff" => Ok(Operation::Diff),
            b"diff1" => Ok(Operation::Diff1),
            b"andor" => Ok(Operation::AndOr),
            b"one" => Ok(Operation::One),
            _ => Err(CommandError::Syntax),
        }
    }

    /// The error for this number of sources, if it is wrong.
    fn refusal(self, sources: usize) -> Option<CommandError> {
        let text = match self {
            Operation::Not if sources != 1 => "ERR BITOP NOT must be called with a single source key.",
            Operation::Diff if sources < 2 => "ERR BITOP DIFF must be called with at least two source keys.",
            Operation::Diff1 if sources < 2 => {
                "ERR BITOP DIFF1 must be called with at least two source keys."
            }
            Operation::AndOr if sources < 2 => {
                "ERR BITOP ANDOR must be called with at least two source keys."
            }
            _ => return None,
        };
        Some(CommandError::Text(text))
    }

    /// Combines the sources, none of which is longer than `len`, the length of the result in bytes.
    fn combine<'a>(self, len: usize, mut sources: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut result = sources.next().unwrap_or_default().to_vec();
        result.resize(len, 0);
        match self {
            Operation::Not => self.fold(&mut result, &[]),
            Operation::And | Operation::Or | Operation::Xor => {
                sources.for_each(|source| self.fold(&mut result, source));
            }
            Operation::Diff | Operation::Diff1 | Operation::AndOr => {
                let others = Operation::Or.combine(len, sources);
                self.fold(&mut result, &others);
            }
            Operation::One => {
                let mut several = vec![0; len];
                for source in sources {
                    for ((result, several), byte) in result.iter_mut().zip(&mut several).zip(source) {
                        *several |= *result & byte;
                        *result |= byte;
                    }
                }
                Operation::Diff.fold(&mut result, &several);
            }
        }
        result
    }

    /// Combines the result so far with a source that is not longer; the missing bytes of the source count as
    /// zeros. For DIFF1 and ANDOR none may be missing; for NOT the source must be empty.
    fn fold(self, result: &mut [u8], source: &[u8]) {
        let (head, tail) = result.split_at_mut(source.len());
        let pairs = head.iter_mut().zip(source);
        match self {
            Operation::And => {
                pairs.for_each(|(result, byte)| *result &= byte);
                tail.fill(0);
            }
            Operation::Or => pairs.for_each(|(result, byte)| *result |= byte),
            Operation::Xor => pairs.for_each(|(result, byte)| *result ^= byte),
            Operation::Not => tail.iter_mut().for_each(|result| *result = !*result),
            Operation::Diff => pairs.for_each(|(result, byte)| *result &= !byte),
            Operation::Diff1 => pairs.for_each(|(result, byte)| *result = !*result & byte),
            Operation::AndOr => pairs.for_each(|(result, byte)| *result &= byte),
            Operation::One => pairs.for_each(|(result, byte)| *result |= byte),
        }
    }
}

/// `BITOP <AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]`
pub(super) fn bitop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, sources) = (cx.db(), args.at(2), args.skip(3));
    let operation = Operation::parse(args.at(1))?;
    if let Some(refusal) = operation.refusal(sources.len()) {
        return Err(refusal);
    }
    let mut len = 0;
    for source in sources {
        if let Some(entry) = cx.unit.read(db, source) {
            len = len.max(string(entry)?.len());
        }
    }
    cx.require_room((key.len() + len) as u64)?;
    let mut bytes = Vec::with_capacity(sources.len());
    for source in sources {
        bytes.push(cx.unit.peek(db, source).and_then(|entry| entry.string()).unwrap_or_default());
    }
    let result = operation.combine(len, bytes.into_iter());
    if !result.is_empty() {
        cx.apply(key, KeyOp::Put { value: Value::String(&result), expire_at_ms: None });
        cx.notify(EventClass::STRING, "set", key);
    } else if cx.unit.exists(db, key) {
        cx.apply(key, KeyOp::Delete);
        cx.notify(EventClass::GENERIC, "del", key);
    }
    cx.reply.count(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn strings_are_combined_bit_by_bit() {
        check(&[
            (r#"MSET a "\xff\x0f\xaa" b "\x0f\xff\x55""#, "+OK"),
            ("BITOP AND r a b", ":3"),
            ("GET r", r#""\x0f\x0f\x00""#),
            ("BITOP or r a b", ":3"),
            ("GET r", r#""\xff\xff\xff""#),
            ("BITOP Xor r a b", ":3"),
            ("GET r", r#""\xf0\xf0\xff""#),
            ("BITOP NOT r a", ":3"),
            ("GET r", r#""\x00\xf0U""#),
            ("BITOP AND r a", ":3"),
            ("GET r", r#""\xff\x0f\xaa""#),
            ("BITOP XOR a a a", ":3"),
            ("GET a", r#""\x00\x00\x00""#),
        ]);
    }

    #[test]
    fn the_operations_since_8_2_compare_the_first_with_all_others() {
        check(&[
            (r#"MSET a "\xff\x0f" b "\x0f\x3f" c "\x01\x00\x80""#, "+OK"),
            ("BITOP DIFF r a b c", ":3"),
            ("GET r", r#""\xf0\x00\x00""#),
            ("BITOP DIFF1 r a b c", ":3"),
            ("GET r", r#""\x000\x80""#),
            ("BITOP ANDOR r a b c", ":3"),
            ("GET r", r#""\x0f\x0f\x00""#),
            ("BITOP ONE r a b c", ":3"),
            ("GET r", r#""\xf00\x80""#),
            ("BITOP ONE r c", ":3"),
            ("GET r", r#""\x01\x00\x80""#),
            ("BITOP one r none", ":0"),
            ("BITOP diff r a", "-ERR BITOP DIFF must be called with at least two source keys."),
            ("BITOP DIFF1 r a", "-ERR BITOP DIFF1 must be called with at least two source keys."),
            ("BITOP ANDOR r a", "-ERR BITOP ANDOR must be called with at least two source keys."),
        ]);
    }

    #[test]
    fn shorter_and_absent_strings_end_in_zeros() {
        check(&[
            (r#"MSET long "\xff\xff\xff" short "\xf0""#, "+OK"),
            ("BITOP AND r long short", ":3"),
            ("GET r", r#""\xf0\x00\x00""#),
            ("BITOP AND r short long none", ":3"),
            ("GET r", r#""\x00\x00\x00""#),
            ("BITOP OR r none short long", ":3"),
            ("GET r", r#""\xff\xff\xff""#),
            ("BITOP XOR r short long", ":3"),
            ("GET r", r#""\x0f\xff\xff""#),
            ("BITOP XOR r none short none", ":1"),
            ("GET r", r#""\xf0""#),
        ]);
    }

    #[test]
    fn an_empty_result_removes_the_destination() {
        check(&[
            ("SET r 1 EX 10", "+OK"),
            ("BITOP NOT r none", ":0"),
            ("EXISTS r", ":0"),
            ("BITOP OR r none other", ":0"),
            (r#"SET e """#, "+OK"),
            ("SET r 1", "+OK"),
            ("BITOP AND r e none", ":0"),
            ("EXISTS r", ":0"),
        ]);
    }

    #[test]
    fn the_destination_is_replaced_with_its_expiry() {
        check(&[
            ("SET r 1 EX 10", "+OK"),
            ("BITOP OR r r", ":1"),
            ("GET r", r#""1""#),
            ("TTL r", ":-1"),
            ("SET s x PX 5", "+OK"),
            ("after 5", ""),
            ("BITOP OR r s", ":0"),
            ("EXISTS r", ":0"),
        ]);
    }

    #[test]
    fn bitop_refuses_the_arguments_that_redis_refuses() {
        check(&[
            ("BITOP FOO r a", "-ERR syntax error"),
            ("BITOP NOT r a b", "-ERR BITOP NOT must be called with a single source key."),
            ("BITOP AND r", "-ERR wrong number of arguments for 'bitop' command"),
            ("COMMAND GETKEYS BITOP AND r a b", r#"["r", "a", "b"]"#),
        ]);
    }

    #[test]
    fn results_larger_than_the_log_takes_at_once_wait_for_room() {
        let mut server = TestServer::new();
        server.check(&[
            ("SETBIT a 20000000 1", ":0"),
            ("SETBIT b 15000000 1", ":0"),
            ("BITOP OR r a b", ":2500001"),
            ("BITCOUNT r", ":2"),
            ("BITOP NOT r b", ":1875001"),
            ("BITCOUNT r", ":15000007"),
        ]);
        server.assert_replays();
    }
}
