//! The rows of the commands on sorting.

use access::Category;
use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{find_first, find_keys, reads_others, sort, sort_ro};

/// Shared fields of both rows.
const ROW: Row = Row {
    name: "sort_ro",
    needs: Needs::BY_FLAGS
        .with(&[Category::List, Category::Set, Category::SortedSet])
        .without(&[Category::Keyspace]),
    arity: -2,
    flags: Flags::READONLY.or(Flags::DANGEROUS).or(Flags::WALKS),
    keys: Keys::Computed { first: Some(1), find: find_first, reads_others: |args| reads_others(args, false) },
    family: Family::Generic,
    since: "7.0.0",
    complexity: "O(N*log(N)) where N is the number of elements; O(N) if they keep their order. With patterns every slot \
                 is locked meanwhile.",
    summary: "Replies with the elements of a list, a set or a sorted set, sorted.",
    syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
    handler: sort_ro,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "sort",
        needs: Needs::first_and_others(KeyUsage::READ, KeyUsage::OVERWRITE)
            .with(&[Category::List, Category::Set, Category::SortedSet])
            .without(&[Category::Keyspace]),
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::COPIES).or(Flags::DANGEROUS).or(Flags::WALKS),
        keys: Keys::Computed {
            first: Some(1),
            find: find_keys,
            reads_others: |args| reads_others(args, true),
        },
        since: "1.0.0",
        summary: "Sorts the elements of a list, a set or a sorted set, and stores or replies with them.",
        syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] [STORE \
                 destination]",
        handler: sort,
        ..ROW
    },
    ROW,
];
