//! Replaces those writes of a source that the target would refuse by commands that the target takes.
//!
//! ```text
//! SET key value IFEQ other ...         SET key value ...                          of Valkey 8.1
//! MSETEX 2 k v k v [NX | XX] [PXAT ms] MULTI, SET k v [PXAT ms], ..., EXEC        of Valkey 9.1
//! XADD s MAXLEN = 5 LIMIT 9 1-1 f v    XADD s MAXLEN = 5 1-1 f v                  of every source
//! HPEXPIREAT h 9223372036854775807 ... HPEXPIREAT h 70368744177663 ...            of Valkey 9.1
//! ```
//!
//! A source sends only writes that it has executed, so their conditions held and are not needed. A source
//! sends `XADD s MAXLEN ~ 7 LIMIT 9` with the exact length that resulted, but keeps the LIMIT, which no
//! client may give together with an exact length.

use wire::{Args, number::parse_i64};

use super::commands::Commands;

/// The commands that replace a command of the source; `None` if that command can be forwarded as it is, or if
/// nothing replaces it.
pub(super) fn adapted(
    args: Args<'_>,
    is_in_transaction: bool,
    is_supported: impl Fn(&[u8]) -> bool,
) -> Option<Commands> {
    match args.at(0).to_ascii_lowercase().as_slice() {
        b"set" => set(args),
        b"hpexpireat" => earlier(args),
        b"xadd" | b"xtrim" => without_limit(args),
        b"msetex" if !is_supported(b"msetex") => msetex(args, is_in_transaction),
        _ => None,
    }
}

/// Whether an option of SET or MSETEX is followed by a value.
fn has_value(option: &[u8]) -> bool {
    [&b"ex"[..], b"px", b"exat", b"pxat", b"ifeq"].iter().any(|name| option.eq_ignore_ascii_case(name))
}

fn is_condition(option: &[u8]) -> bool {
    [&b"nx"[..], b"xx", b"ifeq"].iter().any(|name| option.eq_ignore_ascii_case(name))
}

/// The options of a command, without its conditions.
fn unconditional<'a>(mut options: Args<'a>) -> Vec<&'a [u8]> {
    let mut kept = Vec::new();
    while let Some(option) = options.get(0) {
        let words = if has_value(option) { 2.min(options.len()) } else { 1 };
        if !is_condition(option) {
            kept.extend((0..words).map(|word| options.at(word)));
        }
        options = options.skip(words);
    }
    kept
}

fn set(args: Args<'_>) -> Option<Commands> {
    // Most writes of most sources are a SET without options, which ends here.
    if args.len() < 5 {
        return None;
    }
    let options = unconditional(args.skip(3));
    if options.len() == args.len() - 3 {
        return None;
    }
    let mut commands = Commands::default();
    commands.push(&[&[b"SET", args.at(1), args.at(2)], options.as_slice()].concat());
    Some(commands)
}

/// HPEXPIREAT with the latest deadline of a field here, in the year 4199, if the source's is later.
fn earlier(args: Args<'_>) -> Option<Commands> {
    const DEADLINE_MS_MAX: i64 = (1 << 46) - 1;
    args.get(2).and_then(parse_i64).filter(|ms| *ms > DEADLINE_MS_MAX)?;
    let latest = DEADLINE_MS_MAX.to_string();
    let mut words: Vec<&[u8]> = (0..args.len()).map(|at| args.at(at)).collect();
    words[2] = latest.as_bytes();
    let mut commands = Commands::default();
    commands.push(&words);
    Some(commands)
}

/// XADD or XTRIM without LIMIT, unless the trim is an approximate one.
fn without_limit(args: Args<'_>) -> Option<Commands> {
    let is = |at: usize, word: &[u8]| args.get(at).is_some_and(|found| found.eq_ignore_ascii_case(word));
    let mut kept: Vec<&[u8]> = vec![args.at(0), args.get(1)?];
    let mut at = kept.len();
    // The options end at the id of XADD: after it, a field may have the name of an option.
    while at < args.len() {
        let words = match () {
            () if is(at, b"limit") => 2,
            () if is(at, b"maxlen") || is(at, b"minid") => {
                if is(at + 1, b"~") {
                    return None;
                }
                2 + usize::from(is(at + 1, b"="))
            }
            () if [&b"nomkstream"[..], b"keepref", b"delref", b"acked"].iter().any(|it| is(at, it)) => 1,
            () => break,
        };
        let end = (at + words).min(args.len());
        if !is(at, b"limit") {
            kept.extend((at..end).map(|at| args.at(at)));
        }
        at = end;
    }
    kept.extend((at..args.len()).map(|at| args.at(at)));
    if kept.len() == args.len() {
        return None;
    }
    let mut commands = Commands::default();
    commands.push(&kept);
    Some(commands)
}

