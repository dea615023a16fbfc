//! Expiry of fields: HEXPIRE and HTTL in all their forms, HPERSIST, HGETDEL, HGETEX, HSETEX.

use std::collections::BTreeSet;

use engine::{CommandError, Context, EventClass};
use keyspace::{HashField, Items, KeyOp};
use wire::{Args, ArgsIter, number::parse_i64};

use super::{hash, set::notify_removed};
use crate::{
    Slices, deadline::Form, effect_bytes_max, expiry_condition::Conditions, expiry_option::ExpiryOption,
    gather,
};

/// Reply: the field does not exist.
const NO_FIELD: i64 = -2;
/// Reply: the field has no deadline.
const NEVER: i64 = -1;
/// Reply: a condition was not met.
const NOT_SET: i64 = 0;
/// Reply: the deadline was set or removed.
const SET: i64 = 1;
/// Reply: the deadline has passed, and the field was deleted.
const DELETED: i64 = 2;

const NO_FIELDS: CommandError =
    CommandError::Text("ERR Mandatory argument FIELDS is missing or not at the right position");

const TWO_CONDITIONS: CommandError =
    CommandError::Text("ERR Only one of FXX or FNX arguments can be specified");
const TWO_EXPIRIES: CommandError =
    CommandError::Text("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified");

/// The latest deadline that these commands give a field, in unix milliseconds: 46 bits, as in Redis.
const DEADLINE_MS_MAX: u64 = (1 << 46) - 1;

/// Parses `FIELDS count name ...` to the end, with `per_field` arguments per field. Returns the arguments
/// after the count.
///
/// # Errors
/// - [`NO_FIELDS`] if the first word is not FIELDS.
/// - `no_number` if the count is not a positive number, or too large.
/// - `wrong_number` if the count differs from the number of fields that follow.
fn parse_fields<'a>(
    words: Args<'a>,
    per_field: usize,
    no_number: &'static str,
    wrong_number: CommandError,
) -> Result<Args<'a>, CommandError> {
    if words.get(0).is_none_or(|word| !word.eq_ignore_ascii_case(b"fields")) {
        return Err(NO_FIELDS);
    }
    let count = words.get(1).and_then(parse_i64).and_then(|count| usize::try_from(count).ok());
    // As in Redis, a number of pairs has at most 31 bits.
    let max = if per_field == 1 { usize::MAX } else { i32::MAX as usize };
    let Some(count) = count.filter(|count| (1..=max).contains(count)) else {
        return Err(CommandError::Text(no_number));
    };
    let fields = words.skip(2);
    if count.checked_mul(per_field) != Some(fields.len()) {
        return Err(wrong_number);
    }
    Ok(fields)
}

/// Parses `FIELDS count name ...` to the end, for all commands except HSETEX and the forms of HEXPIRE.
fn parse_names(words: Args<'_>) -> Result<Args<'_>, CommandError> {
    parse_fields(words, 1, "ERR Number of fields must be a positive integer", UNEQUAL)
}

const UNEQUAL: CommandError =
    CommandError::Text("ERR The `numfields` parameter must match the number of arguments");

/// The field of this name, unless it has expired; `None` also if there is no hash.
fn live<'u>(cx: &'u Context<'_, '_>, key: &[u8], name: &[u8]) -> Result<Option<HashField<'u>>, CommandError> {
    let as_of_ms = cx.as_of_ms();
    let hash = hash(cx.unit.peek(cx.db(), key))?;
    Ok(hash.and_then(|hash| hash.field(name)).filter(|field| !field.is_expired(as_of_ms)))
}

/// Removes the expired ones among the named fields, so that the effects of the command do not depend on the
/// time at which they are replayed. `bytes_after` is an upper bound of the bytes of the effects that follow.
///
/// # Errors
/// The errors of [`Context::require_room`]; nothing has changed then. A key of another type can be an error
/// here, but the caller checks the type in any case.
pub(super) fn remove_expired<'a>(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    names: impl Iterator<Item = &'a [u8]>,
    bytes_after: u64,
) -> Result<(), CommandError> {
    if !cx.unit.has_due(key) {
        return Ok(());
    }
    let (db, as_of_ms) = (cx.db(), cx.as_of_ms());
    let Some(hash) = hash(cx.unit.peek(db, key))?.filter(|hash| hash.has_deadlines()) else { return Ok(()) };
    let expired = |name: &&[u8]| hash.field(name).is_some_and(|field| field.is_expired(as_of_ms));
    let expired: Slices<'_> = names.filter(expired).collect();
    if !expired.is_empty() {
        let removal = KeyOp::HashRemove { fields: Items::Slices(&expired) };
        cx.require_room(removal.on(db, key).encoded_len() as u64 + bytes_after)?;
        let applied = cx.apply(key, removal);
        cx.unit.count_expired_fields(applied.removed);
        notify_removed(cx, "hexpired", key, applied);
    }
    Ok(())
}

