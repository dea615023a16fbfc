//! The rights that a user needs to run a command: categories, and the use of keys and channels.
//!
//! This module has data of rows, which COMMAND INFO, ACL CAT and every judgement read. The judgements
//! themselves are in `judgement`.

use access::{Categories, Category, KeyAccess};
use wire::Args;

use super::{Family, Flags, Keys, Row};

/// How a command uses a key: the flags of a key specification, with the meaning that Redis gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUsage {
    names: &'static [&'static str],
    /// The right to the key that a user needs.
    pub access: KeyAccess,
}

impl KeyUsage {
    /// Reads whether the key exists, and its properties, but not its value.
    pub const EXISTENCE: KeyUsage = KeyUsage { names: &["RO"], access: KeyAccess::NONE };
    /// Reads the value of the key.
    pub const READ: KeyUsage = KeyUsage { names: &["RO", "access"], access: KeyAccess::READ };
    /// Replaces the value of the key as a whole.
    pub const OVERWRITE: KeyUsage = KeyUsage { names: &["OW", "update"], access: KeyAccess::WRITE };
    /// Makes the key where there is none.
    pub const CREATE: KeyUsage = KeyUsage { names: &["OW", "insert"], access: KeyAccess::WRITE };
    /// Changes the value, and shows none of it.
    pub const UPDATE: KeyUsage = KeyUsage { names: &["RW", "update"], access: KeyAccess::WRITE };
    /// Adds to the value, and shows none of it.
    pub const INSERT: KeyUsage = KeyUsage { names: &["RW", "insert"], access: KeyAccess::WRITE };
    /// Removes something from the value, and shows none of it.
    pub const DELETE: KeyUsage = KeyUsage { names: &["RW", "delete"], access: KeyAccess::WRITE };
    /// Removes the key with its value.
    pub const REMOVE: KeyUsage = KeyUsage { names: &["RM", "delete"], access: KeyAccess::WRITE };
    /// Reads and changes the value.
    pub const READ_UPDATE: KeyUsage =
        KeyUsage { names: &["RW", "access", "update"], access: KeyAccess::BOTH };
    /// Reads the value, and may store a computed result with it, as PFCOUNT of Redis does: for rights, that
    /// is reading.
    pub const READ_CACHE: KeyUsage = KeyUsage { names: &["RW", "access"], access: KeyAccess::READ };
    /// Reads the value and removes something from it.
    pub const READ_DELETE: KeyUsage =
        KeyUsage { names: &["RW", "access", "delete"], access: KeyAccess::BOTH };
    /// Reads the value and adds to it.
    pub const READ_INSERT: KeyUsage =
        KeyUsage { names: &["RW", "access", "insert"], access: KeyAccess::BOTH };
    /// [`KeyUsage::READ_UPDATE`] or less, depending on the arguments.
    pub const VARIABLE: KeyUsage =
        KeyUsage { names: &["RW", "access", "update", "variable_flags"], access: KeyAccess::BOTH };

    /// The names of the flags in COMMAND INFO and COMMAND GETKEYSANDFLAGS.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        self.names.iter().copied()
    }
}

/// How a command uses its keys.
#[derive(Debug, Clone, Copy)]
enum Usages {
    /// As the flags of the command say: it reads the keys, or reads and changes them.
    ByFlags,
    /// The use of the first key, and the use of the others.
    Of(KeyUsage, KeyUsage),
    /// As the arguments say.
    Found(fn(Args<'_>) -> KeyUsage),
}

/// The arguments of a command that are channels to which a user needs rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// No argument is a channel.
    None,
    /// The first argument is a channel.
    First,
    /// All arguments are channels.
    All,
    /// All arguments are patterns of channels.
    Patterns,
}

/// The rights that a user needs. Most rows have [`Needs::BY_FLAGS`].
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    usages: Usages,
    /// The arguments that are channels to which the user needs rights.
    pub channels: Channels,
    more: Categories,
    less: Categories,
}

impl Needs {
    /// As flags and family say.
    pub const BY_FLAGS: Needs = Needs {
        usages: Usages::ByFlags,
        channels: Channels::None,
        more: Categories::NONE,
        less: Categories::NONE,
    };

    /// The needs of a command that uses all its keys like this.
    pub const fn each(usage: KeyUsage) -> Needs {
        Needs { usages: Usages::Of(usage, usage), ..Needs::BY_FLAGS }
    }

    /// The needs of a command that uses its first key and the others in different ways.
    pub const fn first_and_others(first: KeyUsage, others: KeyUsage) -> Needs {
        Needs { usages: Usages::Of(first, others), ..Needs::BY_FLAGS }
    }

