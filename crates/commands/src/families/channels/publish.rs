//! PUBLISH and SPUBLISH.

use pubsub::Kind;
use wire::Args;

use crate::{CommandError, Context};

/// `PUBLISH channel message`
pub(super) fn publish(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    send(cx, Kind::Channel, args);
    Ok(())
}

/// `SPUBLISH shardchannel message`
pub(super) fn spublish(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    send(cx, Kind::Shard, args);
    Ok(())
}

fn send(cx: &mut Context<'_, '_>, kind: Kind, args: Args<'_>) {
    let (channel, payload) = (args.at(1), args.at(2));
    cx.session.publishes_in_turn |= cx.in_transaction;
    let receivers = if cx.session.publishes_in_turn {
        cx.unit.publish(kind, channel, payload);
        cx.channels().receivers(kind, channel)
    } else {
        cx.channels().publish(kind, channel, payload)
    };
    cx.reply.count(receivers);
}
