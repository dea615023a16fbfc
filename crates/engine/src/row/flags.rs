//! Properties of commands: those that COMMAND INFO shows, and those for the executor only.

/// Properties of a command; combine with [`Flags::or`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u32);

impl Flags {
    /// A command without any property.
    pub const NONE: Flags = Flags(0);
    /// May change data: waits, or is refused, when the log cannot take it.
    pub const WRITE: Flags = Flags(1);
    /// Reads data, and changes none.
    pub const READONLY: Flags = Flags(1 << 1);
    /// May grow memory: refused, or preceded by eviction, above the memory limit.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// Takes constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 3);
    /// Allowed while the server loads its data.
    pub const LOADING: Flags = Flags(1 << 4);
    /// Allowed to clients that have not logged in.
    pub const NO_AUTH: Flags = Flags(1 << 5);
    /// For administrators: MONITOR does not show it, and it is in the categories `@admin` and `@dangerous`.
    pub const ADMIN: Flags = Flags(1 << 6);
    /// Not allowed in scripts and functions.
    pub const NOSCRIPT: Flags = Flags(1 << 7);
    /// Allowed where data may not be shown, for instance on a stale replica.
    pub const STALE: Flags = Flags(1 << 8);
    /// A container: the first argument names a subcommand.
    pub const CONTAINER: Flags = Flags(1 << 9);
    /// Reads keys without naming them: with durability `strict`, its reply waits for everything appended so
    /// far.
    pub const READS_ALL: Flags = Flags(1 << 10);
    /// Refused between MULTI and EXEC.
    pub const NO_MULTI: Flags = Flags(1 << 13);
    /// Runs at once between MULTI and EXEC instead of being queued.
    pub const IMMEDIATE: Flags = Flags(1 << 14);
    /// Its record may hold whole values of its keys, or all libraries, however small its arguments are. So
    /// the command calls [`Context::require_room`](crate::Context::require_room), and a transaction asks the
    /// log for room for these values before it begins.
    pub const COPIES: Flags = Flags(1 << 15);
    /// Takes constant time although Redis does not call the command fast: the command does not count as one
    /// that may take long ([`Watch::Slow`](crate::observe::Watch::Slow)).
    pub const BRIEF: Flags = Flags(1 << 12);
    /// Dangerous on a busy server.
    pub const DANGEROUS: Flags = Flags(1 << 11);

    /// May wait, for a key or for a position of the log. In transactions and scripts it replies at once.
    pub const BLOCKING: Flags = Flags(1 << 16);
    /// Refused to clients that the settings do not admit: DEBUG.
    pub const PROTECTED: Flags = Flags(1 << 17);

    /// Works on channels; COMMAND INFO shows it as `pubsub`.
    pub const PUBSUB: Flags = Flags(1 << 18);
    /// Allowed to a RESP2 client with subscriptions, which could not tell replies to other commands from
    /// messages.
    pub const SUBSCRIBER: Flags = Flags(1 << 19);

    /// Appends to the log if the channel that it names first is durable.
    pub const LOGS_MESSAGES: Flags = Flags(1 << 20);

    /// Publishes messages: refused to read-only scripts like a write.
    pub const PUBLISHES: Flags = Flags(1 << 26);

    /// Runs inner commands: those of a script or function, or a wrapped command (IDEMP). The checks for
    /// writes and growth are made before it runs; an inner command that fails them is refused. The command
    /// shows itself to monitors before its inner commands.
    pub const RUNS_SCRIPTS: Flags = Flags(1 << 21);

    /// Its first two arguments name a document: database and id.
    pub const DOCUMENTS: Flags = Flags(1 << 22);

    /// Empties a database or all of them, which cannot be undone.
    pub const FLUSHES: Flags = Flags(1 << 27);

    /// In Redis, runs even while a script keeps the server busy. COMMAND INFO shows this property; the engine
    /// does not look at it.
    pub const ALLOW_BUSY: Flags = Flags(1 << 24);

    /// Runs another command, which stands among its arguments: see [`wrapped`](crate::row::wrapped()).
    pub const WRAPS: Flags = Flags(1 << 23);

    /// Takes time in proportion to the size of its keys' values: see [`crate::LongUnit`].
    pub const WALKS: Flags = Flags(1 << 25);

    /// A command that servers send to each other: no pause of clients holds it, and it is allowed on the
    /// places that are kept for other servers beyond `maxclients` (see [`Place`](crate::Place)).
    pub const BETWEEN_SERVERS: Flags = Flags(1 << 28);

    /// Shows or changes what only administrators may. While a server loads and does not know its users, the
    /// command is refused to clients that have not logged in.
    pub const GUARDED: Flags = Flags(1 << 29);

    /// An action of an administrator, which the audit notes.
    pub const AUDITED: Flags = Flags(1 << 30);

    /// Reads or writes a file at once, so it may wait for a disk that does not answer: its handler asks for a
    /// thread of its own ([`Context::require_own_thread`](crate::Context::require_own_thread)).
    pub const AWAITS_DISK: Flags = Flags(1 << 31);

    /// The union of both sets of properties.
    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether this set has all properties of `other`.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names that COMMAND INFO shows.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Flags, &str); 15] = [
            (Flags::WRITE, "write"),
            (Flags::READONLY, "readonly"),
            (Flags::DENYOOM, "denyoom"),
            (Flags::ADMIN, "admin"),
            (Flags::PUBSUB, "pubsub"),
            (Flags::NOSCRIPT, "noscript"),
            (Flags::BLOCKING, "blocking"),
            (Flags::LOADING, "loading"),
            (Flags::STALE, "stale"),
            (Flags::FAST, "fast"),
            (Flags::NO_AUTH, "no_auth"),
            (Flags::NO_MULTI, "no_multi"),
            (Flags::ALLOW_BUSY, "allow_busy"),
            (Flags::RUNS_SCRIPTS, "skip_monitor"),
            (Flags::RUNS_SCRIPTS, "no_mandatory_keys"),
        ];
        NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_property_has_a_bit_of_its_own() {
        const ALL: &[Flags] = &[
            Flags::WRITE,
            Flags::READONLY,
            Flags::DENYOOM,
            Flags::FAST,
            Flags::LOADING,
            Flags::NO_AUTH,
            Flags::ADMIN,
            Flags::NOSCRIPT,
            Flags::STALE,
            Flags::CONTAINER,
            Flags::READS_ALL,
            Flags::NO_MULTI,
            Flags::IMMEDIATE,
            Flags::COPIES,
            Flags::BRIEF,
            Flags::DANGEROUS,
            Flags::BLOCKING,
            Flags::PROTECTED,
            Flags::PUBSUB,
            Flags::SUBSCRIBER,
            Flags::LOGS_MESSAGES,
            Flags::PUBLISHES,
            Flags::RUNS_SCRIPTS,
            Flags::DOCUMENTS,
            Flags::FLUSHES,
            Flags::ALLOW_BUSY,
            Flags::WRAPS,
            Flags::WALKS,
            Flags::BETWEEN_SERVERS,
            Flags::GUARDED,
            Flags::AUDITED,
            Flags::AWAITS_DISK,
        ];
        let together = ALL.iter().fold(Flags::NONE, |all, flag| all.or(*flag));
        assert_eq!(together.0.count_ones() as usize, ALL.len());
    }
}
