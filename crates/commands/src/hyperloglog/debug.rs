//! PFDEBUG and PFSELFTEST, for tests of clients and servers.

use engine::{CommandError, Context};
use wire::Args;

use super::{
    sketch,
    sketch::{Sketch, SketchRef},
    store::Change,
};

/// Elements that the self-test adds.
const TESTED: u64 = 10_000;
/// The largest difference between the estimate and the truth, in elements: four standard errors.
const TOLERATED: u64 = TESTED * 4 * 81 / 10_000;

/// `PFDEBUG <ENCODING | GETREG | DECODE | TODENSE> key`
pub(super) fn pfdebug(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let key = args.at(2);
    let entry = cx.unit.read(cx.session.db, key);
    let entry = entry.ok_or(CommandError::Text("ERR The specified key does not exist"))?;
    let (sketch, expire_at_ms) = (sketch(entry)?, entry.expire_at_ms());
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"encoding" => cx.reply.simple(if sketch.is_dense() { "dense" } else { "sparse" }),
        b"getreg" => {
            let registers = registers(&sketch)?;
            cx.reply.array(registers.len());
            registers.iter().for_each(|value| cx.reply.integer((*value).into()));
        }
        b"decode" if sketch.is_dense() => return Err(CommandError::Text("ERR HLL encoding is not sparse")),
        b"decode" => {
            let decoded = decoded(&sketch)?;
            cx.reply.bulk(decoded.as_bytes());
        }
        b"todense" if sketch.is_dense() => cx.reply.integer(0),
        b"todense" => {
            let mut dense = Sketch::of(&sketch, 0);
            dense.make_dense()?;
            let change = match entry.string() {
                Some(old) => Change::between(key, old, dense.into_bytes(), expire_at_ms),
                None => return Err(CommandError::WrongType),
            };
            change.apply(cx, key)?;
            cx.reply.integer(1);
        }
        _ => {
            let name = String::from_utf8_lossy(args.at(1));
            return Err(CommandError::Composed(format!("ERR Unknown PFDEBUG subcommand '{name}'")));
        }
    }
    Ok(())
}

fn registers(sketch: &SketchRef<'_>) -> Result<Vec<u8>, CommandError> {
    let mut registers = Vec::new();
    sketch.for_each_run(|run| registers.resize(registers.len() + run.len, run.value))?;
    Ok(registers)
}

/// The runs of sparse registers, as Redis shows its opcodes.
fn decoded(sketch: &SketchRef<'_>) -> Result<String, CommandError> {
    /// A longer run of zeros has an opcode of its own.
    const SHORT_ZEROS_MAX: usize = 64;
    let mut runs = Vec::new();
    sketch.for_each_run(|run| {
        runs.push(match (run.value, run.len) {
            (0, len) if len <= SHORT_ZEROS_MAX => format!("z:{len}"),
            (0, len) => format!("Z:{len}"),
            (value, len) => format!("v:{value},{len}"),
        });
    })?;
    Ok(runs.join(" "))
}

/// `PFSELFTEST`: adds elements to a sketch that begins sparse and to a sketch that is dense from the first
/// element on. Checks that both give the same estimate, and that this estimate is near the truth.
pub(super) fn pfselftest(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    const FAILED: CommandError =
        CommandError::Text("TESTFAILED the estimate of a HyperLogLog is not what was added");
    let mut sparse_first = Sketch::new(cx.host.config.sparse_bytes_max());
    let mut dense = Sketch::new(0);
    for element in 0..TESTED {
        sparse_first.add(&element.to_le_bytes())?;
        dense.add(&element.to_le_bytes())?;
    }
    let estimate = |sketch: Sketch| -> Result<u64, CommandError> {
        let bytes = sketch.into_bytes();
        Ok(SketchRef::new(&bytes).ok_or(FAILED)?.cardinality()?)
    };
    let (first, second) = (estimate(sparse_first)?, estimate(dense)?);
    if first != second || first.abs_diff(TESTED) > TOLERATED {
        return Err(FAILED);
    }
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn a_sketch_is_shown_in_its_encoding() {
        let mut server = TestServer::new();
        server.check(&[
            ("pfadd h a b c", ":1"),
            ("pfdebug encoding h", "+sparse"),
            ("pfdebug decode h", "\"Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603\""),
        ]);
        let registers = server.run("pfdebug getreg h");
        assert_eq!(registers.matches(":0").count(), 16_381);
        server.check(&[
            ("pexpire h 1000", ":1"),
            ("pfdebug todense h", ":1"),
            ("pttl h", ":1000"),
            ("pfdebug todense h", ":0"),
            ("pfdebug encoding h", "+dense"),
            ("pfcount h", ":3"),
            ("pfdebug decode h", "-ERR HLL encoding is not sparse"),
        ]);
        assert_eq!(server.run("pfdebug getreg h"), registers);
        server.assert_replays();
    }

    #[test]
    fn other_calls_are_refused() {
        check(&[
            ("pfdebug encoding none", "-ERR The specified key does not exist"),
            ("set s x", "+OK"),
            ("pfdebug encoding s", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
            ("pfadd h a", ":1"),
            ("pfdebug foo h", "-ERR Unknown PFDEBUG subcommand 'foo'"),
            ("pfdebug encoding", "-ERR wrong number of arguments for 'pfdebug' command"),
            ("pfselftest x", "-ERR wrong number of arguments for 'pfselftest' command"),
            ("pfselftest", "+OK"),
        ]);
    }
}
