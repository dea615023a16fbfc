//! EVAL, EVALSHA, EVAL_RO, EVALSHA_RO.

use std::{fmt::Display, sync::Arc};

use engine::{
    CommandError, Context,
    replication::MASTER_DOWN,
    scripts::{RunningFunction, Script},
};
use scripting::{Calls, Ended, Meter, Returned, ScriptError, Sha, Stop, Traits, Vm};
use wire::{Args, number::parse_i64};

use super::caller::Caller;

/// `EVAL script numkeys [key ...] [arg ...]`
pub(super) fn eval(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    evaluate(cx, args, false)
}

/// `EVAL_RO script numkeys [key ...] [arg ...]`
pub(super) fn eval_ro(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    evaluate(cx, args, true)
}

/// `EVALSHA sha1 numkeys [key ...] [arg ...]`
pub(super) fn evalsha(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    evaluate_known(cx, args, false)
}

/// `EVALSHA_RO sha1 numkeys [key ...] [arg ...]`
pub(super) fn evalsha_ro(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    evaluate_known(cx, args, true)
}

/// The unit of a longer script is offloaded before the script is compiled, if possible.
const COMPILED_HERE_BYTES_MAX: usize = 256 << 10;

/// Requests a thread of its own for the unit if compiling `source` may take long.
///
/// # Errors
/// [`CommandError::NeedsOwnThread`], which the caller must pass on.
pub(super) fn require_quick_to_compile(cx: &Context<'_, '_>, source: &[u8]) -> Result<(), CommandError> {
    if source.len() > COMPILED_HERE_BYTES_MAX { cx.require_own_thread() } else { Ok(()) }
}

fn evaluate(cx: &mut Context<'_, '_>, args: Args<'_>, is_read_only: bool) -> Result<(), CommandError> {
    require_quick_to_compile(cx, args.at(1))?;
    cx.show_script(args);
    let words = Words::new(args, CommandError::NotAnInteger)?;
    let scripts = &cx.host.scripts;
    match scripts.find(Sha::of(args.at(1))) {
        Some(script) => run(cx, &script, words, is_read_only, false),
        None => run(cx, &Arc::new(Script::new(args.at(1)).map_err(refused)?), words, is_read_only, true),
    }
}

fn evaluate_known(cx: &mut Context<'_, '_>, args: Args<'_>, is_read_only: bool) -> Result<(), CommandError> {
    cx.show_script(args);
    const UNKNOWN: CommandError = CommandError::Text("NOSCRIPT No matching script. Please use EVAL.");
    if args.at(1).len() != Sha::DIGITS {
        return Err(UNKNOWN);
    }
    let words = Words::new(args, CommandError::NotAnInteger)?;
    let script = Sha::parse(args.at(1)).and_then(|sha| cx.host.scripts.find(sha)).ok_or(UNKNOWN)?;
    run(cx, &script, words, is_read_only, false)
}

/// The arguments after the script, or after the name of a function.
#[derive(Clone, Copy)]
pub(super) struct Words<'b> {
    pub(super) keys: Args<'b>,
    pub(super) args: Args<'b>,
}

impl<'b> Words<'b> {
    /// Divides the arguments by the number of keys. `no_count` is the error if this number is not an integer.
    pub(super) fn new(args: Args<'b>, no_count: CommandError) -> Result<Words<'b>, CommandError> {
        let count = parse_i64(args.at(2)).ok_or(no_count)?;
        let rest = args.skip(3);
        let count =
            usize::try_from(count).map_err(|_| CommandError::Text("ERR Number of keys can't be negative"))?;
        if count > rest.len() {
            return Err(CommandError::Text("ERR Number of keys can't be greater than number of args"));
        }
        Ok(Words { keys: rest.take(count), args: rest.skip(count) })
    }
}

pub(super) fn refused(problem: ScriptError) -> CommandError {
    CommandError::Composed(String::from_utf8_lossy(&problem.0).into_owned())
}

/// Runs a script. With `is_new`, the script is kept in the script cache if it compiles.
fn run(
    cx: &mut Context<'_, '_>,
    script: &Arc<Script>,
    words: Words<'_>,
    is_read_only: bool,
    is_new: bool,
) -> Result<(), CommandError> {
    let traits = script.traits;
    if traits.declared {
        check(cx, traits, is_read_only)?;
    }
    let scripts = &cx.host.scripts;
    let mut vm = cx.scripting().take_vm(scripts);
    let outcome = match vm.load(script.sha, script.body()) {
        Ok(()) => {
            if is_new {
                scripts.keep(script.clone(), false);
            }
            let subject = Subject { name: &script.sha, traits, keys: words.keys, function: None };
            run_loaded(cx, &mut vm, subject, is_read_only || traits.no_writes, |vm, seed, calls| {
                vm.run(script.sha, words.keys, words.args, seed, calls)
            })
        }
        Err(problem) => Err(refused(problem)),
    };
    cx.unit.stats().set_vm_bytes(vm.memory_bytes());
    cx.scripting().put_vm(vm);
    outcome
}

/// Checks whether a script or function with declared flags may run now.
pub(super) fn check(
    cx: &mut Context<'_, '_>,
    traits: Traits,
    is_read_only: bool,
) -> Result<(), CommandError> {
    if !traits.allow_stale
        && let Some(refusal) = cx.host.replication.refuses_reads()
    {
        return Err(CommandError::Text(match refusal {
            MASTER_DOWN => {
                "MASTERDOWN Link with MASTER is down, what of the data here is committed is not known and 'allow-stale' flag is \
                 not set on the script."
            }
            refusal => refusal,
        }));
    }
    if traits.no_writes {
        return Ok(());
    }
    let scripting = cx.scripting();
    if traits.needs_memory()
        && scripting.no_writes.is_none()
        && let Some(refusal) = &scripting.no_growth
    {
        return Err(refusal.clone());
    }
    if is_read_only {
        return Err(CommandError::Text("ERR Can not execute a script with write flag using *_ro command."));
    }
    scripting.no_writes.clone().map_or(Ok(()), Err)
}

/// The script or function to run.
pub(super) struct Subject<'s> {
    /// The name in error messages.
    pub(super) name: &'s dyn Display,
    pub(super) traits: Traits,
    /// The declared keys.
    pub(super) keys: Args<'s>,
    /// The function, as FUNCTION STATS shows it; `None` for a script.
    pub(super) function: Option<RunningFunction>,
}