/// Removes fields and notifies the removal.
fn remove(cx: &mut Context<'_, '_>, key: &[u8], fields: Items<'_>) {
    let applied = cx.apply(key, KeyOp::HashRemove { fields });
    notify_removed(cx, "hdel", key, applied);
}

/// `HEXPIRE key seconds [NX | XX | GT | LT] FIELDS count field [field ...]`
pub(super) fn hexpire(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadlines(cx, args, Form::Ex, "hexpire")
}

/// `HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS count field [field ...]`
pub(super) fn hpexpire(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadlines(cx, args, Form::Px, "hpexpire")
}

/// `HEXPIREAT key unix-time-seconds [NX | XX | GT | LT] FIELDS count field [field ...]`
pub(super) fn hexpireat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadlines(cx, args, Form::ExAt, "hexpireat")
}

/// `HPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] FIELDS count field [field ...]`
pub(super) fn hpexpireat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadlines(cx, args, Form::PxAt, "hpexpireat")
}

fn set_deadlines(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    form: Form,
    command: &'static str,
) -> Result<(), CommandError> {
    let (db, key, now_ms, as_of_ms) = (cx.db(), args.at(1), cx.now_ms(), cx.as_of_ms());
    hash(cx.unit.get(db, key))?;
    let number = not_negative(args.at(2))?;
    let deadline_ms = form.deadline_ms(number, now_ms).and_then(|ms| u64::try_from(ms).ok());
    let deadline_ms = deadline_ms.filter(|ms| *ms <= DEADLINE_MS_MAX);
    let deadline_ms = deadline_ms.ok_or(CommandError::InvalidExpire(command))?;
    let words = args.skip(3);
    let has_condition = words.get(0).is_some_and(|word| {
        [b"nx", b"xx", b"gt", b"lt"].iter().any(|condition| word.eq_ignore_ascii_case(*condition))
    });
    let conditions = Conditions::parse(words.take(has_condition.into()))?;
    let no_number = "ERR Parameter `numFields` should be greater than 0";
    let names = parse_fields(words.skip(has_condition.into()), 1, no_number, UNEQUAL)?;
    remove_expired(cx, key, names.iter(), effect_bytes_max(args))?;
    cx.reply.array(names.len());
    // The effect comes after this loop, but a field that is named again counts as changed already: it has the
    // new deadline, or is gone.
    let (mut changed, mut seen) = (Slices::new(), BTreeSet::new());
    for name in names.iter() {
        let outcome = match live(cx, key, name)? {
            None => NO_FIELD,
            Some(_) if deadline_ms <= as_of_ms && seen.contains(name) => NO_FIELD,
            Some(_) if seen.contains(name) && !conditions.allow(Some(deadline_ms), deadline_ms) => NOT_SET,
            Some(_) if seen.contains(name) => SET,
            Some(field) if !conditions.allow(field.expire_at_ms, deadline_ms) => NOT_SET,
            Some(_) => {
                changed.push(name);
                seen.insert(name);
                if deadline_ms <= as_of_ms { DELETED } else { SET }
            }
        };
        cx.reply.integer(outcome);
    }
    if !changed.is_empty() {
        let fields = Items::Slices(&changed);
        if deadline_ms <= as_of_ms {
            remove(cx, key, fields);
        } else {
            cx.apply(key, KeyOp::HashSetExpiry { fields, expire_at_ms: Some(deadline_ms) });
            cx.notify(EventClass::HASH, "hexpire", key);
        }
    }
    Ok(())
}

/// `HTTL key FIELDS count field [field ...]`
pub(super) fn httl(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = cx.now_ms();
    reply_deadlines(cx, args, |deadline_ms| rounded_seconds(deadline_ms.saturating_sub(now_ms)))
}

/// `HPTTL key FIELDS count field [field ...]`
pub(super) fn hpttl(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = cx.now_ms();
    reply_deadlines(cx, args, |deadline_ms| deadline_ms.saturating_sub(now_ms))
}

