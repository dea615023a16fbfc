//! The command table: one row per command drives dispatch, arity, key positions, flags and documentation.
//!
//! Adding a command is one row and one function in the module of its family.
//!
//! Invariants
//! - Names are lower case; a subcommand's row carries the name `container|sub`.
//! - Top-level rows are unique by name; [`CommandTable::resolve`] is case-insensitive.

mod connection_need;
mod flags;
mod keys;
mod mobility;
mod needs;
#[cfg(test)]
pub mod samples;
mod treatment;
mod wrapped;

use access::{Command, CommandId, CommandList};
use wire::Args;

pub use connection_need::ConnectionNeed;
pub use flags::Flags;
pub use keys::{FindKeys, Keys, counted_keys};
pub use mobility::{Mobility, is_final};
pub use needs::{Channels, KeyUsage, Needs};
pub use treatment::{Callee, Treatment};
pub use wrapped::{WRAPPED_AT, innermost, wrapped};

use crate::{CommandError, callbacks::Handler};

/// Groups of commands, as metrics and documentation name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Strings and counters, as for SET and INCR.
    String,
    /// Strings as arrays of bits.
    Bitmap,
    /// Strings that estimate how many different elements were added.
    Hyperloglog,
    /// Lists, as for LPUSH.
    List,
    /// Sets, as for SADD.
    Set,
    /// Sorted sets, as for ZADD.
    SortedSet,
    /// Hashes, as for HSET.
    Hash,
    /// Geographic positions in sorted sets.
    Geo,
    /// Streams and their consumer groups, as for XADD.
    Stream,
    /// Commands on keys of any type, as DEL and EXPIRE.
    Generic,
    /// Documents with revisions, as for DOC.PUT.
    Documents,
    /// MULTI, EXEC and related commands.
    Transactions,
    /// Channels and their subscribers, as for PUBLISH.
    Pubsub,
    /// Scripts and functions that run on the server.
    Scripting,
    /// Commands on the connection itself, as AUTH and CLIENT.
    Connection,
    /// Commands on the server as a whole.
    Server,
}

impl Family {
    /// All families, in the order of their discriminants.
    pub const ALL: [Family; 16] = [
        Family::String,
        Family::Bitmap,
        Family::Hyperloglog,
        Family::List,
        Family::Set,
        Family::SortedSet,
        Family::Hash,
        Family::Geo,
        Family::Stream,
        Family::Generic,
        Family::Documents,
        Family::Transactions,
        Family::Pubsub,
        Family::Scripting,
        Family::Connection,
        Family::Server,
    ];

    /// The name in documentation and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Family::String => "string",
            Family::Bitmap => "bitmap",
            Family::Hyperloglog => "hyperloglog",
            Family::List => "list",
            Family::Set => "set",
            Family::SortedSet => "sorted-set",
            Family::Hash => "hash",
            Family::Geo => "geo",
            Family::Stream => "stream",
            Family::Generic => "generic",
            Family::Documents => "documents",
            Family::Transactions => "transactions",
            Family::Pubsub => "pubsub",
            Family::Scripting => "scripting",
            Family::Connection => "connection",
            Family::Server => "server",
        }
    }
}

/// One command: its name, its properties, and its function.
#[derive(Debug)]
pub struct Row {
    /// The name in lower case; `container|sub` for subcommands.
    pub name: &'static str,
    /// The number of arguments, name included; negative: at least that many.
    pub arity: i8,
    /// The properties of the command.
    pub flags: Flags,
    /// The positions of the command's keys among its arguments.
    pub keys: Keys,
    /// The family that the command belongs to.
    pub family: Family,
    /// The version of Redis or Valkey that introduced the command. For a command of Sheaf alone: the version
    /// of Redis that Sheaf follows.
    pub since: &'static str,
    /// The time complexity of the command, for COMMAND DOCS.
    pub complexity: &'static str,
    /// One sentence for COMMAND DOCS.
    pub summary: &'static str,
    /// The command's arguments in the notation of the Redis manual, for hints: `key value [NX | XX] [EX
    /// seconds]`.
    pub syntax: &'static str,
    /// The function that runs the command.
    pub handler: Handler,
    /// The subcommands, if the command is a container.
    pub subcommands: &'static [Row],
    /// How the engine treats the command beyond its flags.
    pub treatment: Treatment,
    /// The rights that a user needs to run the command.
    pub needs: Needs,
}

