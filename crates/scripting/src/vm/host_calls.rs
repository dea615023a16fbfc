//! The functions of the `redis` table that need the host.
//!
//! The functions are created once per machine. The host is known only while a script runs; the functions find
//! it in [`struct@RUNNER`].

use std::{cell::RefCell, rc::Rc};

use mlua::{Lua, MultiValue, Result, Table, Value};
use scoped_tls_hkt::scoped_thread_local;
use wire::OwnedArgs;

use crate::{
    Calls, LogLevel, Meter, Refusal,
    error::{error_table, raised, raised_again},
    memory::building,
    numbers::{append_argument, number_of},
    redis::Settings,
    reply::{integer, to_lua},
};

/// Maximum bytes of the strings of one command. Without this limit, a script could pass one long string
/// thousands of times.
const COMMAND_BYTES_MAX: usize = 512 << 20;

/// The number of commands between two questions to the meter. Commands can take long, and a script can call
/// many of them within [`INSTRUCTIONS_PER_QUESTION`](crate::meter::INSTRUCTIONS_PER_QUESTION) instructions.
const CALLS_PER_QUESTION: u32 = 8;

/// The maximum bytes of a log message that are written, as in Redis.
const LOGGED_BYTES_MAX: usize = 1024;

scoped_thread_local! {
    /// The host of the script that runs on this thread.
    pub(super) static mut RUNNER: for<'r> &'r mut (dyn Calls + 'r)
}

/// The host, and the shared state for calling it.
struct HostCall<'r> {
    calls: &'r mut dyn Calls,
    kit: &'r mut Kit,
}

/// The state shared by the functions of one machine.
#[derive(Debug)]
struct Kit {
    settings: Settings,
    meter: Meter,
    words: OwnedArgs,
    reply: Vec<u8>,
    /// The number of commands called so far.
    calls: u32,
}

type Answer = fn(&mut HostCall<'_>, &Lua, &[Value]) -> Result<Value>;

/// The functions with their names.
const FUNCTIONS: [(&str, Answer); 5] = [
    ("clock", |host, _, _| Ok(Value::Number(host.calls.clock_us() as f64 / 1e6))),
    ("call", |host, lua, values| host.call(lua, values)),
    ("pcall", |host, lua, values| host.pcall(lua, values)),
    ("log", |host, lua, values| host.log(lua, values)),
    ("acl_check_cmd", |host, _, values| host.may_call(values)),
];

/// Adds the functions to the tables `redis` and `os`.
pub(super) fn install(
    lua: &Lua,
    redis: &Table,
    os: &Table,
    settings: &Settings,
    meter: &Meter,
) -> Result<()> {
    let kit = Kit {
        settings: settings.clone(),
        meter: meter.clone(),
        words: OwnedArgs::default(),
        reply: Vec::new(),
        calls: 0,
    };
    let kit = Rc::new(RefCell::new(kit));
    FUNCTIONS.into_iter().try_for_each(|(name, answer)| {
        let kit = kit.clone();
        let function = lua.create_function(move |lua, mut values: MultiValue| {
            if !RUNNER.is_set() {
                return Err(raised("ERR redis.call/pcall can only be called inside a script invocation"));
            }
            RUNNER.with(|calls| {
                let mut host = HostCall { calls, kit: &mut kit.borrow_mut() };
                answer(&mut host, lua, values.make_contiguous())
            })
        })?;
        let table = if name == "clock" { os } else { redis };
        table.raw_set(name, function)
    })
}

/// The result of a command.
enum Answered {
    Value(Value),
    /// The reply is an error, as an error table.
    Error(Value),
    /// The command was not run. The host has counted its own refusals.
    Refused {
        text: String,
        is_counted: bool,
    },
}

impl HostCall<'_> {
    fn call(&mut self, lua: &Lua, values: &[Value]) -> Result<Value> {
        match self.ask(lua, values)? {
            Answered::Value(value) => Ok(value),
            Answered::Error(_) => Err(raised_again(String::from_utf8_lossy(error_line(&self.kit.reply)))),
            Answered::Refused { text, is_counted: true } => Err(raised_again(text)),
            Answered::Refused { text, is_counted: false } => Err(raised(text)),
        }
    }

    fn pcall(&mut self, lua: &Lua, values: &[Value]) -> Result<Value> {
        match self.ask(lua, values)? {
            Answered::Value(value) | Answered::Error(value) => Ok(value),
            Answered::Refused { text, is_counted } => Ok(Value::Table(error_table(lua, &text, is_counted)?)),
        }
    }

    fn ask(&mut self, lua: &Lua, values: &[Value]) -> Result<Answered> {
        if let Err(text) = self.take_words(values) {
            return Ok(Answered::Refused { text: text.to_string(), is_counted: false });
        }
        let Kit { settings, meter, words, reply, calls } = &mut *self.kit;
        meter.count_bytes(words.as_args().size_bytes())?;
        *calls = calls.wrapping_add(1);
        if calls.is_multiple_of(CALLS_PER_QUESTION) {
            meter.count(CALLS_PER_QUESTION)?;
        }
        reply.clear();
        match self.calls.call(words.as_args(), settings.protocol(), reply) {
            Ok(()) => {
                if let Some(number) = integer(reply) {
                    return Ok(Answered::Value(Value::Integer(number)));
                }
                let (value, is_error) = building(lua, reply.len(), || to_lua(lua, reply))?;
                Ok(if is_error { Answered::Error(value) } else { Answered::Value(value) })
            }
            Err(Refusal::Error(text)) => Ok(Answered::Refused { text, is_counted: true }),
            Err(Refusal::Stop(why)) => {
                meter.stop(why);
                meter.leave().map(|()| Answered::Value(Value::Nil))
            }
        }
    }

    /// Converts values to the arguments of a command, in `words`.
    fn take_words(&mut self, values: &[Value]) -> std::result::Result<(), &'static str> {
        self.kit.words.clear();
        let (mut digits, mut string_bytes) = (Vec::new(), 0);
        for value in values {
            match (value, number_of(value)) {
                (Value::String(text), _) => {
                    let text = text.as_bytes();
                    string_bytes += text.len();
                    if string_bytes > COMMAND_BYTES_MAX {
                        return Err("ERR the command is larger than 512 MiB");
                    }
                    self.kit.words.push(&text);
                }
                (_, Some(number)) => {
                    digits.clear();
                    append_argument(number, &mut digits);
                    self.kit.words.push(&digits);
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
            Some(_) => return Err(raised("ERR Invalid log level.")),
        };
        let mut message = Vec::new();
        for part in parts {
            if message.len() >= LOGGED_BYTES_MAX {
                break;
            }
            if let Some(text) = lua.coerce_string(part.clone())? {
                if !message.is_empty() {
                    message.push(b' ');
                }
                message.extend(text.as_bytes().iter().take(LOGGED_BYTES_MAX - message.len()));
            }
        }
        self.calls.log(level, &message);
        Ok(Value::Nil)
    }

    fn may_call(&mut self, values: &[Value]) -> Result<Value> {
        self.take_words(values).map_err(raised)?;
        match self.calls.may_call(self.kit.words.as_args()) {
            Some(may) => Ok(Value::Boolean(may)),
            None => Err(raised("ERR Invalid command passed to redis.acl_check_cmd()")),
        }
    }
}

/// The text of an error reply.
fn error_line(reply: &[u8]) -> &[u8] {
    reply.strip_prefix(b"-").unwrap_or(reply).trim_ascii_end()
}
