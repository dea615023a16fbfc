//! Integers in strings: BITFIELD, BITFIELD_RO.

use engine::{CommandError, Context, EventClass, KeyUsage};
use keyspace::KeyOp;
use wire::{Args, number::parse_i64};

use super::{
    OFFSET, bit_offset,
    integer::{BYTES_MAX, Encoding, Overflow},
};
use crate::string::string;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Replies with the number.
    Get,
    /// Stores a number; replies with the old one.
    Set(i64),
    /// Adds to the number; replies with the sum.
    Increment(i64),
}

/// One operation of a BITFIELD.
#[derive(Debug, Clone, Copy)]
struct Operation {
    action: Action,
    encoding: Encoding,
    /// The position of the field, in bits.
    offset: u64,
    overflow: Overflow,
}

impl Operation {
    /// The minimum length in bytes of a string that contains the field.
    fn end(&self) -> u64 {
        (self.offset + u64::from(self.encoding.width())).div_ceil(8)
    }
}

/// `BITFIELD key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY
/// encoding offset increment> ...]`
pub(super) fn bitfield(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let operations = parse(args.skip(2), cx.bulk_bytes_max)?;
    let writes = operations.iter().filter(|operation| operation.action != Action::Get);
    let Some(end) = writes.map(Operation::end).max() else {
        return get_all(cx, args.at(1), &operations);
    };
    if end > cx.bulk_bytes_max as u64 {
        return Err(OFFSET);
    }
    let (db, key) = (cx.db(), args.at(1));
    let len = match cx.unit.get(db, key) {
        Some(entry) => string(entry)?.len() as u64,
        None => 0,
    };
    // Each write takes one effect at most, and so does the growth of the string. Every effect contains the
    // whole key.
    let writes = operations.iter().filter(|operation| operation.action != Action::Get).count();
    let patch = KeyOp::SetRange { offset: end, bytes: &[0; BYTES_MAX] }.on(db, key);
    cx.require_room((writes + 1) as u64 * patch.encoded_len() as u64)?;
    // Nothing fails from here on. As in Redis, the string grows even if no number fits, but the event is
    // raised only if a number was stored and the string has changed.
    let grows = len < end;
    if grows {
        cx.apply(key, KeyOp::SetRange { offset: end - 1, bytes: &[0] });
    }
    let mut is_told = false;
    cx.reply.array(operations.len());
    for operation in &operations {
        let Some((number, stored)) = run(cx, key, operation) else {
            cx.reply.null();
            continue;
        };
        cx.reply.integer(number);
        is_told |= stored == Stored::Other || stored == Stored::Same && grows;
    }
    if is_told {
        cx.notify(EventClass::STRING, "setbit", key);
    }
    Ok(())
}

/// How a BITFIELD uses its key: if all of its operations are GET, it only reads the key.
pub(super) fn usage(args: Args<'_>) -> KeyUsage {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let follow = args.len() - at - 1;
        at += match word.to_ascii_lowercase().as_slice() {
            b"get" if follow >= 2 => 3,
            b"overflow" if follow >= 1 => 2,
            _ => return KeyUsage::READ_UPDATE,
        };
    }
    KeyUsage::READ
}

