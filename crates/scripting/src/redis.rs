//! The functions of the `redis` table that need no host. `call`, `pcall`, `log` and `acl_check_cmd` need one:
//! see [`vm`](crate::vm).
//!
//! Errors raised by this table are tables with a field `err`: see [`raised`].

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use mlua::{Lua, Result, Table, Value, Variadic};
use wire::Protocol;

use crate::{Meter, error::raised, numbers::number_of, sha1_hex};

/// The Redis version that the server claims to be compatible with.
const VERSION: &str = "7.2.4";
const VERSION_NUMBER: u32 = 0x0007_0204;

/// Whether the running script has set the protocol RESP3.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings(Arc<AtomicBool>);

impl Settings {
    /// Restores the default, RESP2, before a script runs.
    pub(crate) fn reset(&self) {
        self.0.store(false, Relaxed);
    }

    /// The protocol of the replies to the script.
    pub(crate) fn protocol(&self) -> Protocol {
        if self.0.load(Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 }
    }
}

/// The functions of the `redis` table that need no host, for the prelude.
pub(crate) fn functions(lua: &Lua, settings: &Settings, meter: &Meter) -> Result<Table> {
    let table = lua.create_table()?;
    let watched = meter.clone();
    let sha = lua.create_function(move |lua, values: Variadic<Value>| match &values[..] {
        [value] => {
            let text = lua.coerce_string(value.clone())?;
            let bytes = text.as_ref().map(|text| text.as_bytes());
            let bytes = bytes.as_deref().unwrap_or_default();
            watched.count_bytes(bytes.len())?;
            lua.create_string(sha1_hex(bytes))
        }
        _ => Err(raised("ERR wrong number of arguments")),
    })?;
    table.set("sha1hex", sha)?;
    let watched = meter.clone();
    table.set(
        "error_reply",
        lua.create_function(move |lua, values: Variadic<Value>| {
            if let [Value::String(text)] = &values[..] {
                watched.count_bytes(text.as_bytes().len())?;
            }
            reply_table(lua, &values, true)
        })?,
    )?;
    table.set(
        "status_reply",
        lua.create_function(|lua, values: Variadic<Value>| reply_table(lua, &values, false))?,
    )?;
    let settings = settings.clone();
    let setresp = lua.create_function(move |_, values: Variadic<Value>| {
        let [version] = &values[..] else { return Err(raised("ERR redis.setresp() requires one argument.")) };
        match number_of(version) {
            Some(2.0) => settings.0.store(false, Relaxed),
            Some(3.0) => settings.0.store(true, Relaxed),
            _ => return Err(raised("ERR RESP version must be 2 or 3.")),
        }
        Ok(())
    })?;
    table.set("setresp", setresp)?;
    let set_repl = lua.create_function(|_, values: Variadic<Value>| {
        let [flags] = &values[..] else { return Err(raised("ERR redis.set_repl() requires two arguments.")) };
        // Effects are logged regardless of the flags, because changes that are not logged would be lost in a
        // crash without notice.
        match number_of(flags) {
            Some(flags) if (0.0..4.0).contains(&flags) => Ok(()),
            _ => Err(raised(
                "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            )),
        }
    })?;
    table.set("set_repl", set_repl)?;
    table.set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    table.set("breakpoint", lua.create_function(|_, ()| Ok(false))?)?;
    table.set("debug", lua.create_function(|_, _: Variadic<Value>| Ok(()))?)?;
    Ok(table)
}

/// Adds the constants, except those of `set_repl`, to the `redis` table of a library that is being loaded.
pub(crate) fn for_libraries(table: &Table) -> Result<()> {
    let levels = NUMBERS.iter().filter(|(name, _)| !name.starts_with("REPL_"));
    levels.into_iter().try_for_each(|(name, value)| table.set(*name, *value))?;
    TEXTS.iter().try_for_each(|(name, value)| table.set(*name, *value))
}

/// The numeric constants of the table.
pub(crate) const NUMBERS: [(&str, u32); 10] = [
    ("LOG_DEBUG", 0),
    ("LOG_VERBOSE", 1),
    ("LOG_NOTICE", 2),
    ("LOG_WARNING", 3),
    ("REPL_NONE", 0),
    ("REPL_AOF", 1),
    ("REPL_SLAVE", 2),
    ("REPL_REPLICA", 2),
    ("REPL_ALL", 3),
    ("REDIS_VERSION_NUM", VERSION_NUMBER),
];

/// The string constants of the table.
pub(crate) const TEXTS: [(&str, &str); 1] = [("REDIS_VERSION", VERSION)];

/// The table with one field that `redis.error_reply` or `redis.status_reply` returns.
fn reply_table(lua: &Lua, values: &[Value], is_error: bool) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    match values {
        [Value::String(text)] if is_error => {
            table.raw_set("err", lua.create_string(error_text(&text.as_bytes()))?)?;
        }
        [Value::String(text)] => table.raw_set("ok", text)?,
        _ => table.raw_set("err", "ERR wrong number or type of arguments")?,
    }
    Ok(table)
}

/// The text of an error with its code: the given text without a leading `-` and without white space at its
/// end. A single word gets `ERR` before it.
fn error_text(given: &[u8]) -> Vec<u8> {
    let text = given.strip_prefix(b"-").unwrap_or(given).trim_ascii_end();
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}
