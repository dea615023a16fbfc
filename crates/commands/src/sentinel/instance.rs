//! The fields of a master, a replica and a sentinel, with the names and in the order of Redis Sentinel.
//!
//! Fields without a meaning in a group, such as the number of unanswered pings of a connection, have the
//! values of an idle, healthy Sentinel.

use std::fmt::Display;

use engine::group::{GroupView, MemberKind, MemberView};
use lsn::Lsn;
use wire::{Aggregate, Deferred, ReplyWriter};

/// Silence after which a member counts as down, in milliseconds.
const DOWN_AFTER_MS: u64 = 2000;
/// The longest silence that is shown, also for a member that was never heard from: 24 days, in milliseconds
/// the largest signed integer of 32 bits.
const NEVER_MS: u64 = i32::MAX as u64;
/// The default `failover-timeout` of Redis, in milliseconds.
const FAILOVER_TIMEOUT_MS: u64 = 180_000;

/// For how many milliseconds `member` has been silent, as far as the server that is asked can tell: see
/// [`MemberView::heard_ms`].
fn silent_ms(member: &MemberView) -> u64 {
    match member.heard_ms {
        _ if member.is_self => 0,
        Some(heard_ms) => heard_ms.min(NEVER_MS),
        None => NEVER_MS,
    }
}

/// Whether a member counts as down: it was silent for more than [`DOWN_AFTER_MS`].
pub(crate) fn is_down(member: &MemberView) -> bool {
    silent_ms(member) > DOWN_AFTER_MS
}

/// The id of a member in the form of a `run_id`: 40 hexadecimal digits.
pub(crate) fn run_id(member: &MemberView) -> String {
    format!("{:0<40}", member.id)
}

/// Writes the map of a master, a replica or a sentinel, and counts its fields.
struct Fields<'r, 'o> {
    reply: &'r mut ReplyWriter<'o>,
    map: Deferred,
    count: usize,
}

impl<'r, 'o> Fields<'r, 'o> {
    /// Begins with the fields that all instances have.
    fn begin(
        reply: &'r mut ReplyWriter<'o>,
        name: impl Display,
        kind: &str,
        member: &MemberView,
    ) -> Fields<'r, 'o> {
        let map = reply.begin_deferred();
        let silent_ms = silent_ms(member);
        let mut fields = Fields { reply, map, count: 0 };
        fields.put("name", name);
        fields.put("ip", &member.address.host);
        fields.put("port", member.address.port);
        fields.put("runid", run_id(member));
        match is_down(member) {
            true => fields.put("flags", format_args!("s_down,{kind},disconnected")),
            false => fields.put("flags", kind),
        }
        fields.put("link-pending-commands", 0);
        fields.put("link-refcount", 1);
        fields.put("last-ping-sent", if is_down(member) { silent_ms } else { 0 });
        fields.put("last-ok-ping-reply", silent_ms);
        fields.put("last-ping-reply", silent_ms);
        if is_down(member) {
            fields.put("s-down-time", silent_ms - DOWN_AFTER_MS);
        }
        fields.put("down-after-milliseconds", DOWN_AFTER_MS);
        fields
    }

    fn put(&mut self, name: &str, value: impl Display) {
        self.reply.bulk(name.as_bytes());
        self.reply.bulk_display(value);
        self.count += 1;
    }

    /// Writes the role, which a master and a replica have.
    fn put_role(&mut self, role: &str, member: &MemberView) {
        self.put("info-refresh", silent_ms(member));
        self.put("role-reported", role);
        self.put("role-reported-time", silent_ms(member));
    }

    fn end(self) {
        self.reply.end_deferred(self.map, Aggregate::Map, self.count);
    }
}

/// Writes the leader as the master of this name.
pub(super) fn master(reply: &mut ReplyWriter<'_>, group: &GroupView, name: &str, leader: &MemberView) {
    let mut fields = Fields::begin(reply, name, "master", leader);
    fields.put_role("master", leader);
    fields.put("config-epoch", group.term);
    fields.put("num-slaves", group.followers().count());
    fields.put("num-other-sentinels", group.members.iter().filter(|member| !member.is_self).count());
    fields.put("quorum", super::majority(group));
    fields.put("failover-timeout", FAILOVER_TIMEOUT_MS);
    fields.put("parallel-syncs", 1);
    fields.end();
}

/// Writes a member that does not lead as a replica.
pub(super) fn replica(reply: &mut ReplyWriter<'_>, group: &GroupView, member: &MemberView) {
    let leader = group.leader();
    let is_linked = leader.is_some() && !is_down(member);
    let mut fields = Fields::begin(reply, &member.address, "slave", member);
    fields.put_role("slave", member);
    fields.put("master-link-down-time", if is_linked { 0 } else { silent_ms(member) });
    fields.put("master-link-status", if is_linked { "ok" } else { "err" });
    fields.put("master-host", leader.map_or("?", |leader| &leader.address.host));
    fields.put("master-port", leader.map_or(0, |leader| leader.address.port));
    // As in Redis, 0 is the priority of a replica that is not promoted.
    fields.put("slave-priority", if member.kind == MemberKind::Voter { 100 } else { 0 });
    fields.put("slave-repl-offset", member.durable.unwrap_or(Lsn::ZERO));
    fields.put("replica-announced", 1);
    fields.end();
}

/// Writes another member as a sentinel.
pub(super) fn sentinel(reply: &mut ReplyWriter<'_>, group: &GroupView, member: &MemberView) {
    let leader = group.leader();
    let mut fields = Fields::begin(reply, run_id(member), "sentinel", member);
    fields.put("last-hello-message", silent_ms(member));
    fields.put("voted-leader", leader.map_or("?".into(), run_id));
    fields.put("voted-leader-epoch", if leader.is_some() { group.term } else { 0 });
    fields.end();
}
