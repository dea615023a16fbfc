//! The options of SORT and SORT_RO.

use std::ops::Range;

use smallvec::SmallVec;
use wire::{Args, number::parse_i64};

use super::pattern::Pattern;
use crate::CommandError;

#[derive(Debug)]
pub(super) struct Options<'a> {
    /// BY: the pattern of the weights; without it the elements are their own weights.
    pub(super) by: Option<Pattern<'a>>,
    /// The elements keep their present order: set by any BY without an asterisk.
    pub(super) unsorted: bool,
    /// DESC.
    pub(super) descending: bool,
    /// Without sorting, members of sets are ordered by their bytes instead of their order in memory: for
    /// STORE and scripts.
    pub(super) reproducible: bool,
    /// ALPHA: by bytes instead of by number.
    pub(super) alphabetic: bool,
    /// GET: the values shown for each element; the element itself if empty.
    pub(super) gets: SmallVec<[Pattern<'a>; 4]>,
    /// The index of the argument with the destination key.
    pub(super) store: Option<usize>,
    offset: i64,
    count: i64,
}

impl<'a> Options<'a> {
    /// Parses the options after the key.
    ///
    /// # Errors
    /// An unknown option, or a LIMIT that is not an integer.
    pub(super) fn parse(args: Args<'a>, stores: bool) -> Result<Options<'a>, CommandError> {
        let mut options = Options {
            by: None,
            unsorted: false,
            reproducible: false,
            descending: false,
            alphabetic: false,
            gets: SmallVec::new(),
            store: None,
            offset: 0,
            count: -1,
        };
        let mut at = 2;
        while let Some(word) = args.get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            at += match (args.get(at + 1), args.get(at + 2)) {
                _ if is("asc") || is("desc") => {
                    options.descending = is("desc");
                    1
                }
                _ if is("alpha") => {
                    options.alphabetic = true;
                    1
                }
                (Some(offset), Some(count)) if is("limit") => {
                    options.offset = parse_i64(offset).ok_or(CommandError::NotAnInteger)?;
                    options.count = parse_i64(count).ok_or(CommandError::NotAnInteger)?;
                    3
                }
                (Some(_), _) if is("store") && stores => {
                    options.store = Some(at + 1);
                    2
                }
                (Some(pattern), _) if is("by") => {
                    let pattern = Pattern::parse(pattern);
                    options.unsorted |= !pattern.reads_keys();
                    options.by = Some(pattern);
                    2
                }
                (Some(pattern), _) if is("get") => {
                    options.gets.push(Pattern::parse(pattern));
                    2
                }
                _ => return Err(CommandError::Syntax),
            };
        }
        options.reproducible = options.store.is_some();
        Ok(options)
    }

    /// Whether the call reads keys that are not among its arguments.
    pub(super) fn reads_keys(&self) -> bool {
        self.by.iter().chain(&self.gets).any(Pattern::reads_keys)
    }

    /// The selected part of `len` elements, in their new order.
    pub(super) fn range(&self, len: usize) -> Range<usize> {
        let clamped = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(len);
        let start = clamped(self.offset);
        let count = if self.count < 0 { len } else { clamped(self.count) };
        start..(start + count).min(len)
    }
}

#[cfg(test)]
mod tests {
    use wire::OwnedArgs;

    use super::*;

    #[test]
    fn a_limit_stays_within_the_elements() {
        for (limit, range) in [
            ("0 -1", 0..4),
            ("0 2", 0..2),
            ("1 2", 1..3),
            ("3 9", 3..4),
            ("4 1", 4..4),
            ("9 1", 4..4),
            ("-5 2", 0..2),
            ("2 -9", 2..4),
            ("0 0", 0..0),
            ("9223372036854775807 9223372036854775807", 4..4),
            ("1 9223372036854775807", 1..4),
        ] {
            let args: OwnedArgs = format!("sort key limit {limit}").split(' ').collect();
            let options = Options::parse(args.as_args(), true).expect("options");
            assert_eq!(options.range(4), range, "{limit}");
        }
    }
}
