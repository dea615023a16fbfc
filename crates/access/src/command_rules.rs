//! The rules of a selector about commands, in their order.
//!
//! The rules are kept as texts, normalised as in Redis 7.2 and later. A rule replaces earlier rules about the
//! same target. A rule about a command also replaces earlier rules about its subcommands and first arguments.
//! `+@all` and `-@all` replace all earlier rules. A replaced rule has no effect on verdicts, because a later
//! rule covers all that it covered.
//!
//! Invariants
//! - [`CommandRules::add`] leaves at most one rule about a target.
//! - A rule may name commands that this version does not know. [`Grammar`](crate::Grammar) has checked names
//!   against the commands of the version that took the rule. [`Rights`](crate::Rights) defines the meaning of
//!   unknown names.

use crate::words::{is_word, push_spaced};

/// One rule: its target, and whether the target is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRule {
    pub(crate) allows: bool,
    pub(crate) target: Box<[u8]>,
}

impl CommandRule {
    /// The rule that allows the command of this name, in lower case.
    pub fn allow(name: &str) -> CommandRule {
        CommandRule { allows: true, target: name.as_bytes().into() }
    }

    /// Whether the rule allows its target; otherwise it denies the target.
    pub fn allows(&self) -> bool {
        self.allows
    }

    /// `command`, `container|sub`, `command|argument` or `@category`, in lower case.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// The category that the rule names, without `@`; `None` if it names a command.
    pub(crate) fn category(&self) -> Option<&[u8]> {
        self.target.strip_prefix(b"@")
    }

    /// Whether this rule has the form that a record may contain. Decoding refuses rules without it.
    pub(crate) fn is_valid(&self) -> bool {
        let is_all = self.target.eq_ignore_ascii_case(b"@all");
        !self.target.is_empty()
            && !is_all
            && is_word(&self.target)
            && !self.target.iter().any(u8::is_ascii_uppercase)
    }
}

/// The commands allowed before the first rule, and the rules in order.
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

    /// Whether every command is allowed because there are no further rules. `false` even if the rules
    /// together allow all commands.
    pub(crate) fn allow_all(&self) -> bool {
        self.begins_with_all && self.rules.is_empty()
    }

    /// Adds a rule, and removes the earlier rules that it covers.
    pub fn add(&mut self, rule: CommandRule) {
        self.rules.retain(|known| {
            let after = known.target.strip_prefix(&*rule.target);
            !after.is_some_and(|after| after.is_empty() || after[0] == b'|')
        });
        self.rules.push(rule);
    }

    /// The rules as ACL GETUSER shows them: `+@all -@dangerous`.
    pub fn text(&self) -> Vec<u8> {
        let mut text = if self.begins_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            push_spaced(&mut text, &[if rule.allows { b"+" } else { b"-" }, &rule.target]);
        }
        text
    }
}
