//! Reports of the thread of durable channels about a client's subscriptions, as replies to the client.

use pubsub::{Kind, Local, SubscriberId, durable::ReaderEvent};
use wire::ReplyWriter;

use crate::Session;

/// Applies a report of the thread of durable channels, and writes it for the client.
pub fn notify(channels: &mut Local, session: &mut Session, event: &ReaderEvent, reply: &mut ReplyWriter<'_>) {
    let (client_id, protocol) = (session.client.id(), session.protocol);
    let id = *session.subscriber.get_or_insert_with(|| channels.join(client_id, protocol));
    match event {
        ReaderEvent::Subscribed { channel, position, .. } => {
            channels.subscribe(id, Kind::Log, channel);
            let (count, position) = (count(channels, id), position.to_string());
            confirm(reply, "xsubscribe", Some(channel), Some(position.as_bytes()), count);
        }
        ReaderEvent::Refused { error, .. } => reply.error(error),
        ReaderEvent::Unsubscribed { channels: names, .. } => {
            for name in names {
                channels.unsubscribe(id, Kind::Log, name);
                confirm(reply, "xunsubscribe", Some(name), None, count(channels, id));
            }
        }
        ReaderEvent::Lost { channel, oldest, .. } => {
            channels.unsubscribe(id, Kind::Log, channel);
            let (count, oldest) = (count(channels, id), oldest.to_string());
            confirm(reply, "xlost", Some(channel), Some(oldest.as_bytes()), count);
        }
    }
    note_subscriptions(channels, session, id);
}

/// How many subscriptions a client has, those to shard channels excluded.
pub fn count(channels: &Local, id: SubscriberId) -> usize {
    [Kind::Channel, Kind::Pattern, Kind::Log].map(|kind| channels.subscriptions(id, kind)).iter().sum()
}

/// Tells a client that its subscription to a durable channel begins (with its position), ends, or is lost
/// (with the oldest position that is kept).
pub fn confirm(
    reply: &mut ReplyWriter<'_>,
    verb: &str,
    name: Option<&[u8]>,
    position: Option<&[u8]>,
    count: usize,
) {
    reply.push(3 + usize::from(position.is_some()));
    reply.bulk(verb.as_bytes());
    reply.bulk_or_null(name);
    if let Some(position) = position {
        reply.bulk(position);
    }
    reply.count(count);
}

/// Updates the numbers of subscriptions in the session and in the list of clients.
pub fn note_subscriptions(channels: &Local, session: &mut Session, id: SubscriberId) {
    let counts = Kind::ALL.map(|kind| channels.subscriptions(id, kind));
    session.subscribed = counts.iter().any(|count| *count > 0);
    session.client.set_subscriptions(counts);
}
