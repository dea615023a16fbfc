//! `string.find`, `match`, `gmatch`, `gsub`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mlua::{IntoLuaMulti, Lua, MultiValue, Result, String as LuaString, Table, Value};

use super::matcher::{Capture, Matcher};
use crate::{
    error::{function, too_large},
    meter::{Meter, Steps},
};

/// Adds the functions to the table `string`. The result of `gsub` has at most `bytes_max` bytes.
pub(crate) fn install(lua: &Lua, string: &Table, meter: &Meter, bytes_max: usize) -> Result<()> {
    let search = |name: &'static str, finds: bool| {
        let meter = meter.clone();
        function(lua, name, move |lua, args: (LuaString, LuaString, Option<f64>, Value)| {
            search(lua, args, finds, &meter)
        })
    };
    string.raw_set("find", search("find", true)?)?;
    string.raw_set("match", search("match", false)?)?;
    let shared = meter.clone();
    let gmatch = function(lua, "gmatch", move |lua, (subject, pattern): (LuaString, LuaString)| {
        let (at, meter) = (AtomicUsize::new(0), shared.clone());
        function(lua, "gmatch", move |lua, ()| next_match(lua, &subject, &pattern, &at, &meter))
    })?;
    string.raw_set("gfind", &gmatch)?;
    string.raw_set("gmatch", gmatch)?;
    let meter = meter.clone();
    let gsub = function(
        lua,
        "gsub",
        move |lua, (subject, pattern, by, max): (LuaString, LuaString, Value, Option<f64>)| {
            let replacement = Replacement::new(by)?;
            let max = max.map_or(usize::MAX, |max| max.max(0.0) as usize);
            substitute(lua, &subject, &pattern, &replacement, max, &meter, bytes_max)
        },
    )?;
    string.raw_set("gsub", gsub)
}

/// Converts an index of a script to an offset. Indices count from 1, or are negative and count from the end.
fn offset(index: f64, len: usize) -> usize {
    if index > 0.0 {
        index as usize - 1
    } else if index < 0.0 {
        len.saturating_sub(-index as usize)
    } else {
        0
    }
}

fn search(
    lua: &Lua,
    (subject, pattern, init, plain): (LuaString, LuaString, Option<f64>, Value),
    finds: bool,
    meter: &Meter,
) -> Result<MultiValue> {
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = offset(init.unwrap_or(1.0), subject.len()).min(subject.len());
    let is_plain = !matches!(plain, Value::Nil | Value::Boolean(false));
    if finds && (is_plain || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))) {
        return match find_bytes(&subject[start..], &pattern, meter)? {
            Some(at) => (start + at + 1, start + at + pattern.len()).into_lua_multi(lua),
            None => Value::Nil.into_lua_multi(lua),
        };
    }
    let (anchored, pattern) = anchor(&pattern);
    let mut matcher = Matcher::new(&subject, pattern, Steps::new(meter));
    for at in start..=subject.len() {
        if let Some(end) = matcher.match_at(at)? {
            let captures = captured(lua, &subject, matcher.captures(), (!finds).then_some((at, end)))?;
            if !finds {
                return Ok(captures);
            }
            let place = [Value::Number((at + 1) as f64), Value::Number(end as f64)];
            return Ok(place.into_iter().chain(captures).collect());
        }
        if anchored {
            break;
        }
    }
    Value::Nil.into_lua_multi(lua)
}

/// The offset of the first occurrence of `wanted`.
fn find_bytes(subject: &[u8], wanted: &[u8], meter: &Meter) -> Result<Option<usize>> {
    let Some((&first, others)) = wanted.split_first() else { return Ok(Some(0)) };
    let mut steps = Steps::new(meter);
    let mut from = 0;
    while let Some(at) = subject[from..].iter().position(|&byte| byte == first) {
        if subject[from + at + 1..].starts_with(others) {
            return Ok(Some(from + at));
        }
        steps.step()?;
        from += at + 1;
    }
    Ok(None)
}

fn anchor(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, pattern),
    }
}

/// The captures of a match, or if it has none, the `whole` match, if that is given.
fn captured(
    lua: &Lua,
    subject: &[u8],
    captures: &[Capture],
    whole: Option<(usize, usize)>,
) -> Result<MultiValue> {
    match whole {
        Some((start, end)) if captures.is_empty() => {
            Ok([Value::String(lua.create_string(&subject[start..end])?)].into_iter().collect())
        }
        _ => captures.iter().map(|capture| value(lua, subject, *capture)).collect(),
    }
}

fn value(lua: &Lua, subject: &[u8], capture: Capture) -> Result<Value> {
    match capture {
        Capture::Bytes(start, end) => Ok(Value::String(lua.create_string(&subject[start..end])?)),
        Capture::Place(at) => Ok(Value::Number((at + 1) as f64)),
        Capture::Open(_) => Err(mlua::Error::runtime("unfinished capture")),
    }
}

