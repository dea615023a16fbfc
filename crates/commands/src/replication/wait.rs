//! WAIT and WAITAOF, which wait until writes are on disks, and WAITLSN, which waits until this server shows
//! them.

use engine::{
    CommandError, Context,
    replication::{RoleView, Wanted},
};
use lsn::Lsn;
use wire::{Args, number::parse_i64};

/// `WAIT numreplicas timeout`
pub(super) fn wait(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let replication = &cx.host.replication;
    if matches!(replication.role(), RoleView::Replica { .. }) {
        return Err(CommandError::Text(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured \
             to be writable (which is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    let replicas = parse_i64(args.at(1)).ok_or(CommandError::NotAnInteger)?;
    // For a negative number, any number of replicas is enough.
    let replicas = usize::try_from(replicas).unwrap_or(0);
    let timeout_ms = parse_timeout(args.at(2))?;
    let lsn = cx.session.newest_write();
    let flushed = replication.count_flushed(lsn);
    if flushed >= replicas || cx.in_transaction {
        cx.reply.integer(flushed as i64);
        return Ok(());
    }
    let wanted = Wanted { lsn, replicas, local: false, tells_local: false, timeout_ms };
    cx.promise_for_sure(|responder| replication.wait_flushed(wanted, responder));
    Ok(())
}

/// `WAITAOF numlocal numreplicas timeout`
pub(super) fn waitaof(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let replication = &cx.host.replication;
    let local = match parse_i64(args.at(1)).ok_or(CommandError::NotAnInteger)? {
        local @ (0 | 1) => local == 1,
        _ => {
            return Err(CommandError::Text("ERR value is out of range, value must between 0 and 1"));
        }
    };
    let replicas = parse_i64(args.at(2)).and_then(|replicas| usize::try_from(replicas).ok());
    let replicas = replicas.ok_or(CommandError::Text("ERR value is out of range, must be positive"))?;
    let timeout_ms = parse_timeout(args.at(3))?;
    if matches!(replication.role(), RoleView::Replica { .. }) {
        return Err(CommandError::Text(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and \
             are not propagated.",
        ));
    }
    let lsn = cx.session.newest_write();
    let is_local = lsn <= replication.durable_lsn();
    let flushed = replication.count_flushed(lsn);
    if (is_local || !local) && flushed >= replicas || cx.in_transaction {
        cx.reply.array(2);
        cx.reply.integer(is_local.into());
        cx.reply.integer(flushed as i64);
        return Ok(());
    }
    let wanted = Wanted { lsn, replicas, local, tells_local: true, timeout_ms };
    cx.promise_for_sure(|responder| replication.wait_flushed(wanted, responder));
    Ok(())
}

/// `WAITLSN lsn timeout`: 1 once the server shows all writes up to that position, 0 after the timeout. In a
/// transaction, WAITLSN does not wait.
pub(super) fn waitlsn(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let lsn =
        parse_i64(args.at(1)).and_then(|lsn| u64::try_from(lsn).ok()).ok_or(CommandError::NotAnInteger)?;
    let lsn = Lsn::new(lsn);
    let timeout_ms = parse_timeout(args.at(2))?;
    let replication = &cx.host.replication;
    let shown = replication.shown_lsn();
    if lsn <= shown || cx.in_transaction {
        cx.reply.integer((lsn <= shown).into());
        return Ok(());
    }
    cx.promise_for_sure(|responder| replication.wait_applied(lsn, timeout_ms, responder));
    Ok(())
}

/// Parses a timeout in milliseconds; `None` waits for ever.
fn parse_timeout(text: &[u8]) -> Result<Option<u64>, CommandError> {
    let timeout =
        parse_i64(text).ok_or(CommandError::Text("ERR timeout is not an integer or out of range"))?;
    let timeout = u64::try_from(timeout).map_err(|_| CommandError::Text("ERR timeout is negative"))?;
    Ok((timeout > 0).then_some(timeout))
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn waitaof_waits_for_this_server_only_if_it_is_asked_to() {
        let mut server = TestServer::new();
        for (line, local) in [("waitaof 0 1 100", false), ("waitaof 1 1 100", true)] {
            server.run(line);
            let wanted = server.host.replication.last_wanted.lock().take().expect("it waits");
            assert_eq!((wanted.local, wanted.tells_local, wanted.replicas), (local, true, 1), "{line}");
        }
    }

    #[test]
    fn without_replicas_wait_counts_none() {
        check(&[
            ("set k v", "+OK"),
            ("wait 0 0", ":0"),
            ("wait x 0", "-ERR value is not an integer or out of range"),
            ("wait -1 0", ":0"),
            ("wait 1 x", "-ERR timeout is not an integer or out of range"),
            ("wait 1 -1", "-ERR timeout is negative"),
            ("waitaof 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
            ("waitaof -1 0 0", "-ERR value is out of range, value must between 0 and 1"),
            ("waitaof x 0 0", "-ERR value is not an integer or out of range"),
            ("waitaof 0 -1 -1", "-ERR value is out of range, must be positive"),
            ("waitaof 0 x 0", "-ERR value is out of range, must be positive"),
            ("waitaof 0 0 -5", "-ERR timeout is negative"),
            ("waitaof 0 0 0", "[:0, :0]"),
            ("waitlsn 1 0", ":1"),
            ("waitlsn x 0", "-ERR value is not an integer or out of range"),
            ("multi", "+OK"),
            ("wait 3 0", "+QUEUED"),
            ("waitlsn 99999999 0", "+QUEUED"),
            ("exec", "[:0, :1]"),
        ]);
    }
}
