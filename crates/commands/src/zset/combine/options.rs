//! The options after the keys of a combination.

use engine::CommandError;
use wire::{
    Args,
    number::{parse_f64, parse_i64},
};

use super::{Operation, members::Aggregate};

pub(super) struct Options {
    /// One weight for each key; empty if all weights are 1.
    pub(super) weights: Vec<f64>,
    pub(super) aggregate: Aggregate,
    pub(super) with_scores: bool,
    /// The maximum number of members that are counted; 0 for all.
    pub(super) limit: usize,
}

/// The forms of a command, which have different options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The command replies with members.
    Shows,
    /// The command stores the members.
    Stores,
    /// The command replies with the number of members.
    Counts,
}

impl Options {
    pub(super) fn parse(
        mut words: Args<'_>,
        keys: usize,
        operation: Operation,
        form: Form,
    ) -> Result<Options, CommandError> {
        let mut options =
            Options { weights: Vec::new(), aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
        let combines_scores = operation != Operation::Difference && form != Form::Counts;
        while let Some(word) = words.get(0) {
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            let taken = if combines_scores && words.len() > keys && is(b"weights") {
                let weight =
                    |text| parse_f64(text).ok_or(CommandError::Text("ERR weight value is not a float"));
                options.weights = words.skip(1).take(keys).iter().map(weight).collect::<Result<_, _>>()?;
                1 + keys
            } else if combines_scores && words.len() > 1 && is(b"aggregate") {
                options.aggregate = match words.at(1) {
                    name if name.eq_ignore_ascii_case(b"sum") => Aggregate::Sum,
                    name if name.eq_ignore_ascii_case(b"min") => Aggregate::Min,
                    name if name.eq_ignore_ascii_case(b"max") => Aggregate::Max,
                    _ => return Err(CommandError::Syntax),
                };
                2
            } else if form == Form::Shows && is(b"withscores") {
                options.with_scores = true;
                1
            } else if form == Form::Counts && words.len() > 1 && is(b"limit") {
                let limit = parse_i64(words.at(1)).and_then(|limit| usize::try_from(limit).ok());
                options.limit = limit.ok_or(CommandError::Text("ERR LIMIT can't be negative"))?;
                2
            } else {
                return Err(CommandError::Syntax);
            };
            words = words.skip(taken);
        }
        Ok(options)
    }
}
