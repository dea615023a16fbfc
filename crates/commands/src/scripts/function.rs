//! FUNCTION.
//!
//! Invariants
//! - A change of libraries is checked as a whole before its first effect: a refused change has no effect.

use std::{collections::HashSet, sync::Arc};

use engine::{
    CommandError, Context,
    script_machine::{
        FUNCTIONS_MAX, LIBRARIES_BYTES_MAX, LIBRARIES_MAX, LOADING_MS_MAX, Loading, RESTORING_MS_MAX,
        TOO_MANY, load_library, require_few_libraries,
    },
    scripts::{Kill, RunningFunction, ScriptKind},
};
use keyspace::{Effect, Function, Libraries, Library};
use rdb::{LibrariesError, PayloadError};
use scripting::{LibraryId, LibrarySource, Vm};
use wire::{Args, OwnedArgs, glob};

use super::eval::refused;

/// `FUNCTION LOAD [REPLACE] code`
pub(super) fn load(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    cx.require_own_thread()?;
    let words = args.skip(2);
    let (options, code) = (words.take(words.len() - 1), words.at(words.len() - 1));
    if let Some(option) = options.iter().find(|option| !option.eq_ignore_ascii_case(b"replace")) {
        return Err(composed("ERR Unknown option given: ", option, ""));
    }
    let before = cx.unit.libraries();
    let may_use = |name: &[u8]| !options.is_empty() || before.get(name).is_none();
    let (library, id) =
        while_loading(cx, args, LOADING_MS_MAX, |vm, loading| compiled(vm, code, loading, may_use))?;
    let others = before.iter().filter(|other| other.name != library.name).cloned().collect();
    if let Err(problem) = require_join(cx, &others, std::slice::from_ref(&library)) {
        forget(cx, id);
        return Err(problem);
    }
    library.with_effect(|effect| cx.unit.apply(effect));
    keep(cx, &library.name, id);
    cx.reply.bulk(&library.name);
    Ok(())
}

/// `FUNCTION DELETE library`
pub(super) fn delete(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if !cx.unit.apply(&Effect::Library { name: args.at(2), content: None }).changed {
        return Err(CommandError::Text("ERR Library not found"));
    }
    cx.reply.ok();
    Ok(())
}

