//! The command table: one row per command drives dispatch, arity, key positions, flags and documentation.
//!
//! Adding a command is one row and one function in the module of its family.
//!
//! Invariants
//! - Names are lower case; a subcommand's row carries the name `container|sub`.
//! - Rows are unique by name; [`resolve`] is case-insensitive.

use std::{ops::Range, sync::LazyLock};

use wire::{Args, number::parse_i64};

use crate::{CommandError, Context, families};

/// What a command runs.
pub type Handler = fn(&mut Context<'_, '_>, Args<'_>) -> Result<(), CommandError>;

/// Groups of commands, as metrics and documentation name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Strings and counters.
    String,
    /// Strings as arrays of bits.
    Bitmap,
    /// Strings that estimate how many different elements were added.
    Hyperloglog,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Hashes.
    Hash,
    /// Sorted sets of places.
    Geo,
    /// Keys of any type.
    Generic,
    /// Several commands as one.
    Transactions,
    /// The connection itself.
    Connection,
    /// The server.
    Server,
}

impl Family {
    /// All families, in order of their numbers.
    pub const ALL: [Family; 12] = [
        Family::String,
        Family::Bitmap,
        Family::Hyperloglog,
        Family::List,
        Family::Set,
        Family::SortedSet,
        Family::Hash,
        Family::Geo,
        Family::Generic,
        Family::Transactions,
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
            Family::Generic => "generic",
            Family::Transactions => "transactions",
            Family::Connection => "connection",
            Family::Server => "server",
        }
    }
}

/// Properties of a command; combine with [`Flags::or`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u32);

impl Flags {
    /// No property.
    pub const NONE: Flags = Flags(0);
    /// May change data: refused when the log cannot take it.
    pub const WRITE: Flags = Flags(1);
    /// Only reads data.
    pub const READONLY: Flags = Flags(1 << 1);
    /// May grow memory: refused, or preceded by eviction, above the memory limit.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// Takes constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 3);
    /// Allowed while loading.
    pub const LOADING: Flags = Flags(1 << 4);
    /// Allowed before authentication.
    pub const NO_AUTH: Flags = Flags(1 << 5);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 6);
    /// Not allowed in scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 7);
    /// Allowed on a stale replica.
    pub const STALE: Flags = Flags(1 << 8);
    /// A container: the first argument names a subcommand.
    pub const CONTAINER: Flags = Flags(1 << 9);
    /// Reads keys without naming them: its reply waits for everything appended so far.
    pub const READS_ALL: Flags = Flags(1 << 10);
    /// Refused between MULTI and EXEC.
    pub const NO_MULTI: Flags = Flags(1 << 13);
    /// Runs at once between MULTI and EXEC instead of being queued.
    pub const IMMEDIATE: Flags = Flags(1 << 14);
    /// Its record may hold whole values that its keys have, however small its arguments are: it calls
    /// [`Context::require_room`]. A transaction asks the log for room for them before it begins.
    pub const COPIES: Flags = Flags(1 << 15);
    /// Takes constant time although Redis does not call it fast: timed by sampling only.
    pub const BRIEF: Flags = Flags(1 << 12);
    /// Dangerous on a busy server.
    pub const DANGEROUS: Flags = Flags(1 << 11);

    /// May wait for a key to hold something.
    pub const BLOCKING: Flags = Flags(1 << 16);

    /// Both sets of properties.
    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all properties of `other` are here.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names that COMMAND INFO shows.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Flags, &str); 11] = [
            (Flags::WRITE, "write"),
            (Flags::READONLY, "readonly"),
            (Flags::DENYOOM, "denyoom"),
            (Flags::ADMIN, "admin"),
            (Flags::NOSCRIPT, "noscript"),
            (Flags::BLOCKING, "blocking"),
            (Flags::LOADING, "loading"),
            (Flags::STALE, "stale"),
            (Flags::FAST, "fast"),
            (Flags::NO_AUTH, "no_auth"),
            (Flags::NO_MULTI, "no_multi"),
        ];
        NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

