//! Libraries in the machine: loading a library and running its functions.
//!
//! ```text
//! code -> load_library: compiled, and run with only a `redis` that registers functions and logs
//!                       -> LibraryId, functions
//!      -> run_function(id, name, keys, args, calls), with the globals of scripts except KEYS and ARGV
//! ```
//!
//! The module holds the code of a library and its registered functions in this machine. The module does not
//! make libraries durable or known to other machines.
//!
//! Invariants
//! - A library being loaded can call no command, and has limits of its own: instructions, memory, and a
//!   deadline set by the caller.
//! - Libraries share read-only globals. Other state of a library, in its local variables, stays in this
//!   machine and is dropped with the library.

use std::{cell::RefCell, collections::HashMap};

use mlua::{ChunkMode, Function, Lua, Result, Table, Value, Variadic};
use wire::Args;

use super::{Ended, RUNNER, Vm, error_of, table_of};
use crate::{
    Calls, LibrarySource, ScriptError, Stop,
    error::{raised, text_of},
    memory::{building, limited},
};

/// The maximum number of instructions for loading a library. Plain instructions of this number take less than
/// a second.
const LOADING_INSTRUCTIONS_MAX: u64 = 10_000_000;

/// The maximum memory that the code of a library takes while it is loaded, in bytes, in addition to the
/// memory in use after the code is compiled. The limit is small, so that no single instruction takes long.
const LOADING_BYTES_MAX: usize = 8 << 20;

/// The maximum number of instructions between two checks of the clock while a library is loaded. Even if each
/// of them makes a string of maximum length, so many instructions take less than a second.
const INSTRUCTIONS_PER_LOOK: u32 = 64;

/// Maximum number of functions of one library.
const FUNCTIONS_MAX: usize = 1000;

/// Maximum bytes of the names and descriptions of one library's functions.
const REGISTERED_BYTES_MAX: usize = 1 << 20;

/// Maximum number of entries of a table that is passed to `redis.register_function`. The number is enough for
/// all arguments, or all flags, even in several spellings.
const ENTRIES_MAX: usize = 16;

/// The flags of a function.
const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// A library loaded in one machine. Has no meaning in other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LibraryId(u64);

/// A function that a library has registered while it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The name by which the function is called.
    pub name: Vec<u8>,
    /// The description of the function, if given.
    pub description: Option<Vec<u8>>,
    /// The flags of the function, such as `no-writes`.
    pub flags: Vec<&'static str>,
}

/// The tables behind the globals of libraries.
pub(super) struct LibraryGlobals {
    /// The metatable that exposes one of the other two tables.
    pub(super) seen: Table,
    /// The globals while a library is loaded.
    pub(super) loading: Table,
    /// The globals while a function runs.
    pub(super) called: Table,
}

impl LibraryGlobals {
    /// Exposes one of the tables. This runs no code of a library, so no library can prevent it.
    fn show(&self, globals: &Table) -> Result<()> {
        self.seen.raw_set("__index", globals)
    }
}

/// The libraries that are loaded in a machine.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The functions of each library, by name.
    libraries: HashMap<LibraryId, HashMap<Vec<u8>, Function>>,
    last: u64,
}

impl Loaded {
    pub(super) fn clear(&mut self) {
        self.libraries.clear();
    }
}

