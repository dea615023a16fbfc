//! EVAL, EVALSHA, EVAL_RO, EVALSHA_RO.

use std::sync::Arc;

use scripting::{Ended, ScriptError, Sha, Stop, Vm};
use wire::{Args, number::parse_i64};

use super::caller::Caller;
use crate::{CommandError, Context, scripts::Script};

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

fn evaluate(cx: &mut Context<'_, '_>, args: Args<'_>, is_read_only: bool) -> Result<(), CommandError> {
    cx.show_script(args);
    let words = Words::new(args)?;
    let scripts = cx.host.scripts();
    let script = match scripts.find(Sha::of(args.at(1))) {
        Some(script) => script,
        None => Arc::new(Script::new(args.at(1)).map_err(refused)?),
    };
    run(cx, &script, words, is_read_only)
}

fn evaluate_known(cx: &mut Context<'_, '_>, args: Args<'_>, is_read_only: bool) -> Result<(), CommandError> {
    cx.show_script(args);
    const UNKNOWN: CommandError = CommandError::Text("NOSCRIPT No matching script. Please use EVAL.");
    if args.at(1).len() != Sha::DIGITS {
        return Err(UNKNOWN);
    }
    let words = Words::new(args)?;
    let script = Sha::parse(args.at(1)).and_then(|sha| cx.host.scripts().find(sha)).ok_or(UNKNOWN)?;
    run(cx, &script, words, is_read_only)
}

/// What follows the script.
#[derive(Clone, Copy)]
struct Words<'b> {
    keys: Args<'b>,
    args: Args<'b>,
}

impl<'b> Words<'b> {
    fn new(args: Args<'b>) -> Result<Words<'b>, CommandError> {
        let count = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
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

fn run(
    cx: &mut Context<'_, '_>,
    script: &Arc<Script>,
    words: Words<'_>,
    is_read_only: bool,
) -> Result<(), CommandError> {
    let traits = script.traits;
    if traits.declared {
        if is_read_only && !traits.no_writes {
            return Err(CommandError::Text(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        let scripting = cx.scripting();
        if !traits.no_writes && scripting.no_writes.is_some() {
            return Err(scripting.no_writes.clone().unwrap_or(CommandError::Syntax));
        }
        if !traits.no_writes && !traits.allow_oom && scripting.no_growth.is_some() {
            return Err(CommandError::Text(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
    }
    let scripts = cx.host.scripts();
    let mut vm = cx.scripting().take_vm(&scripts.settings);
    let outcome = match vm.load(script.sha, script.body()) {
        Ok(()) => {
            scripts.keep(script.clone(), false);
            run_loaded(cx, &mut vm, script, words, is_read_only || traits.no_writes)
        }
        Err(problem) => Err(refused(problem)),
    };
    cx.scripting().put_vm(vm);
    outcome
}

fn run_loaded(
    cx: &mut Context<'_, '_>,
    vm: &mut Vm,
    script: &Script,
    Words { keys, args }: Words<'_>,
    is_read_only: bool,
) -> Result<(), CommandError> {
    let seed = cx.unit.seed();
    let rolls_back = cx.host.scripts().settings.rolls_back();
    cx.unit.begin_undo();
    let running = cx.host.scripts().begin(cx.host.monotonic_us(), vm.meter());
    let (ended, refusal) = Caller::run(cx, is_read_only, script.traits.allow_oom, |calls| {
        vm.run(script.sha, keys, args, seed, calls)
    });
    drop(running);
    let outcome = match ended {
        Ended::Returned(returned) => {
            let (start, is_error) = (cx.reply.position(), returned.is_error());
            let written = returned.write(&mut cx.reply);
            if written.is_err() {
                cx.reply.truncate(start);
            }
            if rolls_back && (is_error || written.is_err()) {
                cx.unit.undo();
            }
            written
        }
        Ended::Failed(problem) => {
            if rolls_back {
                cx.unit.undo();
            }
            Err(problem)
        }
        Ended::Stopped(stop) => {
            cx.unit.undo();
            let problem = match (stop, refusal) {
                (Stop::Again, Some(refusal)) => refusal,
                (Stop::Killed, _) => CommandError::Composed(format!(
                    "ERR Script killed by user with SCRIPT KILL... script: {}",
                    script.sha
                )),
                _ => CommandError::Text(
                    "ERR the script has executed more instructions than script-max-instructions allows; what it did is \
                     undone",
                ),
            };
            if !cx.unit.end_undo() {
                return Err(problem);
            }
            // It has flushed, which cannot be undone: the record stays, and so does what it says.
            let mut text = Vec::new();
            problem.render(&mut text);
            cx.reply.error(text);
            return Ok(());
        }
    };
    let changed = cx.unit.end_undo();
    match outcome {
        Ok(()) => Ok(()),
        // What it did until then stays: the error is a reply like others.
        Err(problem) if changed => {
            cx.reply.error(&problem.0);
            Ok(())
        }
        Err(problem) => Err(refused(problem)),
    }
}
