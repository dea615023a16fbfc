//! The keys and the channels of a selector: glob patterns in the order in which they were given.
//!
//! Invariants
//! - A pattern is a word. A pattern for keys has at least one kind of access.
//! - `All` has no patterns beside it, because they would have no effect. As in Redis, adding a pattern to
//!   `All` is an error.

use crate::rule_error::RuleError;
use crate::words::{is_word, push_spaced};

/// The use of a key by a call, or the uses that a pattern permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyAccess(u8);

impl KeyAccess {
    /// The call uses only the existence, type or length of the value, as EXISTS, TYPE and STRLEN do. A
    /// pattern of any access permits that.
    pub const NONE: KeyAccess = KeyAccess(0);
    /// The call reads the value of the key.
    pub const READ: KeyAccess = KeyAccess(1);
    /// The call changes the value of the key.
    pub const WRITE: KeyAccess = KeyAccess(2);
    /// The call reads and changes the value of the key.
    pub const BOTH: KeyAccess = KeyAccess(3);

    /// The accesses that at least one of the two values includes.
    #[must_use]
    pub const fn or(self, other: KeyAccess) -> KeyAccess {
        KeyAccess(self.0 | other.0)
    }

    /// Whether this access includes all of `other`.
    pub const fn has(self, other: KeyAccess) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Option<KeyAccess> {
        if bits <= KeyAccess::BOTH.0 { Some(KeyAccess(bits)) } else { None }
    }

    /// The text before the pattern in a rule.
    const fn prefix(self) -> &'static [u8] {
        match self {
            KeyAccess::READ => b"%R~",
            KeyAccess::WRITE => b"%W~",
            _ => b"~",
        }
    }
}

/// A pattern for keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    /// The accesses that the pattern permits.
    pub access: KeyAccess,
    /// The glob pattern.
    pub pattern: Box<[u8]>,
}

/// The keys that a selector permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPatterns {
    /// All keys.
    All,
    /// Keys that match one of these patterns.
    Of(Vec<KeyPattern>),
}

impl KeyPatterns {
    /// No key.
    pub const NONE: KeyPatterns = KeyPatterns::Of(Vec::new());

    /// Adds a pattern. If the same pattern is in the list already, its access is extended. The pattern `*`
    /// for reading and writing means all keys.
    pub(crate) fn add(&mut self, access: KeyAccess, pattern: &[u8]) -> Result<(), RuleError> {
        let KeyPatterns::Of(patterns) = self else { return Err(RuleError::AfterAllKeys) };
        if !is_word(pattern) || access == KeyAccess::NONE {
            return Err(RuleError::Syntax);
        }
        let access = match patterns.iter_mut().find(|known| *known.pattern == *pattern) {
            Some(known) => {
                known.access = known.access.or(access);
                known.access
            }
            None => {
                patterns.push(KeyPattern { access, pattern: pattern.into() });
                access
            }
        };
        if access == KeyAccess::BOTH && pattern == b"*" {
            *self = KeyPatterns::All;
        }
        Ok(())
    }

    /// The patterns as ACL GETUSER shows them.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        match self {
            KeyPatterns::All => text.extend_from_slice(b"~*"),
            KeyPatterns::Of(patterns) => patterns
                .iter()
                .for_each(|known| push_spaced(&mut text, &[known.access.prefix(), &known.pattern])),
        }
        text
    }
}

/// The channels that a selector permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelPatterns {
    /// All channels.
    All,
    /// Channels that match one of these patterns.
    Of(Vec<Box<[u8]>>),
}

impl ChannelPatterns {
    /// No channel.
    pub const NONE: ChannelPatterns = ChannelPatterns::Of(Vec::new());

    /// Adds a pattern, unless it is in the list already. The pattern `*` means all channels.
    pub(crate) fn add(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let ChannelPatterns::Of(patterns) = self else { return Err(RuleError::AfterAllChannels) };
        if !is_word(pattern) {
            return Err(RuleError::Syntax);
        }
        if pattern == b"*" {
            *self = ChannelPatterns::All;
        } else if !patterns.iter().any(|known| **known == *pattern) {
            patterns.push(pattern.into());
        }
        Ok(())
    }

    /// The patterns as ACL GETUSER shows them.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        match self {
            ChannelPatterns::All => text.extend_from_slice(b"&*"),
            ChannelPatterns::Of(patterns) => {
                patterns.iter().for_each(|known| push_spaced(&mut text, &[b"&", known]));
            }
        }
        text
    }
}