/// Finds keys that no formula gives: calls the visitor with the index of each, in order.
pub type FindKeys = fn(Args<'_>, &mut dyn FnMut(usize));

/// Where the keys of a command stand. Indices count the command's name, which has index 0.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// It names no key.
    None,
    /// The first argument is the only key.
    First,
    /// Arguments `first`, `first + step`, ... up to `last` (negative: from the end).
    Range {
        /// Index of the first key.
        first: u8,
        /// Index of the last key; -1 is the last argument.
        last: i8,
        /// Distance between keys.
        step: u8,
    },
    /// An argument says how many keys follow it, as in SINTERCARD and EVAL.
    Counted {
        /// Index of the number.
        at: u8,
        /// Index of one more key that stands before it, as in ZUNIONSTORE.
        before: Option<u8>,
    },
    /// Where they stand depends on other arguments, as with SORT STORE.
    Computed {
        /// Index of a key that is always there.
        first: Option<u8>,
        /// Finds all keys, that one included.
        find: FindKeys,
        /// Whether a call reads keys that no argument names: it locks every slot.
        reads_others: fn(Args<'_>) -> bool,
    },
    /// It changes every slot at once.
    AllSlots,
    /// Those of the commands that the client has queued, and those it watches: EXEC.
    Queued,
}

impl Keys {
    /// Calls `visit` with the index of each key in a call, in order. Of arguments that cannot be right, such as a number of
    /// keys that is none, it finds no key: what runs the call must notice before it touches one.
    #[inline]
    pub fn for_each(self, args: Args<'_>, mut visit: impl FnMut(usize)) {
        let count = args.len();
        match self {
            Keys::None | Keys::AllSlots | Keys::Queued => {}
            Keys::First => {
                if count > 1 {
                    visit(1);
                }
            }
            Keys::Range { first, last, step } => {
                let last =
                    if last < 0 { count.saturating_sub(last.unsigned_abs().into()) } else { last as usize };
                let (first, end) = (first as usize, (last + 1).min(count));
                (first.min(end)..end).step_by(step as usize).for_each(visit);
            }
            Keys::Counted { at, before } => {
                if let Some(keys) = counted_keys(args, at as usize).filter(|keys| !keys.is_empty()) {
                    before.map(usize::from).into_iter().chain(keys).for_each(visit);
                }
            }
            Keys::Computed { find, .. } => find(args, &mut visit),
        }
    }

    /// The index of the first key, if it is the same in every call.
    #[inline]
    pub const fn first(self) -> Option<usize> {
        match self {
            Keys::First => Some(1),
            Keys::Range { first, .. } => Some(first as usize),
            Keys::Counted { before: Some(before), .. } => Some(before as usize),
            Keys::Counted { at, before: None } => Some(at as usize + 1),
            Keys::Computed { first: Some(first), .. } => Some(first as usize),
            Keys::Computed { first: None, .. } | Keys::None | Keys::AllSlots | Keys::Queued => None,
        }
    }

    /// Whether a call works on every slot.
    #[inline]
    pub fn spans_all(self, args: Args<'_>) -> bool {
        match self {
            Keys::AllSlots => true,
            Keys::Computed { reads_others, .. } => reads_others(args),
            _ => false,
        }
    }

    /// Whether a call can name keys.
    pub const fn any(self) -> bool {
        !matches!(self, Keys::None | Keys::AllSlots | Keys::Queued)
    }
}

/// The indices of the keys that follow the number at `at`, which says how many they are; `None` if it is no such number or
/// exceeds what follows. For handlers, so that they look for keys where [`Keys::Counted`] does.
#[inline]
pub fn counted_keys(args: Args<'_>, at: usize) -> Option<Range<usize>> {
    let count = usize::try_from(parse_i64(args.get(at)?)?).ok()?;
    (count < args.len() - at).then(|| at + 1..at + 1 + count)
}

/// One command.
#[derive(Debug)]
pub struct Row {
    /// Lower case; subcommands as `container|sub`.
    pub name: &'static str,
    /// Arguments including the name; negative: at least so many.
    pub arity: i8,
    /// Its properties.
    pub flags: Flags,
    /// Where its keys stand.
    pub keys: Keys,
    /// Its group.
    pub family: Family,
    /// The Redis version that brought it.
    pub since: &'static str,
    /// Its time complexity.
    pub complexity: &'static str,
    /// One sentence for COMMAND DOCS.
    pub summary: &'static str,
    /// Its arguments in the notation of the Redis manual, for hints: `key value [NX | XX] [EX seconds]`.
    pub syntax: &'static str,
    /// What it runs.
    pub handler: Handler,
    /// Its subcommands, if it is a container.
    pub subcommands: &'static [Row],
}

impl Row {
    /// Whether a call with `count` arguments, the name included, can be right.
    #[inline]
    pub const fn accepts(&self, count: usize) -> bool {
        if self.arity < 0 {
            count >= self.arity.unsigned_abs() as usize
        } else {
            count == self.arity as usize
        }
    }

    /// The position in [`rows`], subcommands after their container: the index of its counters.
    pub fn index(&'static self) -> usize {
        TABLE.index_of(self)
    }
}

/// All rows, subcommands directly after their container.
pub fn rows() -> &'static [&'static Row] {
    &TABLE.rows
}

