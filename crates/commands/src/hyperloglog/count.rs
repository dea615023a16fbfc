//! PFCOUNT.

use engine::{CommandError, Context};
use wire::Args;

use super::{sketch, sketch::Union};

/// `PFCOUNT key [key ...]`
pub(super) fn pfcount(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, keys) = (cx.db(), args.skip(1));
    let cardinality = if keys.len() == 1 {
        match cx.unit.read(db, args.at(1)) {
            Some(entry) => sketch(entry)?.cardinality()?,
            None => 0,
        }
    } else {
        let mut union = Union::new();
        for key in keys {
            if let Some(entry) = cx.unit.read(db, key) {
                union.include(&sketch(entry)?)?;
            }
        }
        union.cardinality()
    };
    cx.reply.integer(i64::try_from(cardinality).unwrap_or(i64::MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn the_union_of_sketches_is_counted() {
        check(&[
            ("PFCOUNT none", ":0"),
            ("PFCOUNT none other", ":0"),
            ("PFADD a 1 2 3", ":1"),
            ("PFADD b 3 4", ":1"),
            ("PFCOUNT a", ":3"),
            ("PFCOUNT a b", ":4"),
            ("PFCOUNT a a none", ":3"),
            ("PFCOUNT", "-ERR wrong number of arguments for 'pfcount' command"),
        ]);
    }

    #[test]
    fn a_cardinality_in_the_header_counts_until_the_next_change() {
        let sketch = r#"HYLL\x01\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00Fm\x80V\x0c\x80D<\x848\x80P\xb1\x84I\x8c\x80Bm\x80BZ"#;
        let changed = sketch.replacen(r"\x07", r"\x2a", 1);
        let (set, set_changed) = (format!("SET a \"{sketch}\""), format!("SET a \"{changed}\""));
        check(&[
            (&set, "+OK"),
            ("PFCOUNT a", ":7"),
            (&set_changed, "+OK"),
            ("PFCOUNT a", ":42"),
            ("PFCOUNT a none", ":7"),
            ("PFADD a a b c", ":0"),
            ("PFCOUNT a", ":42"),
            ("PFADD a h", ":1"),
            ("PFCOUNT a", ":8"),
        ]);
    }

    #[test]
    fn counting_writes_nothing() {
        let mut server = TestServer::new();
        server.run("PFADD a 1 2 3");
        let before = server.appended_lsn();
        server.check(&[("PFCOUNT a", ":3"), ("PFCOUNT a b", ":3")]);
        assert_eq!(server.appended_lsn(), before);
    }
}
