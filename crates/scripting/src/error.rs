//! Errors in the form in which scripts catch them, and in the form in which clients get them.

use mlua::{Error, FromLuaMulti, Function, IntoLuaMulti, Lua, MaybeSend, MultiValue, Result, Table, Value};

/// Why a script has no result: the text of the error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError(pub Vec<u8>);

/// A library function of this name. Its errors tell the line that has called it, as those of Lua's own
/// functions do.
pub(crate) fn function<A: FromLuaMulti, R: IntoLuaMulti>(
    lua: &Lua,
    name: &'static str,
    run: impl Fn(&Lua, A) -> Result<R> + MaybeSend + 'static,
) -> Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let count = values.len();
        let args = A::from_lua_multi(values, lua).map_err(|error| bad_argument(name, count, &error));
        args.and_then(|args| run(lua, args)).map_err(|error| placed(lua, error))
    })
}

/// The error for a bad argument of a call with `count` arguments.
fn bad_argument(name: &str, count: usize, error: &Error) -> Error {
    let position = match cause_of(error) {
        Error::BadArgument { pos, .. } => *pos,
        _ => 1,
    };
    let reason = match cause_of(error) {
        Error::BadArgument { cause, .. } => text_of(cause),
        other => text_of(other),
    };
    let reason = match reason.split_once(", got nil") {
        Some((wanted, "")) if position > count => format!("{wanted}, got no value"),
        _ => reason,
    };
    Error::RuntimeError(format!("bad argument #{position} to '{name}' ({reason})"))
}

/// The error for a result that would exceed the memory limit of scripts.
pub(crate) fn too_large() -> Error {
    Error::runtime("not enough memory")
}

/// Prefixes an error with the source and line of the script.
fn placed(lua: &Lua, error: Error) -> Error {
    match (error, script_line(lua)) {
        (Error::RuntimeError(text), Some((source, line))) => {
            let source = source.trim_start_matches('@');
            Error::RuntimeError(format!("{source}:{line}: {text}"))
        }
        (error, _) => error,
    }
}

/// The maximum number of stack frames that are searched for a script frame. If none of these is a script
/// frame, the error has no line.
const FRAMES_MAX: usize = 64;

/// The innermost script frame: its source, such as `@user_script`, and the line.
pub(crate) fn script_line(lua: &Lua) -> Option<(String, usize)> {
    for level in 0..FRAMES_MAX {
        let place = lua.inspect_stack(level, |frame| {
            let source = frame.source().source?.into_owned();
            Some((source, frame.current_line()?))
        })?;
        if let Some(place) = place.filter(|(source, _)| source.starts_with("@user_")) {
            return Some(place);
        }
    }
    None
}

/// The text of an error of Lua or of a library, without the context that Lua adds.
pub(crate) fn text_of(error: &Error) -> String {
    match cause_of(error) {
        Error::BadArgument { cause, pos, to, .. } => {
            let function = to.as_deref().unwrap_or("?");
            format!("bad argument #{pos} to '{function}' ({})", text_of(cause))
        }
        Error::FromLuaConversionError { from, to, .. } => {
            let to = match to.as_str() {
                "String" => "string",
                "f64" => "number",
                to => to,
            };
            format!("{to} expected, got {from}")
        }
        Error::RuntimeError(text) => text.clone(),
        Error::SyntaxError { message, .. } => message.clone(),
        Error::MemoryError(_) => "not enough memory".to_string(),
        other => other.to_string(),
    }
}

/// The field of an error table that says that the host has counted the error already. The host has counted it
/// if the error is the reply of a command, or if the host has refused a command. Scripts see this field, as
/// in Redis, from which the field has its name.
pub(crate) const COUNTED: &str = "ignore_error_stats_update";

/// An error that scripts catch as a table with its text in the field `err`.
#[derive(Debug)]
struct Raised {
    text: String,
    /// Whether the host has counted the error; see [`COUNTED`].
    is_counted: bool,
}

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// An error of the `redis` table; see [`Raised`].
pub(crate) fn raised(text: impl Into<String>) -> Error {
    Error::external(Raised { text: text.into(), is_counted: false })
}

/// As [`raised`], for an error that the host has counted.
pub(crate) fn raised_again(text: impl Into<String>) -> Error {
    Error::external(Raised { text: text.into(), is_counted: true })
}

/// A table with this text in the field `err`, and the field [`COUNTED`] if the host has counted the error.
pub(crate) fn error_table(lua: &Lua, text: &str, is_counted: bool) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1 + usize::from(is_counted))?;
    table.raw_set("err", text)?;
    if is_counted {
        table.raw_set(COUNTED, true)?;
    }
    Ok(table)
}

/// Whether a value is an error table that says that the host has counted the error; see [`COUNTED`].
pub(crate) fn is_counted(value: &Value) -> bool {
    matches!(value, Value::Table(table) if matches!(table.raw_get(COUNTED), Ok(Value::Boolean(true))))
}

/// The error below the wrappers that Lua adds to a failed callback.
fn cause_of(error: &Error) -> &Error {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => cause_of(cause),
        other => other,
    }
}

/// The error for a call of `redis.register_function` after its library was loaded. The library can have kept
/// the function, which is valid only during the loading.
const LOADED: &str = "ERR redis.register_function can only be called on FUNCTION LOAD command";

/// An error in the form in which scripts catch it: values that scripts have raised are unchanged, other
/// errors become a table or a text.
pub(crate) fn as_value(lua: &Lua, error: Value) -> Result<Value> {
    match error {
        Value::Error(error) if matches!(cause_of(&error), Error::CallbackDestructed) => {
            Ok(Value::Table(error_table(lua, LOADED, false)?))
        }
        Value::Error(error) => match cause_of(&error).downcast_ref::<Raised>() {
            Some(Raised { text, is_counted }) => Ok(Value::Table(error_table(lua, text, *is_counted)?)),
            None => Ok(Value::String(lua.create_string(text_of(&error))?)),
        },
        other => Ok(other),
    }
}