/// The row of the command of this name, whatever its case; subcommands are not looked up here.
#[inline]
pub fn resolve(name: &[u8]) -> Option<&'static Row> {
    TABLE.find(name).map(|index| TABLE.rows[index as usize])
}

/// A row and its position in [`rows`], which is the index of its counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) row: &'static Row,
    pub(crate) index: u16,
}

/// Finds the row a call runs: containers resolve to the subcommand.
///
/// # Errors
/// The unknown command or subcommand.
#[inline]
pub(crate) fn resolve_call(args: Args<'_>) -> Result<Found, CommandError> {
    let name = args.at(0);
    let Some(index) = TABLE.find(name) else {
        let args = args.skip(1).iter().take(20).map(<[u8]>::to_vec).collect();
        return Err(CommandError::UnknownCommand { name: name.to_vec(), args });
    };
    let row = TABLE.rows[index as usize];
    if !row.flags.has(Flags::CONTAINER) || args.len() < 2 {
        return Ok(Found { row, index });
    }
    let wanted = args.at(1);
    let position = row.subcommands.iter().position(|sub| {
        sub.name.split_once('|').is_some_and(|(_, name)| name.as_bytes().eq_ignore_ascii_case(wanted))
    });
    match position {
        Some(position) => Ok(Found { row: &row.subcommands[position], index: index + 1 + position as u16 }),
        None => Err(CommandError::UnknownSubcommand { command: row.name, subcommand: wanted.to_vec() }),
    }
}

/// Longest command name that is looked up.
const NAME_BYTES_MAX: usize = 24;
/// Slots of the name table: a power of two, several times the number of commands.
const NAME_SLOTS: usize = 1024;
const EMPTY: u16 = u16::MAX;

/// The rows, and a hash table over the names of the top-level ones. A lookup happens for every command: it reads the name
/// once, folds its case and compares it with one candidate.
struct Table {
    rows: Vec<&'static Row>,
    names: Box<[u16; NAME_SLOTS]>,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::build);

impl Table {
    fn build() -> Table {
        let mut rows = Vec::new();
        for row in families::TABLES.iter().flat_map(|table| table.iter()) {
            rows.push(row);
            rows.extend(row.subcommands);
        }
        let mut table = Table { rows, names: Box::new([EMPTY; NAME_SLOTS]) };
        for index in 0..table.rows.len() {
            let name = table.rows[index].name;
            if !name.contains('|') {
                assert!(table.find(name.as_bytes()).is_none(), "two rows named {name}");
                let mut slot = name_hash(name.as_bytes());
                while table.names[slot] != EMPTY {
                    slot = (slot + 1) % NAME_SLOTS;
                }
                table.names[slot] = index as u16;
            }
        }
        table
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<u16> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut slot = name_hash(name);
        loop {
            let index = self.names[slot];
            if index == EMPTY {
                return None;
            }
            if self.rows[index as usize].name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(index);
            }
            slot = (slot + 1) % NAME_SLOTS;
        }
    }

    fn index_of(&self, row: &'static Row) -> usize {
        if let Some(index) = self.find(row.name.as_bytes()) {
            return index as usize;
        }
        let found = self.rows.iter().position(|known| std::ptr::eq(*known, row));
        found.expect("every row is in the table")
    }
}

/// Depends on the length and on the first and last four letters, without their case. `name` is not empty.
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

