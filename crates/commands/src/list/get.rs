//! Reading lists: LLEN, LRANGE, LINDEX, LPOS.

use engine::{CommandError, Context};
use keyspace::ListEnd;
use wire::{Aggregate, Args, ReplyWriter, number::parse_i64};

use super::{list, resolve_index, resolve_range};

/// `LLEN key`
pub(super) fn llen(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let list = list(cx.unit.read(cx.session.db, args.at(1)))?;
    cx.reply.count(list.map_or(0, |list| list.len()));
    Ok(())
}

/// `LRANGE key start stop`
pub(super) fn lrange(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let start = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let end = parse_i64(args.at(3)).ok_or(CommandError::NotAnInteger)?;
    let elements_max = cx.elements_max();
    let Some(list) = list(cx.unit.read(cx.session.db, args.at(1)))? else {
        cx.reply.array(0);
        return Ok(());
    };
    let elements = list.range(resolve_range(start, end, list.len()));
    elements_max.require(elements.len())?;
    cx.reply.array(elements.len());
    elements.for_each(|element| cx.reply.bulk(&element));
    Ok(())
}

/// `LINDEX key index`
pub(super) fn lindex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Some(list) = list(cx.unit.read(cx.session.db, args.at(1)))? else {
        cx.reply.null();
        return Ok(());
    };
    let index = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let element = resolve_index(index, list.len()).and_then(|index| list.get(index));
    cx.reply.bulk_or_null(element.as_deref());
    Ok(())
}

/// The options of LPOS.
struct Search {
    /// The end at which the search begins.
    from: ListEnd,
    /// The number of matches to skip.
    passed_over: usize,
    /// The maximum number of matches to show; `None` shows only the first, not as an array.
    count: Option<usize>,
    /// The maximum number of elements to compare.
    looked_at: usize,
}

impl Search {
    /// Parses `[RANK rank] [COUNT num-matches] [MAXLEN len]`.
    fn parse(options: Args<'_>) -> Result<Search, CommandError> {
        let mut search = Search { from: ListEnd::Head, passed_over: 0, count: None, looked_at: usize::MAX };
        let mut words = options.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(CommandError::Syntax)?;
            if word.eq_ignore_ascii_case(b"rank") {
                let rank = parse_i64(value).ok_or(CommandError::NotAnInteger)?;
                search.set_rank(rank)?;
            } else if word.eq_ignore_ascii_case(b"count") {
                let count = parse_limit(value).ok_or(CommandError::Text("ERR COUNT can't be negative"))?;
                search.count = Some(count);
            } else if word.eq_ignore_ascii_case(b"maxlen") {
                search.looked_at =
                    parse_limit(value).ok_or(CommandError::Text("ERR MAXLEN can't be negative"))?;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(search)
    }

    fn set_rank(&mut self, rank: i64) -> Result<(), CommandError> {
        self.from = if rank < 0 { ListEnd::Tail } else { ListEnd::Head };
        self.passed_over = match rank {
            0 => {
                return Err(CommandError::Text(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                     negative to start from the end of the list",
                ));
            }
            i64::MIN => {
                return Err(CommandError::Text(
                    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
                ));
            }
            rank => usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX),
        };
        Ok(())
    }

    /// Writes the indices of the matches. `matches` says for each element, from the end `from`, whether it
    /// matches; `index_of` turns a distance from that end into an index.
    fn write(
        &self,
        reply: &mut ReplyWriter<'_>,
        matches: impl Iterator<Item = bool>,
        index_of: impl Fn(usize) -> usize,
    ) {
        let matches = matches.take(self.looked_at).enumerate().filter(|(_, matches)| *matches);
        let mut found = matches.skip(self.passed_over).map(|(distance, _)| index_of(distance));
        let Some(count) = self.count else {
            return match found.next() {
                Some(index) => reply.count(index),
                None => reply.null(),
            };
        };
        let (array, mut len) = (reply.begin_deferred(), 0);
        for index in found.take(count) {
            reply.count(index);
            len += 1;
        }
        reply.end_deferred(array, Aggregate::Array, len);
    }
}

/// Parses a limit, where 0 means no limit.
fn parse_limit(text: &[u8]) -> Option<usize> {
    match usize::try_from(parse_i64(text)?).ok()? {
        0 => Some(usize::MAX),
        limit => Some(limit),
    }
}