impl Vm {
    /// Loads a library. Only the clock and the log of `calls` are used. The load fails when the clock reaches
    /// `deadline_us`. The meter is not [reset](crate::Meter::reset).
    ///
    /// # Errors
    /// If the library cannot be loaded, takes too long or is stopped; the text says why.
    pub fn load_library(
        &mut self,
        code: &[u8],
        deadline_us: u64,
        calls: &mut dyn Calls,
    ) -> std::result::Result<(LibraryId, Vec<Registered>), ScriptError> {
        let LibrarySource { body, .. } = LibrarySource::of(code)?;
        self.make_room();
        let compiled = limited(&self.lua, self.limits.memory_bytes_max, || {
            let chunk = self.lua.load(body).set_name("@user_function").set_mode(ChunkMode::Text);
            chunk.set_environment(self.library_guard.clone()).into_function()
        });
        let program = compiled.map_err(|problem| {
            ScriptError(format!("ERR Error compiling function: {}", text_of(&problem)).into_bytes())
        })?;
        self.begin(0, LOADING_INSTRUCTIONS_MAX);
        let registry = RefCell::new(Registry::default());
        let outcome = self.try_load(&program, &registry, deadline_us, calls);
        let outcome = match (self.meter.stopped(), outcome) {
            (Some(Stop::Killed), _) => Err(b"ERR killed by user with FUNCTION KILL".to_vec()),
            (Some(Stop::HostEnds), _) => Err(b"ERR the server stops, or changes its role".to_vec()),
            (Some(_), _) => Err(b"ERR FUNCTION LOAD timeout".to_vec()),
            (None, Ok((true, _))) => Ok(()),
            (None, Ok((false, problem))) => Err(error_of(&problem)),
            (None, Err(problem)) => Err(format!("ERR {}", text_of(&problem)).into_bytes()),
        };
        let Registry { functions, .. } = registry.into_inner();
        outcome.map_err(|text| ScriptError([b"ERR Error registering functions: ", &*text].concat()))?;
        if functions.is_empty() {
            return Err(ScriptError(b"ERR No functions registered".to_vec()));
        }
        self.loaded.last += 1;
        let id = LibraryId(self.loaded.last);
        let (registered, callbacks): (Vec<Registered>, Vec<Function>) = functions.into_iter().unzip();
        let callbacks = registered.iter().map(|it| it.name.clone()).zip(callbacks).collect();
        self.loaded.libraries.insert(id, callbacks);
        Ok((id, registered))
    }

    fn try_load(
        &mut self,
        program: &Function,
        registry: &RefCell<Registry>,
        deadline_us: u64,
        calls: &mut dyn Calls,
    ) -> Result<(bool, Value)> {
        let Vm { lua, questions, registrar, load, limits, library_globals: globals, .. } = self;
        let bytes_max = limits.memory_bytes_max.min(lua.used_memory() + LOADING_BYTES_MAX);
        globals.show(&globals.loading)?;
        questions.begin_until(lua, INSTRUCTIONS_PER_LOOK, deadline_us)?;
        let outcome = limited(lua, bytes_max, || {
            lua.scope(|scope| {
                let register = scope.create_function(|lua, values: Variadic<Value>| {
                    registry.borrow_mut().register(lua, &values)
                })?;
                registrar.raw_set("register_function", register)?;
                RUNNER.set(calls, || load.call::<(bool, Value)>(program))
            })
        });
        globals.show(&globals.called)?;
        outcome
    }

    /// Whether a library is still loaded: a machine that is short of memory drops its libraries.
    pub fn has_library(&self, id: LibraryId) -> bool {
        self.loaded.libraries.contains_key(&id)
    }

    /// Removes a library and its functions from the machine.
    pub fn drop_library(&mut self, id: LibraryId) {
        self.loaded.libraries.remove(&id);
    }

    /// Runs a function of a library that is [loaded](Vm::has_library). `seed` seeds the random numbers of the
    /// function. The meter is not [reset](crate::Meter::reset).
    pub fn run_function(
        &mut self,
        (id, name): (LibraryId, &[u8]),
        keys: Args<'_>,
        args: Args<'_>,
        seed: u64,
        calls: &mut dyn Calls,
    ) -> Ended {
        self.begin(seed, self.limits.instructions_max);
        let outcome = self
            .questions
            .begin(&self.lua)
            .and_then(|()| self.try_run_function((id, name), keys, args, calls));
        self.end(outcome, &String::from_utf8_lossy(name))
    }

    fn try_run_function(
        &mut self,
        (id, name): (LibraryId, &[u8]),
        keys: Args<'_>,
        args: Args<'_>,
        calls: &mut dyn Calls,
    ) -> Result<(bool, Value)> {
        let callback = self.loaded.libraries.get(&id).and_then(|functions| functions.get(name));
        let callback = callback.ok_or_else(|| mlua::Error::runtime("the library does not register it"))?;
        self.environment.raw_set(1, &self.library_guard)?;
        let Vm { lua, run_with, limits, .. } = self;
        let outcome = limited(lua, limits.memory_bytes_max, || {
            let words = keys.size_bytes() + args.size_bytes();
            let (keys, args) = building(lua, words, || Ok((table_of(lua, keys)?, table_of(lua, args)?)))?;
            RUNNER.set(calls, || run_with.call::<(bool, Value)>((callback, keys, args)))
        });
        self.environment.raw_set(1, &self.guard)?;
        outcome
    }
}