#[cfg(test)]
mod tests {
    use wire::OwnedArgs;

    use super::*;

    #[test]
    fn names_resolve_whatever_their_case() {
        for row in rows().iter().filter(|row| !row.name.contains('|')) {
            assert_eq!(resolve(row.name.to_uppercase().as_bytes()).map(|it| it.name), Some(row.name));
        }
        assert!(resolve(b"nosuchcommand").is_none());
        assert!(resolve(b"").is_none());
    }

    fn keys(keys: Keys, call: &str) -> String {
        let args: OwnedArgs = call.split(' ').collect();
        let mut found = Vec::new();
        keys.for_each(args.as_args(), |index| {
            found.push(args.as_args().at(index).escape_ascii().to_string())
        });
        found.join(" ")
    }

    #[test]
    fn keys_stand_where_the_table_says() {
        let every_second = Keys::Range { first: 1, last: -1, step: 2 };
        assert_eq!(keys(every_second, "MSET a 1 b 2"), "a b");
        assert_eq!(keys(Keys::Range { first: 1, last: -1, step: 1 }, "DEL a b c"), "a b c");
        assert_eq!(keys(Keys::Range { first: 1, last: -2, step: 1 }, "BLPOP a b 0"), "a b");
        assert_eq!(keys(Keys::Range { first: 1, last: -2, step: 1 }, "BLPOP"), "");
        assert_eq!(keys(Keys::Range { first: 2, last: 2, step: 1 }, "OBJECT FREQ a"), "a");
        assert_eq!(keys(Keys::Range { first: 2, last: 2, step: 1 }, "OBJECT FREQ"), "");
        assert_eq!(keys(Keys::First, "GET a b"), "a");
        assert_eq!(keys(Keys::First, "GET"), "");
        assert_eq!(keys(Keys::None, "PING a"), "");
    }

    #[test]
    fn keys_are_counted_by_the_number_before_them() {
        let lmpop = Keys::Counted { at: 1, before: None };
        assert_eq!(keys(lmpop, "LMPOP 2 a b LEFT"), "a b");
        assert_eq!(keys(lmpop, "EVAL 0 a"), "");
        let store = Keys::Counted { at: 2, before: Some(1) };
        assert_eq!(keys(store, "ZUNIONSTORE d 2 a b WEIGHTS 1 2"), "d a b");
        for malformed in ["x", "-1", "0", "3", "9223372036854775807", "9223372036854775808", "1.0", " 1", ""]
        {
            assert_eq!(keys(store, &format!("ZUNIONSTORE d {malformed} a b").replace("  ", " \t")), "");
        }
        assert_eq!(keys(store, "ZUNIONSTORE d"), "");
    }

    #[test]
    fn keys_are_found_by_a_function() {
        fn stored(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
            visit(1);
            (2..args.len() - 1)
                .filter(|&at| args[at].eq_ignore_ascii_case(b"store"))
                .for_each(|at| visit(at + 1));
        }
        let sort = Keys::Computed { first: Some(1), find: stored, reads_others: |args| args.len() > 3 };
        assert_eq!(keys(sort, "SORT a DESC STORE b"), "a b");
        assert_eq!(keys(sort, "SORT a"), "a");
        let spans_all = |call: &str| sort.spans_all(call.split(' ').collect::<OwnedArgs>().as_args());
        assert!(spans_all("SORT a BY b") && !spans_all("SORT a"));
        assert_eq!((sort.first(), sort.any()), (Some(1), true));
    }

    #[test]
    fn every_row_is_complete() {
        for (index, row) in rows().iter().enumerate() {
            assert_eq!(row.index(), index, "{}", row.name);
            assert_eq!(row.name, row.name.to_lowercase());
            assert!(
                !row.summary.is_empty() && !row.since.is_empty() && !row.complexity.is_empty(),
                "{}",
                row.name
            );
            assert_eq!(row.flags.has(Flags::CONTAINER), !row.subcommands.is_empty(), "{}", row.name);
            assert!(!(row.flags.has(Flags::WRITE) && row.flags.has(Flags::READONLY)), "{}", row.name);
            assert!(row.flags.has(Flags::WRITE) || !row.flags.has(Flags::DENYOOM), "{}", row.name);
        }
    }
}
