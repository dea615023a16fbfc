//! `struct`: values as bytes in the layout of C structures, and back.
//!
//! A format is a list of letters:
//!
//! ```text
//! < >                byte order (= is ignored)
//! !n                 alignment to n bytes
//! x                  a byte of padding
//! b B h H l L T i I  integers (in: of n bytes)
//! f d                floating-point numbers
//! s                  a string terminated by a zero byte
//! cn                 n bytes
//! c0                 the whole string when packing; when unpacking, the preceding number is the length
//! ```

use mlua::{Lua, MultiValue, Result, String as LuaString, Table, Value, Variadic};

use crate::{
    error::{function, too_large},
    meter::{Meter, Steps},
    numbers::number_of,
};

/// The widest integer, and the largest alignment, in bytes.
const INTEGER_BYTES_MAX: usize = 32;

/// The alignment of `!` without a number.
const NATURAL_ALIGN: usize = 8;

/// Maximum number of values returned by one call, bounded by the stack of Lua.
const VALUES_MAX: usize = 7000;

/// The library `struct`. A packed string has at most `bytes_max` bytes. The letters and digits of a format
/// count as instructions.
pub(crate) fn library(lua: &Lua, meter: &Meter, bytes_max: usize) -> Result<Table> {
    let table = lua.create_table()?;
    let (packing, unpacking, sizing) = (meter.clone(), meter.clone(), meter.clone());
    let packed = function(lua, "pack", move |lua, (format, values): (LuaString, Variadic<Value>)| {
        let out = pack(lua, (&format.as_bytes(), &packing), &values, bytes_max)?;
        lua.create_string(&out)
    })?;
    table.set("pack", packed)?;
    let unpacked =
        function(lua, "unpack", move |lua, (format, bytes, at): (LuaString, LuaString, Option<i64>)| {
            unpack(lua, (&format.as_bytes(), &unpacking), &bytes.as_bytes(), at.unwrap_or(1))
        })?;
    table.set("unpack", unpacked)?;
    let sized = function(lua, "size", move |_, format: LuaString| size((&format.as_bytes(), &sizing)))?;
    table.set("size", sized)?;
    Ok(table)
}

/// One item of a format, such as an integer of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Pad,
    Integer {
        bytes: usize,
        signed: bool,
    },
    Float,
    Double,
    /// A string terminated by a zero byte.
    Text,
    /// This many bytes; `None` for `c0`.
    Bytes(Option<usize>),
}

impl Item {
    fn bytes(self) -> usize {
        match self {
            Item::Pad => 1,
            Item::Integer { bytes, .. } => bytes,
            Item::Float => 4,
            Item::Double => 8,
            Item::Text | Item::Bytes(None) => 0,
            Item::Bytes(Some(len)) => len,
        }
    }

    fn align(self) -> usize {
        match self {
            Item::Integer { .. } | Item::Float | Item::Double => self.bytes(),
            _ => 1,
        }
    }
}

/// An iterator over the items of a format.
struct Format<'a> {
    rest: &'a [u8],
    is_little: bool,
    align_max: usize,
    steps: Steps<'a>,
}