    /// The needs of a command whose arguments say how it uses its key.
    pub const fn found(usage: fn(Args<'_>) -> KeyUsage) -> Needs {
        Needs { usages: Usages::Found(usage), ..Needs::BY_FLAGS }
    }

    /// The needs of a command on channels.
    pub const fn of_channels(channels: Channels) -> Needs {
        Needs { channels, ..Needs::BY_FLAGS }
    }

    /// Adds these categories to those that follow from flags and family.
    #[must_use]
    pub const fn with(self, categories: &[Category]) -> Needs {
        Needs { more: all_of(self.more, categories), ..self }
    }

    /// Removes these categories, although they follow from flags and family.
    #[must_use]
    pub const fn without(self, categories: &[Category]) -> Needs {
        Needs { less: all_of(self.less, categories), ..self }
    }
}

const fn all_of(mut all: Categories, categories: &[Category]) -> Categories {
    let mut at = 0;
    while at < categories.len() {
        all = all.with(categories[at]);
        at += 1;
    }
    all
}

impl Row {
    /// How a call uses its `nth` key, counted from 0.
    pub fn usage(&self, args: Args<'_>, nth: usize) -> KeyUsage {
        match self.needs.usages {
            Usages::Found(find) => find(args),
            _ => self.usage_in_general(nth),
        }
    }

    /// An upper bound of the use of the `nth` key, for all possible arguments.
    pub fn usage_in_general(&self, nth: usize) -> KeyUsage {
        match self.needs.usages {
            Usages::Of(first, _) if nth == 0 => first,
            Usages::Of(_, others) => others,
            Usages::Found(_) => KeyUsage::VARIABLE,
            Usages::ByFlags if self.flags.has(Flags::READONLY) => KeyUsage::READ,
            Usages::ByFlags => KeyUsage::READ_UPDATE,
        }
    }

    /// The categories of the command, as in Redis; the categories of documents are Sheaf's own.
    pub fn categories(&self) -> Categories {
        use Category as C;
        let flags = self.flags;
        let is_container = flags.has(Flags::CONTAINER);
        let is_dangerous = flags.has(Flags::DANGEROUS) || flags.has(Flags::ADMIN);
        let touches_data = flags.has(Flags::WRITE) || flags.has(Flags::READONLY);
        let of_family = match self.family {
            // A container does nothing by itself.
            Family::Stream | Family::Scripting if is_container => None,
            Family::String => Some(C::String),
            Family::Bitmap => Some(C::Bitmap),
            Family::Hyperloglog => Some(C::Hyperloglog),
            Family::List => Some(C::List),
            Family::Set => Some(C::Set),
            Family::SortedSet => Some(C::SortedSet),
            Family::Hash => Some(C::Hash),
            Family::Geo => Some(C::Geo),
            Family::Stream => Some(C::Stream),
            Family::Generic => Some(C::Keyspace),
            Family::Documents => Some(C::Documents),
            Family::Transactions => Some(C::Transaction),
            Family::Scripting => Some(C::Scripting),
            Family::Connection => Some(C::Connection),
            Family::Server if touches_data => Some(C::Keyspace),
            Family::Pubsub | Family::Server => None,
        };
        let is_in = |category| match category {
            // Scripts access data through their commands.
            C::Read => flags.has(Flags::READONLY) && self.family != Family::Scripting,
            C::Write => flags.has(Flags::WRITE),
            C::Pubsub => flags.has(Flags::PUBSUB),
            C::Admin => flags.has(Flags::ADMIN),
            C::Fast => flags.has(Flags::FAST),
            C::Slow => !flags.has(Flags::FAST),
            C::Blocking => flags.has(Flags::BLOCKING),
            C::Dangerous => is_dangerous,
            _ => of_family == Some(category),
        };
        let Needs { more, less, .. } = self.needs;
        let has = |category: &Category| (is_in(*category) || more.has(*category)) && !less.has(*category);
        Category::ALL.into_iter().filter(has).collect()
    }

    /// Whether all clients may run the command, without regard to the rules of their users: AUTH, HELLO,
    /// QUIT, RESET.
    pub(crate) const fn is_for_all(&self) -> bool {
        self.flags.has(Flags::NO_AUTH)
    }
}

impl Keys {
    /// Calls `visit` with each key that a call names, and its number from 0.
    pub(crate) fn for_each_numbered<'b>(self, args: Args<'b>, mut visit: impl FnMut(usize, &'b [u8])) {
        let mut nth = 0;
        self.for_each(args, |index| {
            visit(nth, args.at(index));
            nth += 1;
        });
    }
}
