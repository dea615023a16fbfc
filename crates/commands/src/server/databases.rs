//! Commands on whole databases: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB.

use engine::{CommandError, Context};
use keyspace::{DbId, Effect, GlobalOp};
use wire::{Args, number::parse_i64};

use crate::database::parse_db;

/// `DBSIZE`
pub(super) fn dbsize(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.count(cx.unit.keys_len(cx.db()) as usize);
    Ok(())
}

/// `FLUSHDB [ASYNC | SYNC]`
pub(super) fn flushdb(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    check_flush_mode(args)?;
    let db = cx.db();
    cx.unit.apply(&Effect::Global(GlobalOp::FlushDb { db }));
    cx.reply.ok();
    Ok(())
}

/// `FLUSHALL [ASYNC | SYNC]`
pub(super) fn flushall(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    check_flush_mode(args)?;
    // FLUSHALL removes keys only. Its effect also clears the libraries and the settings that belong to the
    // data, so the record puts them again.
    let (libraries, settings) = (cx.unit.libraries(), cx.unit.data_settings());
    if !libraries.is_empty() || !settings.is_empty() {
        cx.require_room((libraries.encoded_bytes() + settings.encoded_bytes()) as u64)?;
    }
    cx.unit.apply(&Effect::Global(GlobalOp::FlushAll));
    for library in libraries.iter() {
        library.with_effect(|effect| cx.unit.apply(effect));
    }
    settings.effects().for_each(|effect| _ = cx.unit.apply(&effect));
    cx.reply.ok();
    Ok(())
}

/// Checks the mode. Both modes do the same here.
fn check_flush_mode(args: Args<'_>) -> Result<(), CommandError> {
    let known = |mode: &[u8]| mode.eq_ignore_ascii_case(b"async") || mode.eq_ignore_ascii_case(b"sync");
    if args.len() > 2 || !args.get(1).is_none_or(known) {
        return Err(CommandError::Syntax);
    }
    Ok(())
}

/// `SWAPDB index1 index2`
pub(super) fn swapdb(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let a = parse_swapped_db(args.at(1), "first")?;
    let b = parse_swapped_db(args.at(2), "second")?;
    let (a, b) = (a?, b?);
    if a != b {
        cx.unit.apply(&Effect::Global(GlobalOp::SwapDb { a, b }));
    }
    cx.reply.ok();
    Ok(())
}

/// Redis first checks that both arguments are numbers, and then that both name databases. The outer error is
/// the first check, the inner result the second.
fn parse_swapped_db(text: &[u8], which: &'static str) -> Result<Result<DbId, CommandError>, CommandError> {
    let is_number = parse_i64(text).is_some_and(|number| i32::try_from(number).is_ok());
    if is_number { Ok(parse_db(text)) } else { Err(CommandError::InvalidDbIndex(which)) }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn dbsize_counts_the_selected_database() {
        check(&[
            ("dbsize", ":0"),
            ("mset a 1 b 2 c 3", "+OK"),
            ("dbsize", ":3"),
            ("select 1", "+OK"),
            ("dbsize", ":0"),
            ("dbsize x", "-ERR wrong number of arguments for 'dbsize' command"),
        ]);
    }

    #[test]
    fn dbsize_waits_for_all_appended_records() {
        let mut server = TestServer::new();
        server.run("set a 1");
        assert_eq!(server.gate("dbsize"), server.appended_lsn());
        assert_eq!(server.gate("time"), lsn::Lsn::ZERO);
    }

    #[test]
    fn flushdb_removes_one_database_and_flushall_all() {
        check(&[
            ("mset a 1 b 2", "+OK"),
            ("select 1", "+OK"),
            ("mset a 1 b 2", "+OK"),
            ("pexpire a 100", ":1"),
            ("flushdb", "+OK"),
            ("dbsize", ":0"),
            ("set c 3", "+OK"),
            ("select 0", "+OK"),
            ("dbsize", ":2"),
            ("FLUSHALL", "+OK"),
            ("dbsize", ":0"),
            ("select 1", "+OK"),
            ("dbsize", ":0"),
            ("get c", "nil"),
            ("set c 4", "+OK"),
            ("get c", "\"4\""),
        ]);
    }

    #[test]
    fn flushing_takes_a_mode_and_nothing_else() {
        check(&[
            ("set a 1", "+OK"),
            ("flushall x", "-ERR syntax error"),
            ("flushall async sync", "-ERR syntax error"),
            ("flushdb ''", "-ERR syntax error"),
            ("get a", "\"1\""),
            ("flushdb ASYNC", "+OK"),
            ("get a", "nil"),
            ("set a 1", "+OK"),
            ("flushall Sync", "+OK"),
            ("get a", "nil"),
        ]);
    }

    #[test]
    fn the_host_learns_of_every_flushall_that_was_done() {
        let mut server = TestServer::new();
        server.check(&[
            ("set a 1", "+OK"),
            ("flushdb", "+OK"),
            ("swapdb 0 1", "+OK"),
            ("flushall x", "-ERR syntax error"),
        ]);
        assert!(server.host.asked.lock().is_empty());
        let before = server.appended_lsn();
        server.check(&[("flushall", "+OK")]);
        let asked = server.host.asked.lock().clone();
        assert_eq!(asked, [format!("flushing_all {}", server.appended_lsn().get())]);
        assert!(before < server.appended_lsn());
    }

    #[test]
    fn swapdb_exchanges_databases() {
        check(&[
            ("set a 0", "+OK"),
            ("swapdb 0 1", "+OK"),
            ("get a", "nil"),
            ("select 1", "+OK"),
            ("get a", "\"0\""),
            ("swapdb 1 1", "+OK"),
            ("get a", "\"0\""),
            ("swapdb a 99", "-ERR invalid first DB index"),
            ("swapdb 99 a", "-ERR invalid second DB index"),
            ("swapdb 99999999999 0", "-ERR invalid first DB index"),
            ("swapdb 1 99", "-ERR DB index is out of range"),
            ("swapdb 99 1", "-ERR DB index is out of range"),
            ("swapdb -1 0", "-ERR DB index is out of range"),
            ("swapdb 1", "-ERR wrong number of arguments for 'swapdb' command"),
            ("get a", "\"0\""),
        ]);
    }
}