impl<'a> Format<'a> {
    fn new((format, meter): (&'a [u8], &'a Meter)) -> Format<'a> {
        let is_little = cfg!(target_endian = "little");
        Format { rest: format, is_little, align_max: 1, steps: Steps::new(meter) }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let mut number = 0usize;
        for digit in digits {
            self.steps.step()?;
            let next = number.checked_mul(10).and_then(|it| it.checked_add((digit - b'0').into()));
            number = next
                .filter(|it| i32::try_from(*it).is_ok())
                .ok_or_else(|| mlua::Error::runtime("integral size overflow"))?;
        }
        Ok((len > 0).then_some(number))
    }

    fn integer_bytes(&mut self, default: usize) -> Result<usize> {
        let bytes = self.number()?.unwrap_or(default);
        if bytes > INTEGER_BYTES_MAX || bytes == 0 {
            return Err(mlua::Error::runtime(format!(
                "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
            )));
        }
        Ok(bytes)
    }

    /// The next item, and the number of padding bytes before it. `at` is the offset at which the previous
    /// item ends.
    fn next(&mut self, at: usize) -> Result<Option<(Item, usize)>> {
        while let Some((&letter, rest)) = self.rest.split_first() {
            self.steps.step()?;
            self.rest = rest;
            let integer = |bytes, signed| Item::Integer { bytes, signed };
            let item = match letter {
                b' ' => continue,
                b'<' => {
                    self.is_little = true;
                    continue;
                }
                b'>' => {
                    self.is_little = false;
                    continue;
                }
                b'=' => continue,
                b'!' => {
                    let align = self.integer_bytes(NATURAL_ALIGN)?;
                    if !align.is_power_of_two() {
                        return Err(mlua::Error::runtime("alignment is not a power of 2"));
                    }
                    self.align_max = align;
                    continue;
                }
                b'x' => Item::Pad,
                b'b' => integer(1, true),
                b'B' => integer(1, false),
                b'h' => integer(2, true),
                b'H' => integer(2, false),
                b'l' => integer(8, true),
                b'L' | b'T' => integer(8, false),
                b'i' => integer(self.integer_bytes(4)?, true),
                b'I' => integer(self.integer_bytes(4)?, false),
                b'f' => Item::Float,
                b'd' => Item::Double,
                b's' => Item::Text,
                b'c' => match self.number()? {
                    Some(0) => Item::Bytes(None),
                    number => Item::Bytes(Some(number.unwrap_or(1))),
                },
                other => {
                    let shown = other.escape_ascii();
                    return Err(mlua::Error::runtime(format!("invalid format option '{shown}'")));
                }
            };
            let align = item.align().min(self.align_max);
            if align > 1 && !align.is_power_of_two() {
                return Err(mlua::Error::runtime("alignment is not a power of 2"));
            }
            return Ok(Some((item, at.next_multiple_of(align.max(1)) - at)));
        }
        Ok(None)
    }
}

fn pack(lua: &Lua, format: (&[u8], &Meter), values: &[Value], bytes_max: usize) -> Result<Vec<u8>> {
    let (mut format, mut out, mut values) = (Format::new(format), Vec::new(), values.iter());
    let mut position = 1;
    while let Some((item, padding)) = format.next(out.len())? {
        if out.len() + padding + item.bytes() > bytes_max {
            return Err(too_large());
        }
        out.resize(out.len() + padding, 0);
        if item == Item::Pad {
            out.push(0);
            continue;
        }
        position += 1;
        let value = values.next().unwrap_or(&Value::Nil);
        let bad = |wanted: &str| {
            let found = value.type_name();
            mlua::Error::runtime(format!(
                "bad argument #{position} to 'pack' ({wanted} expected, got {found})"
            ))
        };
        let number = || lua.coerce_number(value.clone())?.ok_or_else(|| bad("number"));
        match item {
            Item::Pad => {}
            Item::Integer { bytes, .. } => {
                let number = number()?;
                let bits = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                append_integer(bits, number < 0.0, bytes, format.is_little, &mut out);
            }
            Item::Float => append(&(number()? as f32).to_be_bytes(), format.is_little, &mut out),
            Item::Double => append(&number()?.to_be_bytes(), format.is_little, &mut out),
            Item::Text | Item::Bytes(_) => {
                let text = lua.coerce_string(value.clone())?.ok_or_else(|| bad("string"))?;
                let text = text.as_bytes();
                let len = match item {
                    Item::Bytes(Some(len)) => len,
                    _ => text.len(),
                };
                let kept = text.get(..len).ok_or_else(|| {
                    mlua::Error::runtime(format!("bad argument #{position} to 'pack' (string too short)"))
                })?;
                let terminator: &[u8] = if item == Item::Text { &[0] } else { &[] };
                if out.len() + kept.len() + terminator.len() > bytes_max {
                    return Err(too_large());
                }
                format.steps.bytes(kept.len())?;
                out.extend_from_slice(kept);
                out.extend_from_slice(terminator);
            }
        }
    }
    Ok(out)
}

