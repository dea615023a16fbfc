//! Strings that hold numbers: INCR and its like.
//!
//! Every sum is logged as the value it gives, so that replaying never computes.

use keyspace::{Effect, Value};
use wire::{
    Args,
    decimal::{self, AddError},
    number::parse_i64,
};

use super::string;
use crate::{CommandError, Context};

/// Most bytes that a sum of everyday decimals takes.
const SUM_BYTES: usize = 48;

/// `INCR key`
pub(super) fn incr(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    add(cx, args.at(1), 1)
}

/// `DECR key`
pub(super) fn decr(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    add(cx, args.at(1), -1)
}

/// `INCRBY key increment`
pub(super) fn incrby(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    add(cx, args.at(1), parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?)
}

/// `DECRBY key decrement`
pub(super) fn decrby(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let decrement = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    add(cx, args.at(1), decrement.checked_neg().ok_or(CommandError::DecrementOverflow)?)
}

/// Adds to the integer at a key, which keeps its expiry.
fn add(cx: &mut Context<'_, '_>, key: &[u8], increment: i64) -> Result<(), CommandError> {
    let db = cx.db();
    let (value, expire_at_ms) = match cx.unit.get(db, key) {
        Some(entry) => {
            let value = parse_i64(string(entry)?).ok_or(CommandError::NotAnInteger)?;
            (value, entry.expire_at_ms())
        }
        None => (0, None),
    };
    let sum = value.checked_add(increment).ok_or(CommandError::IncrementOverflow)?;
    let mut digits = itoa::Buffer::new();
    let value = Value::String(digits.format(sum).as_bytes());
    cx.apply(&Effect::Put { db, key, value, expire_at_ms });
    cx.reply.integer(sum);
    Ok(())
}

/// `INCRBYFLOAT key increment`
pub(super) fn incrbyfloat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let mut sum = Vec::with_capacity(SUM_BYTES);
    let expire_at_ms = match cx.unit.get(db, key) {
        Some(entry) => {
            decimal::add(string(entry)?, args.at(2), &mut sum).map_err(no_sum)?;
            entry.expire_at_ms()
        }
        None => {
            decimal::add(b"0", args.at(2), &mut sum).map_err(no_sum)?;
            None
        }
    };
    cx.apply(&Effect::Put { db, key, value: Value::String(&sum), expire_at_ms });
    cx.reply.bulk(&sum);
    Ok(())
}

fn no_sum(error: AddError) -> CommandError {
    match error {
        AddError::NotAFloat => CommandError::NotAFloat,
        AddError::NotFinite => CommandError::NotFinite,
    }
}