/// `LPOS key element [RANK rank] [COUNT num-matches] [MAXLEN len]`
pub(super) fn lpos(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let search = Search::parse(args.skip(3))?;
    let Some(list) = list(cx.unit.read(cx.session.db, args.at(1)))? else {
        search.write(&mut cx.reply, std::iter::empty(), |distance| distance);
        return Ok(());
    };
    let (matches, last) = (list.matches(args.at(2)), list.len() - 1);
    match search.from {
        ListEnd::Head => search.write(&mut cx.reply, matches, |distance| distance),
        ListEnd::Tail => search.write(&mut cx.reply, matches.rev(), |distance| last - distance),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn ranges_and_elements_are_read() {
        check(&[
            ("RPUSH l a b 3 -4 e", ":5"),
            ("LLEN l", ":5"),
            ("LLEN nokey", ":0"),
            ("LRANGE l 0 -1", r#"["a", "b", "3", "-4", "e"]"#),
            ("LRANGE l 1 -3", r#"["b", "3"]"#),
            ("LRANGE l -100 100", r#"["a", "b", "3", "-4", "e"]"#),
            ("LRANGE l 3 1", "[]"),
            ("LRANGE l 5 9", "[]"),
            ("LRANGE nokey 0 -1", "[]"),
            ("LRANGE nokey x -1", "-ERR value is not an integer or out of range"),
            ("LRANGE l 0 x", "-ERR value is not an integer or out of range"),
            ("LINDEX l 0", r#""a""#),
            ("LINDEX l -2", r#""-4""#),
            ("LINDEX l 5", "nil"),
            ("LINDEX l -6", "nil"),
            ("LINDEX l x", "-ERR value is not an integer or out of range"),
            // For an absent key the index is not parsed.
            ("LINDEX nokey x", "nil"),
        ]);
    }

    #[test]
    fn matches_are_found_from_either_end() {
        check(&[
            ("RPUSH l a b c 1 2 3 c c", ":8"),
            ("LPOS l a", ":0"),
            ("LPOS l 3", ":5"),
            ("LPOS l nothing", "nil"),
            ("LPOS l c RANK 2", ":6"),
            ("LPOS l c RANK -1", ":7"),
            ("LPOS l c RANK -3", ":2"),
            ("LPOS l c RANK 4", "nil"),
            ("LPOS l c RANK -9223372036854775807", "nil"),
            ("LPOS l c COUNT 2", "[:2, :6]"),
            ("LPOS l c COUNT 0", "[:2, :6, :7]"),
            ("LPOS l c COUNT 0 RANK 2", "[:6, :7]"),
            ("LPOS l c COUNT 2 RANK -1", "[:7, :6]"),
            ("LPOS l c COUNT 0 RANK -2", "[:6, :2]"),
            ("LPOS l nothing COUNT 0", "[]"),
            ("LPOS l c COUNT 0 MAXLEN 3", "[:2]"),
            ("LPOS l c COUNT 0 MAXLEN 2", "[]"),
            ("LPOS l c MAXLEN 2", "nil"),
            ("LPOS l c RANK -1 COUNT 0 MAXLEN 2", "[:7, :6]"),
            ("lpos l c maxlen 0 count 9223372036854775807 rank 3", "[:7]"),
            ("LPOS l c COUNT 1 COUNT 2", "[:2, :6]"),
            ("LPOS nokey c", "nil"),
            ("LPOS nokey c COUNT 1", "[]"),
        ]);
    }

    #[test]
    fn lpos_refuses_invalid_options() {
        let zero = "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                    negative to start from the end of the list";
        let range =
            "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
        check(&[
            ("LPOS nokey a RANK 0", zero),
            ("LPOS nokey a RANK -9223372036854775808", range),
            ("LPOS nokey a RANK x", "-ERR value is not an integer or out of range"),
            ("LPOS nokey a COUNT -1", "-ERR COUNT can't be negative"),
            ("LPOS nokey a COUNT x", "-ERR COUNT can't be negative"),
            ("LPOS nokey a MAXLEN -1", "-ERR MAXLEN can't be negative"),
            ("LPOS nokey a MAXLEN x", "-ERR MAXLEN can't be negative"),
            ("LPOS nokey a RANK", "-ERR syntax error"),
            ("LPOS nokey a FOO", "-ERR syntax error"),
            ("LPOS nokey a FOO 1", "-ERR syntax error"),
        ]);
    }
}
