//! The kinds of subscriptions.

/// The kind of a subscription: by name or by pattern, and where its messages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A channel by its name (SUBSCRIBE).
    Channel,
    /// All channels whose names match a pattern.
    Pattern,
    /// A shard channel. Shard channels have a name space of their own.
    Shard,
    /// A durable channel by its name. Its messages come from the log, not through the hub.
    Log,
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Kind; 4] = [Kind::Channel, Kind::Pattern, Kind::Shard, Kind::Log];
}
