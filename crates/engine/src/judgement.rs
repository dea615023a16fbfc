//! Judgements: whether the user of a session may make a call, with all that the call names.
//!
//! ```text
//! a command, alone or queued   Executor::check_call -> judge -> NOPERM
//! EXEC, each queued command    Context::judge_queued -> judge -> NOPERM: the rules have changed
//! a call of a script           commands::scripts -> judge -> ERR ACL failure in script
//! a waiter is served           refuse_waiter -> judge -> NOPERM
//! ACL DRYRUN                   judge -> its verdict
//! ```
//!
//! A command that wraps another one (IDEMP) needs its own key, and all that the wrapped one needs. A document
//! is judged as the key `DATABASE/ID`.
//!
//! Invariants
//! - A session whose user is gone has no rights: its next command gets NOAUTH, and the connection is closed.

use access::{Call, ChannelUse, CommandId, Context as DenialContext, Denied, KeyAccess, KeyUse, Rights};
use smallvec::SmallVec;
use wire::Args;

use crate::{
    CommandError, Context, Flags, Host, Session,
    clients::Waiter,
    row::{Channels, ResolvedCommand, wrapped},
    users::Principal,
};

/// Whether a user may make a call.
///
/// # Errors
/// The part of the call that the user has no right to.
pub fn judge<'b>(rights: &Rights, found: ResolvedCommand, args: Args<'b>) -> Result<(), Denied<'b>> {
    if !found.row.flags.has(Flags::WRAPS) {
        return judge_one(rights, found, args, usize::MAX);
    }
    judge_one(rights, found, args, 1)?;
    // A call that wraps no valid command is refused when it runs.
    match wrapped(found.table(), args) {
        Ok((inner, call)) => judge_one(rights, inner, call, usize::MAX),
        Err(_) => Ok(()),
    }
}

