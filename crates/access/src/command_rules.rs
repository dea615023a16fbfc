//! The rules of a selector about commands, in their order.
//!
//! They are kept as texts, normalised as Redis 7.2 and later do: a rule replaces earlier ones about the same
//! target, and one about a container those about its subcommands; `+@all` and `-@all` replace all. So a rule
//! that is left out never changes a verdict: a later rule covers all that it covered.
//!
//! Invariants
//! - Targets are words in lower case, each at most once.
//! - Names need not be known here: [`Grammar`](crate::Grammar) has checked them against the commands of the
//!   version that took the rule, and [`Rights`](crate::Rights) says what unknown ones mean.

use crate::words::{is_word, push_spaced};

/// One rule: whether it allows, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRule {
    pub(crate) allows: bool,
    pub(crate) target: Box<[u8]>,
}

impl CommandRule {
    /// Whether it allows its target. Otherwise it denies it.
    pub fn allows(&self) -> bool {
        self.allows
    }

    /// `command`, `container|sub`, `command|argument` or `@category`, in lower case.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// The category that it names, without `@`.
    pub(crate) fn category(&self) -> Option<&[u8]> {
        self.target.strip_prefix(b"@")
    }

    /// Whether this could be one: what a record may hold.
    pub(crate) fn is_valid(&self) -> bool {
        let is_all = self.target.eq_ignore_ascii_case(b"@all");
        !self.target.is_empty()
            && !is_all
            && is_word(&self.target)
            && !self.target.iter().any(u8::is_ascii_uppercase)
    }
}

/// What is allowed at first, and the rules after that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandRules {
    pub(crate) begins_with_all: bool,
    pub(crate) rules: Vec<CommandRule>,
}

impl CommandRules {
    /// Rules that allow all commands, or none.
    pub const fn all_or_none(begins_with_all: bool) -> CommandRules {
        CommandRules { begins_with_all, rules: Vec::new() }
    }

    /// Whether all commands are allowed before the first rule.
    pub fn begins_with_all(&self) -> bool {
        self.begins_with_all
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[CommandRule] {
        &self.rules
    }

    /// Whether every command is allowed.
    pub(crate) fn allow_all(&self) -> bool {
        self.begins_with_all && self.rules.is_empty()
    }

    /// Adds a rule, in place of those that it covers.
    pub(crate) fn add(&mut self, rule: CommandRule) {
        self.rules.retain(|known| {
            let after = known.target.strip_prefix(&*rule.target);
            !after.is_some_and(|after| after.is_empty() || after[0] == b'|')
        });
        self.rules.push(rule);
    }

    /// As ACL GETUSER shows them: `+@all -@dangerous`.
    pub fn text(&self) -> Vec<u8> {
        let mut text = if self.begins_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            push_spaced(&mut text, &[if rule.allows { b"+" } else { b"-" }, &rule.target]);
        }
        text
    }
}
