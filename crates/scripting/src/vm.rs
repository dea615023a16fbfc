//! The virtual machine of one thread.
//!
//! Invariants
//! - Scripts see only the globals of the prelude. Only the machine changes globals, and it changes only KEYS
//!   and ARGV.
//! - Of a script only the compiled source is kept. The garbage of scripts is collected, at the latest once
//!   the machine uses more than half of its memory limit.

mod host_calls;
mod libraries;
mod questions;

use std::{collections::HashMap, fmt::Display, sync::Arc};

use mlua::{
    ChunkMode, Function, Lua, LuaOptions, Result, StdLib, String as LuaString, Table, Value, Variadic,
};
use rapidhash::fast::RandomState;
use wire::Args;

use crate::{
    Calls, Limits, Meter, Returned, ScriptError, Sha, Stop, bits, error,
    error::{as_value, is_counted, script_line, text_of},
    json,
    memory::{building, limited},
    msgpack, pattern,
    random::{Random, random},
    redis::{self, Settings},
    strings, structs,
    word::{sequence, string},
};
use host_calls::RUNNER;
use libraries::{LibraryGlobals, Loaded};
pub use libraries::{LibraryId, Registered};
use questions::Questions;

/// Maximum number of compiled scripts that are kept. If there are more, all are dropped, and compiled again
/// when needed.
const PROGRAMS_MAX: usize = 1000;

/// Garbage is collected after a script if the machine uses more than 1 / `KEPT_FRACTION` of its memory limit.
const KEPT_FRACTION: usize = 2;

/// The outcome of a script.
#[derive(Debug)]
pub enum Ended {
    /// The script has ended with a value.
    Returned(Returned),
    /// The script raised an error.
    Failed {
        /// The text of the error reply for the client.
        problem: ScriptError,
        /// Whether the host has counted the error already, because a command has replied it, or the host has
        /// refused a command with it.
        is_counted: bool,
    },
    /// The script was stopped, for this reason.
    Stopped(Stop),
}

/// A Lua machine with its compiled scripts and loaded libraries.
pub struct Vm {
    lua: Lua,
    /// The globals of scripts.
    guard: Table,
    /// The globals of library functions.
    library_guard: Table,
    /// The globals for code compiled with `loadstring`. Index 1 of the table has the guard in use: `guard` or
    /// `library_guard`.
    environment: Table,
    /// The `redis` table of a library that is being loaded.
    registrar: Table,
    run: Function,
    load: Function,
    run_with: Function,
    library_globals: LibraryGlobals,
    loaded: Loaded,
    programs: HashMap<Sha, Function, RandomState>,
    meter: Meter,
    questions: Questions,
    limits: Limits,
    json: json::Shared,
    random: Arc<Random>,
    settings: Settings,
}

impl Vm {
    /// A machine with a new meter.
    ///
    /// # Panics
    /// If there is no memory for the machine.
    pub fn new(limits: Limits) -> Vm {
        Vm::metered(limits, Meter::default())
    }

    /// A machine whose scripts this meter counts and can stop.
    ///
    /// # Panics
    /// If there is no memory for the machine.
    pub fn metered(limits: Limits, meter: Meter) -> Vm {
        match Vm::build(limits, meter) {
            Ok(vm) => vm,
            Err(problem) => panic!("a virtual machine cannot be built: {problem}"),
        }
    }

    fn build(limits: Limits, meter: Meter) -> Result<Vm> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let (options, source, settings) =
            (json::Shared::default(), Arc::new(Random::default()), Settings::default());
        let bytes_max = limits.memory_bytes_max;

        let libraries = lua.create_table()?;
        libraries.set("cjson", json::library(&lua, &options, &meter, bytes_max)?)?;
        libraries.set("cmsgpack", msgpack::library(&lua, &meter, bytes_max)?)?;
        libraries.set("struct", structs::library(&lua, &meter, bytes_max)?)?;
        libraries.set("bit", bits::library(&lua)?)?;
        let os = lua.create_table()?;
        libraries.set("os", &os)?;
        let string = lua.create_table()?;
        strings::install(&lua, &string, &meter, bytes_max)?;
        pattern::install(&lua, &string, &meter, bytes_max)?;
        libraries.set("string", string)?;
        libraries.set("math", math(&lua, &source)?)?;

