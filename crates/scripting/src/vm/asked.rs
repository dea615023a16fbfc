//! The functions of the `redis` table that ask who runs the script.

use mlua::{Lua, Result, Value};
use wire::{OwnedArgs, Protocol};

use crate::{
    Calls, LogLevel, Meter, Refusal,
    error::{error_table, raised},
    numbers::{append_argument, number_of},
    redis::Settings,
    reply::to_lua,
};

/// Who runs the script, and what it takes to ask.
pub(super) struct Asked<'r> {
    pub(super) calls: &'r mut dyn Calls,
    pub(super) settings: &'r Settings,
    pub(super) meter: &'r Meter,
    pub(super) words: &'r mut OwnedArgs,
    pub(super) reply: &'r mut Vec<u8>,
}

/// One of the functions.
pub(super) type Answer = fn(&mut Asked<'_>, &Lua, &[Value]) -> Result<Value>;

/// All of them.
pub(super) const FUNCTIONS: [(&str, Answer); 5] = [
    ("clock", |asked, _, _| Ok(Value::Number(asked.calls.clock_us() as f64 / 1e6))),
    ("call", |asked, lua, values| asked.call(lua, values)),
    ("pcall", |asked, lua, values| asked.pcall(lua, values)),
    ("log", |asked, lua, values| asked.log(lua, values)),
    ("acl_check_cmd", |asked, _, values| asked.may_call(values)),
];

/// What came of a command.
enum Answered {
    Value(Value),
    /// Its reply is an error.
    Error(Value),
    /// It was not run.
    Refused(String),
}

impl Asked<'_> {
    fn call(&mut self, lua: &Lua, values: &[Value]) -> Result<Value> {
        match self.ask(lua, values)? {
            Answered::Value(value) => Ok(value),
            Answered::Error(_) => Err(raised(String::from_utf8_lossy(error_line(self.reply)))),
            Answered::Refused(text) => Err(raised(text)),
        }
    }

    fn pcall(&mut self, lua: &Lua, values: &[Value]) -> Result<Value> {
        match self.ask(lua, values)? {
            Answered::Value(value) | Answered::Error(value) => Ok(value),
            Answered::Refused(text) => Ok(Value::Table(error_table(lua, &text)?)),
        }
    }

    fn ask(&mut self, lua: &Lua, values: &[Value]) -> Result<Answered> {
        if let Err(text) = self.take_words(values) {
            return Ok(Answered::Refused(text.to_string()));
        }
        self.reply.clear();
        let protocol: Protocol = self.settings.protocol();
        match self.calls.call(self.words.as_args(), protocol, self.reply) {
            Ok(()) => {
                let (value, is_error) = to_lua(lua, self.reply)?;
                Ok(if is_error { Answered::Error(value) } else { Answered::Value(value) })
            }
            Err(Refusal::Error(text)) => Ok(Answered::Refused(text)),
            Err(Refusal::Stop(why)) => {
                self.meter.stop(why);
                self.meter.leave().map(|()| Answered::Value(Value::Nil))
            }
        }
    }

    /// Makes a command of values.
    fn take_words(&mut self, values: &[Value]) -> std::result::Result<(), &'static str> {
        self.words.clear();
        let mut digits = Vec::new();
        for value in values {
            match (value, number_of(value)) {
                (Value::String(text), _) => self.words.push(&text.as_bytes()),
                (_, Some(number)) => {
                    digits.clear();
                    append_argument(number, &mut digits);
                    self.words.push(&digits);
                }
                _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
            }
        }
        match values {
            [] => Err("ERR Please specify at least one argument for this redis lib call"),
            _ => Ok(()),
        }
    }

    fn log(&mut self, lua: &Lua, values: &[Value]) -> Result<Value> {
        let [level, parts @ ..] = values else {
            return Err(raised("ERR redis.log() requires two arguments or more."));
        };
        if parts.is_empty() {
            return Err(raised("ERR redis.log() requires two arguments or more."));
        }
        let level = match number_of(level) {
            None => return Err(raised("ERR First argument must be a number (log level).")),
            Some(0.0) => LogLevel::Debug,
            Some(1.0) => LogLevel::Verbose,
            Some(2.0) => LogLevel::Notice,
            Some(3.0) => LogLevel::Warning,
            Some(_) => return Err(raised("ERR Invalid debug level.")),
        };
        let mut message = Vec::new();
        for part in parts {
            if let Some(text) = lua.coerce_string(part.clone())? {
                if !message.is_empty() {
                    message.push(b' ');
                }
                message.extend_from_slice(&text.as_bytes());
            }
        }
        self.calls.log(level, &message);
        Ok(Value::Nil)
    }

    fn may_call(&mut self, values: &[Value]) -> Result<Value> {
        if self.take_words(values).is_err() {
            return Err(raised(
                "ERR Please specify at least one argument for this redis.acl_check_cmd() call",
            ));
        }
        match self.calls.may_call(self.words.as_args()) {
            Some(may) => Ok(Value::Boolean(may)),
            None => Err(raised("ERR Invalid command passed to redis.acl_check_cmd()")),
        }
    }
}

/// The text of an error reply.
fn error_line(reply: &[u8]) -> &[u8] {
    reply.strip_prefix(b"-").unwrap_or(reply).trim_ascii_end()
}