/// `BITFIELD_RO key [GET encoding offset [GET encoding offset ...]]`
pub(super) fn bitfield_ro(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let operations = parse(args.skip(2), cx.bulk_bytes_max)?;
    if operations.iter().any(|operation| operation.action != Action::Get) {
        return Err(CommandError::Text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    get_all(cx, args.at(1), &operations)
}

fn get_all(cx: &mut Context<'_, '_>, key: &[u8], operations: &[Operation]) -> Result<(), CommandError> {
    let bytes = match cx.unit.read(cx.session.db, key) {
        Some(entry) => string(entry)?,
        None => &[],
    };
    cx.reply.array(operations.len());
    for Operation { encoding, offset, .. } in operations {
        cx.reply.integer(encoding.read(bytes, *offset));
    }
    Ok(())
}

/// The outcome of an operation of BITFIELD for its field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// The operation has only read the field.
    Nothing,
    /// The field had the number to store already.
    Same,
    /// The field has another number now.
    Other,
}

/// Runs one operation on a string that is long enough for all writes. Returns its reply; `None` if the number
/// did not fit and `overflow` is [`Overflow::Fail`].
fn run(cx: &mut Context<'_, '_>, key: &[u8], operation: &Operation) -> Option<(i64, Stored)> {
    let db = cx.db();
    let Operation { action, encoding, offset, overflow } = *operation;
    let bytes = cx.unit.peek(db, key).and_then(|entry| entry.string()).unwrap_or_default();
    let old = encoding.read(bytes, offset);
    let (new, reply) = match action {
        Action::Get => return Some((old, Stored::Nothing)),
        Action::Set(number) => (encoding.fit(encoding.wanted(number), overflow)?, old),
        Action::Increment(by) => {
            let sum = encoding.fit(i128::from(old) + i128::from(by), overflow)?;
            (sum, sum)
        }
    };
    let Some(patch) = encoding.write(bytes, offset, new) else {
        return Some((reply, Stored::Same));
    };
    cx.apply(key, KeyOp::SetRange { offset: patch.offset, bytes: patch.bytes() });
    Some((reply, Stored::Other))
}

fn parse(args: Args<'_>, bulk_bytes_max: usize) -> Result<Vec<Operation>, CommandError> {
    let mut operations = Vec::with_capacity(args.len() / 3);
    let mut overflow = Overflow::Wrap;
    let mut rest = args;
    while let Some(name) = rest.get(0) {
        let count = match name.to_ascii_lowercase().as_slice() {
            b"get" => 3,
            b"set" | b"incrby" => 4,
            b"overflow" => 2,
            _ => return Err(CommandError::Syntax),
        };
        if rest.len() < count {
            return Err(CommandError::Syntax);
        }
        if count == 2 {
            overflow = parse_overflow(rest.at(1))?;
        } else {
            operations.push(parse_operation(rest.take(count), overflow, bulk_bytes_max)?);
        }
        rest = rest.skip(count);
    }
    Ok(operations)
}

fn parse_overflow(name: &[u8]) -> Result<Overflow, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"wrap" => Ok(Overflow::Wrap),
        b"sat" => Ok(Overflow::Saturate),
        b"fail" => Ok(Overflow::Fail),
        _ => Err(CommandError::Text("ERR Invalid OVERFLOW type specified")),
    }
}

