//! The options of SORT and SORT_RO.

use std::ops::Range;

use engine::CommandError;
use smallvec::SmallVec;
use wire::{Args, number::parse_i64};

use super::pattern::Pattern;

#[derive(Debug)]
pub(super) struct Options<'a> {
    /// The values to sort by, instead of the elements.
    pub(super) by: Option<Pattern<'a>>,
    /// The elements keep the order that they have, because there is a BY without an asterisk, even if another
    /// BY follows it.
    pub(super) unsorted: bool,
    /// DESC: from the greatest to the least; with `unsorted`, a list or a sorted set from its end.
    pub(super) descending: bool,
    /// With `unsorted`, the members of a set come in the order of their bytes, not in that of memory: for
    /// STORE and for scripts.
    pub(super) reproducible: bool,
    /// ALPHA: sorts by bytes instead of by numbers.
    pub(super) alphabetic: bool,
    /// The values to show for each element; if empty, the element is shown.
    pub(super) gets: SmallVec<[Pattern<'a>; 4]>,
    /// The index of the argument that names the key of the result.
    pub(super) store: Option<usize>,
    first_that_reads: Option<&'static str>,
    offset: i64,
    count: i64,
}

impl<'a> Options<'a> {
    /// Reads the arguments after the key.
    ///
    /// # Errors
    /// An option is unknown or lacks its value, or a LIMIT is no number.
    pub(super) fn parse(args: Args<'a>, stores: bool) -> Result<Options<'a>, CommandError> {
        let mut options = Options {
            by: None,
            unsorted: false,
            reproducible: false,
            descending: false,
            alphabetic: false,
            gets: SmallVec::new(),
            store: None,
            first_that_reads: None,
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
                    if pattern.reads_keys() {
                        options.first_that_reads.get_or_insert("BY");
                    }
                    options.by = Some(pattern);
                    2
                }
                (Some(pattern), _) if is("get") => {
                    options.gets.push(Pattern::parse(pattern));
                    options.first_that_reads.get_or_insert("GET");
                    2
                }
                _ => return Err(CommandError::Syntax),
            };
        }
        options.reproducible = options.store.is_some();
        Ok(options)
    }

    /// Whether keys are read that no argument names.
    pub(super) fn reads_keys(&self) -> bool {
        self.by.iter().chain(&self.gets).any(Pattern::reads_keys)
    }

    /// The first option that may read keys which no argument names. It is refused to a user who may not read
    /// all keys. As in Redis, any GET counts as such an option.
    pub(super) fn first_that_reads(&self) -> Option<&'static str> {
        self.first_that_reads
    }

    /// Which of `len` elements are shown, in their new order.
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
