//! FCALL and FCALL_RO.

use engine::{
    CommandError, Context,
    scripts::{RunningFunction, traits_of},
};
use keyspace::Function;
use scripting::{Calls, Ended, Stop, Vm};
use wire::{Args, OwnedArgs};

use super::eval::{Subject, Words, check, run_loaded};

/// The maximum size of the arguments in FUNCTION STATS, in bytes: longer calls are shown without keys and
/// arguments.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// `FCALL function numkeys [key ...] [arg ...]`
pub(super) fn fcall(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    call(cx, args, false)
}

/// `FCALL_RO function numkeys [key ...] [arg ...]`
pub(super) fn fcall_ro(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    call(cx, args, true)
}

fn call(cx: &mut Context<'_, '_>, args: Args<'_>, is_read_only: bool) -> Result<(), CommandError> {
    cx.show_script(args);
    let libraries = if cx.unit.has_locked(keyspace::LIBRARIES_SLOT) {
        cx.unit.libraries()
    } else {
        let keyspace = cx.keyspace;
        let (libraries, lsn) = cx.scripting().libraries.published(keyspace);
        cx.unit.note_seen(lsn);
        libraries
    };
    let function = libraries.function(args.at(1));
    let (library, function) = function.ok_or(CommandError::Text("ERR Function not found"))?;
    let words = Words::new(args, CommandError::Text("ERR Bad number of keys provided"))?;
    let traits = traits_of(function);
    check(cx, traits, is_read_only)?;
    let host = cx.host;
    let mut vm = cx.scripting().take_vm(&host.scripts);
    // The library is compiled within `run`: that executes its code, which must stop when the function is
    // stopped.
    let mut compiled = std::mem::take(&mut cx.scripting().libraries);
    let name = String::from_utf8_lossy(&function.name);
    let subject = Subject { name: &name, traits, keys: words.keys, function: Some(shown(function, args)) };
    let run = |vm: &mut Vm, seed, calls: &mut dyn Calls| {
        let id = match compiled.compile(vm, library, &libraries, host) {
            Ok(id) => id,
            // These stops, while the library is compiled, count as stops of the function. Any other problem
            // is one of the library.
            Err(problem) => {
                return match vm.meter().stopped() {
                    Some(stop) if stop.is_final() || stop == Stop::Overtime => Ended::Stopped(stop),
                    _ => Ended::Failed { problem, is_counted: false },
                };
            }
        };
        vm.run_function((id, &function.name), words.keys, words.args, seed, calls)
    };
    let outcome = run_loaded(cx, &mut vm, subject, is_read_only || traits.no_writes, run);
    cx.scripting().libraries = compiled;
    cx.scripting().put_vm(vm);
    outcome
}

/// The entry of a running function in FUNCTION STATS.
fn shown(function: &Function, args: Args<'_>) -> RunningFunction {
    let args = if args.size_bytes() > SHOWN_BYTES_MAX { args.take(3) } else { args };
    RunningFunction { name: function.name.clone(), command: OwnedArgs::from(args) }
}
