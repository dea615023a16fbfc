//! A selector: commands, keys and channels that are permitted together.

use crate::command_rules::CommandRules;
use crate::patterns::{ChannelPatterns, KeyPatterns};
use crate::words::push_spaced;

/// One selector. Every user has a root selector, and any number of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The rules about the commands that are permitted.
    pub commands: CommandRules,
    /// The keys that these commands may use.
    pub keys: KeyPatterns,
    /// The channels that these commands may use.
    pub channels: ChannelPatterns,
}

impl Selector {
    /// The selector that permits everything.
    pub const ALL: Selector = Selector {
        commands: CommandRules::all_or_none(true),
        keys: KeyPatterns::All,
        channels: ChannelPatterns::All,
    };

    /// A new selector: it permits nothing, except all channels if the setting `acl-pubsub-default` says so.
    pub const fn initial(all_channels: bool) -> Selector {
        Selector {
            commands: CommandRules::all_or_none(false),
            keys: KeyPatterns::NONE,
            channels: if all_channels { ChannelPatterns::All } else { ChannelPatterns::NONE },
        }
    }

    /// The rules of the selector, as ACL LIST shows them.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.keys.text();
        if self.channels != ChannelPatterns::All {
            push_spaced(&mut text, &[b"resetchannels"]);
        }
        for part in [self.channels.text(), self.commands.text()] {
            if !part.is_empty() {
                push_spaced(&mut text, &[&part]);
            }
        }
        text
    }
}
