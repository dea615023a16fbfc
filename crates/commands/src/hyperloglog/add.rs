//! PFADD.

use engine::{CommandError, Context, EventClass};
use wire::Args;

use super::{sketch, sketch::Sketch, store::Change};
use crate::string::string;

/// `PFADD key [element [element ...]]`
pub(super) fn pfadd(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, elements) = (cx.db(), args.at(1), args.skip(2));
    let sparse_bytes_max = cx.host.config.sparse_bytes_max();
    let change = match cx.unit.get(db, key) {
        // An absent key is created even without elements.
        None => Some(Change::new_key(with(Sketch::new(sparse_bytes_max), elements)?.0)),
        Some(entry) => {
            let old = sketch(entry)?;
            if old.is_dense() && elements.iter().all(|element| old.holds(element)) {
                None
            } else {
                let (new, changed) = with(Sketch::of(&old, sparse_bytes_max), elements)?;
                let old = string(entry)?;
                changed.then(|| Change::between(key, old, new, entry.expire_at_ms()))
            }
        }
    };
    if let Some(change) = &change {
        change.apply(cx, key)?;
        cx.notify(EventClass::STRING, "pfadd", key);
    }
    cx.reply.integer(change.is_some().into());
    Ok(())
}

/// Adds elements. Returns the sketch as a string, and whether it changed.
fn with(mut sketch: Sketch, elements: Args<'_>) -> Result<(Vec<u8>, bool), CommandError> {
    let mut changed = false;
    for element in elements {
        changed |= sketch.add(element)?;
    }
    Ok((sketch.into_bytes(), changed))
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn elements_are_added_once() {
        check(&[
            ("PFADD a x y z", ":1"),
            ("PFCOUNT a", ":3"),
            ("PFADD a x y z", ":0"),
            ("PFADD a z w w", ":1"),
            ("PFCOUNT a", ":4"),
            (r#"PFADD a """#, ":1"),
            (r#"PFADD a """#, ":0"),
            ("TYPE a", "+string"),
            ("PFADD empty", ":1"),
            ("PFADD empty", ":0"),
            ("PFCOUNT empty", ":0"),
            ("EXPIRE a 10", ":1"),
            ("PFADD a v", ":1"),
            ("TTL a", ":10"),
            ("after 10000", ""),
            ("PFADD a x", ":1"),
            ("PFCOUNT a", ":1"),
            ("TTL a", ":-1"),
            ("PFADD", "-ERR wrong number of arguments for 'pfadd' command"),
        ]);
    }

    /// Strings that Redis 7.0.15 produces for the same commands.
    #[test]
    fn the_string_is_that_of_redis() {
        check(&[
            ("PFADD a a b c d e f g", ":1"),
            (
                "GET a",
                r#""HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80Fm\x80V\x0c\x80D<\x848\x80P\xb1\x84I\x8c\x80Bm\x80BZ""#,
            ),
            (r#"PFADD b "" 1 22 333 4444 55555 666666 7777777 88888888 999999999 xxxxxxxxxxxxxxxx"#, ":1"),
            (
                "GET b",
                r#""HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80B\x81\x80J\x91\x88I\xe2\x887\x84F3\x80B\x11\x84Et\x80@v\x80A\xae\x84AS\x80U\xbc\x80A\xd3""#,
            ),
            ("PFADD c", ":1"),
            ("GET c", r#""HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x7f\xff""#),
        ]);
    }

    /// Lengths and estimates of Redis 7.0.15 for the same elements in the same order.
    #[test]
    fn a_sketch_becomes_dense_when_that_is_shorter() {
        let mut server = TestServer::new();
        let mut added = 0;
        for (count, bytes, estimate) in [
            (1000, 1898, 997),
            (1500, 2723, 1500),
            (1600, 2887, 1604),
            (1700, 12304, 1706),
            (10_000, 12304, 10_017),
            (100_000, 12304, 100_039),
        ] {
            while added < count {
                let elements: Vec<String> =
                    (added + 1..=added + 100).map(|it| format!("element:{it}")).collect();
                server.run(&format!("PFADD a {}", elements.join(" ")));
                added += 100;
            }
            let (len, cardinality) = (format!(":{bytes}"), format!(":{estimate}"));
            server.check(&[("STRLEN a", &len), ("PFCOUNT a", &cardinality)]);
        }
        server.check(&[("PFADD a element:1 element:70000", ":0")]);
        server.assert_replays();
    }

    #[test]
    fn pfadd_logs_changed_registers_only() {
        let mut server = TestServer::new();
        for number in 0..60 {
            let elements: Vec<String> = (0..50).map(|it| format!("{number}:{it}")).collect();
            server.run(&format!("PFADD a {}", elements.join(" ")));
        }
        server.check(&[("STRLEN a", ":12304")]);
        let before = server.appended_lsn().get();
        server.check(&[("PFADD a 1:1 2:2", ":0")]);
        assert_eq!(server.appended_lsn().get(), before, "nothing changed");
        server.check(&[("PFADD a new", ":1")]);
        let record_bytes = server.appended_lsn().get() - before;
        assert!(record_bytes < 64, "{record_bytes} bytes for one register");
        server.assert_replays();
    }
}