        let redis = redis::functions(&lua, &settings, &meter)?;
        redis::NUMBERS.iter().try_for_each(|(name, value)| redis.set(*name, *value))?;
        redis::TEXTS.iter().try_for_each(|(name, value)| redis.set(*name, *value))?;
        host_calls::install(&lua, &redis, &os, &settings, &meter)?;
        let watched = meter.clone();
        let caught = lua.create_function(move |lua, problem: Value| {
            watched.leave()?;
            as_value(lua, problem)
        })?;
        let blame = lua.create_function(|lua, problem: Value| blamed(lua, problem))?;
        let environment = lua.create_table()?;
        let inner = environment.clone();
        let compile = lua.create_function(move |lua, (text, name): (LuaString, Option<LuaString>)| {
            let name = name.as_ref().unwrap_or(&text).to_string_lossy();
            let name = if name.contains('\0') { "=(load)".to_string() } else { name };
            let guard: Table = inner.raw_get(1)?;
            let source = text.as_bytes();
            let chunk = lua.load(&*source).set_name(name).set_mode(ChunkMode::Text).set_environment(guard);
            match chunk.into_function() {
                Ok(function) => Ok((Value::Function(function), Value::Nil)),
                Err(problem) => Ok((Value::Nil, Value::String(lua.create_string(text_of(&problem))?))),
            }
        })?;
        let registrar = lua.create_table()?;
        redis::for_libraries(&registrar)?;
        let questions = Questions::install(&lua, &meter)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude").into_function()?;
        let (guard, run, library_guard, load, run_with, seen, loading, called) =
            prelude.call::<(Table, Function, Table, Function, Function, Table, Table, Table)>((
                &redis,
                libraries,
                caught,
                blame,
                compile,
                &registrar,
                questions.before_coroutine(&lua)?,
            ))?;
        environment.raw_set(1, &guard)?;

        Ok(Vm {
            lua,
            guard,
            library_guard,
            environment,
            registrar,
            run,
            load,
            run_with,
            library_globals: LibraryGlobals { seen, loading, called },
            loaded: Loaded::default(),
            programs: HashMap::default(),
            meter,
            questions,
            limits,
            json: options,
            random: source,
            settings,
        })
    }

    /// The meter that counts and stops the scripts of this machine.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The memory that Lua uses now, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Sets the limits. To be called before each script, because it also makes room if earlier scripts and
    /// libraries use memory that the next script needs.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.make_room();
    }

    /// Compiles a script, unless it is compiled already.
    ///
    /// # Errors
    /// If the script does not compile; the text says why.
    pub fn load(&mut self, sha: Sha, source: &[u8]) -> std::result::Result<(), ScriptError> {
        if self.programs.contains_key(&sha) {
            return Ok(());
        }
        self.make_room();
        let compiled = limited(&self.lua, self.limits.memory_bytes_max, || {
            let chunk = self.lua.load(source).set_name("@user_script").set_mode(ChunkMode::Text);
            chunk.set_environment(self.guard.clone()).into_function()
        });
        let program = compiled.map_err(|problem| {
            let reason = text_of(&problem);
            ScriptError(format!("ERR Error compiling script (new function): {reason}").into_bytes())
        })?;
        if self.programs.len() >= PROGRAMS_MAX {
            self.programs.clear();
        }
        self.programs.insert(sha, program);
        Ok(())
    }

    /// The number of compiled scripts.
    pub fn compiled(&self) -> usize {
        self.programs.len()
    }

    /// Drops all compiled scripts, and collects their memory.
    pub fn forget_scripts(&mut self) {
        self.programs.clear();
        let _ = self.lua.gc_collect();
    }

    /// Collects garbage if more than half of the memory limit is in use. If more than half is still in use
    /// then, drops compiled scripts and loaded libraries.
    fn make_room(&mut self) {
        let is_short = |vm: &Vm| vm.lua.used_memory() > vm.limits.memory_bytes_max / KEPT_FRACTION;
        if is_short(self) {
            let _ = self.lua.gc_collect();
            if is_short(self) {
                self.programs.clear();
                self.loaded.clear();
                let _ = self.lua.gc_collect();
            }
        }
    }

    /// Runs a script that was [loaded](Vm::load). `seed` seeds the random numbers of the script. The meter is
    /// not [reset](Meter::reset).
    pub fn run(
        &mut self,
        sha: Sha,
        keys: Args<'_>,
        args: Args<'_>,
        seed: u64,
        calls: &mut dyn Calls,
    ) -> Ended {
        self.begin(seed, self.limits.instructions_max);
        let outcome = self.questions.begin(&self.lua).and_then(|()| self.try_run(sha, keys, args, calls));
        self.end(outcome, &sha)
    }

    /// Prepares a run with this limit of instructions.
    fn begin(&mut self, seed: u64, instructions_max: u64) {
        self.meter.begin(instructions_max);
        self.json.reset();
        self.random.seed(seed as u32);
        self.settings.reset();
    }

    /// The outcome of a run. Error texts contain `name`.
    fn end(&mut self, outcome: Result<(bool, Value)>, name: &dyn Display) -> Ended {
        if let Some(stop) = self.meter.stopped() {
            let _ = self.lua.gc_collect();
            return Ended::Stopped(stop);
        }
        if self.lua.used_memory() > self.limits.memory_bytes_max / KEPT_FRACTION {
            let _ = self.lua.gc_collect();
        }
        match outcome {
            Ok((true, value)) => {
                let protocol = self.settings.protocol();
                Ended::Returned(Returned::new(value, protocol, self.limits.memory_bytes_max))
            }
            Ok((false, problem)) => {
                Ended::Failed { problem: composed(&problem, name), is_counted: is_counted(&problem) }
            }
            Err(problem) => {
                let text = format!("ERR {} script: {name}", text_of(&problem));
                Ended::Failed { problem: ScriptError(text.into_bytes()), is_counted: false }
            }
        }
    }

    fn try_run(
        &mut self,
        sha: Sha,
        keys: Args<'_>,
        args: Args<'_>,
        calls: &mut dyn Calls,
    ) -> Result<(bool, Value)> {
        let Vm { lua, run, programs, limits, .. } = self;
        let program = programs.get(&sha).ok_or_else(|| mlua::Error::runtime("the script was not loaded"))?;
        limited(lua, limits.memory_bytes_max, || {
            let words = keys.size_bytes() + args.size_bytes();
            let (keys, args) = building(lua, words, || Ok((table_of(lua, keys)?, table_of(lua, args)?)))?;
            RUNNER.set(calls, || run.call::<(bool, Value)>((program, keys, args)))
        })
    }
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vm").field("programs", &self.programs.len()).finish_non_exhaustive()
    }
}

