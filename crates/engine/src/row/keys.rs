//! The positions of a command's keys among its arguments, for locking, prefetching and COMMAND.

use std::ops::Range;

use wire::{Args, number::parse_i64};

/// Finds keys whose positions no formula gives: calls the visitor with the index of each, in order.
pub type FindKeys = fn(Args<'_>, &mut dyn FnMut(usize));

/// The positions of a command's keys. Indices count the command's name, which has index 0.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// The command names no key.
    None,
    /// Shard channels from the first argument to `last` (negative: from the end): a cluster places them like
    /// keys, but they are not keys.
    ShardChannels {
        /// Index of the last channel.
        last: i8,
    },
    /// The first argument is the only key.
    First,
    /// Arguments `first`, `first + step`, ... up to `last` (negative: from the end).
    Range {
        /// Index of the first key; the command's name has index 0.
        first: u8,
        /// Index of the last key; -1 is the last argument.
        last: i8,
        /// The distance between the indices of two keys: 2 if each key is followed by a value.
        step: u8,
    },
    /// An argument gives the number of the keys that follow it, as in SINTERCARD and EVAL.
    Counted {
        /// Index of the argument that gives the number.
        at: u8,
        /// Index of one more key, before the number, as in ZUNIONSTORE.
        before: Option<u8>,
    },
    /// The positions depend on other arguments, as with SORT STORE.
    Computed {
        /// Index of a key that is always present.
        first: Option<u8>,
        /// Finds all keys, including the one at `first`.
        find: FindKeys,
        /// Whether a call reads keys that no argument names: it locks every slot.
        reads_others: fn(Args<'_>) -> bool,
    },
    /// The command needs every slot at once.
    AllSlots,
    /// The command works on the libraries of functions, which belong to one slot.
    Libraries,
    /// The command may change settings that belong to the data, in the slot of the libraries: CONFIG SET.
    Settings,
    /// The keys of the commands that the client has queued, and its watched keys: EXEC.
    Queued,
}

impl Keys {
    /// Calls `visit` with the index of each key in a call, in order. Finds no key if the argument that gives
    /// the number of keys is malformed: the handler must detect that before it touches a key.
    #[inline]
    pub fn for_each(self, args: Args<'_>, mut visit: impl FnMut(usize)) {
        let count = args.len();
        match self {
            Keys::None
            | Keys::ShardChannels { .. }
            | Keys::AllSlots
            | Keys::Libraries
            | Keys::Settings
            | Keys::Queued => {}
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

    /// The index of the first key, if it is the same in every call that names a key.
    #[inline]
    pub const fn first(self) -> Option<usize> {
        match self {
            Keys::First => Some(1),
            Keys::Range { first, .. } => Some(first as usize),
            Keys::Counted { before: Some(before), .. } => Some(before as usize),
            Keys::Counted { at, before: None } => Some(at as usize + 1),
            Keys::Computed { first: Some(first), .. } => Some(first as usize),
            Keys::Computed { first: None, .. }
            | Keys::None
            | Keys::ShardChannels { .. }
            | Keys::AllSlots
            | Keys::Libraries
            | Keys::Settings
            | Keys::Queued => None,
        }
    }

    /// Whether a call locks every slot. `false` for EXEC, for which its queued commands decide.
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
        !matches!(
            self,
            Keys::None
                | Keys::ShardChannels { .. }
                | Keys::AllSlots
                | Keys::Libraries
                | Keys::Settings
                | Keys::Queued
        )
    }
}

/// The indices of the keys that follow the argument at `at`, which gives their number; `None` if it is not a
/// number or exceeds the arguments that follow. For handlers, so that they look for keys where
/// [`Keys::Counted`] does.
#[inline]
pub fn counted_keys(args: Args<'_>, at: usize) -> Option<Range<usize>> {
    let count = usize::try_from(parse_i64(args.get(at)?)?).ok()?;
    (count < args.len() - at).then(|| at + 1..at + 1 + count)
}

#[cfg(test)]
mod tests {
    use wire::OwnedArgs;

    use super::*;

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
}
