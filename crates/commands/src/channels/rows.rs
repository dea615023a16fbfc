//! The rows of the commands on channels.

use engine::{Family, Flags, Keys, Needs, Row, Treatment, row::Channels, row::Mobility};

use super::{introspect, publish, read, subscribe};
use crate::help;

const ALWAYS: Flags = Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE);
const SUBSCRIBING: Flags = ALWAYS.or(Flags::NOSCRIPT).or(Flags::SUBSCRIBER);
/// Another thread answers these commands, so scripts and transactions cannot contain them. That thread reads
/// the log, so the commands are refused while the server loads.
const READER: Flags = Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::SUBSCRIBER).or(Flags::NO_MULTI);

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: -2,
    flags: SUBSCRIBING,
    keys: Keys::None,
    family: Family::Pubsub,
    since: "2.0.0",
    complexity: "O(N) where N is the number of channels.",
    summary: "",
    syntax: "",
    handler: help::no_subcommand,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "psubscribe",
        needs: Needs::of_channels(Channels::Patterns),
        complexity: "O(N) where N is the number of patterns.",
        summary: "Listens to all channels that match one of the patterns.",
        syntax: "pattern [pattern ...]",
        handler: subscribe::psubscribe,
        ..ROW
    },
    Row {
        name: "publish",
        needs: Needs::of_channels(Channels::First),
        treatment: Treatment::of_mobility(Mobility::AtAnyTime),
        arity: 3,
        flags: ALWAYS.or(Flags::FAST).or(Flags::LOGS_MESSAGES).or(Flags::PUBLISHES),
        complexity: "O(N+M) where N is the number of subscribers and M the number of patterns that are like the channel.",
        summary: "Sends a message to the subscribers of a channel and replies with their number.",
        syntax: "channel message",
        handler: publish::publish,
        ..ROW
    },
    Row {
        name: "pubsub",
        flags: Flags::CONTAINER,
        since: "2.8.0",
        complexity: "That of the subcommand.",
        summary: "Groups commands about channels and their subscribers.",
        syntax: "subcommand [arg ...]",
        subcommands: SUBCOMMANDS,
        ..ROW
    },
    Row {
        name: "punsubscribe",
        arity: -1,
        complexity: "O(N) where N is the number of patterns.",
        summary: "Stops listening to patterns, or to all of them.",
        syntax: "[pattern [pattern ...]]",
        handler: subscribe::punsubscribe,
        ..ROW
    },
    Row {
        name: "spublish",
        needs: Needs::of_channels(Channels::First),
        treatment: Treatment::of_mobility(Mobility::AtAnyTime),
        arity: 3,
        flags: ALWAYS.or(Flags::FAST).or(Flags::PUBLISHES),
        keys: Keys::ShardChannels { last: 1 },
        since: "7.0.0",
        complexity: "O(N) where N is the number of subscribers.",
        summary: "Sends a message to the subscribers of a shard channel and replies with their number.",
        syntax: "shardchannel message",
        handler: publish::spublish,
        ..ROW
    },
    Row {
        name: "ssubscribe",
        needs: Needs::of_channels(Channels::All),
        keys: Keys::ShardChannels { last: -1 },
        since: "7.0.0",
        summary: "Listens to shard channels.",
        syntax: "shardchannel [shardchannel ...]",
        handler: subscribe::ssubscribe,
        ..ROW
    },
    Row {
        name: "subscribe",
        needs: Needs::of_channels(Channels::All),
        summary: "Listens to channels.",
        syntax: "channel [channel ...]",
        handler: subscribe::subscribe,
        ..ROW
    },
    Row {
        name: "sunsubscribe",
        arity: -1,
        keys: Keys::ShardChannels { last: -1 },
        since: "7.0.0",
        summary: "Stops listening to shard channels, or to all of them.",
        syntax: "[shardchannel [shardchannel ...]]",
        handler: subscribe::sunsubscribe,
        ..ROW
    },
    Row {
        name: "unsubscribe",
        arity: -1,
        summary: "Stops listening to channels, or to all of them.",
        syntax: "[channel [channel ...]]",
        handler: subscribe::unsubscribe,
        ..ROW
    },
    Row {
        name: "xsubscribe",
        needs: Needs::of_channels(Channels::First),
        arity: 4,
        flags: READER,
        since: "7.2.0",
        complexity: "O(1), and O(N) for N messages that are read again.",
        summary: "Listens to a durable channel from a position in the log on: epoch:lsn:reign, - for the oldest, $ for now.",
        syntax: "channel FROM position",
        handler: read::xsubscribe,
        ..ROW
    },
    Row {
        name: "xunsubscribe",
        arity: -1,
        flags: READER.or(Flags::STALE),
        since: "7.2.0",
        summary: "Stops listening to durable channels from the log, or to all of them.",
        syntax: "[channel [channel ...]]",
        handler: read::xunsubscribe,
        ..ROW
    },
];

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "pubsub|channels",
        flags: ALWAYS,
        since: "2.8.0",
        complexity: "O(N) where N is the number of channels.",
        summary: "Lists the channels with subscribers by name, or those of them that match.",
        syntax: "[pattern]",
        handler: introspect::channels,
        ..ROW
    },
    Row {
        name: "pubsub|help",
        arity: 2,
        flags: Flags::LOADING.or(Flags::STALE),
        since: "6.2.0",
        complexity: "O(1)",
        summary: "Describes the subcommands.",
        handler: help::help,
        ..ROW
    },
    Row {
        name: "pubsub|numpat",
        arity: 2,
        flags: ALWAYS,
        since: "2.8.0",
        complexity: "O(1)",
        summary: "Counts the patterns with subscribers.",
        handler: introspect::numpat,
        ..ROW
    },
    Row {
        name: "pubsub|numsub",
        flags: ALWAYS,
        since: "2.8.0",
        complexity: "O(N) where N is the number of channels asked for.",
        summary: "Counts the subscribers of channels by name.",
        syntax: "[channel [channel ...]]",
        handler: introspect::numsub,
        ..ROW
    },
    Row {
        name: "pubsub|shardchannels",
        flags: ALWAYS,
        since: "7.0.0",
        complexity: "O(N) where N is the number of shard channels.",
        summary: "Lists the shard channels with subscribers, or those of them that match.",
        syntax: "[pattern]",
        handler: introspect::shardchannels,
        ..ROW
    },
    Row {
        name: "pubsub|shardnumsub",
        flags: ALWAYS,
        since: "7.0.0",
        complexity: "O(N) where N is the number of shard channels asked for.",
        summary: "Counts the subscribers of shard channels.",
        syntax: "[shardchannel [shardchannel ...]]",
        handler: introspect::shardnumsub,
        ..ROW
    },
];
