//! Resolving a batch of commands before the first of them is executed: the row, the hash of the first key,
//! and the memory that the command will touch.
//!
//! Each stage begins to fetch the memory of all commands of the batch, so the misses of the commands
//! overlap. No stage waits for a lock: a prefetch is a hint, and its result may be stale.

use keyspace::KeyHash;
use wire::Args;

use crate::{Executor, Flags, Keys, Session, row::ResolvedCommand};

/// The row of a command, and the hash of its first key, as far as they are known before its execution.
#[derive(Debug, Clone, Copy)]
pub struct Resolved {
    pub(super) found: Option<ResolvedCommand>,
    pub(super) hash: Option<KeyHash>,
}

impl Resolved {
    /// A command of which nothing is known yet: it is looked up and its key hashed when it is executed.
    pub const UNKNOWN: Resolved = Resolved { found: None, hash: None };

    /// Whether both commands have the same first key, judged by their hashes. True if neither has a key.
    #[inline]
    pub fn shares_key(&self, other: &Resolved) -> bool {
        self.hash == other.hash
    }

    /// Whether the command may run scripts, which can take long.
    pub fn may_take_long(&self) -> bool {
        self.found
            .is_some_and(|it| it.row.flags.has(Flags::RUNS_SCRIPTS) || matches!(it.row.keys, Keys::Queued))
    }

    /// Whether the command may run on a [place](crate::Place) that is kept for other servers.
    pub fn is_between_servers(&self) -> bool {
        self.found.is_some_and(|it| it.row.flags.has(Flags::BETWEEN_SERVERS))
    }

    /// The command in the table; `None` if it was not looked up, or is unknown.
    pub fn found(&self) -> Option<ResolvedCommand> {
        self.found
    }

    /// The hash of the command's first key, if that is known.
    pub fn hash(&self) -> Option<KeyHash> {
        self.hash
    }
}

/// One command to execute, with what is known of it already.
#[derive(Clone, Copy)]
pub struct Call<'b> {
    /// The arguments, the name first.
    pub args: Args<'b>,
    /// The result of [`Executor::resolve`] for it, or [`Resolved::UNKNOWN`].
    pub resolved: Resolved,
}

impl Call<'_> {
    /// Whether other arguments call the same command, judged by the first word; `false` for subcommands.
    #[inline]
    fn calls_the_same(&self, args: Args<'_>) -> bool {
        let name = args.at(0);
        let is_whole = |found: ResolvedCommand| {
            found.row.name.len() == name.len() && !found.row.flags.has(Flags::CONTAINER)
        };
        self.args.at(0) == name && self.resolved.found.is_some_and(is_whole)
    }
}

impl Executor {
    /// First stage of a batch: finds the command, hashes its first key and begins to prefetch its slot.
    /// Results that are the same as for the command before it are reused.
    #[inline]
    pub fn resolve(&self, args: Args<'_>, before: Option<Call<'_>>) -> Resolved {
        let same = before.filter(|before| before.calls_the_same(args));
        let found = match same {
            Some(before) => before.resolved.found,
            None => self.table.resolve_call(args).ok(),
        };
        let first_key = found.and_then(|found| found.row.keys.first());
        let Some((index, key)) = first_key.and_then(|index| Some((index, args.get(index)?))) else {
            return Resolved { found, hash: None };
        };
        let same_key = same.filter(|before| before.args.get(index) == Some(key));
        let known = same_key.and_then(|before| before.resolved.hash);
        let hash = known.unwrap_or_else(|| self.keyspace.hash(key));
        self.keyspace.prefetch_slot(&hash);
        Resolved { found, hash: Some(hash) }
    }

    /// Second stage: begins to prefetch the bucket.
    #[inline]
    pub fn prefetch_bucket(&self, session: &Session, resolved: &Resolved) {
        if let Some(hash) = &resolved.hash {
            self.keyspace.prefetch_bucket(session.db, hash);
        }
    }

    /// Third stage: begins to prefetch the entry.
    #[inline]
    pub fn prefetch_entry(&self, session: &Session, resolved: &Resolved) {
        if let Some(hash) = &resolved.hash {
            self.keyspace.prefetch_entry(session.db, hash);
        }
    }

    /// Fourth stage, for a run of commands on one key: begins to prefetch the members or fields that the
    /// commands name, if the collection is big.
    pub fn prefetch_members<'b>(&self, session: &Session, run: impl Iterator<Item = Call<'b>> + Clone) {
        let member = |call: Call<'b>| call.resolved.found.and_then(|found| found.member(call.args));
        let Some(first) = run.clone().next().filter(|&first| member(first).is_some()) else { return };
        if let (Some(hash), Some(key)) = (first.resolved.hash, first.args.get(1)) {
            self.keyspace.prefetch_members(session.db, &hash, key, run.filter_map(member));
        }
    }
}
