//! PFMERGE.

use engine::{CommandError, Context, EventClass};
use wire::Args;

use super::{
    sketch,
    sketch::{Sketch, Union},
    store::Change,
};
use crate::string::string;

/// `PFMERGE destkey [sourcekey [sourcekey ...]]`
pub(super) fn pfmerge(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let sparse_bytes_max = cx.host.config.sparse_bytes_max();
    let mut union = Union::new();
    let mut is_dense = false;
    for key in args.skip(1) {
        if let Some(entry) = cx.unit.read(db, key) {
            let source = sketch(entry)?;
            union.include(&source)?;
            is_dense |= source.is_dense();
        }
    }
    let merge = |mut sketch: Sketch| {
        if is_dense {
            sketch.make_dense()?;
        }
        union.add_to(&mut sketch)?;
        Ok::<_, CommandError>(sketch.into_bytes())
    };
    let change = match cx.unit.get(db, key) {
        None => Change::new_key(merge(Sketch::new(sparse_bytes_max))?),
        Some(entry) => {
            let new = merge(Sketch::of(&sketch(entry)?, sparse_bytes_max))?;
            Change::between(key, string(entry)?, new, entry.expire_at_ms())
        }
    };
    change.apply(cx, key)?;
    cx.notify(EventClass::STRING, "pfadd", key);
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn sketches_are_merged_into_the_first_one() {
        check(&[
            ("PFADD a 1 2 3", ":1"),
            ("PFADD b 3 4", ":1"),
            ("PFMERGE c a b none", "+OK"),
            ("PFCOUNT c", ":4"),
            ("PFADD d 9", ":1"),
            ("EXPIRE d 10", ":1"),
            ("PFMERGE d a", "+OK"),
            ("PFCOUNT d", ":4"),
            ("TTL d", ":10"),
            ("PFMERGE d", "+OK"),
            ("PFCOUNT d", ":4"),
            ("PFMERGE e", "+OK"),
            ("GET e", r#""HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x7f\xff""#),
            ("PFMERGE f none", "+OK"),
            ("EXISTS f", ":1"),
            ("PFMERGE", "-ERR wrong number of arguments for 'pfmerge' command"),
        ]);
    }

    #[test]
    fn a_dense_sketch_makes_the_result_dense() {
        let mut server = TestServer::new();
        for number in 0..60 {
            let elements: Vec<String> = (0..50).map(|it| format!("{number}:{it}")).collect();
            server.run(&format!("PFADD dense {}", elements.join(" ")));
        }
        let count = server.run("PFCOUNT dense");
        server.check(&[
            ("STRLEN dense", ":12304"),
            ("PFADD sparse 1:1 2:2", ":1"),
            ("PFMERGE sparse dense", "+OK"),
            ("STRLEN sparse", ":12304"),
            ("PFCOUNT sparse", &count),
            ("PFCOUNT sparse dense", &count),
            ("PFADD other 1:1", ":1"),
            ("PFMERGE new other dense", "+OK"),
            ("PFCOUNT new", &count),
        ]);
        let before = server.appended_lsn();
        server.check(&[("PFMERGE new other", "+OK"), ("PFMERGE dense new", "+OK")]);
        assert_eq!(server.appended_lsn(), before, "nothing changed");
        server.assert_replays();
    }
}
