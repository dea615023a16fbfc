//! PUBSUB: the channels with subscribers, and the numbers of subscribers and patterns.

use engine::{CommandError, Context};
use pubsub::Kind;
use wire::Args;

/// `PUBSUB CHANNELS [pattern]`
pub(super) fn channels(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    list(cx, args, Kind::Channel)
}

/// `PUBSUB SHARDCHANNELS [pattern]`
pub(super) fn shardchannels(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    list(cx, args, Kind::Shard)
}

fn list(cx: &mut Context<'_, '_>, args: Args<'_>, kind: Kind) -> Result<(), CommandError> {
    if args.len() > 3 {
        let name = String::from_utf8_lossy(args.at(1));
        return Err(CommandError::Composed(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP."
        )));
    }
    let names = cx.channels().hub().names(kind, args.get(2));
    cx.reply.array(names.len());
    names.iter().for_each(|name| cx.reply.bulk(name));
    Ok(())
}

/// `PUBSUB NUMSUB [channel [channel ...]]`
pub(super) fn numsub(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    count(cx, args, Kind::Channel);
    Ok(())
}

/// `PUBSUB SHARDNUMSUB [shardchannel [shardchannel ...]]`
pub(super) fn shardnumsub(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    count(cx, args, Kind::Shard);
    Ok(())
}

fn count(cx: &mut Context<'_, '_>, args: Args<'_>, kind: Kind) {
    let channels = args.skip(2);
    cx.reply.array(2 * channels.len());
    for channel in channels.iter() {
        let mut subscribers = cx.channels().hub().subscribers(kind, channel);
        if kind == Kind::Channel {
            subscribers += cx.channels().hub().subscribers(Kind::Log, channel);
        }
        cx.reply.bulk(channel);
        cx.reply.count(subscribers);
    }
}

/// `PUBSUB NUMPAT`
pub(super) fn numpat(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let patterns = cx.channels().hub().topics(Kind::Pattern);
    cx.reply.count(patterns);
    Ok(())
}
