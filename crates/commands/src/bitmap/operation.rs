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
}

impl Operation {
    fn parse(name: &[u8]) -> Result<Operation, CommandError> {
        match name.to_ascii_lowercase().as_slice() {
            b"and" => Ok(Operation::And),
            b"or" => Ok(Operation::Or),
            b"xor" => Ok(Operation::Xor),
            b"not" => Ok(Operation::Not),
            _ => Err(CommandError::Syntax),
        }
    }

    /// Combines the result so far with a source that is not longer; its missing bytes count as zeros. Written
    /// so that it compiles to operations on whole words.
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
            Operation::Not => result.iter_mut().for_each(|result| *result = !*result),
        }
    }
}

/// `BITOP <AND | OR | XOR | NOT> destkey key [key ...]`
pub(super) fn bitop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, sources) = (cx.db(), args.at(2), args.skip(3));
    let operation = Operation::parse(args.at(1))?;
    if operation == Operation::Not && sources.len() != 1 {
        return Err(CommandError::Text("ERR BITOP NOT must be called with a single source key."));
    }
    let mut len = 0;
    for source in sources {
        if let Some(entry) = cx.unit.peek(db, source) {
            len = len.max(string(entry)?.len());
        }
    }
    cx.require_room((key.len() + len) as u64)?;
    let mut result = Vec::with_capacity(len);
    for (index, source) in sources.iter().enumerate() {
        let bytes = cx.unit.read(db, source).and_then(|entry| entry.string()).unwrap_or_default();
        if index == 0 {
            result.extend_from_slice(bytes);
            result.resize(len, 0);
        }
        if index > 0 || operation == Operation::Not {
            operation.fold(&mut result, bytes);
        }
    }
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
