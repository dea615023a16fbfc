//! When keys expire: EXPIRE and TTL in all their forms, PERSIST.

use keyspace::Effect;
use wire::{Args, number::parse_i64};

use crate::{CommandError, Context, families::deadline::Form};

/// What TTL and its like say about a key that never expires.
const NEVER: i64 = -1;
/// What they say about no key.
const NO_KEY: i64 = -2;

/// `TTL key`
pub(super) fn ttl(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = cx.now_ms();
    reply_deadline(cx, args, |deadline_ms| rounded_seconds(deadline_ms.saturating_sub(now_ms)))
}

/// `PTTL key`
pub(super) fn pttl(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = cx.now_ms();
    reply_deadline(cx, args, |deadline_ms| deadline_ms.saturating_sub(now_ms))
}

/// `EXPIRETIME key`
pub(super) fn expiretime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_deadline(cx, args, rounded_seconds)
}

/// `PEXPIRETIME key`
pub(super) fn pexpiretime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_deadline(cx, args, |deadline_ms| deadline_ms)
}

fn rounded_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

fn reply_deadline(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    show: impl FnOnce(u64) -> u64,
) -> Result<(), CommandError> {
    let reply = match cx.unit.inspect(cx.session.db, args.at(1)) {
        None => NO_KEY,
        // No deadline is later than i64::MAX.
        Some(entry) => entry.expire_at_ms().map_or(NEVER, |ms| show(ms) as i64),
    };
    cx.reply.integer(reply);
    Ok(())
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub(super) fn expire(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::Ex, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub(super) fn pexpire(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::Px, "pexpire")
}

/// `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`
pub(super) fn expireat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::ExAt, "expireat")
}

/// `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`
pub(super) fn pexpireat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::PxAt, "pexpireat")
}

fn set_deadline(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    form: Form,
    command: &'static str,
) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let conditions = Conditions::parse(args.skip(3))?;
    let number = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let deadline_ms = form.deadline_ms(number, cx.now_ms()).ok_or(CommandError::InvalidExpire(command))?;
    // What lies before 1970 has passed like any other past.
    let deadline_ms = u64::try_from(deadline_ms).unwrap_or(0);
    let sets = cx.unit.get(db, key).is_some_and(|entry| conditions.allow(entry.expire_at_ms(), deadline_ms));
    if sets && deadline_ms <= cx.now_ms() {
        cx.apply(&Effect::Delete { db, key });
    } else if sets {
        cx.apply(&Effect::SetExpiry { db, key, expire_at_ms: Some(deadline_ms) });
    }
    cx.reply.integer(sets.into());
    Ok(())
}

/// When EXPIRE and its like change a deadline.
#[derive(Debug, Default)]
struct Conditions {
    /// NX: only if there is none.
    absent: bool,
    /// XX: only if there is one.
    present: bool,
    /// GT: only to a later one; none is later than all.
    later: bool,
    /// LT: only to an earlier one.
    earlier: bool,
}

impl Conditions {
    fn parse(words: Args<'_>) -> Result<Conditions, CommandError> {
        let mut conditions = Conditions::default();
        for word in words {
            let condition = match word.to_ascii_lowercase().as_slice() {
                b"nx" => &mut conditions.absent,
                b"xx" => &mut conditions.present,
                b"gt" => &mut conditions.later,
                b"lt" => &mut conditions.earlier,
                _ => {
                    let text = format!("ERR Unsupported option {}", String::from_utf8_lossy(word));
                    return Err(CommandError::Composed(text));
                }
            };
            *condition = true;
        }
        let Conditions { absent, present, later, earlier } = conditions;
        if absent && (present || later || earlier) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(CommandError::Text(text));
        }
        if later && earlier {
            return Err(CommandError::Text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    fn allow(&self, old_ms: Option<u64>, new_ms: u64) -> bool {
        match old_ms {
            None => !self.present && !self.later,
            Some(old_ms) => {
                !self.absent && (!self.later || new_ms > old_ms) && (!self.earlier || new_ms < old_ms)
            }
        }
    }
}

/// `PERSIST key`
pub(super) fn persist(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let expires = cx.unit.get(db, key).is_some_and(|entry| entry.expire_at_ms().is_some());
    if expires {
        cx.apply(&Effect::SetExpiry { db, key, expire_at_ms: None });
    }
    cx.reply.integer(expires.into());
    Ok(())
}
