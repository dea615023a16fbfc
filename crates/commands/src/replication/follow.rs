//! Following and leading: REPLICAOF, FAILOVER, ROLE, and REPLICATE, with which a replica begins to follow.

use engine::{
    CommandError, Context, PeerClaim,
    group::GroupView,
    replication::{Address, Failover, RoleView, WriteRefusal},
};
use wire::{Args, number::parse_i64};

/// `REPLICAOF <host port | NO ONE>`
pub(super) fn replicaof(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (host, port) = (args.at(1), args.at(2));
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        let replication = &cx.host.replication;
        match replication.role() {
            // A leader that was just told to follow another server does so before it leads again.
            RoleView::Leader { .. } if !replication.is_read_only() && !replication.is_changing_role() => {
                cx.reply.ok()
            }
            _ => cx.promise_for_sure(|responder| replication.lead(responder)),
        }
        return Ok(());
    }
    let leader = address(host, port, CommandError::Text("ERR Invalid master port"))?;
    let replication = &cx.host.replication;
    cx.promise_for_sure(|responder| replication.follow(leader, responder));
    Ok(())
}

fn address(host: &[u8], port: &[u8], invalid: CommandError) -> Result<Address, CommandError> {
    let port = parse_i64(port).ok_or(CommandError::NotAnInteger)?;
    let port = u16::try_from(port).ok().filter(|&port| port > 0).ok_or(invalid)?;
    let host = std::str::from_utf8(host).map_err(|_| CommandError::Text("ERR the host is not UTF-8"))?;
    Ok(Address { host: host.into(), port })
}

