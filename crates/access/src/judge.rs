//! Judgements: may this user make this call?
//!
//! ```text
//! Rights::allow_freely(command) -- yes, for most calls --> run
//!    '-- no --> gather keys and channels -> Rights::judge -> run, or Denied
//! ```
//!
//! If the rights have only one selector, a call without channels is judged key by key, without a list of keys
//! ([`Rights::keys_for`]).
//!
//! A single selector must permit all of a call. A selector judges the command first, then the keys, then the
//! channels, each in the order of the arguments. If no selector permits the call, the refusal of the selector
//! that got furthest is reported.

use crate::command_list::CommandId;
use crate::denied::Denied;
use crate::patterns::KeyAccess;
use crate::rights::{ChannelRights, KeyRights, Rights, SelectorRights};

/// A key of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How the call uses the key.
    pub access: KeyAccess,
}

/// A channel of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelUse<'a> {
    /// The channel or pattern.
    pub name: &'a [u8],
    /// Whether `name` is a pattern of PSUBSCRIBE. A pattern is permitted only if all channels are, or if a
    /// rule has the same pattern.
    pub is_pattern: bool,
}

/// A call. Its keys and channels live for `'a`, the lists of them for the shorter `'l`.
#[derive(Debug, Clone, Copy)]
pub struct Call<'l, 'a> {
    /// The command.
    pub command: CommandId,
    /// The argument after the name of the command.
    pub first_arg: Option<&'a [u8]>,
    /// The keys of the call, in the order of its arguments.
    pub keys: &'l [KeyUse<'a>],
    /// The channels of the call, in the order of its arguments.
    pub channels: &'l [ChannelUse<'a>],
}

/// The point at which a selector has refused a call: the command, a key or a channel, with its index in the
/// call. A later point is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    Command,
    Key(usize),
    Channel(usize),
}

impl Rights {
    /// Whether a call is permitted.
    ///
    /// # Errors
    /// The part of the call that the user has no right to.
    pub fn judge<'a>(&self, call: &Call<'_, 'a>) -> Result<(), Denied<'a>> {
        if self.allow_freely(call.command) {
            return Ok(());
        }
        let mut furthest = Refusal::Command;
        for selector in &self.selectors {
            match selector.refusal(call) {
                None => return Ok(()),
                Some(refusal) => furthest = furthest.max(refusal),
            }
        }
        Err(match furthest {
            Refusal::Command => Denied::Command(call.command),
            Refusal::Key(at) => Denied::Key(call.keys[at].key),
            Refusal::Channel(at) => Denied::Channel(call.channels[at].name),
        })
    }

    /// The keys that a command may use, if the rights have only one selector and this selector permits the
    /// command.
    #[inline]
    pub fn keys_for(&self, command: CommandId, first_arg: Option<&[u8]>) -> Option<PermittedKeys<'_>> {
        match &*self.selectors {
            [only] if only.permits_command(command, first_arg) => Some(PermittedKeys(&only.keys)),
            _ => None,
        }
    }

    /// Whether a call of this command that has no key, channel or first argument is permitted.
    pub fn allow(&self, command: CommandId) -> bool {
        self.judge(&Call { command, first_arg: None, keys: &[], channels: &[] }).is_ok()
    }

    /// Whether one selector permits a command and this access to all keys. SORT with BY or GET needs this
    /// permission, because it makes names of keys from values.
    pub fn allow_all_keys(&self, command: CommandId, first_arg: Option<&[u8]>, access: KeyAccess) -> bool {
        self.allow_freely(command)
            || self.selectors.iter().any(|selector| {
                selector.permits_command(command, first_arg)
                    && match &selector.keys {
                        KeyRights::All => true,
                        KeyRights::Of { all, .. } => *all != KeyAccess::NONE && all.has(access),
                    }
            })
    }

    /// Whether a subscription may continue. One selector must permit the channel; its permitted commands do
    /// not matter.
    pub fn allow_subscription(&self, channel: ChannelUse<'_>) -> bool {
        self.is_unrestricted_or(|selector| selector.channels.permit(channel))
    }

    fn is_unrestricted_or(&self, test: impl Fn(&SelectorRights) -> bool) -> bool {
        self.are_unrestricted() || self.selectors.iter().any(test)
    }
}

/// The keys that one selector permits.
#[derive(Debug, Clone, Copy)]
pub struct PermittedKeys<'r>(&'r KeyRights);

impl PermittedKeys<'_> {
    /// Whether a key may be used in this way.
    #[inline]
    pub fn include(self, key: &KeyUse<'_>) -> bool {
        self.0.permit(key)
    }
}

impl SelectorRights {
    fn refusal(&self, call: &Call<'_, '_>) -> Option<Refusal> {
        if !self.permits_command(call.command, call.first_arg) {
            return Some(Refusal::Command);
        }
        if let Some(at) = call.keys.iter().position(|key| !self.keys.permit(key)) {
            return Some(Refusal::Key(at));
        }
        call.channels.iter().position(|channel| !self.channels.permit(*channel)).map(Refusal::Channel)
    }

    fn permits_command(&self, command: CommandId, first_arg: Option<&[u8]>) -> bool {
        self.commands.has(command)
            || first_arg.is_some_and(|given| {
                self.first_args
                    .iter()
                    .any(|(known, argument)| *known == command && argument.eq_ignore_ascii_case(given))
            })
    }
}

impl KeyRights {
    fn permit(&self, KeyUse { key, access }: &KeyUse<'_>) -> bool {
        match self {
            KeyRights::All => true,
            KeyRights::Of { patterns, .. } => patterns.permits(key, *access),
        }
    }
}

impl ChannelRights {
    fn permit(&self, channel: ChannelUse<'_>) -> bool {
        match self {
            ChannelRights::All => true,
            ChannelRights::Of { patterns, .. } if channel.is_pattern => {
                patterns.binary_search_by(|known| (**known).cmp(channel.name)).is_ok()
            }
            ChannelRights::Of { index, .. } => index.permits(channel.name, KeyAccess::NONE),
        }
    }
}
