//! Lua values as JSON. Incomplete tables are on an explicit stack, so that nesting does not use the thread's
//! stack.

use mlua::{Result, Table, Value};

use super::{Invalid, Options};
use crate::{
    error::too_large,
    meter::{Meter, Steps},
    numbers::{append_general, number_of},
};

/// A table of which only a part is written yet.
enum Open {
    /// The elements up to index `len`; `next` is the index of the next one.
    Array { table: Table, next: i64, len: i64 },
    /// The pairs of an object that are not written yet.
    Object(std::vec::IntoIter<(Value, Value)>),
}

pub(super) fn encode(
    value: &Value,
    options: &Options,
    bytes_max: usize,
    meter: &Meter,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (mut open, mut steps) = (Vec::new(), Steps::new(meter));
    begin(value, options, &mut open, &mut steps, out)?;
    while let Some(innermost) = open.last_mut() {
        steps.step()?;
        if out.len() > bytes_max {
            return Err(too_large());
        }
        let value = match innermost {
            Open::Array { next, len, .. } if *next > *len => {
                out.push(b']');
                open.pop();
                continue;
            }
            Open::Array { table, next, .. } => {
                if *next > 1 {
                    out.push(b',');
                }
                *next += 1;
                table.raw_get(*next - 1)?
            }
            Open::Object(pairs) => match pairs.next() {
                None => {
                    out.push(b'}');
                    open.pop();
                    continue;
                }
                Some((key, value)) => {
                    if out.last() != Some(&b'{') {
                        out.push(b',');
                    }
                    append_key(&key, options, &mut steps, out)?;
                    value
                }
            },
        };
        begin(&value, options, &mut open, &mut steps, out)?;
    }
    Ok(())
}

/// Appends a value; a table is only opened.
fn begin(
    value: &Value,
    options: &Options,
    open: &mut Vec<Open>,
    steps: &mut Steps<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Integer(number) => append_number(*number as f64, options, out)?,
        Value::Number(number) => append_number(*number, options, out)?,
        Value::String(text) => {
            let text = text.as_bytes();
            steps.bytes(text.len())?;
            append_string(&text, out);
        }
        Value::Table(table) => {
            if open.len() >= options.encode_depth_max {
                let depth = open.len() + 1;
                return Err(mlua::Error::runtime(format!("Cannot serialise, excessive depth ({depth})")));
            }
            match array_len(table, options, steps)? {
                Some(len) => {
                    out.push(b'[');
                    open.push(Open::Array { table: table.clone(), next: 1, len });
                }
                None => {
                    out.push(b'{');
                    let pairs = table.pairs::<Value, Value>().collect::<Result<Vec<_>>>()?;
                    open.push(Open::Object(pairs.into_iter()));
                }
            }
        }
        other => {
            let name = other.type_name();
            return Err(mlua::Error::runtime(format!("Cannot serialise {name}: type not supported")));
        }
    }
    Ok(())
}

/// The length of a table as an array; `None` if the table is an object, because it is empty, has keys that
/// are not positive integers, or is a sparse array that is to be converted.
fn array_len(table: &Table, options: &Options, steps: &mut Steps<'_>) -> Result<Option<i64>> {
    let (mut len, mut count) = (0, 0u64);
    for pair in table.pairs::<Value, Value>() {
        steps.step()?;
        match pair?.0 {
            Value::Integer(index) if index > 0 => len = len.max(index),
            _ => return Ok(None),
        }
        count += 1;
    }
    let sparse = options.sparse;
    if sparse.ratio > 0 && len as u64 > count.saturating_mul(sparse.ratio) && len as u64 > sparse.safe {
        if sparse.converts {
            return Ok(None);
        }
        return Err(mlua::Error::runtime("Cannot serialise table: excessively sparse array"));
    }
    Ok((len > 0).then_some(len))
}

fn append_key(key: &Value, options: &Options, steps: &mut Steps<'_>, out: &mut Vec<u8>) -> Result<()> {
    match key {
        Value::String(text) => {
            let text = text.as_bytes();
            steps.bytes(text.len())?;
            append_string(&text, out);
        }
        Value::Integer(_) | Value::Number(_) => {
            out.push(b'"');
            let number = number_of(key).unwrap_or_default();
            append_number(number, options, out)?;
            out.push(b'"');
        }
        other => {
            let kind = other.type_name();
            let text = format!("Cannot serialise {kind}: table key must be a number or string");
            return Err(mlua::Error::runtime(text));
        }
    }
    out.push(b':');
    Ok(())
}

fn append_number(number: f64, options: &Options, out: &mut Vec<u8>) -> Result<()> {
    if !number.is_finite() {
        match options.encodes_invalid {
            Invalid::Refuse => {
                return Err(mlua::Error::runtime("Cannot serialise number: must not be NaN or Inf"));
            }
            Invalid::Null => {
                out.extend_from_slice(b"null");
                return Ok(());
            }
            Invalid::Write => {}
        }
    }
    append_general(number, options.precision, out);
    Ok(())
}

fn append_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        let escape = match byte {
            b'"' | b'\\' | b'/' => byte,
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..0x20 | 0x7f => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                continue;
            }
            plain => {
                out.push(plain);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escape]);
    }
    out.push(b'"');
}
