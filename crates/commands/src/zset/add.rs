//! Adding members and changing scores: ZADD and ZINCRBY; and GEOADD, whose scores are places.
//!
//! Without conditions no score is read: the effect does not depend on the stored scores. With conditions the
//! new scores are decided first, and the effect holds only the members that get a score.

use std::collections::HashMap;

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, ScoredItems};
use smallvec::SmallVec;
use wire::{Args, number::parse_f64};

use super::zset;

/// Scores and members of one command; up to two pairs need no allocation.
pub(crate) type Members<'a> = SmallVec<[(f64, &'a [u8]); 2]>;

/// The flags of ZADD.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AddOptions {
    /// NX: only new members.
    pub(crate) only_new: bool,
    /// XX: only existing members.
    pub(crate) only_old: bool,
    /// GT: an existing member gets only a greater score. New members are not concerned.
    only_greater: bool,
    /// LT: an existing member gets only a lesser score. New members are not concerned.
    only_less: bool,
    /// CH: changed members count, not only new ones.
    pub(crate) counts_changed: bool,
    /// INCR: the score is added to the old one.
    increments: bool,
}

impl AddOptions {
    /// Reads the flags at the start of `words` and returns the words after them.
    fn read<'a>(&mut self, mut words: Args<'a>) -> Args<'a> {
        while let Some(word) = words.get(0) {
            let flag = match word {
                [b'n' | b'N', b'x' | b'X'] => &mut self.only_new,
                [b'x' | b'X', b'x' | b'X'] => &mut self.only_old,
                [b'g' | b'G', b't' | b'T'] => &mut self.only_greater,
                [b'l' | b'L', b't' | b'T'] => &mut self.only_less,
                [b'c' | b'C', b'h' | b'H'] => &mut self.counts_changed,
                _ if word.eq_ignore_ascii_case(b"incr") => &mut self.increments,
                _ => break,
            };
            *flag = true;
            words = words.skip(1);
        }
        words
    }

    fn verify(self, pairs: usize) -> Result<(), CommandError> {
        let AddOptions { only_new, only_old, only_greater, only_less, increments, .. } = self;
        if only_new && only_old {
            return Err(CommandError::Text("ERR XX and NX options at the same time are not compatible"));
        }
        if only_greater && only_less || only_new && (only_greater || only_less) {
            return Err(CommandError::Text(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if increments && pairs > 1 {
            return Err(CommandError::Text("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// Whether the new scores depend on the stored ones.
    fn has_conditions(self) -> bool {
        self.only_new || self.only_old || self.only_greater || self.only_less || self.increments
    }

    /// The score that a member gets, if it gets one.
    fn decide(self, old: Option<f64>, given: f64) -> Result<Option<f64>, CommandError> {
        let Some(old) = old else {
            return Ok((!self.only_old).then_some(given));
        };
        if self.only_new {
            return Ok(None);
        }
        let new = if self.increments { old + given } else { given };
        if new.is_nan() {
            return Err(CommandError::Text("ERR resulting score is not a number (NaN)"));
        }
        let is_refused = self.only_greater && new <= old || self.only_less && new >= old;
        Ok((!is_refused).then_some(new))
    }
}

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]`
pub(super) fn zadd(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    add(cx, args, AddOptions::default())
}

/// `ZINCRBY key increment member`
pub(super) fn zincrby(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    // Flags are read here too, as Redis does: ZINCRBY key nx member is a syntax error.
    add(cx, args, AddOptions { increments: true, ..AddOptions::default() })
}

fn add(cx: &mut Context<'_, '_>, args: Args<'_>, mut options: AddOptions) -> Result<(), CommandError> {
    let key = args.at(1);
    let pairs = options.read(args.skip(2));
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    options.verify(pairs.len() / 2)?;
    let mut members = Members::with_capacity(pairs.len() / 2);
    for index in (0..pairs.len()).step_by(2) {
        let score = parse_f64(pairs.at(index)).ok_or(CommandError::NotAFloat)?;
        members.push((score, pairs.at(index + 1)));
    }
    add_members(cx, key, options, members)
}

/// Adds members as the options say, and replies.
pub(crate) fn add_members(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    options: AddOptions,
    mut members: Members<'_>,
) -> Result<(), CommandError> {
    if options.has_conditions() {
        choose(cx, key, options, &mut members)?;
    }
    let event = if options.increments { "zincr" } else { "zadd" };
    let (added, changed) = put(cx, key, &members, event)?;
    if !options.increments {
        cx.reply.count(if options.counts_changed { changed } else { added });
        return Ok(());
    }
    match members.first() {
        Some((score, _)) => cx.reply.double(*score),
        None => cx.reply.null(),
    }
    Ok(())
}

/// Reduces `members` to the members that the options let through, with the scores that they get.
fn choose<'a>(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    options: AddOptions,
    members: &mut Members<'a>,
) -> Result<(), CommandError> {
    let db = cx.db();
    let zset = zset(cx.unit.get(db, key))?;
    // A member that is named again is compared with the score that it got before.
    let mut chosen: HashMap<&[u8], f64> = HashMap::new();
    let can_repeat = members.len() > 1;
    let mut kept = Members::new();
    for &(given, member) in members.iter() {
        let old = chosen.get(member).copied().or_else(|| zset?.score(member));
        if let Some(new) = options.decide(old, given)? {
            kept.push((new, member));
            if can_repeat {
                chosen.insert(member, new);
            }
        }
    }
    *members = kept;
    Ok(())
}

/// Puts members and notifies a change; returns how many are new, and how many are new or have another score.
fn put(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    members: &[(f64, &[u8])],
    event: &'static str,
) -> Result<(usize, usize), CommandError> {
    if members.is_empty() {
        return Ok((0, 0));
    }
    let applied = cx.try_apply(key, KeyOp::ZsetPut { members: ScoredItems::Slices(members) })?;
    if applied.changed {
        cx.notify(EventClass::ZSET, event, key);
    }
    Ok((applied.added as usize, (applied.added + applied.updated) as usize))
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, WRONG_TYPE, check, check_protocols};

    #[test]
    fn members_are_added_and_get_other_scores() {
        check(&[
            ("ZADD z 1 a", ":1"),
            ("ZADD z 1 a", ":0"),
            ("ZADD z 2 a 3 b", ":1"),
            ("ZADD z CH 3 a 3 b 4 c", ":2"),
            ("ZRANGE z 0 -1", r#"["a", "b", "c"]"#),
            ("ZADD z 1e2 a inf b -inf c", ":0"),
            ("ZRANGE z 0 -1", r#"["c", "a", "b"]"#),
            ("ZADD z ch 1 d 2 d", ":2"),
            ("ZCARD z", ":4"),
            ("TYPE z", "+zset"),
        ]);
    }

    #[test]
    fn conditions_choose_members() {
        check(&[
            ("ZADD z 1 a 2 b", ":2"),
            ("ZADD z nx 9 a 9 c", ":1"),
            ("ZADD z xx ch 3 a 9 d", ":1"),
            ("ZRANGE z 0 -1", r#"["b", "a", "c"]"#),
            ("ZADD z GT CH 2 a 4 b 5 new", ":2"),
            ("ZADD z LT CH 8 c 9 b", ":1"),
            ("ZADD z XX GT CH 1 b 10 b 7 nobody", ":1"),
            ("ZRANGE z 0 -1", r#"["a", "new", "c", "b"]"#),
            ("ZADD none XX 1 a", ":0"),
            ("EXISTS none", ":0"),
            ("ZADD z NX CH 1 twice 2 twice", ":1"),
            ("ZCOUNT z 1 1", ":1"),
            ("ZADD z GT CH 3 twice 2 twice 4 twice", ":2"),
            ("ZCOUNT z 4 4", ":1"),
            ("ZADD z LT CH 1 gone 2 gone", ":1"),
        ]);
    }

    #[test]
    fn an_increment_replies_with_the_score() {
        check_protocols(&[
            ("ZINCRBY z 1.5 a", r#""1.5""#, ",1.5"),
            ("ZINCRBY z -2 a", r#""-0.5""#, ",-0.5"),
            ("ZADD z INCR 1 a", r#""0.5""#, ",0.5"),
            ("ZADD z NX INCR 1 a", "nil", "nil"),
            ("ZADD z XX INCR 1 b", "nil", "nil"),
            ("ZADD z NX INCR 7 b", r#""7""#, ",7"),
            ("ZADD z GT INCR 0 b", "nil", "nil"),
            ("ZADD z LT INCR -1 b", r#""6""#, ",6"),
            ("ZADD z LT incr -1 new", r#""-1""#, ",-1"),
            ("ZADD none XX INCR 1 a", "nil", "nil"),
            ("ZINCRBY z 0 b", r#""6""#, ",6"),
            ("ZINCRBY z 0.1 b", r#""6.1""#, ",6.1"),
        ]);
    }

    #[test]
    fn scores_that_are_no_numbers_are_refused() {
        check(&[
            ("ZADD z inf a", ":1"),
            ("ZINCRBY z -inf a", "-ERR resulting score is not a number (NaN)"),
            ("ZADD z INCR -inf a", "-ERR resulting score is not a number (NaN)"),
            ("ZADD z nan b", "-ERR value is not a valid float"),
            ("ZADD z 1 b x c", "-ERR value is not a valid float"),
            ("ZADD z 1e400 b", "-ERR value is not a valid float"),
            ("ZINCRBY z x b", "-ERR value is not a valid float"),
            ("ZCARD z", ":1"),
            ("SET s 1", "+OK"),
            ("ZADD s x b", "-ERR value is not a valid float"),
        ]);
    }

    #[test]
    fn zadd_refuses_incompatible_options() {
        const NX_GT: &str = "-ERR GT, LT, and/or NX options at the same time are not compatible";
        check(&[
            ("ZADD z", "-ERR wrong number of arguments for 'zadd' command"),
            ("ZADD z 1", "-ERR wrong number of arguments for 'zadd' command"),
            ("ZADD z 1 a 2", "-ERR syntax error"),
            ("ZADD z CH NX", "-ERR syntax error"),
            ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible"),
            ("ZADD z NX GT 1 a", NX_GT),
            ("ZADD z LT NX 1 a", NX_GT),
            ("ZADD z GT LT 1 a", NX_GT),
            ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
            ("ZINCRBY z nx a", "-ERR syntax error"),
            ("ZINCRBY z 1", "-ERR wrong number of arguments for 'zincrby' command"),
            ("SET s 1", "+OK"),
            ("ZADD s 1 a", WRONG_TYPE),
            ("ZADD s NX 1 a", WRONG_TYPE),
            ("ZADD s XX 1 a", WRONG_TYPE),
            ("ZINCRBY s 1 a", WRONG_TYPE),
            ("EXISTS z", ":0"),
        ]);
    }

    #[test]
    fn adding_keeps_the_expiry_but_not_that_of_an_expired_key() {
        check(&[
            ("ZADD z 1 a", ":1"),
            ("PEXPIRE z 10", ":1"),
            ("ZADD z 2 b", ":1"),
            ("PTTL z", ":10"),
            ("after 10", ""),
            ("ZADD z XX 2 b", ":0"),
            ("ZADD z 2 b", ":1"),
            ("PTTL z", ":-1"),
        ]);
    }

    #[test]
    fn adding_without_a_change_is_not_logged() {
        let mut server = TestServer::new();
        server.run("ZADD z 0 a");
        let lsn = server.appended_lsn();
        for command in ["ZADD z 0 a", "ZADD z -0 a", "ZADD z NX 2 a", "ZADD z XX 2 b", "ZINCRBY z 0 a"] {
            server.run(command);
            assert_eq!(server.appended_lsn(), lsn, "{command}");
        }
        assert_eq!(server.run("ZSCORE z a"), r#""0""#);
    }
}