/// Runs a script or function by calling `run` with the seed of the random numbers, and replies with the value
/// that it returns.
pub(super) fn run_loaded(
    cx: &mut Context<'_, '_>,
    vm: &mut Vm,
    Subject { name, traits, keys, function }: Subject<'_>,
    is_read_only: bool,
    run: impl FnOnce(&mut Vm, u64, &mut dyn Calls) -> Ended,
) -> Result<(), CommandError> {
    let seed = cx.unit.seed();
    let rolls_back = cx.host.scripts.settings.rolls_back();
    cx.unit.begin_undo();
    let scripts = &cx.host.scripts;
    let (now_us, before) = (cx.host.monotonic_us(), cx.scripting().offloaded.take());
    let running = scripts.begin(now_us, vm.meter(), function, before);
    let scripting = cx.scripting();
    if let Some(deadline_us) = scripting.deadline_us.or_else(|| scripting.deadline_us(now_us)) {
        vm.meter().stop_at(deadline_us);
    }
    let start = cx.reply.position();
    let (ended, refusal) =
        Caller::run(cx, keys, is_read_only, traits.allow_oom, |calls| run(vm, seed, calls));
    let ended = match ended {
        Ended::Returned(returned) => write(cx, vm.meter(), returned),
        ended => ended,
    };
    let runs_elsewhere = matches!(ended, Ended::Stopped(Stop::Overtime)) && cx.may_be_offloaded();
    if runs_elsewhere || matches!(ended, Ended::Stopped(Stop::Retry)) {
        cx.scripting().offloaded = Some(running.offload());
    } else {
        drop(running);
    }
    // Whether the reply is an error that was counted when a command of the script got it.
    let is_counted = match ended {
        Ended::Returned(returned) if !returned.is_error() => {
            cx.unit.end_undo();
            return Ok(());
        }
        Ended::Returned(returned) => returned.is_counted(),
        Ended::Failed { problem, is_counted } => {
            cx.reply.error(&problem.0);
            is_counted
        }
        Ended::Stopped(stop) => {
            cx.unit.undo();
            let is_undone = !cx.unit.end_undo();
            let changes = if is_undone {
                "its changes are undone"
            } else {
                "its changes stay, because it has flushed a database"
            };
            let problem = match (stop, refusal) {
                (Stop::Retry, Some(refusal)) => refusal,
                (Stop::Overtime, _) if runs_elsewhere => CommandError::NeedsOwnThread,
                (Stop::Overtime, _) => CommandError::Composed(format!(
                    "ERR the script has run for too long in a transaction with documents, subscriptions, HELLO or RESET; \
                     {changes}"
                )),
                (Stop::Killed, _) => CommandError::Composed(format!(
                    "ERR Script killed by user with SCRIPT KILL... script: {name}"
                )),
                (Stop::HeldReplication, _) => CommandError::Text(
                    "ERR the script was ended: it kept this replica from applying the log of its leader",
                ),
                (Stop::HostEnds, _) => CommandError::Composed(format!(
                    "ERR the script was ended, and {changes}: the server stops, or changes its role"
                )),
                _ => CommandError::Composed(format!(
                    "ERR the script has executed more instructions than script-max-instructions allows; {changes}"
                )),
            };
            if is_undone {
                return Err(problem);
            }
            cx.reply_error(&problem);
            return Err(CommandError::Replied);
        }
    };
    if rolls_back {
        cx.unit.undo();
    }
    cx.unit.end_undo();
    if !is_counted {
        let reply = cx.reply.since(start).trim_ascii_end();
        cx.unit.stats().replied_error(reply.strip_prefix(b"-").unwrap_or(reply));
    }
    // Without `script-rollback`, the changes made before the error stay.
    Err(CommandError::Replied)
}

/// Writes the value that a script returned. Writing a large value takes long, so the script can still be
/// stopped.
fn write(cx: &mut Context<'_, '_>, meter: &Meter, returned: Returned) -> Ended {
    let start = cx.reply.position();
    let Err(problem) = returned.write(meter, &mut cx.reply) else { return Ended::Returned(returned) };
    cx.reply.truncate(start);
    meter.stopped().map_or(Ended::Failed { problem, is_counted: false }, Ended::Stopped)
}