fn next_match(
    lua: &Lua,
    subject: &LuaString,
    pattern: &LuaString,
    at: &AtomicUsize,
    meter: &Meter,
) -> Result<MultiValue> {
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let mut matcher = Matcher::new(&subject, &pattern, Steps::new(meter));
    let mut start = at.load(Relaxed);
    while start <= subject.len() {
        if let Some(end) = matcher.match_at(start)? {
            // An empty match must not be found again.
            at.store(if end == start { end + 1 } else { end }, Relaxed);
            return captured(lua, &subject, matcher.captures(), Some((start, end)));
        }
        start += 1;
    }
    at.store(usize::MAX, Relaxed);
    Value::Nil.into_lua_multi(lua)
}

/// The third argument of `gsub`.
enum Replacement {
    Text(LuaString),
    Table(Table),
    Function(mlua::Function),
}

impl Replacement {
    fn new(by: Value) -> Result<Replacement> {
        match by {
            Value::String(text) => Ok(Replacement::Text(text)),
            Value::Table(table) => Ok(Replacement::Table(table)),
            Value::Function(function) => Ok(Replacement::Function(function)),
            Value::Integer(_) | Value::Number(_) => Err(mlua::Error::runtime(NOT_A_REPLACEMENT)),
            _ => Err(mlua::Error::runtime(NOT_A_REPLACEMENT)),
        }
    }
}

/// The result of `gsub`, within its limit.
struct Substituted<'m> {
    bytes: Vec<u8>,
    bytes_max: usize,
    steps: Steps<'m>,
}

impl Substituted<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(too_large());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

const NOT_A_REPLACEMENT: &str = "bad argument #3 to 'gsub' (string/function/table expected)";

fn substitute(
    lua: &Lua,
    subject: &LuaString,
    pattern: &LuaString,
    by: &Replacement,
    max: usize,
    meter: &Meter,
    bytes_max: usize,
) -> Result<(LuaString, usize)> {
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let (anchored, pattern) = anchor(&pattern);
    let mut matcher = Matcher::new(&subject, pattern, Steps::new(meter));
    let mut out = Substituted { bytes: Vec::new(), bytes_max, steps: Steps::new(meter) };
    let (mut at, mut count) = (0, 0);
    while count < max {
        let matched = matcher.match_at(at)?;
        if let Some(end) = matched {
            count += 1;
            replace(lua, &subject, (at, end), matcher.captures(), by, &mut out)?;
        }
        match matched {
            Some(end) if end > at => at = end,
            _ => match subject.get(at) {
                Some(&byte) => {
                    out.append(&[byte])?;
                    at += 1;
                }
                None => break,
            },
        }
        if anchored {
            break;
        }
    }
    out.append(subject.get(at..).unwrap_or_default())?;
    Ok((lua.create_string(&out.bytes)?, count))
}

fn replace(
    lua: &Lua,
    subject: &[u8],
    (start, end): (usize, usize),
    captures: &[Capture],
    by: &Replacement,
    out: &mut Substituted<'_>,
) -> Result<()> {
    let first = || match captures.first() {
        Some(capture) => value(lua, subject, *capture),
        None => Ok(Value::String(lua.create_string(&subject[start..end])?)),
    };
    let value = match by {
        Replacement::Text(text) => return expand(subject, (start, end), captures, &text.as_bytes(), out),
        Replacement::Table(table) => table.get::<Value>(first()?)?,
        Replacement::Function(function) => {
            function.call::<Value>(captured(lua, subject, captures, Some((start, end)))?)?
        }
    };
    match value {
        Value::Nil | Value::Boolean(false) => out.append(&subject[start..end]),
        Value::String(text) => out.append(&text.as_bytes()),
        Value::Integer(_) | Value::Number(_) => {
            let text = lua.coerce_string(value)?;
            out.append(&text.map_or_else(Vec::new, |text| text.as_bytes().to_vec()))
        }
        other => {
            let name = other.type_name();
            Err(mlua::Error::runtime(format!("invalid replacement value (a {name})")))
        }
    }
}

/// Appends a replacement text in which `%0` to `%9` stand for the match and its captures.
fn expand(
    subject: &[u8],
    (start, end): (usize, usize),
    captures: &[Capture],
    text: &[u8],
    out: &mut Substituted<'_>,
) -> Result<()> {
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        out.steps.step()?;
        if byte != b'%' {
            out.append(&[byte])?;
            continue;
        }
        match bytes.next() {
            Some(b'0') => out.append(&subject[start..end])?,
            Some(b'1') if captures.is_empty() => out.append(&subject[start..end])?,
            Some(digit) if digit.is_ascii_digit() => match captures.get(usize::from(digit - b'1')) {
                Some(&Capture::Bytes(start, end)) => out.append(&subject[start..end])?,
                Some(&Capture::Place(at)) => out.append(itoa::Buffer::new().format(at + 1).as_bytes())?,
                Some(Capture::Open(_)) => return Err(mlua::Error::runtime("unfinished capture")),
                None => return Err(mlua::Error::runtime("invalid capture index")),
            },
            Some(&other) => out.append(&[other])?,
            None => {}
        }
    }
    Ok(())
}
