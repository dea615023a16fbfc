//! The value returned by a script, written as a reply.
//!
//! A number loses its fraction, `true` is 1, `false` and nil are null; if the script has set RESP3, `true`
//! and `false` are booleans. A table is the array of its elements up to the first nil, unless it has one of
//! the fields described in [`reply`](crate::reply).

use mlua::{Table, Value};
use smallvec::SmallVec;
use wire::{Aggregate, Protocol, ReplyWriter};

use crate::{
    Meter, ScriptError,
    error::is_counted,
    meter::Steps,
    numbers::{number_of, to_integer},
};

/// Maximum nesting of tables in a reply.
const DEPTH_MAX: usize = 128;

/// The maximum number of elements that are examined to find whether a table has only elements. Looking up the
/// special fields (`err`, `ok` and so on) instead takes about as long.
const SHORT_LIST_MAX: usize = 16;

/// The value that a script returned.
#[derive(Debug)]
pub struct Returned {
    value: Value,
    /// The protocol that the script has set with `redis.setresp`.
    protocol: Protocol,
    bytes_max: usize,
}

/// The limits of writing one reply.
struct Bounds<'m> {
    end_max: usize,
    steps: Steps<'m>,
}

impl Returned {
    pub(crate) fn new(value: Value, protocol: Protocol, bytes_max: usize) -> Returned {
        Returned { value, protocol, bytes_max }
    }

    /// Whether the value is an error: a table with a string in the field `err`.
    pub fn is_error(&self) -> bool {
        matches!(&self.value, Value::Table(table) if matches!(table.raw_get("err"), Ok(Value::String(_))))
    }

    /// Whether the value is an error that the host has counted already.
    pub fn is_counted(&self) -> bool {
        is_counted(&self.value)
    }

    /// Appends the reply, unless the script is stopped meanwhile.
    ///
    /// # Errors
    /// If the value is too large or nested too deep, or the script is stopped. The caller must remove the
    /// part of the reply already written.
    pub fn write(&self, meter: &Meter, reply: &mut ReplyWriter<'_>) -> Result<(), ScriptError> {
        let end_max = reply.position().saturating_add(self.bytes_max);
        let mut bounds = Bounds { end_max, steps: Steps::new(meter) };
        self.append(&self.value, 0, &mut bounds, reply)
    }

    fn append(
        &self,
        value: &Value,
        depth: usize,
        bounds: &mut Bounds<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), ScriptError> {
        if depth > DEPTH_MAX {
            return Err(ScriptError(b"ERR reached lua stack limit".to_vec()));
        }
        if reply.position() > bounds.end_max || bounds.steps.step().is_err() {
            return Err(too_large());
        }
        match value {
            Value::String(text) => reply.bulk(&text.as_bytes()),
            Value::Integer(number) => reply.integer(*number),
            Value::Number(number) => reply.integer(to_integer(*number)),
            Value::Boolean(truth) => match (self.protocol, truth) {
                (Protocol::Resp3, truth) => reply.boolean(*truth),
                (Protocol::Resp2, true) => reply.integer(1),
                (Protocol::Resp2, false) => reply.null(),
            },
            Value::Table(table) => self.append_table(table, depth, bounds, reply)?,
            _ => reply.null(),
        }
        Ok(())
    }

    fn append_table(
        &self,
        table: &Table,
        depth: usize,
        bounds: &mut Bounds<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), ScriptError> {
        // The meter is asked first, because iterating over a table that once had many elements takes long
        // even if it is empty now.
        if bounds.steps.ask().is_err() {
            return Err(too_large());
        }
        if let Some(elements) = short_list(table) {
            reply.array(elements.len());
            return elements.iter().try_for_each(|it| self.append(it, depth + 1, bounds, reply));
        }
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            reply.error(without_line_ends(up_to_nul(&text.as_bytes())));
        } else if let Value::String(text) = field("ok") {
            reply.simple(up_to_nul(&text.as_bytes()));
        } else if let Some(number) = number_of(&field("double")) {
            reply.double(number);
        } else if let Value::Table(map) = field("map") {
            self.append_pairs(&map, Aggregate::Map, depth, bounds, reply)?;
        } else if let Value::Table(set) = field("set") {
            self.append_pairs(&set, Aggregate::Set, depth, bounds, reply)?;
        } else if let Value::String(digits) = field("big_number") {
            reply.big_number(&*digits.as_bytes());
        } else if let Some((format, text)) = verbatim(&field("verbatim_string")) {
            reply.verbatim(format, &text);
        } else {
            self.append_elements(table, depth, bounds, reply)?;
        }
        Ok(())
    }

    /// Appends the elements up to the first nil.
    fn append_elements(
        &self,
        table: &Table,
        depth: usize,
        bounds: &mut Bounds<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), ScriptError> {
        let (deferred, mut len) = (reply.begin_deferred(), 0);
        for element in table.sequence_values::<Value>() {
            let Ok(element) = element else { break };
            self.append(&element, depth + 1, bounds, reply)?;
            len += 1;
        }
        reply.end_deferred(deferred, Aggregate::Array, len);
        Ok(())
    }

    /// Appends the keys of a table, and for a map also their values.
    fn append_pairs(
        &self,
        table: &Table,
        aggregate: Aggregate,
        depth: usize,
        bounds: &mut Bounds<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), ScriptError> {
        let (deferred, mut len) = (reply.begin_deferred(), 0);
        for pair in table.pairs::<Value, Value>() {
            let Ok((key, value)) = pair else { break };
            self.append(&key, depth + 1, bounds, reply)?;
            if aggregate == Aggregate::Map {
                self.append(&value, depth + 1, bounds, reply)?;
            }
            len += 1;
        }
        reply.end_deferred(deferred, aggregate, len);
        Ok(())
    }
}

fn too_large() -> ScriptError {
    ScriptError(b"ERR the reply of the script is too large".to_vec())
}

/// The elements of a table with at most [`SHORT_LIST_MAX`] elements and no other fields. `None` for other
/// tables, and if Lua does not visit the elements in their order.
fn short_list(table: &Table) -> Option<SmallVec<[Value; SHORT_LIST_MAX]>> {
    let mut elements = SmallVec::new();
    let walked = table.for_each(|key: Value, value: Value| match key {
        Value::Integer(index) if index == elements.len() as i64 + 1 && elements.len() < SHORT_LIST_MAX => {
            elements.push(value);
            Ok(())
        }
        // Any error ends the iteration; this error needs no allocation.
        _ => Err(mlua::Error::StackError),
    });
    walked.is_ok().then_some(elements)
}

/// The text up to its first zero byte, where Redis, which is written in C, ends it.
fn up_to_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The text without trailing line ends.
fn without_line_ends(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}

/// Format and text of a verbatim string.
fn verbatim(value: &Value) -> Option<([u8; 3], Vec<u8>)> {
    let Value::Table(table) = value else { return None };
    let field = |name: &str| match table.raw_get(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    let mut format = [b' '; 3];
    let given = field("format")?;
    format.iter_mut().zip(given).for_each(|(to, from)| *to = from);
    Some((format, field("string")?))
}
