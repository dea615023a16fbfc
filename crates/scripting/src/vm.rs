//! The virtual machine of one worker.
//!
//! Invariants
//! - Scripts see the globals of the prelude and nothing else; only the machine changes those, and only KEYS and ARGV.
//! - What a script left behind is collected: nothing of it is kept but the compiled source.

mod asked;

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use mlua::{
    ChunkMode, Function, HookTriggers, Lua, LuaOptions, Result, StdLib, String as LuaString, Table, Value,
    Variadic, VmState,
};
use wire::{Args, OwnedArgs};

use crate::{
    Calls, Limits, Meter, Returned, ScriptError, Sha, Stop, bits, error,
    error::{as_value, script_line, text_of},
    json,
    meter::INSTRUCTIONS_PER_QUESTION,
    msgpack, pattern,
    random::{Random, random},
    redis::{self, Settings},
    strings, structs,
};
use asked::{Answer, Asked};

/// Compiled scripts that are kept: with more, all are forgotten, and compiled again when they are needed.
const PROGRAMS_MAX: usize = 1000;

/// Machines that have built this much of what they may use are cleaned up after a script.
const KEPT_FRACTION: usize = 2;

/// What became of a script.
#[derive(Debug)]
pub enum Ended {
    /// It returned.
    Returned(Returned),
    /// It raised an error.
    Failed(ScriptError),
    /// It was stopped.
    Stopped(Stop),
}

/// See the module documentation.
pub struct Vm {
    lua: Lua,
    /// What scripts call their globals.
    guard: Table,
    /// The real ones.
    globals: Table,
    /// The real `redis` and `os` tables, where the functions stand that ask who runs the script.
    redis: Table,
    os: Table,
    run: Function,
    programs: HashMap<Sha, Function>,
    meter: Meter,
    limits: Limits,
    json: json::Shared,
    random: Arc<Random>,
    settings: Settings,
    words: OwnedArgs,
    reply: Vec<u8>,
}