/// `HEXPIRETIME key FIELDS count field [field ...]`
pub(super) fn hexpiretime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_deadlines(cx, args, rounded_seconds)
}

/// `HPEXPIRETIME key FIELDS count field [field ...]`
pub(super) fn hpexpiretime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_deadlines(cx, args, |deadline_ms| deadline_ms)
}

/// Seconds, rounded up.
fn rounded_seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

fn reply_deadlines(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    show: impl Fn(u64) -> u64,
) -> Result<(), CommandError> {
    let db = cx.db();
    hash(cx.unit.inspect(db, args.at(1)))?;
    let names = parse_names(args.skip(2))?;
    cx.reply.array(names.len());
    for name in names.iter() {
        let outcome = match live(cx, args.at(1), name)? {
            None => NO_FIELD,
            // A restored or imported deadline may lie beyond i64::MAX.
            Some(field) => field.expire_at_ms.map_or(NEVER, |ms| i64::try_from(show(ms)).unwrap_or(i64::MAX)),
        };
        cx.reply.integer(outcome);
    }
    Ok(())
}

/// `HPERSIST key FIELDS count field [field ...]`
pub(super) fn hpersist(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    hash(cx.unit.get(db, key))?;
    let names = parse_names(args.skip(2))?;
    cx.reply.array(names.len());
    let (mut changed, mut seen) = (Slices::new(), BTreeSet::new());
    for name in names.iter() {
        let outcome = match live(cx, key, name)? {
            None => NO_FIELD,
            Some(field) if field.expire_at_ms.is_none() || !seen.insert(name) => NEVER,
            Some(_) => {
                changed.push(name);
                SET
            }
        };
        cx.reply.integer(outcome);
    }
    if !changed.is_empty() {
        let fields = Items::Slices(&changed);
        cx.apply(key, KeyOp::HashSetExpiry { fields, expire_at_ms: None });
        cx.notify(EventClass::HASH, "hpersist", key);
    }
    Ok(())
}

/// Replies with the values of fields, null for absent ones. `are_deleted`: the caller deletes the fields
/// after this, so a field that is named again counts as absent.
fn reply_values(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    names: Args<'_>,
    are_deleted: bool,
) -> Result<(), CommandError> {
    let (db, as_of_ms) = (cx.db(), cx.as_of_ms());
    let hash = hash(cx.unit.read(db, key))?;
    cx.reply.array(names.len());
    let mut seen = BTreeSet::new();
    for name in names.iter() {
        let is_gone = are_deleted && !seen.insert(name);
        let field = hash.filter(|_| !is_gone).and_then(|hash| hash.field(name));
        let field = field.filter(|field| !field.is_expired(as_of_ms));
        cx.reply.bulk_or_null(field.as_ref().map(|field| &*field.value));
    }
    Ok(())
}

/// `HGETDEL key FIELDS count field [field ...]`
pub(super) fn hgetdel(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    hash(cx.unit.get(db, key))?;
    let names = parse_names(args.skip(2))?;
    reply_values(cx, key, names, true)?;
    remove_expired(cx, key, names.iter(), effect_bytes_max(args))?;
    let mut slices = Slices::new();
    remove(cx, key, gather(names, &mut slices));
    Ok(())
}

/// Parses a number that is 0 or positive.
fn not_negative(number: &[u8]) -> Result<i64, CommandError> {
    let number = parse_i64(number).ok_or(CommandError::NotAnInteger)?;
    if number < 0 { Err(CommandError::Text("ERR invalid expire time, must be >= 0")) } else { Ok(number) }
}

/// The deadline of fields in unix milliseconds, which may be in the past; `None` if no time was given.
fn field_deadline_ms(
    expiry: ExpiryOption<'_>,
    now_ms: u64,
    command: &'static str,
) -> Result<Option<u64>, CommandError> {
    let ExpiryOption::At(form, number) = expiry else { return Ok(None) };
    let deadline_ms = form.deadline_ms(not_negative(number)?, now_ms).and_then(|ms| u64::try_from(ms).ok());
    let deadline_ms = deadline_ms.filter(|ms| *ms <= DEADLINE_MS_MAX);
    deadline_ms.map(Some).ok_or(CommandError::InvalidExpire(command))
}