fn msetex(args: Args<'_>, is_in_transaction: bool) -> Option<Commands> {
    let count = args.get(1).and_then(parse_i64).and_then(|count| usize::try_from(count).ok())?;
    let pairs = count.checked_mul(2).filter(|words| *words > 0 && *words <= args.len() - 2)?;
    let options = unconditional(args.skip(2 + pairs));
    let mut commands = Commands::default();
    let has_many = count > 1 && !is_in_transaction;
    if has_many {
        commands.push(&[b"MULTI"]);
    }
    for key in (2..2 + pairs).step_by(2) {
        commands.push(&[&[b"SET", args.at(key), args.at(key + 1)], options.as_slice()].concat());
    }
    if has_many {
        commands.push(&[b"EXEC"]);
    }
    Some(commands)
}

#[cfg(test)]
mod tests {
    use wire::{Limits, RequestBatch, RequestParser};

    use super::*;

    fn shown(commands: &Commands) -> String {
        String::from_utf8_lossy(&commands.bytes).into_owned()
    }

    fn encoded(commands: &[&str]) -> Commands {
        let mut all = Commands::default();
        for command in commands {
            all.push(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        }
        all
    }

    fn adapted_of(command: &str, is_in_transaction: bool) -> Option<String> {
        let (sent, mut batch) = (encoded(&[command]).bytes, RequestBatch::new());
        let _ = RequestParser::new().parse(&sent, &Limits::DEFAULT, &mut batch, 1);
        adapted(batch.command(0, &sent), is_in_transaction, |_| false).map(|commands| shown(&commands))
    }

    #[test]
    fn conditions_are_left_out() {
        for (sent, expected) in [
            ("set k v IFEQ w PXAT 7", "SET k v PXAT 7"),
            ("SET k ifeq KEEPTTL ifeq nx", "SET k ifeq KEEPTTL"),
            ("MSETEX 1 k v NX PXAT 7", "SET k v PXAT 7"),
        ] {
            assert_eq!(adapted_of(sent, false), Some(shown(&encoded(&[expected]))), "{sent}");
        }
        for sent in ["SET k v", "SET k ifeq", "SET k v PXAT 7", "SET k v KEEPTTL", "MSETEX 2 k v", "GET k"] {
            assert_eq!(adapted_of(sent, false), None, "{sent}");
        }
    }

    #[test]
    fn options_that_no_client_may_give_are_replaced() {
        for (sent, expected) in [
            ("XADD s MAXLEN = 5 LIMIT 10 1-1 a b", "XADD s MAXLEN = 5 1-1 a b"),
            (
                "xadd s NOMKSTREAM KEEPREF minid = 5-0 limit 10 1-1 a b",
                "xadd s NOMKSTREAM KEEPREF minid = 5-0 1-1 a b",
            ),
            ("XADD s LIMIT 10 MAXLEN = 5 1-1 a b", "XADD s MAXLEN = 5 1-1 a b"),
            ("XADD s MAXLEN = 5 LIMIT 10 LIMIT 20 1-1 a b", "XADD s MAXLEN = 5 1-1 a b"),
            ("XTRIM s MAXLEN = 5 LIMIT 10", "XTRIM s MAXLEN = 5"),
            ("XTRIM s MAXLEN = 2 KEEPREF LIMIT 5", "XTRIM s MAXLEN = 2 KEEPREF"),
            ("HPEXPIREAT h 9223372036854775807 FIELDS 1 a", "HPEXPIREAT h 70368744177663 FIELDS 1 a"),
        ] {
            assert_eq!(adapted_of(sent, false), Some(shown(&encoded(&[expected]))), "{sent}");
        }
        for sent in [
            "XADD s 1-1 a b",
            "XADD s MAXLEN = 5 1-1 a b",
            "XADD s MAXLEN ~ 5 LIMIT 10 1-1 a b",
            "XADD s MAXLEN 5 1-1 LIMIT 10",
            "XADD s 1-1 MAXLEN = LIMIT 10",
            "XADD s MAXLEN = 5 1-1 LIMIT 10",
            "XTRIM s",
            "HPEXPIREAT h 70368744177663 FIELDS 1 a",
            "HPEXPIREAT h x FIELDS 1 a",
        ] {
            assert_eq!(adapted_of(sent, false), None, "{sent}");
        }
    }

    #[test]
    fn several_keys_are_one_transaction() {
        let sets = ["SET a 1 KEEPTTL", "SET b 2 KEEPTTL"];
        let sent = "MSETEX 2 a 1 b 2 XX KEEPTTL";
        assert_eq!(adapted_of(sent, true), Some(shown(&encoded(&sets))));
        let expected = encoded(&["MULTI", sets[0], sets[1], "EXEC"]);
        assert_eq!(adapted_of(sent, false), Some(shown(&expected)));
    }
}
