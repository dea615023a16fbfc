//! `cjson`: Lua values as JSON and back.
//!
//! Settings changed by a script (`encode_max_depth` and so on) are reset before the next script.

mod decode;
mod encode;

use std::sync::Arc;

use mlua::{Lua, Result, String as LuaString, Table, Value, Variadic};
use std::sync::Mutex;

use crate::{error::function, memory::building_dense, meter::Meter};

/// Maximum nesting of values. Scripts cannot set a higher limit.
const DEPTH_MAX: usize = 1000;

/// The settings of the library, which scripts can change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    encode_depth_max: usize,
    decode_depth_max: usize,
    precision: usize,
    keeps_buffer: bool,
    encodes_invalid: Invalid,
    decodes_invalid: bool,
    sparse: Sparse,
}

/// How numbers that JSON cannot represent are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refuse,
    Write,
    Null,
}

/// Which arrays are sparse, and whether these are converted to objects or refused. An array is sparse if its
/// largest index exceeds both `safe` and `ratio` times the number of its elements. With a `ratio` of 0 no
/// array is sparse.
#[derive(Debug, Clone, Copy)]
struct Sparse {
    converts: bool,
    ratio: u64,
    safe: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            encode_depth_max: DEPTH_MAX,
            decode_depth_max: DEPTH_MAX,
            precision: 14,
            keeps_buffer: true,
            encodes_invalid: Invalid::Refuse,
            decodes_invalid: true,
            sparse: Sparse { converts: false, ratio: 2, safe: 10 },
        }
    }
}

/// The settings of the running script.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Options>>);

impl Shared {
    /// Restores the defaults, before a script runs.
    pub(crate) fn reset(&self) {
        self.set(|options| *options = Options::default());
    }

    fn get(&self) -> Options {
        self.set(|options| *options)
    }

    fn set<R>(&self, change: impl FnOnce(&mut Options) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The library `cjson`. An encoded text has at most `bytes_max` bytes, plus one element.
pub(crate) fn library(lua: &Lua, options: &Shared, meter: &Meter, bytes_max: usize) -> Result<Table> {
    let table = lua.create_table()?;
    table.set("_NAME", "cjson")?;
    table.set("_VERSION", "2.1.0")?;
    table.set("null", Value::NULL)?;
    let (shared, watched) = (options.clone(), meter.clone());
    let encode = function(lua, "encode", move |lua, values: Variadic<Value>| match &values[..] {
        [value] => {
            let mut out = Vec::new();
            encode::encode(value, &shared.get(), bytes_max, &watched, &mut out)?;
            lua.create_string(&out)
        }
        _ => Err(mlua::Error::runtime("bad argument #1 to 'encode' (expected 1 argument)")),
    })?;
    table.set("encode", encode)?;
    let (shared, watched) = (options.clone(), meter.clone());
    let decode = function(lua, "decode", move |lua, values: Variadic<LuaString>| match &values[..] {
        [text] => {
            let text = text.as_bytes();
            building_dense(lua, text.len(), || decode::decode(lua, &text, &shared.get(), &watched))
        }
        _ => Err(mlua::Error::runtime("bad argument #1 to 'decode' (expected 1 argument)")),
    })?;
    table.set("decode", decode)?;
    add_settings(lua, &table, options)?;
    Ok(table)
}

/// Adds the functions that return a setting, and change it first if they are called with a value.
fn add_settings(lua: &Lua, table: &Table, options: &Shared) -> Result<()> {
    let depth = |name: &'static str, pick: fn(&mut Options) -> &mut usize, max: usize| {
        let shared = options.clone();
        function(lua, name, move |_, value: Option<f64>| {
            if let Some(value) = value {
                if !(1.0..=2_147_483_647.0).contains(&value) {
                    return Err(mlua::Error::runtime(
                        "bad argument #1 (expected integer between 1 and 2147483647)",
                    ));
                }
                shared.set(|options| *pick(options) = (value as usize).min(max));
            }
            Ok(shared.set(|options| *pick(options)))
        })
    };
    table.set("encode_max_depth", depth("encode_max_depth", |it| &mut it.encode_depth_max, DEPTH_MAX)?)?;
    table.set("decode_max_depth", depth("decode_max_depth", |it| &mut it.decode_depth_max, DEPTH_MAX)?)?;
    table.set("encode_number_precision", depth("encode_number_precision", |it| &mut it.precision, 17)?)?;
    let flag = |name: &'static str, pick: fn(&mut Options) -> &mut bool| {
        let shared = options.clone();
        function(lua, name, move |_, value: Option<bool>| {
            if let Some(value) = value {
                shared.set(|options| *pick(options) = value);
            }
            Ok(shared.set(|options| *pick(options)))
        })
    };
    table.set("encode_keep_buffer", flag("encode_keep_buffer", |it| &mut it.keeps_buffer)?)?;
    table.set("decode_invalid_numbers", flag("decode_invalid_numbers", |it| &mut it.decodes_invalid)?)?;
    let shared = options.clone();
    let invalid = function(lua, "encode_invalid_numbers", move |lua, value: Value| {
        let wanted = match &value {
            Value::Nil => None,
            Value::Boolean(true) => Some(Invalid::Write),
            Value::Boolean(false) => Some(Invalid::Refuse),
            Value::String(text) if text.as_bytes() == b"null" => Some(Invalid::Null),
            _ => return Err(mlua::Error::runtime("bad argument #1 (invalid option)")),
        };
        if let Some(wanted) = wanted {
            shared.set(|options| options.encodes_invalid = wanted);
        }
        match shared.get().encodes_invalid {
            Invalid::Refuse => Ok(Value::Boolean(false)),
            Invalid::Write => Ok(Value::Boolean(true)),
            Invalid::Null => Ok(Value::String(lua.create_string("null")?)),
        }
    })?;
    table.set("encode_invalid_numbers", invalid)?;
    let shared = options.clone();
    let sparse = function(
        lua,
        "encode_sparse_array",
        move |_, (converts, ratio, safe): (Option<bool>, Option<f64>, Option<f64>)| {
            Ok(shared.set(|options| {
                let sparse = &mut options.sparse;
                sparse.converts = converts.unwrap_or(sparse.converts);
                sparse.ratio = ratio.map_or(sparse.ratio, |ratio| ratio as u64);
                sparse.safe = safe.map_or(sparse.safe, |safe| safe as u64);
                (sparse.converts, sparse.ratio, sparse.safe)
            }))
        },
    )?;
    table.set("encode_sparse_array", sparse)?;
    // All scripts of the machine share the table of the library, and cannot write to it. So `cjson.new`
    // returns a copy, to which the script can write. The copy has no options of its own: a machine has one
    // set of options, reset before every script.
    let whole = table.clone();
    let copied = function(lua, "new", move |lua, ()| {
        let copy = lua.create_table()?;
        whole.for_each(|name: Value, member: Value| copy.set(name, member))?;
        Ok(copy)
    })?;
    table.set("new", copied)
}

/// For fuzzing: decodes bytes, and encodes the resulting value. Returns whether they decode.
///
/// # Panics
///
/// If the encoded value does not decode.
pub fn check(bytes: &[u8]) -> bool {
    let lua = Lua::new();
    let (options, meter) = (Options::default(), Meter::default());
    let Ok(value) = decode::decode(&lua, bytes, &options, &meter) else { return false };
    let mut out = Vec::new();
    if encode::encode(&value, &options, 1 << 20, &meter, &mut out).is_ok() {
        decode::decode(&lua, &out, &options, &meter).expect("what was encoded decodes");
    }
    true
}

#[cfg(test)]
mod tests;
