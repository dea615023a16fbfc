//! The commands that change nothing: ACL CAT, DRYRUN, GENPASS, GETUSER, LIST, USERS, WHOAMI.

use access::{Category, GENPASS_BITS_DEFAULT, GenpassError, Rights, SelectorDescription};
use engine::{CommandError, Context, judgement::judge};
use wire::{Args, ReplyWriter, number::parse_i64};

use super::{all_users, find_user};
use crate::{resolve_call, rows};

/// `ACL CAT [category]`
pub(super) fn cat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let names: Vec<&str> = match args.get(2) {
        _ if args.len() > 3 => return Err(too_many("cat")),
        None => Category::ALL.iter().map(|category| category.name()).collect(),
        Some(name) => {
            let category = Category::named(name).ok_or_else(|| {
                CommandError::Composed(format!("ERR Unknown category '{}'", String::from_utf8_lossy(name)))
            })?;
            rows().iter().filter(|row| row.categories().has(category)).map(|row| row.name).collect()
        }
    };
    cx.reply.array(names.len());
    names.iter().for_each(|name| cx.reply.bulk(name.as_bytes()));
    Ok(())
}

/// The error for a subcommand with too many arguments, as in Redis.
pub(super) fn too_many(subcommand: &str) -> CommandError {
    CommandError::UnknownSubcommand { command: "acl", subcommand: subcommand.into() }
}

/// `ACL DRYRUN username command [arg [arg ...]]`
pub(super) fn dryrun(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let shown = |at: usize| String::from_utf8_lossy(args.at(at)).into_owned();
    let Some(user) = find_user(cx, args.at(2)) else {
        return Err(CommandError::Composed(format!("ERR User '{}' not found", shown(2))));
    };
    let call = args.skip(3);
    let Ok(found) = resolve_call(call) else {
        return Err(CommandError::Composed(format!("ERR Command '{}' not found", shown(3))));
    };
    if !found.row.accepts(call.len()) {
        return Err(CommandError::WrongArity(found.row.name));
    }
    let commands = cx.host.users.commands();
    match judge(&Rights::new(&user, commands), found, call) {
        Ok(()) => cx.reply.ok(),
        Err(denied) => cx.reply.bulk(&denied.verdict(args.at(2), commands)),
    }
    Ok(())
}

/// `ACL GENPASS [bits]`
pub(super) fn genpass(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let bits = match args.get(2) {
        _ if args.len() > 3 => return Err(too_many("genpass")),
        None => GENPASS_BITS_DEFAULT,
        Some(bits) => parse_i64(bits).ok_or(CommandError::NotAnInteger)?,
    };
    let password = access::genpass(bits, |bytes| cx.host.process.fill_secret(bytes));
    cx.reply.bulk(password.map_err(|GenpassError| CommandError::Text(GenpassError::TEXT))?.as_bytes());
    Ok(())
}

/// `ACL GETUSER username`
pub(super) fn getuser(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Some(user) = find_user(cx, args.at(2)) else {
        cx.reply.null_array();
        return Ok(());
    };
    let description = user.describe();
    let reply = &mut cx.reply;
    // Redis has the first six fields; `roles` is shown only if the user has roles.
    reply.map(6 + usize::from(!description.roles.is_empty()));
    reply.bulk(b"flags");
    reply.set(description.flags.len());
    description.flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(description.passwords.len());
    description.passwords.iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    write_selector(reply, &description.root);
    reply.bulk(b"selectors");
    reply.array(description.selectors.len());
    for selector in &description.selectors {
        reply.map(3);
        write_selector(reply, selector);
    }
    if !description.roles.is_empty() {
        reply.bulk(b"roles");
        reply.array(description.roles.len());
        description.roles.iter().for_each(|role| reply.bulk(role));
    }
    Ok(())
}

fn write_selector(reply: &mut ReplyWriter<'_>, selector: &SelectorDescription) {
    let fields: [(&[u8], &[u8]); 3] =
        [(b"commands", &selector.commands), (b"keys", &selector.keys), (b"channels", &selector.channels)];
    fields.iter().flat_map(|(name, value)| [name, value]).for_each(|text| reply.bulk(text));
}

/// `ACL LIST`
pub(super) fn list(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let users = all_users(cx);
    cx.reply.array(users.len());
    users.iter().for_each(|(name, user)| cx.reply.bulk(&user.line(name)));
    Ok(())
}

/// `ACL USERS`
pub(super) fn users(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let users = all_users(cx);
    cx.reply.array(users.len());
    users.keys().for_each(|name| cx.reply.bulk(name));
    Ok(())
}

/// `ACL WHOAMI`
pub(super) fn whoami(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.bulk(cx.session.login.name());
    Ok(())
}