impl Row {
    /// Whether `count` arguments, name included, match the arity.
    #[inline]
    pub const fn accepts(&self, count: usize) -> bool {
        if self.arity < 0 {
            count >= self.arity.unsigned_abs() as usize
        } else {
            count == self.arity as usize
        }
    }

    /// Whether all changes of the command are in its unit, which can undo them: keys, documents, messages.
    /// Commands that scripts may not run (NOSCRIPT) change more than that, unless they are barred from
    /// scripts for another reason.
    pub(crate) const fn can_be_undone(&self) -> bool {
        let flags = self.flags;
        let is_barred_otherwise =
            flags.has(Flags::READONLY) || flags.has(Flags::DOCUMENTS) || flags.has(Flags::RUNS_SCRIPTS);
        !flags.has(Flags::FLUSHES) && (!flags.has(Flags::NOSCRIPT) || is_barred_otherwise)
    }
}

/// A row and its position in its table, which is the index of its counters.
#[derive(Debug, Clone, Copy)]
pub struct ResolvedCommand {
    /// The row of the command.
    pub row: &'static Row,
    /// The position of the row in the table.
    pub index: u16,
    table: &'static CommandTable,
}

impl ResolvedCommand {
    /// The argument at [`Treatment::member`], whose memory is prefetched: the first member or field that the
    /// command looks up or, if options come before it (ZADD NX), another argument. `None` if the row names
    /// none, or the call has no such argument.
    #[inline]
    pub fn member<'b>(&self, args: Args<'b>) -> Option<&'b [u8]> {
        match self.table.members[self.index as usize] {
            0 => None,
            index => args.get(index.into()),
        }
    }

    /// The number of the command in [`CommandTable::commands`].
    #[inline]
    pub fn id(&self) -> CommandId {
        CommandId(self.index)
    }

    /// The table that has the row.
    pub fn table(&self) -> &'static CommandTable {
        self.table
    }
}

/// Longest command name that is looked up.
const NAME_BYTES_MAX: usize = 24;
/// Slots of the name table: a power of two, several times the number of commands.
const NAME_SLOTS: usize = 1024;
const EMPTY: u16 = u16::MAX;

/// The table of commands: its rows, subcommands directly after their container, and a hash table over the
/// names of the top-level ones. A lookup is on the path of most commands: it hashes a few letters and usually
/// compares the name with one candidate, which lies in the table itself.
pub struct CommandTable {
    rows: Vec<&'static Row>,
    /// [`Treatment::member`] of each row, side by side in memory.
    members: Vec<u8>,
    names: Box<[Name; NAME_SLOTS]>,
    commands: CommandList,
}

/// The name of the row at an index, within one cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
    index: u16,
}

impl Name {
    const NONE: Name = Name { bytes: [0; NAME_BYTES_MAX], len: 0, index: EMPTY };

    fn new(name: &str, index: usize) -> Name {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Name { bytes, len: name.len() as u8, index: index as u16 }
    }

    #[inline]
    fn is(&self, name: &[u8]) -> bool {
        self.bytes[..usize::from(self.len)].eq_ignore_ascii_case(name)
    }
}

impl std::fmt::Debug for CommandTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a table of {} commands", self.rows.len())
    }
}

