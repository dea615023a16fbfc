//! Strings that hold numbers: INCR, DECR, INCRBY, DECRBY and INCRBYFLOAT.
//!
//! Every sum is logged as its result, so that replay never computes.
//!
//! INCRBYFLOAT adds decimals of usual size exactly (see [`wire::decimal`]). Redis adds in 80-bit floating
//! point and shows 17 digits after the point, so large sums can end in noise: 948.12 + 622.6 is
//! 1570.71999999999999997 there.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, Value};
use wire::{
    Args,
    decimal::{self, AddError},
    number::parse_i64,
};

use super::string;

/// The initial capacity for a sum, sufficient for everyday decimals.
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
    cx.apply(key, KeyOp::Put { value, expire_at_ms });
    cx.notify(EventClass::STRING, "incrby", key);
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
    cx.apply(key, KeyOp::Put { value: Value::String(&sum), expire_at_ms });
    cx.notify(EventClass::STRING, "incrbyfloat", key);
    cx.reply.bulk(&sum);
    Ok(())
}

fn no_sum(error: AddError) -> CommandError {
    match error {
        AddError::NotAFloat => CommandError::NotAFloat,
        AddError::NotFinite => CommandError::NotFinite,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn integers_count_up_and_down() {
        check(&[
            ("INCR a", ":1"),
            ("INCRBY a 41", ":42"),
            ("DECR a", ":41"),
            ("DECRBY a 50", ":-9"),
            ("GET a", r#""-9""#),
            ("INCRBY a -1", ":-10"),
            ("DECRBY a -20", ":10"),
            ("DECR b", ":-1"),
            ("INCRBY c 0", ":0"),
            ("GET c", r#""0""#),
            ("INCR", "-ERR wrong number of arguments for 'incr' command"),
            ("INCRBY a", "-ERR wrong number of arguments for 'incrby' command"),
        ]);
    }

    #[test]
    fn counting_keeps_the_expiry() {
        check(&[
            ("SET a 1 EX 10", "+OK"),
            ("INCR a", ":2"),
            ("INCRBYFLOAT a 0.5", r#""2.5""#),
            ("PTTL a", ":10000"),
            ("after 10000", ""),
            ("INCR a", ":1"),
            ("PTTL a", ":-1"),
        ]);
    }

    #[test]
    fn only_integers_are_incremented() {
        for text in ["x", "1.0", " 1", "1 ", "+1", "01", "-0", "", "9223372036854775808", "1e3"] {
            let set = format!("SET a \"{text}\"");
            check(&[
                (&set, "+OK"),
                ("INCR a", "-ERR value is not an integer or out of range"),
                ("INCRBY n x", "-ERR value is not an integer or out of range"),
                ("DECRBY n x", "-ERR value is not an integer or out of range"),
                ("EXISTS n", ":0"),
            ]);
        }
    }

    #[test]
    fn sums_stay_within_64_bits() {
        check(&[
            ("SET max 9223372036854775806", "+OK"),
            ("INCR max", ":9223372036854775807"),
            ("INCR max", "-ERR increment or decrement would overflow"),
            ("SET min -9223372036854775807", "+OK"),
            ("DECR min", ":-9223372036854775808"),
            ("DECR min", "-ERR increment or decrement would overflow"),
            ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
            ("INCRBY n -9223372036854775808", ":-9223372036854775808"),
            ("DECRBY m 9223372036854775807", ":-9223372036854775807"),
            ("GET max", r#""9223372036854775807""#),
        ]);
    }

    #[test]
    fn decimals_add_up_as_people_expect() {
        check(&[
            ("INCRBYFLOAT a 0.1", r#""0.1""#),
            ("INCRBYFLOAT a 0.2", r#""0.3""#),
            ("INCRBYFLOAT a -0.3", r#""0""#),
            ("SET a 5.0e3", "+OK"),
            ("INCRBYFLOAT a 2.0e2", r#""5200""#),
            ("SET a 10.50", "+OK"),
            ("INCRBYFLOAT a 0.1", r#""10.6""#),
            ("INCRBYFLOAT a -5", r#""5.6""#),
            ("GET a", r#""5.6""#),
            ("SET a 3", "+OK"),
            ("INCRBYFLOAT a 17179869184", r#""17179869187""#),
            ("INCR a", ":17179869188"),
            ("INCRBYFLOAT a x", "-ERR value is not a valid float"),
            ("INCRBYFLOAT a nan", "-ERR value is not a valid float"),
            ("INCRBYFLOAT a inf", "-ERR increment would produce NaN or Infinity"),
            ("INCRBYFLOAT n -inf", "-ERR increment would produce NaN or Infinity"),
            (r#"SET b " 1""#, "+OK"),
            ("INCRBYFLOAT b 1", "-ERR value is not a valid float"),
            ("SET b inf", "+OK"),
            ("INCRBYFLOAT b 1", "-ERR increment would produce NaN or Infinity"),
            ("EXISTS n", ":0"),
            ("INCRBYFLOAT a", "-ERR wrong number of arguments for 'incrbyfloat' command"),
        ]);
    }
}