/// Appends bytes given in big-endian order.
fn append(bytes: &[u8], is_little: bool, out: &mut Vec<u8>) {
    if is_little { out.extend(bytes.iter().rev()) } else { out.extend_from_slice(bytes) }
}

fn append_integer(bits: u64, is_negative: bool, bytes: usize, is_little: bool, out: &mut Vec<u8>) {
    let mut wide = [if is_negative { 0xff } else { 0 }; INTEGER_BYTES_MAX];
    wide[INTEGER_BYTES_MAX - 8..].copy_from_slice(&bits.to_be_bytes());
    append(&wide[INTEGER_BYTES_MAX - bytes..], is_little, out);
}

fn unpack(lua: &Lua, format: (&[u8], &Meter), bytes: &[u8], at: i64) -> Result<MultiValue> {
    let Some(mut at) = usize::try_from(at).ok().and_then(|at| at.checked_sub(1)) else {
        return Err(mlua::Error::runtime("bad argument #3 to 'unpack' (offset must be 1 or greater)"));
    };
    let (mut format, mut values) = (Format::new(format), Vec::new());
    while let Some((item, padding)) = format.next(at)? {
        if values.len() == VALUES_MAX {
            return Err(mlua::Error::runtime("too many results to unpack"));
        }
        let start = at.saturating_add(padding);
        let len = match item {
            // The preceding number is the length.
            Item::Bytes(None) => match values.pop().as_ref().and_then(number_of) {
                Some(len) if len >= 0.0 => len as usize,
                _ => return Err(mlua::Error::runtime("format 'c0' needs a previous size")),
            },
            Item::Text => {
                let rest = bytes.get(start..).unwrap_or_default();
                let zero = rest.iter().position(|byte| *byte == 0);
                zero.ok_or_else(|| mlua::Error::runtime("unfinished string in data"))?
            }
            item => item.bytes(),
        };
        let end = start.saturating_add(len);
        let taken = bytes
            .get(start..end)
            .ok_or_else(|| mlua::Error::runtime("bad argument #2 to 'unpack' (data string too short)"))?;
        at = end + usize::from(item == Item::Text);
        let ordered = || match format.is_little {
            true => taken.iter().rev().copied().collect::<Vec<u8>>(),
            false => taken.to_vec(),
        };
        match item {
            Item::Pad => {}
            Item::Integer { signed, .. } => values.push(Value::Number(integer(&ordered(), signed))),
            Item::Float => {
                let bits = ordered().first_chunk().copied().unwrap_or_default();
                values.push(Value::Number(f32::from_be_bytes(bits).into()));
            }
            Item::Double => {
                let bits = ordered().first_chunk().copied().unwrap_or_default();
                values.push(Value::Number(f64::from_be_bytes(bits)));
            }
            Item::Text | Item::Bytes(_) => {
                format.steps.bytes(taken.len())?;
                values.push(Value::String(lua.create_string(taken)?));
            }
        }
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}

/// The lowest 64 bits of an integer given in big-endian order.
fn integer(bytes: &[u8], signed: bool) -> f64 {
    let mut wide = [0; 8];
    let kept = &bytes[bytes.len().saturating_sub(8)..];
    wide[8 - kept.len()..].copy_from_slice(kept);
    let bits = u64::from_be_bytes(wide);
    if !signed {
        return bits as f64;
    }
    let unused = 64 - 8 * kept.len() as u32;
    ((bits << unused) as i64 >> unused) as f64
}

fn size(format: (&[u8], &Meter)) -> Result<usize> {
    let (mut format, mut at) = (Format::new(format), 0usize);
    while let Some((item, padding)) = format.next(at)? {
        match item {
            Item::Text => return Err(mlua::Error::runtime("variable-size format in 'struct.size'")),
            Item::Bytes(None) => return Err(mlua::Error::runtime("variable-length format in 'struct.size'")),
            _ => {}
        }
        at = at
            .checked_add(padding + item.bytes())
            .filter(|at| i32::try_from(*at).is_ok())
            .ok_or_else(|| mlua::Error::runtime("integral size overflow"))?;
    }
    Ok(at)
}

/// For fuzzing: unpacks bytes with a format, and packs the values with it again. Returns whether they unpack.
pub fn check(format: &[u8], bytes: &[u8]) -> bool {
    let (lua, meter) = (Lua::new(), Meter::default());
    let format = (format, &meter);
    let _ = size(format);
    let Ok(values) = unpack(&lua, format, bytes, 1) else { return false };
    let values: Vec<Value> = values.into_iter().collect();
    let _ = pack(&lua, format, &values, 1 << 20);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::testing::TestVm;

    #[test]
    fn values_have_the_layout_of_c() {
        let mut vm = TestVm::new();
        let table = [
            ("'>I2', 258", "0102"),
            ("'<I2', 258", "0201"),
            ("'>i4', -2", "fffffffe"),
            ("'>bBhHlL', -1, 255, -2, 65535, -3, 4", "fffffffeffff"),
            ("'>d', 1", "3ff0000000000000"),
            ("'<f', 1", "0000803f"),
            ("'s', 'ab'", "616200"),
            ("'c3', 'abcd'", "616263"),
            ("'>I1c0', 2, 'ab'", "026162"),
            ("'>!4I1I4', 1, 2", "0100000000000002"),
            ("'>xI1', 7", "0007"),
            ("'>i16', -1", "ffffffffffffffffffffffffffffffff"),
        ];
        for (values, expected) in table {
            let script = format!(
                "return (struct.pack({values}):gsub('.', function(c) return ('%02x'):format(c:byte()) end))"
            );
            let shown = vm.eval(&script, &[], &[]);
            assert!(shown.starts_with(&format!("\"{expected}")), "{values}: {shown}");
        }
    }

    #[test]
    fn packed_structs_are_unpacked() {
        let mut vm = TestVm::new();
        let script = "local a, b, c, d, n = struct.unpack('>I2i4sI1', struct.pack('>I2i4sI1', 7, -9, 'text', 3)) \
                      return {a, b, c, d, n}";
        assert_eq!(vm.eval(script, &[], &[]), r#"[:7, :-9, "text", :3, :13]"#);
        assert_eq!(vm.eval("return {struct.unpack('>I1c0', '\\2abc')}", &[], &[]), r#"["ab", :4]"#);
        assert_eq!(vm.eval("return struct.size('>!4I1I4c5')", &[], &[]), ":13");
    }

    #[test]
    fn invalid_layouts_and_values_are_refused() {
        let mut vm = TestVm::new();
        let table = [
            ("struct.pack, 'y', 1", "invalid format option \\'y\\'"),
            ("struct.pack, 'i99', 1", "integral size 99 is larger than limit of 32"),
            ("struct.pack, 'c4', 'abc'", "string too short"),
            ("struct.pack, 'c2000000000', 'x'", "not enough memory"),
            ("struct.pack, 'I4'", "number expected, got nil"),
            ("struct.unpack, 'I4', 'abc'", "data string too short"),
            ("struct.unpack, 'c0', 'abc'", "format \\'c0\\' needs a previous size"),
            ("struct.unpack, 's', 'abc'", "unfinished string in data"),
            ("struct.unpack, 'I4', 'abcd', 0", "offset must be 1 or greater"),
            ("struct.unpack, 'I4', 'abcd', 9007199254740992", "data string too short"),
            ("struct.size, 'c2147483648'", "integral size overflow"),
            ("struct.size, '!3'", "alignment is not a power of 2"),
        ];
        for (call, expected) in table {
            let shown = vm.eval(&format!("local ok, e = pcall({call}) return e"), &[], &[]);
            assert!(shown.contains(expected), "{call}: {shown}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(format in "[<>=!xbBhHlLTiIfdsc0-9 ]{0,16}", bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            super::check(format.as_bytes(), &bytes);
        }
    }
}
