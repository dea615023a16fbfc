//! PUBLISH and SPUBLISH.

use pubsub::Kind;
use wire::Args;

use crate::{CommandError, Context};

/// Messages to durable channels in one transaction: each has a position of its own within the record, and the shortest of
/// records in parts has this many (see [`storage::Appender::reserve`]).
const MESSAGES_PER_UNIT_MAX: usize = 16 << 10;

/// `PUBLISH channel message`
pub(super) fn publish(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if cx.host.is_durable_channel(args.at(1)) {
        log(cx, args)?;
    }
    send(cx, Kind::Channel, args);
    Ok(())
}

/// `SPUBLISH shardchannel message`
pub(super) fn spublish(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    send(cx, Kind::Shard, args);
    Ok(())
}

/// Adds the message to the record of the unit. Nobody hears of it before that is durable.
fn log(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if cx.unit.messages() == MESSAGES_PER_UNIT_MAX {
        return Err(CommandError::Text("ERR too many messages to durable channels in one transaction"));
    }
    cx.require_room(args.size_bytes() as u64)?;
    cx.unit.log_message(args.at(1), args.at(2));
    cx.session.publishes_in_turn = true;
    Ok(())
}

fn send(cx: &mut Context<'_, '_>, kind: Kind, args: Args<'_>) {
    let (channel, payload) = (args.at(1), args.at(2));
    cx.session.publishes_in_turn |= cx.in_transaction;
    let receivers = if cx.session.publishes_in_turn {
        let receivers = cx.channels().receivers(kind, channel);
        // In a transaction somebody may subscribe after this.
        if receivers > 0 || cx.in_transaction {
            cx.unit.publish(kind, channel, payload);
        }
        receivers
    } else {
        cx.channels().publish(kind, channel, payload)
    };
    cx.reply.count(receivers);
}
