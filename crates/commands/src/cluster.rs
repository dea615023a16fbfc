//! CLUSTER: shows this server, or its group, as a Redis Cluster of one shard (`cluster-emulation`), for
//! clients that know only Redis Cluster.
//!
//! ```text
//! the leader holds all 16384 slots;  the others are its replicas and send clients to it (MOVED, in engine)
//! ```
//!
//! The replies are in the format of Redis 7; [`mod@nodes`] finds the nodes. There is no gossip, and no slot
//! moves. Commands on keys of several slots run, although most clients refuse to send them.

mod nodes;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use engine::{CommandError, Context, unit::LockPolicy};
use keyspace::{DbId, SLOT_COUNT, SlotId, slot_of};
use wire::{Aggregate, Args, number::parse_i64};

use nodes::{Node, Nodes};
pub(crate) use rows::ROWS;

const DISABLED: CommandError = CommandError::Text("ERR This instance has cluster support disabled");
const INVALID_SLOT: CommandError = CommandError::Text("ERR Invalid or out of range slot");
const LAST_SLOT: usize = SLOT_COUNT - 1;
/// The distance from the port of a node to its port for gossip, by the custom of Redis. Nothing listens
/// there.
const BUS_PORT_OFFSET: u32 = 10_000;

fn require_enabled(cx: &Context<'_, '_>) -> Result<(), CommandError> {
    if cx.host.config.emulates_cluster() { Ok(()) } else { Err(DISABLED) }
}

fn nodes(cx: &Context<'_, '_>) -> Result<Nodes, CommandError> {
    require_enabled(cx)?;
    Ok(Nodes::seen_by(cx))
}

/// `CLUSTER INFO`
pub(super) fn info(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let nodes = nodes(cx)?;
    let state = if nodes.leader().is_none() || cx.host.replication.lacks_majority() { "fail" } else { "ok" };
    let (count, epoch) = (nodes.all.len(), nodes.epoch);
    let text = format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{SLOT_COUNT}\r\ncluster_slots_ok:{SLOT_COUNT}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{count}\r\ncluster_size:1\r\n\
         cluster_current_epoch:{epoch}\r\ncluster_my_epoch:{epoch}\r\ncluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n"
    );
    cx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// `CLUSTER MYID`
pub(super) fn myid(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let nodes = nodes(cx)?;
    let own = nodes.all.iter().find(|node| node.is_self).map(|node| node.id.as_bytes());
    cx.reply.bulk_or_null(own);
    Ok(())
}

/// `CLUSTER NODES`
pub(super) fn list(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let nodes = nodes(cx)?;
    let mut text = String::new();
    for node in &nodes.all {
        let Node { id, address, .. } = node;
        let (host, port) = (&address.host, address.port);
        let bus = u32::from(port) + BUS_PORT_OFFSET;
        let own = if node.is_self { "myself," } else { "" };
        let role = if node.leads { "master" } else { "slave" };
        let down = if node.is_down { ",fail" } else { "" };
        let master = nodes.leader().filter(|_| !node.leads).map_or("-", |leader| &*leader.id);
        let link = if node.is_down { "disconnected" } else { "connected" };
        let slots = if node.leads { format!(" 0-{LAST_SLOT}") } else { String::new() };
        let epoch = nodes.epoch;
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "{id} {host}:{port}@{bus} {own}{role}{down} {master} 0 0 {epoch} {link}{slots}");
    }
    cx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// `CLUSTER SLOTS`: empty if [`Nodes::leader`] finds no leader. The leader is shown also if it is down; other
/// nodes that are down or are still learning are left out.
pub(super) fn slots(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let nodes = nodes(cx)?;
    let Some(leader) = nodes.leader() else {
        cx.reply.array(0);
        return Ok(());
    };
    let usable: Vec<&Node> = nodes.all.iter().filter(|node| node.is_usable()).collect();
    let reply = &mut cx.reply;
    reply.array(1);
    reply.array(3 + usable.len());
    reply.integer(0);
    reply.count(LAST_SLOT);
    for node in std::iter::once(leader).chain(usable) {
        reply.array(4);
        reply.bulk(node.address.host.as_bytes());
        reply.integer(node.address.port.into());
        reply.bulk(node.id.as_bytes());
        reply.array(0);
    }
    Ok(())
}

/// `CLUSTER SHARDS`
pub(super) fn shards(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let nodes = nodes(cx)?;
    let reply = &mut cx.reply;
    reply.array(1);
    reply.map(2);
    reply.bulk(b"slots");
    reply.array(2);
    reply.integer(0);
    reply.count(LAST_SLOT);
    reply.bulk(b"nodes");
    reply.array(nodes.all.len());
    for node in &nodes.all {
        let health = match (node.is_down, node.learns) {
            (true, _) => "fail",
            (false, true) => "loading",
            (false, false) => "online",
        };
        reply.map(7);
        reply.bulk(b"id");
        reply.bulk(node.id.as_bytes());
        reply.bulk(b"port");
        reply.integer(node.address.port.into());
        reply.bulk(b"ip");
        reply.bulk(node.address.host.as_bytes());
        reply.bulk(b"endpoint");
        reply.bulk(node.address.host.as_bytes());
        reply.bulk(b"role");
        reply.bulk(if node.leads { b"master" } else { b"replica" });
        reply.bulk(b"replication-offset");
        reply.integer(node.offset as i64);
        reply.bulk(b"health");
        reply.bulk(health.as_bytes());
    }
    Ok(())
}

/// `CLUSTER KEYSLOT key`
pub(super) fn keyslot(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_enabled(cx)?;
    cx.reply.integer(slot_of(args.at(2)).get().into());
    Ok(())
}

fn parse_slot(text: &[u8]) -> Result<SlotId, CommandError> {
    let slot = parse_i64(text).and_then(|slot| SlotId::new(u16::try_from(slot).ok()?));
    slot.ok_or(INVALID_SLOT)
}

/// `CLUSTER COUNTKEYSINSLOT slot`
pub(super) fn countkeysinslot(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_enabled(cx)?;
    let (slot, now_ms) = (parse_slot(args.at(2))?, cx.as_of_ms());
    let count = cx.unit.with_slot(LockPolicy(cx.host), slot, |slot| {
        slot.entries(DbId::ZERO).filter(|entry| !entry.is_expired(now_ms)).count()
    })?;
    cx.reply.count(count);
    Ok(())
}

/// `CLUSTER GETKEYSINSLOT slot count`
pub(super) fn getkeysinslot(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_enabled(cx)?;
    let (slot, now_ms) = (parse_slot(args.at(2))?, cx.as_of_ms());
    let most = parse_i64(args.at(3)).and_then(|most| usize::try_from(most).ok());
    let most = most.ok_or(CommandError::Text("ERR Invalid number of keys"))?;
    let array = cx.reply.begin_deferred();
    let reply = &mut cx.reply;
    let count = cx.unit.with_slot(LockPolicy(cx.host), slot, |slot| {
        let alive = slot.entries(DbId::ZERO).filter(|entry| !entry.is_expired(now_ms));
        alive.take(most).map(|entry| reply.bulk(entry.key())).count()
    })?;
    cx.reply.end_deferred(array, Aggregate::Array, count);
    Ok(())
}
