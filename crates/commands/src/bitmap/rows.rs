//! The rows of the commands on bitmaps.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{bit, field, operation, range};

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = Flags::READONLY.or(Flags::FAST);
const WRITE: Flags = Flags::WRITE.or(Flags::DENYOOM);

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: -2,
    flags: READ,
    keys: Keys::First,
    family: Family::Bitmap,
    since: "2.2.0",
    complexity: "O(1)",
    summary: "",
    syntax: "key",
    handler: bit::getbit,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "setbit",
        arity: 4,
        flags: WRITE,
        summary: "Sets or clears a bit of the string at a key, padded with zero bytes if it is shorter, and replies with the \
                  bit that was there.",
        syntax: "key offset value",
        handler: bit::setbit,
        ..ROW
    },
    Row {
        name: "getbit",
        arity: 3,
        flags: READ_FAST,
        summary: "Replies with a bit of the string at a key.",
        syntax: "key offset",
        handler: bit::getbit,
        ..ROW
    },
    Row {
        name: "bitcount",
        since: "2.6.0",
        complexity: "O(N) where N is the number of bytes in the range.",
        summary: "Counts the set bits of the string at a key or of a part of it.",
        syntax: "key [start end [BYTE | BIT]]",
        handler: range::bitcount,
        ..ROW
    },
    Row {
        name: "bitpos",
        arity: -3,
        since: "2.8.7",
        complexity: "O(N) where N is the number of bytes in the range.",
        summary: "Finds the first set or the first clear bit of the string at a key or of a part of it.",
        syntax: "key bit [start [end [BYTE | BIT]]]",
        handler: range::bitpos,
        ..ROW
    },
    Row {
        name: "bitop",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        arity: -4,
        flags: WRITE.or(Flags::COPIES).or(Flags::WALKS),
        keys: Keys::Range { first: 2, last: -1, step: 1 },
        since: "2.6.0",
        complexity: "O(N) where N is the number of bytes of all the strings.",
        summary: "Combines strings bit by bit and stores the result, which is as long as the longest of them.",
        syntax: "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]",
        handler: operation::bitop,
        ..ROW
    },
    Row {
        name: "bitfield",
        needs: Needs::found(field::usage),
        flags: WRITE,
        since: "3.2.0",
        complexity: "O(1) for each operation.",
        summary: "Reads, sets and increments integers of any width in the string at a key.",
        syntax: "key [<GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding \
                 offset increment>> [<GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY \
                 encoding offset increment>> ...]]",
        handler: field::bitfield,
        ..ROW
    },
    Row {
        name: "bitfield_ro",
        flags: READ_FAST,
        since: "6.0.0",
        complexity: "O(1) for each operation.",
        summary: "Reads integers of any width from the string at a key.",
        syntax: "key [GET encoding offset [GET encoding offset ...]]",
        handler: field::bitfield_ro,
        ..ROW
    },
];
