//! Single bits: SETBIT, GETBIT.

use engine::{CommandError, Context, EventClass};
use keyspace::KeyOp;
use wire::Args;

use super::bit_offset;
use crate::string::string;

/// `SETBIT key offset value`
pub(super) fn setbit(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let (offset, mask) = byte_and_mask(bit_offset(args.at(2), 1, cx.bulk_bytes_max)?);
    let sets = match args.at(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(CommandError::Text("ERR bit is not an integer or out of range")),
    };
    let old = match cx.unit.get(db, key) {
        Some(entry) => string(entry)?.get(offset).copied(),
        None => None,
    };
    let byte = old.unwrap_or(0);
    let changed = if sets { byte | mask } else { byte & !mask };
    // A string that is too short grows, even if the bit stays 0.
    if old != Some(changed) {
        cx.apply(key, KeyOp::SetRange { offset: offset as u64, bytes: &[changed] });
        cx.notify(EventClass::STRING, "setbit", key);
    }
    cx.reply.integer((byte & mask != 0).into());
    Ok(())
}

/// `GETBIT key offset`
pub(super) fn getbit(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (offset, mask) = byte_and_mask(bit_offset(args.at(2), 1, cx.bulk_bytes_max)?);
    let byte = match cx.unit.read(cx.session.db, args.at(1)) {
        Some(entry) => string(entry)?.get(offset).copied(),
        None => None,
    };
    cx.reply.integer((byte.unwrap_or(0) & mask != 0).into());
    Ok(())
}

/// The index of the byte with this bit, and the mask of the bit.
fn byte_and_mask(offset: u64) -> (usize, u8) {
    ((offset / 8) as usize, 0x80 >> (offset % 8))
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    const OFFSET: &str = "-ERR bit offset is not an integer or out of range";
    const BIT: &str = "-ERR bit is not an integer or out of range";

    #[test]
    fn bits_are_set_cleared_and_read() {
        check(&[
            ("GETBIT a 0", ":0"),
            ("SETBIT a 7 1", ":0"),
            ("GET a", r#""\x01""#),
            ("SETBIT a 0 1", ":0"),
            ("SETBIT a 0 1", ":1"),
            ("GET a", r#""\x81""#),
            ("SETBIT a 7 0", ":1"),
            ("SETBIT a 7 0", ":0"),
            ("GETBIT a 0", ":1"),
            ("GETBIT a 7", ":0"),
            ("GETBIT a 8", ":0"),
            ("GETBIT a 4294967295", ":0"),
            ("SET n 1", "+OK"),
            ("SETBIT n 6 1", ":0"),
            ("GET n", r#""3""#),
            ("INCR n", ":4"),
        ]);
    }

    #[test]
    fn a_bit_beyond_the_end_makes_the_string_longer() {
        check(&[
            ("SETBIT a 23 0", ":0"),
            ("GET a", r#""\x00\x00\x00""#),
            ("SETBIT a 33 1", ":0"),
            ("GET a", r#""\x00\x00\x00\x00@""#),
            ("SET b x PX 10", "+OK"),
            ("SETBIT b 8 0", ":0"),
            ("GET b", r#""x\x00""#),
            ("PTTL b", ":10"),
            ("after 10", ""),
            ("GETBIT b 1", ":0"),
            ("SETBIT b 1 0", ":0"),
            ("GET b", r#""\x00""#),
            ("PTTL b", ":-1"),
        ]);
    }

    #[test]
    fn setbit_logs_one_byte_or_nothing() {
        let mut server = TestServer::new();
        server.run("SETBIT a 1000000 1");
        let before = server.appended_lsn().get();
        server.check(&[("SETBIT a 1000000 1", ":1"), ("SETBIT a 999999 0", ":0"), ("SETBIT b x 1", OFFSET)]);
        assert_eq!(server.appended_lsn().get(), before);
        server.run("SETBIT a 0 1");
        let record_bytes = server.appended_lsn().get() - before;
        assert!(record_bytes < 64, "{record_bytes} bytes for one bit");
        server.assert_replays();
    }

    #[test]
    fn offsets_and_bits_out_of_range_are_refused() {
        check(&[
            ("SETBIT a -1 1", OFFSET),
            ("SETBIT a x 2", OFFSET),
            ("SETBIT a #0 1", OFFSET),
            ("SETBIT a 4294967296 1", OFFSET),
            ("SETBIT a 9223372036854775808 1", OFFSET),
            ("SETBIT a 0 2", BIT),
            ("SETBIT a 0 -1", BIT),
            ("SETBIT a 0 01", BIT),
            ("SETBIT a 0 x", BIT),
            ("GETBIT a 4294967296", OFFSET),
            ("GETBIT a x", OFFSET),
            ("EXISTS a", ":0"),
            ("SETBIT a 0", "-ERR wrong number of arguments for 'setbit' command"),
            ("GETBIT a", "-ERR wrong number of arguments for 'getbit' command"),
        ]);
    }

    #[test]
    fn the_longest_string_bounds_the_offset() {
        let mut server = TestServer::new();
        server.bulk_bytes_max = 10;
        server.check(&[("SETBIT a 79 1", ":0"), ("SETBIT a 80 1", OFFSET), ("STRLEN a", ":10")]);
    }
}
