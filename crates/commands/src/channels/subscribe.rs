//! SUBSCRIBE and UNSUBSCRIBE, also those for patterns and for shard channels.

use engine::{CommandError, Context, channel_reader::note_subscriptions};
use pubsub::{Kind, SubscriberId, durable::Request};
use wire::{Args, ReplyWriter};

/// `SUBSCRIBE channel [channel ...]`
pub(super) fn subscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    begin(cx, args, Kind::Channel, "subscribe");
    Ok(())
}

/// `PSUBSCRIBE pattern [pattern ...]`
pub(super) fn psubscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    begin(cx, args, Kind::Pattern, "psubscribe");
    Ok(())
}

/// `SSUBSCRIBE shardchannel [shardchannel ...]`
pub(super) fn ssubscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if cx.in_transaction {
        return Err(CommandError::Text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    begin(cx, args, Kind::Shard, "ssubscribe");
    Ok(())
}

/// `UNSUBSCRIBE [channel [channel ...]]`
pub(super) fn unsubscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    end(cx, args, Kind::Channel, "unsubscribe");
    Ok(())
}

/// `PUNSUBSCRIBE [pattern [pattern ...]]`
pub(super) fn punsubscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    end(cx, args, Kind::Pattern, "punsubscribe");
    Ok(())
}

/// `SUNSUBSCRIBE [shardchannel [shardchannel ...]]`
pub(super) fn sunsubscribe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    end(cx, args, Kind::Shard, "sunsubscribe");
    Ok(())
}

fn begin(cx: &mut Context<'_, '_>, args: Args<'_>, kind: Kind, verb: &str) {
    let id = subscriber(cx);
    for name in args.skip(1).iter() {
        cx.channels().subscribe(id, kind, name);
        confirm(cx, id, kind, verb, Some(name));
    }
    note_subscriptions_of(cx, id);
    // Events are noted only while somebody listens. This client may be the first, so the classes are set
    // again, for the next commands of this round.
    let classes = cx.host.config.event_classes();
    cx.unit.want_events(classes);
}

fn end(cx: &mut Context<'_, '_>, args: Args<'_>, kind: Kind, verb: &str) {
    let id = subscriber(cx);
    if args.len() > 1 {
        for name in args.skip(1).iter() {
            cx.channels().unsubscribe(id, kind, name);
            confirm(cx, id, kind, verb, Some(name));
        }
    } else {
        let names = cx.channels().names(id, kind);
        for name in &names {
            cx.channels().unsubscribe(id, kind, name);
            confirm(cx, id, kind, verb, Some(name));
        }
        if names.is_empty() {
            confirm(cx, id, kind, verb, None);
        }
    }
    note_subscriptions_of(cx, id);
}

/// Ends all subscriptions of the client without confirmations; for RESET.
pub(crate) fn unsubscribe_all(cx: &mut Context<'_, '_>) {
    if let Some(reader) = cx.session.reader.take() {
        cx.host.durable_channels.request(Request::Leave { reader: reader.id });
    }
    let Some(id) = cx.session.subscriber else { return };
    for kind in Kind::ALL {
        for name in cx.channels().names(id, kind) {
            cx.channels().unsubscribe(id, kind, &name);
        }
    }
    write_delivered(cx, id);
    note_subscriptions_of(cx, id);
}

/// The id of this client as a subscriber. A client without such an id is registered first, even if the
/// command ends subscriptions.
pub(super) fn subscriber(cx: &mut Context<'_, '_>) -> SubscriberId {
    if let Some(id) = cx.session.subscriber {
        return id;
    }
    let (client_id, protocol) = (cx.session.client.id(), cx.session.protocol);
    let id = cx.channels().join(client_id, protocol);
    cx.session.subscriber = Some(id);
    id
}

fn confirm(cx: &mut Context<'_, '_>, id: SubscriberId, kind: Kind, verb: &str, name: Option<&[u8]>) {
    write_delivered(cx, id);
    let counts = Kind::ALL.map(|kind| cx.channels().subscriptions(id, kind));
    let [channels, patterns, shards, from_log] = counts;
    let count = if kind == Kind::Shard { shards } else { channels + patterns + from_log };
    let write = |reply: &mut ReplyWriter<'_>| {
        reply.push(3);
        reply.bulk(verb.as_bytes());
        reply.bulk_or_null(name);
        reply.count(count);
    };
    write(&mut cx.reply);
    if cx.session.is_silent() {
        let protocol = cx.session.protocol;
        write(&mut ReplyWriter::new(&mut cx.session.confirmations, protocol));
    }
}

/// Writes the messages that were delivered before a change of subscriptions, ahead of its confirmation. In a
/// transaction these messages have to wait, because the client would take them for replies.
fn write_delivered(cx: &mut Context<'_, '_>, id: SubscriberId) {
    if !cx.in_transaction && cx.channels().has_delivered(id) {
        let mut delivered = Vec::new();
        cx.channels().drain_into(id, &mut delivered);
        cx.reply.raw(&delivered);
        if cx.session.is_silent() {
            cx.session.confirmations.extend_from_slice(&delivered);
        }
    }
}

fn note_subscriptions_of(cx: &mut Context<'_, '_>, id: SubscriberId) {
    if let Some(channels) = cx.channels.as_deref() {
        note_subscriptions(channels, cx.session, id);
    }
}