impl Vm {
    /// A machine.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(limits: Limits) -> Vm {
        match Vm::build(limits) {
            Ok(vm) => vm,
            Err(problem) => panic!("a virtual machine cannot be built: {problem}"),
        }
    }

    fn build(limits: Limits) -> Result<Vm> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let (meter, options, source, settings) =
            (Meter::default(), json::Shared::default(), Arc::new(Random::default()), Settings::default());
        let bytes_max = limits.memory_bytes_max;

        let libraries = lua.create_table()?;
        libraries.set("cjson", json::library(&lua, &options, bytes_max)?)?;
        libraries.set("cmsgpack", msgpack::library(&lua, bytes_max)?)?;
        libraries.set("struct", structs::library(&lua, bytes_max)?)?;
        libraries.set("bit", bits::library(&lua)?)?;
        let os = lua.create_table()?;
        libraries.set("os", &os)?;
        let string = lua.create_table()?;
        strings::install(&lua, &string, bytes_max)?;
        pattern::install(&lua, &string, &meter, bytes_max)?;
        libraries.set("string", string)?;
        libraries.set("math", math(&lua, &source)?)?;

        let redis = redis::functions(&lua, &settings)?;
        redis::NUMBERS.iter().try_for_each(|(name, value)| redis.set(*name, *value))?;
        redis::TEXTS.iter().try_for_each(|(name, value)| redis.set(*name, *value))?;
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
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude").into_function()?;
        let (guard, globals, run): (Table, Table, Function) =
            prelude.call((&redis, libraries, caught, blame, compile))?;
        environment.raw_set(1, &guard)?;

        let hooked = meter.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_QUESTION);
        lua.set_global_hook(triggers, move |_, _| {
            hooked.count(INSTRUCTIONS_PER_QUESTION).map(|()| VmState::Continue)
        })?;
        lua.set_memory_limit(limits.memory_bytes_max)?;
        Ok(Vm {
            lua,
            guard,
            globals,
            redis,
            os,
            run,
            programs: HashMap::new(),
            meter,
            limits,
            json: options,
            random: source,
            settings,
            words: OwnedArgs::default(),
            reply: Vec::new(),
        })
    }

    /// What stops its scripts.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Memory that it uses, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// From now on scripts may use this much.
    pub fn set_limits(&mut self, limits: Limits) {
        if limits.memory_bytes_max != self.limits.memory_bytes_max {
            // A limit below what is in use would refuse even to clean up.
            let _ = self.lua.set_memory_limit(limits.memory_bytes_max.max(self.lua.used_memory()));
        }
        self.limits = limits;
    }

    /// Compiles a script, unless it is known already.
    ///
    /// # Errors
    /// It is no Lua; the text says why.
    pub fn load(&mut self, sha: Sha, source: &[u8]) -> std::result::Result<(), ScriptError> {
        if self.programs.contains_key(&sha) {
            return Ok(());
        }
        self.make_room();
        let chunk = self.lua.load(source).set_name("@user_script").set_mode(ChunkMode::Text);
        let program = chunk.set_environment(self.guard.clone()).into_function().map_err(|problem| {
            let reason = text_of(&problem);
            ScriptError(format!("ERR Error compiling script (new function): {reason}").into_bytes())
        })?;
        if self.programs.len() >= PROGRAMS_MAX {
            self.programs.clear();
        }
        self.programs.insert(sha, program);
        Ok(())
    }

    /// Compiled scripts take memory that scripts need: those that are kept go when there is little left.
    fn make_room(&mut self) {
        let is_short = |vm: &Vm| vm.lua.used_memory() > vm.limits.memory_bytes_max / KEPT_FRACTION;
        if is_short(self) {
            let _ = self.lua.gc_collect();
            if is_short(self) {
                self.programs.clear();
                let _ = self.lua.gc_collect();
            }
        }
    }

    /// Runs a script that was [loaded](Vm::load). `seed` is where its random numbers begin.
    pub fn run(
        &mut self,
        sha: Sha,
        keys: Args<'_>,
        args: Args<'_>,
        seed: u64,
        calls: &mut dyn Calls,
    ) -> Ended {
        self.meter.begin(self.limits.instructions_max);
        self.json.reset();
        self.random.seed(seed);
        self.settings.reset();
        let outcome = self.try_run(sha, keys, args, calls);
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
                Ended::Returned(Returned::new(
                    value,
                    protocol,
                    self.limits.memory_bytes_max,
                    self.meter.clone(),
                ))
            }
            Ok((false, problem)) => Ended::Failed(composed(&problem, &sha.to_string())),
            Err(problem) => {
                let text = format!("ERR {} script: {sha}", text_of(&problem));
                Ended::Failed(ScriptError(text.into_bytes()))
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
        let Vm { lua, globals, redis, os, run, programs, settings, words, reply, meter, .. } = self;
        let program = programs.get(&sha).ok_or_else(|| mlua::Error::runtime("the script was not loaded"))?;
        globals.raw_set("KEYS", table_of(lua, keys)?)?;
        globals.raw_set("ARGV", table_of(lua, args)?)?;
        let asked = RefCell::new(Asked { calls, settings, meter, words, reply });
        lua.scope(|scope| {
            let add = |name: &str, answer: Answer| {
                let asked = &asked;
                let function = scope.create_function(move |lua, values: Variadic<Value>| {
                    answer(&mut asked.borrow_mut(), lua, &values)
                })?;
                let table = if name == "clock" { &*os } else { &*redis };
                table.raw_set(name, function)
            };
            asked::FUNCTIONS.iter().try_for_each(|(name, answer)| add(name, *answer))?;
            run.call::<(bool, Value)>(program)
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
    let seed = lua.create_function(move |_, seed: f64| {
        seeded.seed(seed.to_bits());
        Ok(())
    })?;
    table.set("randomseed", seed)?;
    Ok(table)
}

fn table_of(lua: &Lua, args: Args<'_>) -> Result<Table> {
    let table = lua.create_table_with_capacity(args.len(), 0)?;
    for arg in args {
        table.raw_push(lua.create_string(arg)?)?;
    }
    Ok(table)
}

/// What a script raised, as a table with the text and, where known, the place.
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

/// The text for the client of what [`blamed`] made.
fn composed(problem: &Value, name: &str) -> ScriptError {
    let field = |field: &str| match problem {
        Value::Table(table) => match table.raw_get(field) {
            Ok(Value::String(text)) => Some(text.as_bytes().trim_ascii_end().to_vec()),
            Ok(Value::Integer(number)) => Some(number.to_string().into_bytes()),
            _ => None,
        },
        Value::String(text) => (field == "err").then(|| [b"ERR ", &*text.as_bytes()].concat()),
        _ => None,
    };
    let mut text = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    text.extend_from_slice(format!(" script: {name}").as_bytes());
    if let (Some(source), Some(line)) = (field("source"), field("line")) {
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
