//! The table of commands as a whole.

use engine::Flags;

use crate::{resolve, rows, table};

#[test]
fn names_resolve_in_any_case() {
    for row in rows().iter().filter(|row| !row.name.contains('|')) {
        assert_eq!(resolve(row.name.to_uppercase().as_bytes()).map(|it| it.name), Some(row.name));
    }
    assert!(resolve(b"nosuchcommand").is_none());
    assert!(resolve(b"").is_none());
}

#[test]
fn every_row_is_complete() {
    for (index, row) in rows().iter().enumerate() {
        assert_eq!(table().index_of(row), index, "{}", row.name);
        assert_eq!(row.name, row.name.to_lowercase());
        assert!(
            !row.summary.is_empty() && !row.since.is_empty() && !row.complexity.is_empty(),
            "{}",
            row.name
        );
        assert_eq!(row.flags.has(Flags::CONTAINER), !row.subcommands.is_empty(), "{}", row.name);
        assert!(!(row.flags.has(Flags::WRITE) && row.flags.has(Flags::READONLY)), "{}", row.name);
        assert!(row.flags.has(Flags::WRITE) || !row.flags.has(Flags::DENYOOM), "{}", row.name);
    }
}