/// `math.random`, `math.randomseed`.
fn math(lua: &Lua, source: &Arc<Random>) -> Result<Table> {
    let table = lua.create_table()?;
    let drawn = source.clone();
    let draw = error::function(lua, "random", move |_, bounds: Variadic<f64>| random(&drawn, &bounds))?;
    table.set("random", draw)?;
    let seeded = source.clone();
    let seed = error::function(lua, "randomseed", move |_, seed: f64| {
        seeded.seed_with(seed);
        Ok(())
    })?;
    table.set("randomseed", seed)?;
    Ok(table)
}

fn table_of(lua: &Lua, args: Args<'_>) -> Result<Table> {
    let mut args = args.into_iter();
    let len = args.len();
    sequence(lua, len, len, || string(lua, args.next().unwrap_or_default()))
}

/// A raised value as a table with the text and, if known, the source and line.
fn blamed(lua: &Lua, problem: Value) -> Result<Table> {
    let table = match as_value(lua, problem)? {
        Value::Table(table) => table,
        other => {
            let text = match other {
                Value::String(text) => text.to_string_lossy(),
                other => other.to_string().unwrap_or_else(|_| other.type_name().to_string()),
            };
            let table = lua.create_table()?;
            table.raw_set("err", format!("ERR {text}"))?;
            table
        }
    };
    if let Some((source, line)) = script_line(lua) {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

/// A field of a table made by [`blamed`].
fn field_of(problem: &Value, field: &str) -> Option<Vec<u8>> {
    match problem {
        Value::Table(table) => match table.raw_get(field) {
            Ok(Value::String(text)) => Some(text.as_bytes().trim_ascii_end().to_vec()),
            Ok(Value::Integer(number)) => Some(number.to_string().into_bytes()),
            _ => None,
        },
        Value::String(text) => (field == "err").then(|| [b"ERR ", &*text.as_bytes()].concat()),
        _ => None,
    }
}

/// The error text of a table made by [`blamed`].
fn error_of(problem: &Value) -> Vec<u8> {
    field_of(problem, "err").unwrap_or_else(|| b"ERR unknown error".to_vec())
}

/// The error for the client, from a table made by [`blamed`].
fn composed(problem: &Value, name: &dyn Display) -> ScriptError {
    let mut text = error_of(problem);
    text.extend_from_slice(format!(" script: {name}").as_bytes());
    if let (Some(source), Some(line)) = (field_of(problem, "source"), field_of(problem, "line")) {
        text.extend_from_slice(b", on ");
        text.extend_from_slice(&source);
        text.push(b':');
        text.extend_from_slice(&line);
        text.push(b'.');
    }
    ScriptError(text)
}

#[cfg(test)]
mod tests;
