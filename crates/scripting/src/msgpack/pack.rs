//! Lua values as MessagePack.

use mlua::{Result, Table, Value};

use super::PACK_DEPTH_MAX;
use crate::{error::too_large, meter::Steps};

/// Appends a value in its shortest form.
pub(super) fn pack(
    value: &Value,
    depth: usize,
    bytes_max: usize,
    steps: &mut Steps<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    steps.step()?;
    if out.len() > bytes_max {
        return Err(too_large());
    }
    match value {
        Value::Boolean(truth) => out.push(if *truth { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => pack_integer(*number, out),
        Value::Number(number) => pack_number(*number, out),
        Value::String(text) => {
            let bytes = text.as_bytes();
            steps.bytes(bytes.len())?;
            pack_len(bytes.len(), [0xa0, 32], [0xd9, 0xda, 0xdb], out);
            out.extend_from_slice(&bytes);
        }
        Value::Table(table) if depth < PACK_DEPTH_MAX => pack_table(table, depth, bytes_max, steps, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn pack_table(
    table: &Table,
    depth: usize,
    bytes_max: usize,
    steps: &mut Steps<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (mut count, mut largest, mut is_array) = (0usize, 0i64, true);
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        steps.step()?;
        match pair?.0 {
            Value::Integer(index) if index > 0 => largest = largest.max(index),
            _ => is_array = false,
        }
    }
    if is_array && largest as usize == count {
        pack_len(count, [0x90, 16], [0, 0xdc, 0xdd], out);
        return (1..=largest)
            .try_for_each(|index| pack(&table.raw_get(index)?, depth + 1, bytes_max, steps, out));
    }
    pack_len(count, [0x80, 16], [0, 0xde, 0xdf], out);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack(&key, depth + 1, bytes_max, steps, out)?;
        pack(&value, depth + 1, bytes_max, steps, out)?;
    }
    Ok(())
}

/// Appends the head of a value of `len` elements. A length below `short[1]` is part of the byte `short[0]`. A
/// longer length takes 1, 2 or 4 bytes after a byte of `long`; a 0 in `long` means that the type has no such
/// form.
fn pack_len(len: usize, short: [u8; 2], long: [u8; 3], out: &mut Vec<u8>) {
    match len {
        _ if len < usize::from(short[1]) => out.push(short[0] | len as u8),
        0..0x100 if long[0] != 0 => out.extend_from_slice(&[long[0], len as u8]),
        0..0x1_0000 => {
            out.push(long[1]);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(long[2]);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn pack_integer(number: i64, out: &mut Vec<u8>) {
    match number {
        -32..128 => out.push(number as u8),
        128..0x100 => out.extend_from_slice(&[0xcc, number as u8]),
        0x100..0x1_0000 => append(0xcd, (number as u16).to_be_bytes(), out),
        0x1_0000..0x1_0000_0000 => append(0xce, (number as u32).to_be_bytes(), out),
        0x1_0000_0000.. => append(0xcf, (number as u64).to_be_bytes(), out),
        -0x80..-32 => out.extend_from_slice(&[0xd0, number as u8]),
        -0x8000..-0x80 => append(0xd1, (number as i16).to_be_bytes(), out),
        -0x8000_0000..-0x8000 => append(0xd2, (number as i32).to_be_bytes(), out),
        ..-0x8000_0000 => append(0xd3, number.to_be_bytes(), out),
    }
}

fn pack_number(number: f64, out: &mut Vec<u8>) {
    let narrow = number as f32;
    if f64::from(narrow) == number {
        append(0xca, narrow.to_be_bytes(), out);
    } else {
        append(0xcb, number.to_be_bytes(), out);
    }
}

fn append<const N: usize>(kind: u8, bytes: [u8; N], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&bytes);
}
