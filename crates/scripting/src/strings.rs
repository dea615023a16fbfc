//! `string.rep` with a bounded result, which the meter counts.

use mlua::{Lua, Result, String as LuaString, Table};

use crate::{
    Meter,
    error::{function, too_large},
};

/// Adds `rep` to the table `string`. A result has at most `bytes_max` bytes.
pub(crate) fn install(lua: &Lua, string: &Table, meter: &Meter, bytes_max: usize) -> Result<()> {
    let meter = meter.clone();
    let repeated = function(lua, "rep", move |lua, (text, count): (LuaString, f64)| {
        let text = text.as_bytes();
        let count = if count > 0.0 { count as usize } else { 0 };
        match text.len().checked_mul(count) {
            Some(0) => lua.create_string(""),
            Some(bytes) if bytes <= bytes_max => {
                meter.count_bytes(bytes)?;
                lua.create_string(text.repeat(count))
            }
            _ => Err(too_large()),
        }
    })?;
    string.raw_set("rep", repeated)
}