/// `FAILOVER [TO <host port> [FORCE]] [ABORT] [TIMEOUT milliseconds]`
pub(super) fn failover(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (mut failover, mut abort) = (Failover { to: None, force: false, timeout_ms: None }, false);
    let mut index = 1;
    while let Some(option) = args.get(index) {
        index += 1;
        match option.to_ascii_lowercase().as_slice() {
            b"abort" if !abort => abort = true,
            b"timeout" if failover.timeout_ms.is_none() => {
                let timeout = args.get(index).ok_or(CommandError::Syntax)?;
                let timeout = parse_i64(timeout).ok_or(CommandError::NotAnInteger)?;
                let refused = CommandError::Text("ERR FAILOVER timeout must be greater than 0");
                failover.timeout_ms = Some(u64::try_from(timeout).ok().filter(|&it| it > 0).ok_or(refused)?);
                index += 1;
            }
            b"to" if failover.to.is_none() => {
                let (Some(host), Some(port)) = (args.get(index), args.get(index + 1)) else {
                    return Err(CommandError::Syntax);
                };
                failover.to = Some(address(host, port, CommandError::Text("ERR Invalid master port"))?);
                index += 2;
            }
            b"force" if !failover.force => failover.force = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    if let Some(view) = cx.host.group.view() {
        return fail_over_in_group(cx, &view, &failover, abort);
    }
    let replication = &cx.host.replication;
    if abort {
        if args.len() > 2 {
            return Err(CommandError::Syntax);
        }
        replication.abort_failover().map_err(CommandError::Composed)?;
    } else {
        if failover.force && (failover.to.is_none() || failover.timeout_ms.is_none()) {
            return Err(CommandError::Text(
                "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
            ));
        }
        replication.fail_over(failover).map_err(CommandError::Composed)?;
    }
    cx.reply.ok();
    Ok(())
}

const NO_FAILOVER: &str = "ERR No failover in progress.";
const ENDS_BY_ITSELF: &str = "ERR FAILOVER in a group cannot be aborted: it ends within seconds, and this server leads on if it fails.";

/// FAILOVER in a group: hands the lead over as GROUP TRANSFER does, with TIMEOUT (see
/// [`Group::transfer`](engine::group::Group::transfer)). FORCE is accepted and changes nothing.
fn fail_over_in_group(
    cx: &mut Context<'_, '_>,
    view: &GroupView,
    failover: &Failover,
    abort: bool,
) -> Result<(), CommandError> {
    if abort {
        let is_handing_over = cx.host.replication.refuses_writes() == Some(WriteRefusal::HandingOver);
        return Err(CommandError::Text(if is_handing_over { ENDS_BY_ITSELF } else { NO_FAILOVER }));
    }
    let member = failover.to.as_ref().map(|to| {
        let member = view.members.iter().find(|member| member.address == *to);
        member.map(|member| member.id.clone())
    });
    let to = match member {
        Some(None) => {
            return Err(CommandError::Text("ERR FAILOVER target HOST and PORT is not a replica."));
        }
        Some(Some(id)) => Some(id),
        None => None,
    };
    let group = &cx.host.group;
    cx.promise_for_sure(|responder| group.transfer(to.as_deref(), failover.timeout_ms, responder));
    Ok(())
}

/// `ROLE`
pub(super) fn role(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let reply = &mut cx.reply;
    match cx.host.replication.role() {
        RoleView::Leader { end, replicas } => {
            reply.array(3);
            reply.bulk(b"master");
            reply.integer(end.get() as i64);
            reply.array(replicas.len());
            for replica in replicas {
                reply.array(3);
                reply.bulk(replica.address.host.as_bytes());
                reply.bulk_display(replica.address.port);
                reply.bulk_display(replica.flushed);
            }
        }
        RoleView::Replica { leader, link, applied } => {
            reply.array(5);
            reply.bulk(b"slave");
            reply.bulk(leader.host.as_bytes());
            reply.integer(leader.port.into());
            reply.bulk(link.name().as_bytes());
            reply.integer(applied.get() as i64);
        }
    }
    Ok(())
}

/// `REPLICATE ...`: hands the connection over to the relay. Afterwards the connection no longer speaks RESP.
/// `REPLICATE MARKS ...` is an ordinary request, sent before: it replies with the newest of the given
/// positions that is in this server's log, or -1.
pub(super) fn replicate(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.at(1).eq_ignore_ascii_case(b"marks") {
        let marks: Vec<&[u8]> = args.skip(2).iter().collect();
        let common = cx.host.replication.newest_common(&marks).map_err(CommandError::Composed)?;
        cx.reply.integer(common.map_or(-1, |lsn| lsn.get() as i64));
        return Ok(());
    }
    cx.session.claim = Some(PeerClaim::Replica(args.skip(1).iter().map(<[u8]>::to_vec).collect()));
    // The new owner of the connection sends the answer.
    cx.session.closing = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn a_server_alone_is_a_leader_and_stays_one() {
        check(&[
            ("role", "[\"master\", :0, []]"),
            ("replicaof no one", "+OK"),
            ("slaveof NO ONE", "+OK"),
            ("replicaof localhost 0", "-ERR Invalid master port"),
            ("replicaof localhost 65536", "-ERR Invalid master port"),
            ("replicaof localhost x", "-ERR value is not an integer or out of range"),
            ("replicate marks 1 2", ":-1"),
        ]);
        let mut server = TestServer::new();
        // The answer comes later, because REPLICAOF may have to wait for the disk.
        assert_eq!(server.run("replicaof localhost 6380"), "");
        let client = server.session.client.id();
        let answer = server.host.take_answer(client).expect("an answer").0;
        assert_eq!(answer, "-ERR this server cannot replicate");
    }

    #[test]
    fn failover_refuses_an_invalid_target_or_timeout() {
        check(&[
            ("failover", "-ERR FAILOVER requires connected replicas."),
            ("failover abort", "-ERR No failover in progress."),
            ("failover abort abort", "-ERR syntax error"),
            ("failover abort timeout 1", "-ERR syntax error"),
            ("failover timeout 0", "-ERR FAILOVER timeout must be greater than 0"),
            ("failover timeout x", "-ERR value is not an integer or out of range"),
            ("failover to localhost", "-ERR syntax error"),
            (
                "failover to localhost 1 force",
                "-ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
            ),
            ("failover to localhost 1 timeout 5 force", "-ERR FAILOVER requires connected replicas."),
        ]);
    }
}
