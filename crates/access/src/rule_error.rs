//! Why rules are refused, with the exact texts of Redis.
//!
//! No text shows the password of a rule that adds or removes one (`>`, `<`), also within a selector. Hashes
//! are shown.

use crate::words::up_to_null;

/// Why one rule is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleError {
    /// The text is no rule.
    Syntax,
    /// There is no such command or category.
    Unknown,
    /// The rule would allow a subcommand for one first argument only.
    FirstArgOfSubcommand,
    /// The rule adds a pattern for keys after all keys were permitted.
    AfterAllKeys,
    /// The rule adds a pattern for channels after all channels were permitted.
    AfterAllChannels,
    /// The text is no hash of a password.
    MalformedHash,
    /// The user does not have the password.
    NoSuchPassword,
}

impl RuleError {
    /// The text of the error, without a prefix.
    pub const fn text(self) -> &'static str {
        match self {
            RuleError::Syntax => "Syntax error",
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
                 any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not \
                 have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::MalformedHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
                 characters"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
        }
    }
}

/// Why a list of rules is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesError {
    /// One of the rules is refused.
    Rule {
        /// The rule, without passwords.
        rule: Vec<u8>,
        /// The reason of the refusal.
        error: RuleError,
    },
    /// A selector has no closing parenthesis.
    Unmatched {
        /// The word that begins the selector, without passwords.
        from: Vec<u8>,
    },
}

impl RulesError {
    pub(crate) fn rule(rule: &[u8], error: RuleError) -> RulesError {
        RulesError::Rule { rule: without_passwords(rule), error }
    }

    pub(crate) fn unmatched(from: &[u8]) -> RulesError {
        RulesError::Unmatched { from: without_passwords(from) }
    }

    /// The whole reply to ACL SETUSER. The reply may contain any bytes of the rules, even line ends.
    pub fn reply(&self) -> Vec<u8> {
        match self {
            RulesError::Rule { rule, error } => {
                [b"ERR Error in ACL SETUSER modifier '", &**rule, b"': ", error.text().as_bytes()].concat()
            }
            RulesError::Unmatched { from } => {
                [&b"ERR Unmatched parenthesis in acl selector starting at '"[..], from, b"'."].concat()
            }
        }
    }
}

/// A rule as error messages show it, with its passwords replaced.
fn without_passwords(rule: &[u8]) -> Vec<u8> {
    let rule = up_to_null(rule);
    if let [sign @ (b'>' | b'<'), ..] = rule {
        return [&[*sign][..], REDACTED].concat();
    }
    if !rule.starts_with(b"(") {
        return rule.to_vec();
    }
    // The rule is a selector with one word or several. Parentheses may stand before the first word and after
    // the last one.
    let words = rule.split(|byte| byte.is_ascii_whitespace()).map(|word| {
        let at = word.iter().position(|byte| *byte != b'(').unwrap_or(word.len());
        match word.split_at(at) {
            (before, [sign @ (b'>' | b'<'), secret @ ..]) => {
                let after: &[u8] = if secret.ends_with(b")") { b")" } else { b"" };
                [before, &[*sign], REDACTED, after].concat()
            }
            _ => word.to_vec(),
        }
    });
    words.collect::<Vec<_>>().join(&b' ')
}

const REDACTED: &[u8] = b"(redacted)";
