//! SCRIPT.

use std::sync::Arc;

use engine::{
    CommandError, Context,
    scripts::{Kill, Script, ScriptKind},
};
use scripting::Sha;
use wire::Args;

use super::eval::{refused, require_quick_to_compile};

/// `SCRIPT LOAD script`
pub(super) fn load(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_quick_to_compile(cx, args.at(2))?;
    let script = Script::new(args.at(2)).map_err(refused)?;
    let scripts = &cx.host.scripts;
    let mut vm = cx.scripting().take_vm(scripts);
    let loaded = vm.load(script.sha, script.body());
    cx.unit.stats().set_vm_bytes(vm.memory_bytes());
    cx.scripting().put_vm(vm);
    loaded.map_err(refused)?;
    cx.reply.bulk_display(script.sha);
    scripts.keep(Arc::new(script), true);
    Ok(())
}

/// `SCRIPT EXISTS sha1 [sha1 ...]`
pub(super) fn exists(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let names = args.skip(2);
    cx.reply.array(names.len());
    for name in names {
        let is_known = Sha::parse(name).is_some_and(|sha| cx.host.scripts.find(sha).is_some());
        cx.reply.integer(is_known.into());
    }
    Ok(())
}

/// `SCRIPT FLUSH [ASYNC | SYNC]`
pub(super) fn flush(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let is_mode = |arg: &[u8]| arg.eq_ignore_ascii_case(b"async") || arg.eq_ignore_ascii_case(b"sync");
    if args.len() > 3 || args.get(2).is_some_and(|arg| !is_mode(arg)) {
        return Err(CommandError::Text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    cx.host.scripts.flush();
    cx.reply.ok();
    Ok(())
}

/// `SCRIPT KILL`
pub(super) fn kill(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    match cx.host.scripts.kill(cx.host.monotonic_us(), ScriptKind::Script) {
        Kill::Done => cx.reply.ok(),
        Kill::Other => return Err(CommandError::BusyFunction),
        Kill::Nothing => return Err(CommandError::Text("NOTBUSY No scripts in execution right now.")),
    }
    Ok(())
}

/// `SCRIPT SHOW sha1`
pub(super) fn show(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let script = Sha::parse(args.at(2)).and_then(|sha| cx.host.scripts.find(sha));
    let script = script.ok_or(CommandError::Text("NOSCRIPT No matching script. Please use EVAL."))?;
    cx.reply.bulk(&script.source);
    Ok(())
}

/// `SCRIPT DEBUG YES | SYNC | NO`
pub(super) fn debug(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mode = args.at(2);
    if mode.eq_ignore_ascii_case(b"no") {
        cx.reply.ok();
        return Ok(());
    }
    if mode.eq_ignore_ascii_case(b"yes") || mode.eq_ignore_ascii_case(b"sync") {
        return Err(CommandError::Text("ERR scripts are not debugged in this server"));
    }
    Err(CommandError::Text("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}
