//! SENTINEL: shows the group to stock clients as Redis Sentinel would, so that they find its leader.
//!
//! ```text
//! a group     is a master by two names: the name of the group, and `mymaster`
//! the leader  is the master;  the other members are its replicas, except for a witness
//! a member    is a sentinel too, at the port of its data:  the others are the "other sentinels"
//! ```
//!
//! What it is: replies from this member's view of its group, in the format of Redis 7.
//! What it is not: Redis Sentinel. It elects nobody and monitors nobody; commands that would configure it are
//! refused. Messages such as `+switch-master` are published by the server, from [`events`].
//!
//! Invariants
//! - Replies call only the leader that this member knows the master; while it knows no leader, no member is
//!   called the master.

mod events;
mod instance;
mod rows;
#[cfg(test)]
mod tests;

use engine::{
    CommandError, Context,
    group::{GroupView, MemberView},
};
use wire::{Aggregate, Args, glob};

use crate::group::view;
pub use events::{SentinelEvent, SentinelEvents};
pub(crate) use instance::{is_down, run_id};
pub(crate) use rows::ROWS;

/// The name of a master that clients use by default.
const ALIAS: &str = "mymaster";

const NO_LEADER: CommandError =
    CommandError::Text("MASTERDOWN no member leads the group at the moment: ask again");

/// The names of the master: that of the group, and the usual one, unless they are the same.
fn names(group: &GroupView) -> impl Iterator<Item = &str> {
    [&*group.name, ALIAS].into_iter().take(if group.name == ALIAS { 1 } else { 2 })
}

/// Whether `name` is one of the names of the group's master.
fn is_name_of(group: &GroupView, name: &[u8]) -> bool {
    names(group).any(|known| known.as_bytes() == name)
}

/// The group, by the name of its master.
fn named(cx: &Context<'_, '_>, args: Args<'_>) -> Result<GroupView, CommandError> {
    let group = view(cx)?;
    match is_name_of(&group, args.at(2)) {
        true => Ok(group),
        false => Err(CommandError::Text("ERR No such master with that name")),
    }
}

/// `SENTINEL MASTERS`: the leader by each name, because redis-py looks for the name here; empty while no
/// leader is known.
fn masters(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let group = view(cx)?;
    let masters: Vec<_> =
        group.leader().iter().flat_map(|leader| names(&group).map(move |name| (name, *leader))).collect();
    cx.reply.array(masters.len());
    for (name, leader) in masters {
        instance::master(&mut cx.reply, &group, name, leader);
    }
    Ok(())
}

/// `SENTINEL MASTER name`
fn master(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let group = named(cx, args)?;
    let leader = group.leader().ok_or(NO_LEADER)?;
    let name = String::from_utf8_lossy(args.at(2));
    instance::master(&mut cx.reply, &group, &name, leader);
    Ok(())
}

/// `SENTINEL REPLICAS name`, and SLAVES, its older name
fn replicas(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let group = named(cx, args)?;
    let array = cx.reply.begin_deferred();
    let count = group.followers().map(|member| instance::replica(&mut cx.reply, &group, member)).count();
    cx.reply.end_deferred(array, Aggregate::Array, count);
    Ok(())
}

/// `SENTINEL SENTINELS name`
fn sentinels(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let group = named(cx, args)?;
    let others = group.members.iter().filter(|member| !member.is_self);
    let array = cx.reply.begin_deferred();
    let count = others.map(|member| instance::sentinel(&mut cx.reply, &group, member)).count();
    cx.reply.end_deferred(array, Aggregate::Array, count);
    Ok(())
}

/// `SENTINEL GET-MASTER-ADDR-BY-NAME name`: null for an unknown name, and while no leader is known.
fn get_master_addr_by_name(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let group = view(cx)?;
    match group.leader().filter(|_| is_name_of(&group, args.at(2))) {
        Some(MemberView { address, .. }) => {
            cx.reply.array(2);
            cx.reply.bulk(address.host.as_bytes());
            cx.reply.bulk_display(address.port);
        }
        None => cx.reply.null_array(),
    }
    Ok(())
}

/// The number of votes that decide.
fn majority(group: &GroupView) -> usize {
    group.members.iter().filter(|member| member.has_vote).count() / 2 + 1
}

/// `SENTINEL CKQUORUM name`
fn ckquorum(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let group = named(cx, args)?;
    let usable = group.members.iter().filter(|member| member.has_vote && member.answers).count();
    if usable < majority(&group) {
        return Err(CommandError::Composed(format!(
            "NOQUORUM {usable} usable Sentinels. Not enough available Sentinels to reach the specified quorum for this \
             master. Not enough available Sentinels to reach the majority and authorize a failover"
        )));
    }
    let text = format!("OK {usable} usable Sentinels. Quorum and failover authorization can be reached");
    cx.reply.simple(&text);
    Ok(())
}

/// `SENTINEL MYID`
fn myid(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let group = view(cx)?;
    let this = group.members.iter().find(|member| member.is_self);
    cx.reply.bulk_or_null(this.map(run_id).as_ref().map(String::as_bytes));
    Ok(())
}

/// `SENTINEL RESET pattern`: 1 if a name of the master matches, otherwise 0. There is nothing to reset.
fn reset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let group = view(cx)?;
    cx.reply.integer(names(&group).any(|name| glob::matches(args.at(2), name.as_bytes())).into());
    Ok(())
}

/// `SENTINEL FAILOVER name`
fn failover(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    named(cx, args)?;
    let group = &cx.host.group;
    cx.promise_for_sure(|responder| group.transfer(None, None, responder));
    Ok(())
}

/// `SENTINEL FLUSHCONFIG | MONITOR | REMOVE | SET ...`
fn configure(_cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::Text(
        "ERR the group manages itself: GROUP MEMBERS shows its members, GROUP REMOVE and GROUP TRANSFER change it",
    ))
}