/// The functions registered by a library that is being loaded.
#[derive(Debug, Default)]
struct Registry {
    functions: Vec<(Registered, Function)>,
    bytes: usize,
}

impl Registry {
    /// `redis.register_function`, in both its forms.
    fn register(&mut self, lua: &Lua, values: &[Value]) -> Result<()> {
        let (registered, callback) = match values {
            [Value::Table(named)] => of_named(lua, named)?,
            [_] => {
                return Err(raised(
                    "ERR calling redis.register_function with a single argument is only applicable to Lua table \
                     (representing named arguments).",
                ));
            }
            [name, callback] => {
                let name = text(lua, name)?.ok_or_else(|| {
                    raised("ERR first argument to redis.register_function must be a string")
                })?;
                let Value::Function(callback) = callback else {
                    return Err(raised("ERR second argument to redis.register_function must be a function"));
                };
                (Registered { name, description: None, flags: Vec::new() }, callback.clone())
            }
            _ => return Err(raised("ERR wrong number of arguments to redis.register_function")),
        };
        if !LibrarySource::is_name(&registered.name) {
            return Err(raised(LibrarySource::NAMES));
        }
        let is_known =
            |(known, _): &(Registered, Function)| known.name.eq_ignore_ascii_case(&registered.name);
        if self.functions.iter().any(is_known) {
            return Err(raised("ERR Function already exists in the library"));
        }
        self.bytes += registered.name.len() + registered.description.as_ref().map_or(0, Vec::len);
        if self.functions.len() == FUNCTIONS_MAX || self.bytes > REGISTERED_BYTES_MAX {
            return Err(raised(
                "ERR the library has too many functions, or describes them at too great a length",
            ));
        }
        self.functions.push((registered, callback));
        Ok(())
    }
}

/// The function described by `redis.register_function{function_name=..., callback=..., ...}`.
fn of_named(lua: &Lua, named: &Table) -> Result<(Registered, Function)> {
    let (mut name, mut description, mut flags, mut callback) = (None, None, Vec::new(), None);
    for (index, pair) in named.pairs::<Value, Value>().enumerate() {
        if index == ENTRIES_MAX {
            return Err(raised("ERR too many arguments given to redis.register_function"));
        }
        let (key, value) = pair?;
        let key = text(lua, &key)?.ok_or_else(|| {
            raised("ERR named argument key given to redis.register_function is not a string")
        })?;
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => name = Some(text_argument(lua, &value, "function_name")?),
            b"description" => description = Some(text_argument(lua, &value, "description")?),
            b"callback" => {
                let Value::Function(function) = value else {
                    return Err(raised(
                        "ERR callback argument given to redis.register_function must be a function",
                    ));
                };
                callback = Some(function);
            }
            b"flags" => {
                let Value::Table(table) = value else {
                    return Err(raised(
                        "ERR flags argument to redis.register_function must be a table representing function flags",
                    ));
                };
                flags = flags_of(&table)?;
            }
            _ => return Err(raised("ERR unknown argument given to redis.register_function")),
        }
    }
    let name = name.ok_or_else(|| raised("ERR redis.register_function must get a function name argument"))?;
    let callback =
        callback.ok_or_else(|| raised("ERR redis.register_function must get a callback argument"))?;
    Ok((Registered { name, description, flags }, callback))
}

fn flags_of(table: &Table) -> Result<Vec<&'static str>> {
    let mut flags = Vec::new();
    for index in 1.. {
        let known = match &table.raw_get(index)? {
            Value::Nil => break,
            Value::String(text) => FLAGS.into_iter().find(|flag| *flag.as_bytes() == *text.as_bytes()),
            _ => None,
        };
        if index > ENTRIES_MAX {
            return Err(raised("ERR too many flags given"));
        }
        let flag = known.ok_or_else(|| raised("ERR unknown flag given"))?;
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    Ok(flags)
}

fn text_argument(lua: &Lua, value: &Value, argument: &str) -> Result<Vec<u8>> {
    let no_text =
        || raised(format!("ERR {argument} argument given to redis.register_function must be a string"));
    text(lua, value)?.ok_or_else(no_text)
}

/// The bytes of a string, or of a number converted to a string; `None` for other values.
fn text(lua: &Lua, value: &Value) -> Result<Option<Vec<u8>>> {
    Ok(lua.coerce_string(value.clone())?.map(|text| text.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests;