/// Parses the options before FIELDS; returns the rest, including FIELDS.
fn parse_options<'a>(
    words: Args<'a>,
    mut read: impl FnMut(&'a [u8], &mut ArgsIter<'a>) -> Result<(), CommandError>,
) -> Result<Args<'a>, CommandError> {
    let mut rest = words.iter();
    let mut taken = 0;
    while let Some(word) = words.get(taken).filter(|word| !word.eq_ignore_ascii_case(b"fields")) {
        rest.next();
        read(word, &mut rest)?;
        taken = words.len() - rest.len();
    }
    Ok(words.skip(taken))
}

/// `HGETEX key [EX seconds | PX ms | EXAT s | PXAT ms | PERSIST] FIELDS count field [field ...]`
pub(super) fn hgetex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, now_ms, as_of_ms) = (cx.db(), args.at(1), cx.now_ms(), cx.as_of_ms());
    let (mut expiry, mut deadline_ms) = (ExpiryOption::Unsaid, None);
    hash(cx.unit.get(db, key))?;
    let names = parse_options(args.skip(2), |word, rest| {
        let is_option = Form::named(word).is_some() || word.eq_ignore_ascii_case(b"persist");
        if !is_option || !matches!(expiry, ExpiryOption::Unsaid) {
            return Err(NO_FIELDS);
        }
        expiry.read(word, rest)?;
        deadline_ms = field_deadline_ms(expiry, now_ms, "hgetex")?;
        Ok(())
    })?;
    if names.len() == 1 {
        return Err(CommandError::WrongArity("hgetex"));
    }
    let names = parse_names(names)?;
    reply_values(cx, key, names, deadline_ms.is_some_and(|deadline_ms| deadline_ms <= as_of_ms))?;
    remove_expired(cx, key, names.iter(), effect_bytes_max(args))?;
    let mut slices = Slices::new();
    let fields = gather(names, &mut slices);
    match (expiry, deadline_ms) {
        (_, Some(deadline_ms)) if deadline_ms <= as_of_ms => remove(cx, key, fields),
        (ExpiryOption::Persist, _) | (_, Some(_)) => {
            let applied = cx.apply(key, KeyOp::HashSetExpiry { fields, expire_at_ms: deadline_ms });
            if applied.changed {
                let event = if deadline_ms.is_some() { "hexpire" } else { "hpersist" };
                cx.notify(EventClass::HASH, event, key);
            }
        }
        _ => {}
    }
    Ok(())
}

