//! The rights of a user: the user's declaration, compiled for one table of commands.
//!
//! The rules are applied in their order to one bit per command and, for `+command|argument`, to a list of
//! first arguments. A rule about a command, or about a category of the command, removes the command's first
//! arguments from the list.
//!
//! The record of a user may come from a version with other commands.
//!
//! - A rule about an unknown command has no effect, because nobody can run that command here.
//! - A rule that allows an unknown category has no effect either.
//! - A rule that denies an unknown category denies everything that was allowed before it, because the
//!   category may have commands that are known here.
//!
//! Invariants
//! - `Rights` never change.
//! - A command in `free` may run whatever its arguments are.

use crate::category::Category;
use crate::command_list::{CommandId, CommandList};
use crate::command_rules::{CommandRule, CommandRules};
use crate::command_set::CommandSet;
use crate::pattern_index::PatternIndex;
use crate::patterns::{ChannelPatterns, KeyAccess, KeyPatterns};
use crate::selector::Selector;
use crate::user::User;

/// The rights of a user, compiled for judgements.
#[derive(Debug, Clone)]
pub struct Rights {
    /// The commands that may run freely: those that one selector permits with all keys and all channels, and
    /// those that every client may run.
    pub(crate) free: CommandSet,
    pub(crate) selectors: Vec<SelectorRights>,
    is_unrestricted: bool,
}

/// Commands that are permitted only with certain first arguments: one entry for each such argument, in lower
/// case.
type FirstArgs = Vec<(CommandId, Box<[u8]>)>;

#[derive(Debug, Clone)]
pub(crate) struct SelectorRights {
    pub(crate) commands: CommandSet,
    /// First arguments of commands that are not in `commands`.
    pub(crate) first_args: FirstArgs,
    pub(crate) keys: KeyRights,
    pub(crate) channels: ChannelRights,
}

#[derive(Debug, Clone)]
pub(crate) enum KeyRights {
    All,
    /// `all` is the access to all keys that a pattern `*` gives.
    Of {
        all: KeyAccess,
        patterns: PatternIndex,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum ChannelRights {
    All,
    /// The patterns, as a sorted list for literal comparison, and as an index for matching names.
    Of {
        patterns: Vec<Box<[u8]>>,
        index: PatternIndex,
    },
}

impl Rights {
    /// Compiles the rights of a user for the table of commands `commands`.
    pub fn new(user: &User, commands: &CommandList) -> Rights {
        let selectors: Vec<SelectorRights> =
            user.all_selectors().map(|selector| SelectorRights::new(selector, commands)).collect();
        let mut free = CommandSet::all_or_none(commands, false);
        for selector in selectors.iter().filter(|selector| selector.has_all_names()) {
            free.add(&selector.commands);
        }
        for (id, command) in commands.iter() {
            if command.is_for_all {
                free.set(id, true);
            }
        }
        let is_unrestricted = user.all_selectors().any(|selector| {
            selector.commands.allow_all()
                && selector.keys == KeyPatterns::All
                && selector.channels == ChannelPatterns::All
        });
        Rights { free, selectors, is_unrestricted }
    }

    /// Whether one selector permits everything, with no further rules about commands or categories.
    #[inline]
    pub fn are_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Whether a command is permitted whatever its arguments are.
    #[inline]
    pub fn allow_freely(&self, command: CommandId) -> bool {
        self.free.has(command)
    }
}

impl SelectorRights {
    fn new(selector: &Selector, commands: &CommandList) -> SelectorRights {
        let keys = match &selector.keys {
            KeyPatterns::All => KeyRights::All,
            KeyPatterns::Of(patterns) => {
                let all = patterns.iter().find(|known| *known.pattern == *b"*");
                KeyRights::Of {
                    all: all.map_or(KeyAccess::NONE, |known| known.access),
                    patterns: PatternIndex::new(patterns.iter().map(|known| (known.access, &*known.pattern))),
                }
            }
        };
        let channels = match &selector.channels {
            ChannelPatterns::All => ChannelRights::All,
            ChannelPatterns::Of(patterns) => {
                let index = PatternIndex::new(patterns.iter().map(|pattern| (KeyAccess::NONE, &**pattern)));
                let mut patterns = patterns.clone();
                patterns.sort();
                ChannelRights::Of { patterns, index }
            }
        };
        let (commands, first_args) = replay(&selector.commands, commands);
        SelectorRights { commands, first_args, keys, channels }
    }

    /// Whether all keys and channels are permitted.
    fn has_all_names(&self) -> bool {
        matches!(self.keys, KeyRights::All) && matches!(self.channels, ChannelRights::All)
    }
}

fn replay(rules: &CommandRules, commands: &CommandList) -> (CommandSet, FirstArgs) {
    let mut set = CommandSet::all_or_none(commands, rules.begins_with_all());
    let mut first_args = FirstArgs::new();
    for rule in rules.rules() {
        if let Some((command, argument)) = first_arg(rule, commands) {
            first_args.push((command, argument.into()));
            continue;
        }
        let category = rule.category().and_then(Category::named);
        let named = commands.find(rule.target()).map(|command| commands.with_subcommands(command));
        let is_denied_for_safety = !rule.allows() && rule.category().is_some() && category.is_none();
        for (id, command) in commands.iter() {
            let is_named = category.is_some_and(|category| command.categories.has(category))
                || named.as_ref().is_some_and(|named| named.contains(&id.0));
            if is_named || is_denied_for_safety {
                set.set(id, rule.allows());
                first_args.retain(|(known, _)| *known != id);
            }
        }
    }
    first_args.retain(|(command, _)| !set.has(*command));
    (set, first_args)
}

/// The command and the first argument, if the rule allows the command for that argument only.
fn first_arg<'r>(rule: &'r CommandRule, commands: &CommandList) -> Option<(CommandId, &'r [u8])> {
    let target = rule.target();
    if !rule.allows() || commands.find(target).is_some() {
        return None;
    }
    let bar = target.iter().position(|byte| *byte == b'|')?;
    let command = commands.find(&target[..bar]).filter(|command| !commands.is_container(*command))?;
    Some((command, &target[bar + 1..]))
}