/// Parses `GET encoding offset`, `SET encoding offset value` or `INCRBY encoding offset increment`.
fn parse_operation(
    args: Args<'_>,
    overflow: Overflow,
    bulk_bytes_max: usize,
) -> Result<Operation, CommandError> {
    let encoding = Encoding::parse(args.at(1)).ok_or(CommandError::Text(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    ))?;
    let offset = match args.at(2) {
        [b'#', index @ ..] => bit_offset(index, encoding.width(), bulk_bytes_max)?,
        offset => bit_offset(offset, 1, bulk_bytes_max)?,
    };
    let action = match args.get(3) {
        None => Action::Get,
        Some(number) => {
            let number = parse_i64(number).ok_or(CommandError::NotAnInteger)?;
            if args.at(0).eq_ignore_ascii_case(b"set") {
                Action::Set(number)
            } else {
                Action::Increment(number)
            }
        }
    };
    Ok(Operation { action, encoding, offset, overflow })
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    const OFFSET: &str = "-ERR bit offset is not an integer or out of range";
    const ENCODING: &str =
        "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
    const INTEGER: &str = "-ERR value is not an integer or out of range";

    #[test]
    fn fields_are_set_read_and_incremented() {
        check(&[
            ("BITFIELD a", "[]"),
            ("BITFIELD a GET u8 0 GET i64 1000", "[:0, :0]"),
            ("EXISTS a", ":0"),
            ("BITFIELD a SET u8 0 255 GET u8 0 GET i8 0 SET i5 100 -3", "[:0, :255, :-1, :0]"),
            ("STRLEN a", ":14"),
            ("BITFIELD_RO a GET i5 100 get u5 100 GET u4 6", "[:-3, :29, :12]"),
            ("BITFIELD a INCRBY i5 100 1 INCRBY u2 100 1", "[:-2, :0]"),
            (
                "BITFIELD a SET i64 0 -9223372036854775808 GET i64 0 GET u63 0",
                "[:-72057594037927936, :-9223372036854775808, :4611686018427387904]",
            ),
            ("BITFIELD n SET u1 0 1", "[:0]"),
            ("GET n", r#""\x80""#),
            ("BITFIELD_RO none GET u8 0", "[:0]"),
            ("BITFIELD_RO none", "[]"),
        ]);
    }

    #[test]
    fn offsets_can_count_fields() {
        check(&[
            ("BITFIELD a SET u8 #0 65 SET u8 #1 66 SET u8 #2 67", "[:0, :0, :0]"),
            ("GET a", r#""ABC""#),
            ("BITFIELD a GET u12 #1 GET u12 12", "[:579, :579]"),
            ("BITFIELD a GET u8 #-1", OFFSET),
            ("BITFIELD a GET u8 #", OFFSET),
            ("BITFIELD a GET u8 ##1", OFFSET),
            ("BITFIELD a GET u8 #536870911", "[:0]"),
            ("BITFIELD a GET u8 #536870912", OFFSET),
            ("BITFIELD a GET i64 #4611686018427387904", OFFSET),
        ]);
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_by_default() {
        check(&[
            ("BITFIELD a SET u8 0 257 GET u8 0", "[:0, :1]"),
            ("BITFIELD a SET u8 0 -1 GET u8 0", "[:1, :255]"),
            ("BITFIELD a INCRBY u8 0 1", "[:0]"),
            ("BITFIELD a INCRBY u8 0 -1", "[:255]"),
            ("BITFIELD a SET i8 0 127 INCRBY i8 0 1", "[:-1, :-128]"),
            ("BITFIELD a INCRBY i8 0 -1", "[:127]"),
            ("BITFIELD a SET i8 0 200 GET i8 0", "[:127, :-56]"),
            (
                "BITFIELD a SET i64 0 9223372036854775807 INCRBY i64 0 1",
                "[:-4035225266123964416, :-9223372036854775808]",
            ),
            ("BITFIELD a INCRBY i64 0 -1", "[:9223372036854775807]"),
            ("BITFIELD a SET u63 0 9223372036854775807 INCRBY u63 0 1", "[:4611686018427387903, :0]"),
            ("BITFIELD a INCRBY u63 0 -9223372036854775808", "[:0]"),
        ]);
    }

    #[test]
    fn overflow_holds_for_the_operations_after_it() {
        check(&[
            (
                "BITFIELD a SET u2 0 3 INCRBY u2 0 1 OVERFLOW SAT INCRBY u2 0 9 OVERFLOW FAIL INCRBY u2 0 1",
                "[:0, :0, :3, nil]",
            ),
            (
                "BITFIELD a OVERFLOW SAT SET u8 0 -1 SET i8 0 1000 GET i8 0 INCRBY i8 0 -1000",
                "[:192, :-1, :127, :-128]",
            ),
            ("BITFIELD a OVERFLOW SAT INCRBY u8 0 -200 INCRBY u8 0 300", "[:0, :255]"),
            (
                "BITFIELD a OVERFLOW FAIL SET u8 0 -1 SET u8 0 256 SET i8 0 128 SET i8 0 -129 GET u8 0",
                "[nil, nil, nil, nil, :255]",
            ),
            ("BITFIELD a OVERFLOW SAT SET i8 0 -9223372036854775808 GET i8 0", "[:-1, :-128]"),
            ("BITFIELD a SET u8 0 255 overflow fail overflow wrap INCRBY u8 0 2", "[:128, :1]"),
            (
                "BITFIELD b OVERFLOW SAT INCRBY i64 0 9223372036854775807 INCRBY i64 0 1",
                "[:9223372036854775807, :9223372036854775807]",
            ),
            (
                "BITFIELD c OVERFLOW SAT INCRBY i64 0 -9223372036854775808 INCRBY i64 0 -1",
                "[:-9223372036854775808, :-9223372036854775808]",
            ),
        ]);
    }

    #[test]
    fn the_event_needs_a_number_that_was_stored_and_a_change() {
        let mut server = TestServer::new();
        *server.host.event_classes.lock() = engine::EventClass::parse("KEAn").expect("letters");
        for (line, events) in [
            ("BITFIELD a OVERFLOW FAIL INCRBY u8 0 300", "new a"),
            ("BITFIELD a SET u8 0 0", ""),
            ("BITFIELD a SET u8 8 0", "setbit a"),
            ("BITFIELD a SET u8 0 5", "setbit a"),
            ("BITFIELD a SET u8 0 5", ""),
            ("BITFIELD a GET u8 0 OVERFLOW FAIL INCRBY u8 80 300", ""),
        ] {
            server.events();
            server.run(line);
            assert_eq!(server.events().join(", "), events, "{line}");
        }
    }

    #[test]
    fn the_string_is_as_long_as_the_farthest_write_even_if_nothing_is_stored() {
        check(&[
            ("BITFIELD a GET u8 100 OVERFLOW FAIL SET u4 17 99", "[:0, nil]"),
            ("GET a", r#""\x00\x00\x00""#),
            ("BITFIELD b SET u1 7 0", "[:0]"),
            ("GET b", r#""\x00""#),
            ("SET c x PX 10", "+OK"),
            ("BITFIELD c SET u8 8 121", "[:0]"),
            ("GET c", r#""xy""#),
            ("PTTL c", ":10"),
            ("after 10", ""),
            ("BITFIELD c SET u8 8 121", "[:0]"),
            ("GET c", r#""\x00y""#),
            ("PTTL c", ":-1"),
        ]);
    }

    #[test]
    fn operations_on_the_same_bits_see_each_other() {
        check(&[(
            "BITFIELD a INCRBY u16 4 1 INCRBY u16 4 255 SET u8 12 7 GET u16 4 INCRBY u8 0 17 GET u24 0",
            "[:1, :256, :0, :263, :17, :1118320]",
        )]);
    }

    #[test]
    fn bitfield_logs_changed_bytes_only() {
        let mut server = TestServer::new();
        server.run("BITFIELD a SET u8 1000000 1");
        let before = server.appended_lsn().get();
        server.check(&[(
            "BITFIELD a SET u8 1000000 1 GET u8 0 OVERFLOW FAIL INCRBY u8 1000000 255",
            "[:1, :0, nil]",
        )]);
        assert_eq!(server.appended_lsn().get(), before, "nothing changed");
        server.run("BITFIELD a INCRBY i64 64 1 SET u8 800000 9");
        let record_bytes = server.appended_lsn().get() - before;
        assert!(record_bytes < 64, "{record_bytes} bytes for two fields");
        server.assert_replays();
    }

    #[test]
    fn bitfield_refuses_the_arguments_that_redis_refuses() {
        const SYNTAX: &str = "-ERR syntax error";
        check(&[
            ("BITFIELD a FOO", SYNTAX),
            ("BITFIELD a GET u8", SYNTAX),
            ("BITFIELD a SET u8 0", SYNTAX),
            ("BITFIELD a INCRBY u8 0", SYNTAX),
            ("BITFIELD a OVERFLOW", SYNTAX),
            ("BITFIELD a GET u8 0 x", SYNTAX),
            ("BITFIELD a OVERFLOW foo", "-ERR Invalid OVERFLOW type specified"),
            ("BITFIELD a GET u64 x", ENCODING),
            ("BITFIELD a SET i65 0 1", ENCODING),
            ("BITFIELD a SET u8 x y", OFFSET),
            ("BITFIELD a SET u8 -1 1", OFFSET),
            ("BITFIELD a SET u8 0 x", INTEGER),
            ("BITFIELD a SET u8 0 9223372036854775808", INTEGER),
            ("BITFIELD a SET u8 0 1 GET u64 0", ENCODING),
            ("BITFIELD_RO a SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
            ("BITFIELD_RO a INCRBY u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
            ("BITFIELD_RO a OVERFLOW SAT", "[]"),
            ("BITFIELD_RO a SET u8 0", SYNTAX),
            ("EXISTS a", ":0"),
            ("BITFIELD", "-ERR wrong number of arguments for 'bitfield' command"),
            ("BITFIELD_RO", "-ERR wrong number of arguments for 'bitfield_ro' command"),
        ]);
    }

    #[test]
    fn no_write_makes_a_string_too_long() {
        let mut server = TestServer::new();
        server.bulk_bytes_max = 10;
        server.check(&[
            ("BITFIELD a SET u8 72 1", "[:0]"),
            ("BITFIELD a SET u8 73 1", OFFSET),
            ("BITFIELD a GET u8 73 GET i64 79", "[:2, :-9223372036854775808]"),
            ("STRLEN a", ":10"),
        ]);
    }
}
