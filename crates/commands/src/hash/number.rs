//! Hash fields that hold numbers: HINCRBY, HINCRBYFLOAT.
//!
//! The log gets the sum, not the increment. The field keeps its deadline, unless that has passed.

use engine::{CommandError, Context, EventClass};
use keyspace::{Items, KeyOp};
use wire::{
    Args,
    decimal::{self, AddError},
    number::parse_i64,
};

use super::{expiry::remove_expired, hash};

/// `HINCRBY key field increment`
pub(super) fn hincrby(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, name, as_of_ms) = (cx.db(), args.at(1), args.at(2), cx.as_of_ms());
    let increment = parse_i64(args.at(3)).ok_or(CommandError::NotAnInteger)?;
    let hash = hash(cx.unit.get(db, key))?;
    let field = hash.and_then(|hash| hash.field(name)).filter(|field| !field.is_expired(as_of_ms));
    let value = match field {
        Some(field) => {
            parse_i64(&field.value).ok_or(CommandError::Text("ERR hash value is not an integer"))?
        }
        None => 0,
    };
    let sum = value.checked_add(increment).ok_or(CommandError::IncrementOverflow)?;
    let mut digits = itoa::Buffer::new();
    put(cx, key, [name, digits.format(sum).as_bytes()])?;
    cx.notify(EventClass::HASH, "hincrby", key);
    cx.reply.integer(sum);
    Ok(())
}

/// Stores a field with its value, and keeps its deadline unless that has passed.
fn put(cx: &mut Context<'_, '_>, key: &[u8], pair: [&[u8]; 2]) -> Result<(), CommandError> {
    let update = KeyOp::HashUpdate { pairs: Items::Slices(&pair) };
    let update_bytes = update.on(cx.db(), key).encoded_len() as u64;
    remove_expired(cx, key, std::iter::once(pair[0]), update_bytes)?;
    cx.apply(key, update);
    Ok(())
}

/// `HINCRBYFLOAT key field increment`
pub(super) fn hincrbyfloat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, name, as_of_ms) = (cx.db(), args.at(1), args.at(2), cx.as_of_ms());
    let mut sum = Vec::new();
    // The increment is checked on its own first: its error precedes that of a wrong type.
    decimal::add(b"0", args.at(3), &mut sum).map_err(|error| match error {
        AddError::NotAFloat => CommandError::NotAFloat,
        AddError::NotFinite => CommandError::Text("ERR value is NaN or Infinity"),
    })?;
    let hash = hash(cx.unit.get(db, key))?;
    let field = hash.and_then(|hash| hash.field(name)).filter(|field| !field.is_expired(as_of_ms));
    if let Some(field) = field {
        sum.clear();
        decimal::add(&field.value, args.at(3), &mut sum).map_err(|error| match error {
            AddError::NotAFloat => CommandError::Text("ERR hash value is not a float"),
            AddError::NotFinite => CommandError::NotFinite,
        })?;
    }
    put(cx, key, [name, &sum])?;
    cx.notify(EventClass::HASH, "hincrbyfloat", key);
    cx.reply.bulk(&sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn numbers_in_fields_are_added_to() {
        check(&[
            ("HINCRBY h n 5", ":5"),
            ("HINCRBY h n -7", ":-2"),
            ("HINCRBYFLOAT h f 0.1", r#""0.1""#),
            ("HINCRBYFLOAT h f 0.2", r#""0.3""#),
            ("HMGET h n f", r#"["-2", "0.3"]"#),
            ("HINCRBY h f 1", "-ERR hash value is not an integer"),
            ("HINCRBY h n x", "-ERR value is not an integer or out of range"),
            ("HSET h t text m 9223372036854775807", ":2"),
            ("HINCRBY h m 1", "-ERR increment or decrement would overflow"),
            ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float"),
            ("HINCRBYFLOAT h n nan", "-ERR value is not a valid float"),
            ("HINCRBYFLOAT h n inf", "-ERR value is NaN or Infinity"),
        ]);
    }
}