impl CommandTable {
    /// A table of these groups of rows.
    ///
    /// # Panics
    /// If two top-level rows have the same name, or one has a name longer than `NAME_BYTES_MAX`.
    pub fn new(groups: &[&'static [Row]]) -> CommandTable {
        let mut rows = Vec::new();
        for row in groups.iter().flat_map(|group| group.iter()) {
            rows.push(row);
            rows.extend(row.subcommands);
        }
        let members = rows.iter().map(|row| row.treatment.member).collect();
        let commands = CommandList::new(rows.iter().map(|row: &&Row| Command {
            name: row.name,
            categories: row.categories(),
            is_for_all: row.is_for_all(),
        }));
        let mut table = CommandTable { rows, members, names: Box::new([Name::NONE; NAME_SLOTS]), commands };
        for index in 0..table.rows.len() {
            let name = table.rows[index].name;
            if !name.contains('|') {
                assert!(table.find(name.as_bytes()).is_none(), "two rows named {name}");
                let mut slot = name_hash(name.as_bytes());
                while table.names[slot].index != EMPTY {
                    slot = (slot + 1) % NAME_SLOTS;
                }
                table.names[slot] = Name::new(name, index);
            }
        }
        table
    }

    /// All rows, subcommands directly after their container.
    pub fn rows(&self) -> &[&'static Row] {
        &self.rows
    }

    /// The commands that the rules of users can name: the rows, in the same order.
    pub fn commands(&self) -> &CommandList {
        &self.commands
    }

    /// The row of the top-level command with this name, in upper or lower case.
    #[inline]
    pub fn resolve(&self, name: &[u8]) -> Option<&'static Row> {
        self.find(name).map(|index| self.rows[index as usize])
    }

    /// Finds the row that a call runs. If the call names a subcommand of a container, that is the row of the
    /// subcommand.
    ///
    /// # Errors
    /// The command or subcommand is unknown.
    #[inline]
    pub fn resolve_call(&'static self, args: Args<'_>) -> Result<ResolvedCommand, CommandError> {
        let name = args.at(0);
        let Some(index) = self.find(name) else {
            let args = args.skip(1).iter().take(20).map(<[u8]>::to_vec).collect();
            return Err(CommandError::UnknownCommand { name: name.to_vec(), args });
        };
        let row = self.rows[index as usize];
        if !row.flags.has(Flags::CONTAINER) || args.len() < 2 {
            return Ok(ResolvedCommand { row, index, table: self });
        }
        let wanted = args.at(1);
        let position = row.subcommands.iter().position(|sub| {
            sub.name.split_once('|').is_some_and(|(_, name)| name.as_bytes().eq_ignore_ascii_case(wanted))
        });
        match position {
            Some(position) => {
                let index = index + 1 + position as u16;
                Ok(ResolvedCommand { row: &row.subcommands[position], index, table: self })
            }
            None => Err(CommandError::UnknownSubcommand { command: row.name, subcommand: wanted.to_vec() }),
        }
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<u16> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut slot = name_hash(name);
        loop {
            let known = &self.names[slot];
            if known.index == EMPTY {
                return None;
            }
            if known.is(name) {
                return Some(known.index);
            }
            slot = (slot + 1) % NAME_SLOTS;
        }
    }

    /// The position of a row: the index of its counters.
    ///
    /// # Panics
    /// If the table has neither this row nor a top-level row of its name.
    pub fn index_of(&self, row: &'static Row) -> usize {
        if let Some(index) = self.find(row.name.as_bytes()) {
            return index as usize;
        }
        let found = self.rows.iter().position(|known| std::ptr::eq(*known, row));
        found.expect("every row is in the table")
    }
}

/// Hashes the length and the first and last four letters, in lower case; of a name with fewer than four, the
/// first, middle and last letter. `name` must not be empty.
#[inline]
fn name_hash(name: &[u8]) -> usize {
    let (head, tail) = match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(head), Some(tail)) => (u32::from_le_bytes(*head), u32::from_le_bytes(*tail)),
        _ => (
            u32::from(name[0]) | u32::from(name[name.len() / 2]) << 8 | u32::from(name[name.len() - 1]) << 16,
            0,
        ),
    };
    let folded = (u64::from(tail) << 32 | u64::from(head)) | 0x2020_2020_2020_2020;
    let mixed = (folded ^ (name.len() as u64) << 5).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> 54) as usize % NAME_SLOTS
}
