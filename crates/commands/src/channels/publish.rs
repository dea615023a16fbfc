//! PUBLISH and SPUBLISH.

use engine::{CommandError, Context, audit::AUDIT_CHANNEL};
use pubsub::Kind;
use wire::Args;

/// The maximum number of messages to durable channels in one unit. The n-th message has the position n bytes
/// after the start of the record, or of its last part if the record is split. This position must lie within
/// the record. A whole record has more bytes than messages. The last part of a split record is full, and so
/// has more bytes than this limit.
const MESSAGES_PER_UNIT_MAX: usize = 16 << 10;

/// `PUBLISH channel message`
pub(super) fn publish(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    refuse_reserved(args)?;
    let is_logged = cx.host.config.is_durable_channel(args.at(1));
    let readers = if is_logged { log(cx, args)? } else { 0 };
    let receivers = send(cx, Kind::Channel, args, is_logged);
    cx.reply.count(receivers + readers);
    Ok(())
}

/// `SPUBLISH shardchannel message`
pub(super) fn spublish(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    refuse_reserved(args)?;
    let receivers = send(cx, Kind::Shard, args, false);
    cx.reply.count(receivers);
    Ok(())
}

/// Refuses the channel of the audit: only the server publishes there.
fn refuse_reserved(args: Args<'_>) -> Result<(), CommandError> {
    match args.at(1) {
        AUDIT_CHANNEL => Err(CommandError::Text("ERR the server alone publishes to its audit")),
        _ => Ok(()),
    }
}

/// Adds the message to the record of the unit, from which the readers of the channel get it. Returns how many
/// readers the channel has now.
fn log(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<usize, CommandError> {
    if cx.unit.messages() == MESSAGES_PER_UNIT_MAX {
        return Err(CommandError::Text("ERR too many messages to durable channels in one transaction"));
    }
    cx.require_room(args.size_bytes() as u64)?;
    cx.unit.log_message(args.at(1), args.at(2));
    cx.session.publishes_in_turn = true;
    Ok(cx.channels().hub().subscribers(Kind::Log, args.at(1)))
}

/// Sends a message to the present subscribers. Returns how many subscriptions match. The message is delivered
/// at once or as a notice of its unit. It is a notice in a transaction, a script or IDEMP, and after the
/// client has published in one of these or to a durable channel.
fn send(cx: &mut Context<'_, '_>, kind: Kind, args: Args<'_>, is_logged: bool) -> usize {
    let (channel, payload) = (args.at(1), args.at(2));
    cx.session.publishes_in_turn |= cx.in_transaction;
    if cx.session.publishes_in_turn {
        let receivers = cx.channels().receivers(kind, channel);
        // In a transaction the message is kept even without receivers: a client may subscribe before it is
        // sent.
        if receivers > 0 || cx.in_transaction {
            cx.unit.publish(kind, channel, payload, is_logged);
        }
        receivers
    } else {
        cx.channels().publish(kind, channel, payload)
    }
}