/// `HSETEX key [FNX | FXX] [EX seconds | PX ms | EXAT s | PXAT ms | KEEPTTL] FIELDS count field value [field
/// value ...]`
pub(super) fn hsetex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, now_ms, as_of_ms) = (cx.db(), args.at(1), cx.now_ms(), cx.as_of_ms());
    let (mut expiry, mut deadline_ms) = (ExpiryOption::Unsaid, None);
    let mut must_exist = None;
    let pairs = parse_options(args.skip(2), |word, rest| {
        let is_condition = word.eq_ignore_ascii_case(b"fnx") || word.eq_ignore_ascii_case(b"fxx");
        if is_condition {
            let before = must_exist.replace(word.eq_ignore_ascii_case(b"fxx"));
            return if before.is_some() { Err(TWO_CONDITIONS) } else { Ok(()) };
        }
        if Form::named(word).is_none() && !word.eq_ignore_ascii_case(b"keepttl") {
            let word = String::from_utf8_lossy(word);
            return Err(CommandError::Composed(format!("ERR unknown argument: {word}")));
        }
        if !matches!(expiry, ExpiryOption::Unsaid) {
            return Err(TWO_EXPIRIES);
        }
        expiry.read(word, rest)?;
        deadline_ms = field_deadline_ms(expiry, now_ms, "hsetex")?;
        Ok(())
    })?;
    // FIELDS needs at least its count, a name and a value.
    if (1..4).contains(&pairs.len()) {
        return Err(CommandError::WrongArity("hsetex"));
    }
    let pairs = parse_fields(pairs, 2, "ERR invalid number of fields", CommandError::WrongArity("hsetex"))?;
    hash(cx.unit.get(db, key))?;
    let names: Slices<'_> = pairs.iter().step_by(2).collect();
    for name in &names {
        if must_exist.is_some_and(|wanted| live(cx, key, name).is_ok_and(|field| field.is_some() != wanted)) {
            cx.reply.integer(0);
            return Ok(());
        }
    }
    // The fields are put, and then get the deadline or are removed.
    let own_bytes = effect_bytes_max(args) * if deadline_ms.is_some() { 2 } else { 1 };
    if deadline_ms.is_some() {
        cx.require_room(own_bytes)?;
    }
    remove_expired(cx, key, names.iter().copied(), own_bytes)?;
    let fields = Items::Slices(&names);
    let mut slices = Slices::new();
    let pairs = gather(pairs, &mut slices);
    let op = match expiry {
        ExpiryOption::Keep => KeyOp::HashUpdate { pairs },
        _ => KeyOp::HashPut { pairs },
    };
    cx.apply(key, op);
    cx.notify(EventClass::HASH, "hset", key);
    match deadline_ms {
        // The fields exist for an instant: clients get the same events as in Redis.
        Some(deadline_ms) if deadline_ms <= as_of_ms => remove(cx, key, fields),
        Some(_) => {
            cx.apply(key, KeyOp::HashSetExpiry { fields, expire_at_ms: deadline_ms });
            cx.notify(EventClass::HASH, "hexpire", key);
        }
        None => {}
    }
    cx.reply.integer(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use keyspace::SlotId;

    use crate::testing::{START_MS, TestServer, check};

    #[test]
    fn fields_expire_alone() {
        check(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HEXPIRE h 10 FIELDS 3 a b x", "[:1, :1, :-2]"),
            ("HTTL h FIELDS 3 a c x", "[:10, :-1, :-2]"),
            ("HPTTL h FIELDS 1 a", "[:10000]"),
            ("HEXPIRE h 20 NX FIELDS 2 a c", "[:0, :1]"),
            ("HEXPIRE h 5 GT FIELDS 1 a", "[:0]"),
            ("HEXPIRE h 5 LT FIELDS 1 a", "[:1]"),
            ("HPERSIST h FIELDS 3 b c x", "[:1, :1, :-2]"),
            ("HPERSIST h FIELDS 1 b", "[:-1]"),
            ("after 5000", ""),
            ("HGET h a", "nil"),
            ("HEXISTS h a", ":0"),
            ("HKEYS h", r#"["b", "c"]"#),
            ("HSETNX h a 9", ":1"),
            ("HTTL h FIELDS 1 a", "[:-1]"),
            ("HEXPIRE h 0 FIELDS 1 a", "[:2]"),
            ("HLEN h", ":2"),
            ("HTTL nokey FIELDS 2 a b", "[:-2, :-2]"),
            ("HEXPIRE nokey 5 FIELDS 1 a", "[:-2]"),
        ]);
    }

    #[test]
    fn an_expired_field_is_new_when_it_is_set_again() {
        check(&[
            ("HSET h n 5 m 1", ":2"),
            ("HPEXPIRE h 100 FIELDS 1 n", "[:1]"),
            ("after 100", ""),
            ("HINCRBY h n 1", ":1"),
            ("HPEXPIRE h 100 FIELDS 1 n", "[:1]"),
            ("after 100", ""),
            ("HDEL h n", ":0"),
            ("HSET h n 7", ":1"),
            ("HPEXPIRE h 100 FIELDS 1 n", "[:1]"),
            ("HINCRBY h n 1", ":8"),
            ("HPTTL h FIELDS 1 n", "[:100]"),
            ("HSET h n 1", ":0"),
            ("HPTTL h FIELDS 1 n", "[:-1]"),
        ]);
    }

    #[test]
    fn fields_are_read_and_set_with_an_expiry() {
        check(&[
            ("HSETEX h EX 10 FIELDS 2 a 1 b 2", ":1"),
            ("HTTL h FIELDS 2 a b", "[:10, :10]"),
            ("HSETEX h FNX FIELDS 1 a 5", ":0"),
            ("HSETEX h FXX KEEPTTL FIELDS 1 a 5", ":1"),
            ("HTTL h FIELDS 1 a", "[:10]"),
            ("HGETEX h PERSIST FIELDS 2 a x", r#"["5", nil]"#),
            ("HTTL h FIELDS 1 a", "[:-1]"),
            ("HGETEX h PX 50 FIELDS 1 a", r#"["5"]"#),
            ("HPTTL h FIELDS 1 a", "[:50]"),
            ("HGETDEL h FIELDS 2 a x", r#"["5", nil]"#),
            ("HGETDEL h FIELDS 1 b", r#"["2"]"#),
            ("EXISTS h", ":0"),
        ]);
    }

    #[test]
    fn fields_that_are_named_twice_are_treated_one_after_the_other() {
        check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HEXPIRE h 10 NX FIELDS 2 a a", "[:1, :0]"),
            ("HEXPIRE h 5 LT FIELDS 2 a a", "[:1, :0]"),
            ("HEXPIRE h 6 XX FIELDS 2 a a", "[:1, :1]"),
            ("HPERSIST h FIELDS 2 a a", "[:1, :-1]"),
            ("HGETDEL h FIELDS 3 a a b", r#"["1", nil, "2"]"#),
        ]);
    }

    #[test]
    fn a_time_to_live_of_nothing_deletes() {
        check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HGETEX h EX 0 FIELDS 2 a a", r#"["1", nil]"#),
            ("HSETEX h PXAT 0 FIELDS 1 b x", ":1"),
            ("EXISTS h", ":0"),
            ("HSETEX h EX -1 FIELDS 1 b x", "-ERR invalid expire time, must be >= 0"),
            ("HSETEX h FIELDS 0 b x", "-ERR invalid number of fields"),
            ("HSETEX h FIELDS 2147483648 b x", "-ERR invalid number of fields"),
            ("HSETEX h FIELDS 2 b x", "-ERR wrong number of arguments for 'hsetex' command"),
            ("HSETEX h FXX FIELDS b 3", "-ERR wrong number of arguments for 'hsetex' command"),
            ("HSETEX h FXX FIELDS b 3 4", "-ERR invalid number of fields"),
            ("HGETEX h EX 10 FIELDS", "-ERR wrong number of arguments for 'hgetex' command"),
            ("HGETEX h EX 10 FIELDS 1", "-ERR The `numfields` parameter must match the number of arguments"),
            ("HSETEX h FNX FNX FIELDS 1 b x", "-ERR Only one of FXX or FNX arguments can be specified"),
            (
                "HSETEX h EX 10 KEEPTTL FIELDS 1 b x",
                "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
            ),
            ("HSETEX h EX FIELDS 1 b x", "-ERR value is not an integer or out of range"),
            (
                "HSETEX h EX 9223372036854775807 FNX FXX FIELDS 1 a b",
                "-ERR invalid expire time in 'hsetex' command",
            ),
            (
                "HGETEX h EX 10 PX 10 FIELDS 1 b",
                "-ERR Mandatory argument FIELDS is missing or not at the right position",
            ),
            ("HGETEX h EX FIELDS 1 b", "-ERR value is not an integer or out of range"),
            ("HGETEX h EX -1 NOW 1 b", "-ERR invalid expire time, must be >= 0"),
            ("HSETEX h NOW FIELDS 1 b x", "-ERR unknown argument: NOW"),
            ("HTTL h FIELDS 0 a", "-ERR Number of fields must be a positive integer"),
        ]);
    }

    #[test]
    fn the_active_cycle_removes_due_fields_with_a_record() {
        let mut server = TestServer::new();
        server.check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HSET g a 1", ":1"),
            ("HPEXPIRE h 100 FIELDS 1 a", "[:1]"),
            ("HPEXPIRE g 100 FIELDS 1 a", "[:1]"),
            ("after 100", ""),
            ("HLEN h", ":2"),
        ]);
        let (now_ms, from, to) = (START_MS + 100, SlotId::FIRST, SlotId::LAST);
        server.executor.begin_round(now_ms, &server.services, 1 << 20);
        server.executor.expire_due(from, to, 100, &server.services);
        server.check(&[("HLEN h", ":1"), ("EXISTS g", ":0"), ("DBSIZE", ":1")]);
        server.assert_replays();
    }

    #[test]
    fn an_invalid_list_of_fields_is_refused() {
        check(&[
            ("HSET h a 1", ":1"),
            ("HEXPIRE h 10 FIELDS 0 a", "-ERR Parameter `numFields` should be greater than 0"),
            ("HEXPIRE h 10 FIELDS 2 a", "-ERR The `numfields` parameter must match the number of arguments"),
            (
                "HEXPIRE h 10 NX a b c",
                "-ERR Mandatory argument FIELDS is missing or not at the right position",
            ),
            ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
            ("HEXPIRE h 9223372036854775807 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command"),
            ("HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range"),
            ("SET s v", "+OK"),
            ("HEXPIRE s 10 FIELDS 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }
}
