//! What a script returned, as a reply.
//!
//! A number loses its fraction, `true` is 1, `false` and nil are no value, a table is the array of its elements up to the
//! first nil, unless it has one of the fields that [`reply`](crate::reply) describes.

use mlua::{Table, Value};
use smallvec::SmallVec;
use wire::{Aggregate, Protocol, ReplyWriter};

use crate::{
    Meter, ScriptError,
    meter::Steps,
    numbers::{number_of, to_integer},
};

/// How deep tables may be nested in a reply.
const DEPTH_MAX: usize = 128;

/// Elements of a table that are looked at to find that it has no fields: to ask for all fields takes about as long.
const SHORT_LIST_MAX: usize = 16;

/// See the module documentation.
#[derive(Debug)]
pub struct Returned {
    value: Value,
    /// What the script asked for with `redis.setresp`.
    protocol: Protocol,
    bytes_max: usize,
}

/// What writing one reply may take.
struct Bounds<'m> {
    end_max: usize,
    steps: Steps<'m>,
}

impl Returned {
    pub(crate) fn new(value: Value, protocol: Protocol, bytes_max: usize) -> Returned {
        Returned { value, protocol, bytes_max }
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(&self.value, Value::Table(table) if matches!(table.raw_get("err"), Ok(Value::String(_))))
    }

    /// Appends the reply, unless the script is stopped meanwhile.
    ///
    /// # Errors
    /// The value is too large or nested too deep. What was written of it is to be taken back.
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
        // To walk one that has had many elements takes long even if it has none.
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

    /// The elements up to the first nil.
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

    /// The keys of a table, and for a map their values.
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

/// The elements of a table that has a few and nothing else: then there is no need to ask it for fields.
fn short_list(table: &Table) -> Option<SmallVec<[Value; SHORT_LIST_MAX]>> {
    let mut elements = SmallVec::new();
    let walked = table.for_each(|key: Value, value: Value| match key {
        Value::Integer(index) if index == elements.len() as i64 + 1 && elements.len() < SHORT_LIST_MAX => {
            elements.push(value);
            Ok(())
        }
        // Any error ends the walk; this one is made of nothing.
        _ => Err(mlua::Error::StackError),
    });
    walked.is_ok().then_some(elements)
}

/// What Redis, written in C, sees of a text where it asks for no length.
fn up_to_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A text without the line ends at its end.
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
