//! The `bit` library: operations on 32 bits.

use mlua::{Lua, Result, Table, Variadic};

/// A number of any size as 32 bits: it is rounded to an integer (halves to the even one), and taken modulo
/// 2^32. 0 for infinity and NaN.
fn bits(value: f64) -> u32 {
    if !value.is_finite() {
        return 0;
    }
    let rounded = value.round_ties_even().rem_euclid(4_294_967_296.0);
    rounded as u64 as u32
}

fn number(bits: u32) -> f64 {
    f64::from(bits as i32)
}

pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let fold = |name: &'static str, combine: fn(u32, u32) -> u32| {
        lua.create_function(move |_, values: Variadic<f64>| match values.split_first() {
            Some((first, others)) => {
                Ok(number(others.iter().fold(bits(*first), |all, next| combine(all, bits(*next)))))
            }
            None => Err(missing(name)),
        })
    };
    table.set("band", fold("band", |a, b| a & b)?)?;
    table.set("bor", fold("bor", |a, b| a | b)?)?;
    table.set("bxor", fold("bxor", |a, b| a ^ b)?)?;
    let shift = |apply: fn(u32, u32) -> u32| {
        lua.create_function(move |_, (value, by): (f64, f64)| Ok(number(apply(bits(value), bits(by) & 31))))
    };
    table.set("lshift", shift(|value, by| value << by)?)?;
    table.set("rshift", shift(|value, by| value >> by)?)?;
    table.set("arshift", shift(|value, by| (value as i32 >> by) as u32)?)?;
    table.set("rol", shift(u32::rotate_left)?)?;
    table.set("ror", shift(u32::rotate_right)?)?;
    let map =
        |apply: fn(u32) -> u32| lua.create_function(move |_, value: f64| Ok(number(apply(bits(value)))));
    table.set("tobit", map(|value| value)?)?;
    table.set("bnot", map(|value| !value)?)?;
    table.set("bswap", map(u32::swap_bytes)?)?;
    table.set(
        "tohex",
        lua.create_function(|_, (value, digits): (f64, Option<f64>)| Ok(hex(value, digits)))?,
    )?;
    Ok(table)
}

/// The lowest `digits` hexadecimal digits of a number, 8 by default; upper case if `digits` is negative.
fn hex(value: f64, digits: Option<f64>) -> String {
    let digits = digits.map_or(8, |digits| bits(digits) as i32);
    let text = format!("{:08x}", bits(value));
    let kept = &text[8 - digits.unsigned_abs().min(8) as usize..];
    if digits < 0 { kept.to_uppercase() } else { kept.to_string() }
}

fn missing(name: &str) -> mlua::Error {
    mlua::Error::runtime(format!("bad argument #1 to '{name}' (number expected, got no value)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_bits() {
        let table =
            [(0.0, 0), (-1.0, u32::MAX), (4_294_967_296.0 + 5.0, 5), (2.5, 2), (3.5, 4), (-2.0, 0xFFFF_FFFE)];
        for (value, expected) in table {
            assert_eq!(bits(value), expected, "{value}");
        }
        assert_eq!(
            (hex(255.0, None), hex(255.0, Some(-4.0)), hex(1.0, Some(0.0))),
            ("000000ff".into(), "00FF".into(), String::new())
        );
    }
}