fn judge_one<'b>(
    rights: &Rights,
    found: ResolvedCommand,
    args: Args<'b>,
    keys_max: usize,
) -> Result<(), Denied<'b>> {
    if rights.allow_freely(found.id()) {
        return Ok(());
    }
    let row = found.row;
    if row.needs.channels == Channels::None
        && !row.flags.has(Flags::DOCUMENTS)
        && let Some(permitted) = rights.keys_for(found.id(), args.get(1))
    {
        let mut denied = None;
        row.keys.for_each_numbered(args, |nth, key| {
            let is_denied = || !permitted.include(&KeyUse { key, access: row.usage(args, nth).access });
            if nth < keys_max && denied.is_none() && is_denied() {
                denied = Some(Denied::Key(key));
            }
        });
        return denied.map_or(Ok(()), Err);
    }
    let mut keys: SmallVec<[KeyUse<'b>; 8]> = SmallVec::new();
    row.keys.for_each_numbered(args, |nth, key| {
        if nth < keys_max {
            keys.push(KeyUse { key, access: row.usage(args, nth).access });
        }
    });
    let named = match row.needs.channels {
        Channels::None => 0,
        Channels::First => 1,
        Channels::All | Channels::Patterns => usize::MAX,
    };
    if row.flags.has(Flags::DOCUMENTS) && args.len() >= 3 {
        let document = document_key(args);
        let access = if row.flags.has(Flags::READONLY) { KeyAccess::READ } else { KeyAccess::WRITE };
        let keys = [KeyUse { key: &document, access }];
        let call = Call { command: found.id(), first_arg: args.get(1), keys: &keys, channels: &[] };
        return rights.judge(&call).map_err(|denied| match denied {
            Denied::Command(command) => Denied::Command(command),
            Denied::Key(_) | Denied::Channel(_) => Denied::Key(args.at(2)),
        });
    }
    let is_pattern = row.needs.channels == Channels::Patterns;
    let channels: SmallVec<[ChannelUse<'b>; 4]> =
        args.skip(1).iter().take(named).map(|name| ChannelUse { name, is_pattern }).collect();
    rights.judge(&Call { command: found.id(), first_arg: args.get(1), keys: &keys, channels: &channels })
}

/// The key for which a user needs rights to use a document: `DATABASE/ID`. A slash in the name of the
/// database is `%2F`, as in paths over HTTP: `shop/*` is no pattern for the database `shop/private`.
fn document_key(args: Args<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(args.at(1).len() + args.at(2).len() + 1);
    for byte in args.at(1) {
        match byte {
            b'/' => key.extend_from_slice(b"%2F"),
            byte => key.push(*byte),
        }
    }
    key.push(b'/');
    key.extend_from_slice(args.at(2));
    key
}

/// Notes that a call was denied to the user of a session, and returns the error.
#[cold]
pub(crate) fn refusal(
    denied: &Denied<'_>,
    principal: &Principal,
    context: DenialContext,
    session: &Session,
    (host, now_ms): (&Host, u64),
) -> CommandError {
    host.users.note_denied(denied, context, session, now_ms);
    let reply = denied.reply(&principal.name, host.users.commands());
    CommandError::Composed(String::from_utf8_lossy(&reply).into_owned())
}

/// Why a waiting client may not be served; `None` if it may. Its rights may have changed since it began to
/// wait.
pub(crate) fn refuse_waiter(waiter: &Waiter, host: &Host, now_ms: u64) -> Option<CommandError> {
    let (users, name) = (host.users.current(), waiter.client.user());
    let Some(principal) = users.get(&name) else { return Some(CommandError::NoAuth) };
    if principal.rights.are_unrestricted() {
        return None;
    }
    let args = waiter.args.as_args();
    let found = host.users.table().resolve_call(args).ok()?;
    let denied = judge(&principal.rights, found, args).err()?;
    let mut session = Session::new(waiter.client.clone(), true);
    session.login = crate::users::LogIn::new(principal, users.generation);
    Some(refusal(&denied, principal, DenialContext::TopLevel, &session, (host, now_ms)))
}

impl Context<'_, '_> {
    /// Judges a queued command again: the rights may have changed since it was queued.
    ///
    /// # Errors
    /// The error that stands for the command's reply in the reply of EXEC.
    #[inline]
    pub fn judge_queued(&mut self, found: ResolvedCommand, args: Args<'_>) -> Result<(), CommandError> {
        let Some(principal) = self.session.login.principal() else { return Err(CommandError::NoAuth) };
        if principal.rights.are_unrestricted() {
            return Ok(());
        }
        let Err(denied) = judge(&principal.rights, found, args) else { return Ok(()) };
        let reason = match denied {
            Denied::Command(_) => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => {
                "no permission to access one of the channels used as arguments to the command"
            }
        };
        let now_ms = self.now_ms();
        self.host.users.note_denied(&denied, DenialContext::Multi, self.session, now_ms);
        Err(CommandError::Composed(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {reason}"
        )))
    }

    /// Judges a call of a script.
    ///
    /// # Errors
    /// The whole text of the error reply.
    #[inline]
    pub fn judge_in_script(&self, found: ResolvedCommand, args: Args<'_>) -> Result<(), String> {
        let Some(principal) = self.session.login.principal() else {
            return Err(CommandError::NoAuth.to_string());
        };
        if principal.rights.are_unrestricted() {
            return Ok(());
        }
        let Err(denied) = judge(&principal.rights, found, args) else { return Ok(()) };
        self.host.users.note_denied(&denied, DenialContext::Lua, self.session, self.now_ms());
        let reply = denied.reply_in_script(&principal.name, self.host.users.commands());
        Err(String::from_utf8_lossy(&reply).into_owned())
    }

    /// Whether the user may make a call. Nothing is noted.
    pub fn may_call(&self, found: ResolvedCommand, args: Args<'_>) -> bool {
        let principal = self.session.login.principal();
        principal.is_some_and(|principal| judge(&principal.rights, found, args).is_ok())
    }

    /// The command that runs, for judgements; `None` before the first one.
    pub fn command(&self) -> Option<CommandId> {
        self.row.map(|row| CommandId(self.host.users.table().index_of(row) as u16))
    }

    /// Whether the user may read all keys with the command that runs: SORT BY and GET read keys that follow
    /// from values.
    pub fn may_read_all_keys(&self, args: Args<'_>) -> bool {
        let (Some(principal), Some(command)) = (self.session.login.principal(), self.command()) else {
            return false;
        };
        principal.rights.allow_all_keys(command, args.get(1), KeyAccess::READ)
    }
}