/// `FUNCTION FLUSH [ASYNC | SYNC]`
pub(super) fn flush(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let is_mode = |arg: &[u8]| arg.eq_ignore_ascii_case(b"async") || arg.eq_ignore_ascii_case(b"sync");
    match (args.len(), args.get(2)) {
        (2, _) => {}
        (3, Some(mode)) if is_mode(mode) => {}
        (3, _) => return Err(CommandError::Text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        _ => return Err(wrong_arguments(args)),
    }
    drop_all(cx);
    cx.reply.ok();
    Ok(())
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`
pub(super) fn list(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (mut pattern, mut has_code) = (None, false);
    let mut words = args.skip(2).iter();
    while let Some(word) = words.next() {
        if !has_code && word.eq_ignore_ascii_case(b"withcode") {
            has_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            let given = words.next().ok_or(CommandError::Text("ERR library name argument was not given"))?;
            pattern = Some(given);
        } else {
            return Err(composed("ERR Unknown argument ", word, ""));
        }
    }
    let libraries = cx.unit.libraries();
    let is_wanted =
        |library: &&Arc<Library>| pattern.is_none_or(|it| glob::matches_ignore_case(it, &library.name));
    cx.reply.array(libraries.iter().filter(is_wanted).count());
    libraries.iter().filter(is_wanted).for_each(|library| describe(cx, library, has_code));
    Ok(())
}

fn describe(cx: &mut Context<'_, '_>, library: &Library, has_code: bool) {
    let reply = &mut cx.reply;
    reply.map(3 + usize::from(has_code));
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&function.name);
        reply.bulk(b"description");
        reply.bulk_or_null(function.description.as_deref());
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        function.flags.names().for_each(|flag| reply.simple(flag));
    }
    if has_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

/// `FUNCTION STATS`
pub(super) fn stats(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let now_us = cx.host.monotonic_us();
    let running = cx.host.scripts.running_function();
    let libraries = cx.unit.libraries();
    let reply = &mut cx.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some((function, started_us)) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&function.name);
            reply.bulk(b"command");
            let command = function.command.as_args();
            reply.array(command.len());
            command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(i64::try_from(now_us.saturating_sub(started_us) / 1000).unwrap_or(i64::MAX));
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries.len());
    reply.bulk(b"functions_count");
    reply.count(libraries.functions_len());
    Ok(())
}

/// `FUNCTION KILL`
pub(super) fn kill(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    match cx.host.scripts.kill(cx.host.monotonic_us(), ScriptKind::Function) {
        Kill::Done => cx.reply.ok(),
        Kill::Other => return Err(CommandError::Busy),
        Kill::Nothing => return Err(CommandError::Text("NOTBUSY No scripts in execution right now.")),
    }
    Ok(())
}

/// `FUNCTION DUMP`
pub(super) fn dump(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let libraries = cx.unit.libraries();
    cx.reply.bulk(&rdb::dump_libraries(libraries.iter().map(|library| &*library.code)));
    Ok(())
}

/// The treatment of existing libraries by FUNCTION RESTORE.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Append,
    Replace,
    Flush,
}

/// `FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]`
pub(super) fn restore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(wrong_arguments(args));
    }
    cx.require_own_thread()?;
    let policy = match args.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"append") => Policy::Append,
        Some(b"replace") => Policy::Replace,
        Some(b"flush") => Policy::Flush,
        Some(_) => {
            return Err(CommandError::Text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let mut restored = Restored::default();
    let read =
        while_loading(cx, args, RESTORING_MS_MAX, |vm, loading| restored.read(vm, args.at(2), loading));
    let joined = read.and_then(|()| {
        let before = cx.unit.libraries();
        let stays = |library: &&Arc<Library>| match policy {
            Policy::Append => true,
            Policy::Replace => !restored.names.contains(&library.name),
            Policy::Flush => false,
        };
        require_join(cx, &before.iter().filter(stays).cloned().collect(), &restored.libraries)
    });
    if let Err(problem) = joined {
        restored.ids.into_iter().for_each(|id| forget(cx, id));
        return Err(problem);
    }
    if policy == Policy::Flush {
        drop_all(cx);
    }
    for (library, id) in restored.libraries.iter().zip(restored.ids) {
        library.with_effect(|effect| cx.unit.apply(effect));
        keep(cx, &library.name, id);
    }
    cx.reply.ok();
    Ok(())
}

/// The libraries of a payload, compiled.
#[derive(Default)]
struct Restored {
    libraries: Vec<Arc<Library>>,
    /// The names of the libraries.
    names: HashSet<Box<[u8]>>,
    /// The names of their functions, in lower case.
    functions: HashSet<Box<[u8]>>,
    bytes: usize,
    ids: Vec<LibraryId>,
}

impl Restored {
    fn read(&mut self, vm: &mut Vm, payload: &[u8], loading: &mut Loading<'_>) -> Result<(), CommandError> {
        let outcome = rdb::restore_libraries(payload, |code| {
            let (library, id) = compiled(vm, code, loading, |name| !self.names.contains(name))?;
            self.ids.push(id);
            for function in &library.functions {
                if !self.functions.insert(function.name.to_ascii_lowercase().into()) {
                    return Err(known_function(function).into());
                }
            }
            self.bytes += library.bytes();
            if self.ids.len() > LIBRARIES_MAX
                || self.functions.len() > FUNCTIONS_MAX
                || self.bytes > LIBRARIES_BYTES_MAX
            {
                return Err(CommandError::Text(TOO_MANY).into());
            }
            self.names.insert(library.name.clone());
            self.libraries.push(library);
            Ok::<(), Refused>(())
        });
        outcome.map_err(|Refused(problem)| problem)
    }
}

/// The reason why libraries are not restored.
struct Refused(CommandError);

impl From<CommandError> for Refused {
    fn from(problem: CommandError) -> Self {
        Refused(problem)
    }
}

impl From<LibrariesError> for Refused {
    fn from(problem: LibrariesError) -> Self {
        Refused(CommandError::Text(match problem {
            LibrariesError::Payload(PayloadError::Footer) => "ERR DUMP payload version or checksum are wrong",
            LibrariesError::Payload(PayloadError::Value(_)) => "ERR Failed loading library payload",
            LibrariesError::NoLibrary => "ERR given type is not a function",
        }))
    }
}

/// Loads libraries in this thread's virtual machine, for at most `ms_max` milliseconds. Meanwhile the command
/// is shown as a running function, and can be killed like one.
fn while_loading<R>(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    ms_max: u64,
    work: impl FnOnce(&mut Vm, &mut Loading<'_>) -> R,
) -> R {
    let host = cx.host;
    let mut vm = cx.scripting().take_vm(&host.scripts);
    let shown = RunningFunction { name: args.at(1).into(), command: OwnedArgs::from(args.take(2)) };
    let running = host.scripts.begin(host.monotonic_us(), vm.meter(), Some(shown), None);
    let outcome = work(&mut vm, &mut Loading::begin(host, ms_max));
    drop(running);
    cx.scripting().put_vm(vm);
    outcome
}

/// Compiles a library into the virtual machine, if its name may be used.
fn compiled(
    vm: &mut Vm,
    code: &[u8],
    loading: &mut Loading<'_>,
    may_use: impl FnOnce(&[u8]) -> bool,
) -> Result<(Arc<Library>, LibraryId), CommandError> {
    let LibrarySource { name, .. } = LibrarySource::of(code).map_err(refused)?;
    if !may_use(&name) {
        return Err(composed("ERR Library '", &name, "' already exists"));
    }
    load_library(vm, code, loading).map(|(library, id)| (Arc::new(library), id)).map_err(refused)
}

/// Checks whether the libraries may be added to the others, and whether the log has room for all of them.
fn require_join(
    cx: &Context<'_, '_>,
    others: &Libraries,
    libraries: &[Arc<Library>],
) -> Result<(), CommandError> {
    if let Some(library) = libraries.iter().find(|library| others.get(&library.name).is_some()) {
        return Err(composed("ERR Library ", &library.name, " already exists"));
    }
    let mut functions = libraries.iter().flat_map(|library| library.functions.iter());
    if let Some(function) = functions.find(|function| others.function(&function.name).is_some()) {
        return Err(known_function(function));
    }
    let joined: Libraries = others.iter().chain(libraries).cloned().collect();
    require_few_libraries(&joined).map_err(CommandError::Text)?;
    cx.require_room(joined.encoded_bytes() as u64)
}

fn known_function(function: &Function) -> CommandError {
    composed("ERR Function ", &function.name, " already exists")
}

/// Notes that a compiled library is now the current one of this name.
fn keep(cx: &mut Context<'_, '_>, name: &[u8], id: LibraryId) {
    let libraries = cx.unit.libraries();
    let scripts = &cx.host.scripts;
    let scripting = cx.scripting();
    let mut vm = scripting.take_vm(scripts);
    match libraries.get(name) {
        Some(library) => scripting.libraries.note(&mut vm, library.clone(), id, &libraries),
        None => vm.drop_library(id),
    }
    scripting.put_vm(vm);
}

/// Drops a compiled library from the virtual machine.
fn forget(cx: &mut Context<'_, '_>, id: LibraryId) {
    let scripts = &cx.host.scripts;
    let mut vm = cx.scripting().take_vm(scripts);
    vm.drop_library(id);
    cx.scripting().put_vm(vm);
}

fn drop_all(cx: &mut Context<'_, '_>) {
    for library in cx.unit.libraries().iter() {
        cx.unit.apply(&Effect::Library { name: &library.name, content: None });
    }
}

fn composed(before: &str, name: &[u8], after: &str) -> CommandError {
    CommandError::Composed(format!("{before}{}{after}", String::from_utf8_lossy(name)))
}

/// The error of a subcommand with invalid arguments.
fn wrong_arguments(args: Args<'_>) -> CommandError {
    composed(
        "ERR unknown subcommand or wrong number of arguments for '",
        &args.at(1)[..args.at(1).len().min(128)],
        "'. Try FUNCTION HELP.",
    )
}

#[cfg(test)]
mod tests;
