//! The language of rules: the words of ACL SETUSER and of the lines of a file, as changes of a user.
//!
//! ```text
//! words -> merged: `(+get`, `~a)` is one rule -> rule by rule, on a copy of the user
//! ```
//!
//! The language is that of Redis 7.2 and later, with differences. Each difference refuses something that
//! Redis accepts but cannot show as rules again:
//!
//! - quotes within selectors, and words in selectors that end in `)`;
//! - null bytes and spaces within names and first arguments (after `+select|a b`, Redis 8.2.3 crashes on ACL
//!   LIST);
//! - patterns after `%RW~*`, which means `~*`.
//!
//! Sheaf's own rules are `role:NAME` and `resetroles`, for document databases, and `#` or `!` before a text
//! that begins with `pbkdf2-`, for the password of a document in `_users`.

use crate::category::Category;
use crate::command_list::CommandList;
use crate::command_rules::{CommandRule, CommandRules};
use crate::derived_password::{DerivedPassword, TEXT_PREFIX};
use crate::password::PasswordHash;
use crate::patterns::{ChannelPatterns, KeyAccess, KeyPatterns};
use crate::role_text::role_of_text;
use crate::rule_error::{RuleError, RulesError};
use crate::selector::Selector;
use crate::user::User;
use crate::words::{is_word, words};

/// The commands and the setting on which the meaning of rules depends.
#[derive(Debug, Clone, Copy)]
pub struct Grammar<'a> {
    /// The commands that rules can name.
    pub commands: &'a CommandList,
    /// Whether new and reset selectors permit all channels: the setting `acl-pubsub-default`.
    pub all_channels: bool,
}

impl Grammar<'_> {
    /// Applies these rules to a copy of the user, and returns the copy.
    ///
    /// # Errors
    /// The first rule that is refused, or a selector whose parenthesis is not closed.
    pub fn apply<'r>(
        &self,
        user: &User,
        rules: impl IntoIterator<Item = &'r [u8]>,
    ) -> Result<User, RulesError> {
        let mut user = user.clone();
        for rule in merged(rules)? {
            self.apply_one(&mut user, &rule).map_err(|error| RulesError::rule(&rule, error))?;
        }
        Ok(user)
    }

    /// Applies one rule, whose parentheses match. After an error, the caller must discard `user`, which may
    /// have been changed in part.
    pub(crate) fn apply_one(&self, user: &mut User, rule: &[u8]) -> Result<(), RuleError> {
        let hash_of = |text| PasswordHash::from_hex(text).ok_or(RuleError::MalformedHash);
        match rule {
            [] => {}
            [b'>', password @ ..] => add_password(user, PasswordHash::of(password)),
            [b'#', hash @ ..] if hash.starts_with(TEXT_PREFIX) => {
                user.needs_no_password = false;
                user.derived_password = Some(derived_of(hash)?);
            }
            [b'!', hash @ ..] if hash.starts_with(TEXT_PREFIX) => {
                let known = user.derived_password.take();
                known
                    .filter(|known| derived_of(hash) == Ok(known.clone()))
                    .ok_or(RuleError::NoSuchPassword)?;
            }
            [b'#', hash @ ..] => add_password(user, hash_of(hash)?),
            [b'<', password @ ..] => remove_password(user, PasswordHash::of(password))?,
            [b'!', hash @ ..] => remove_password(user, hash_of(hash)?)?,
            [b'(', inner @ .., b')'] => user.selectors.push(self.selector(inner)?),
            _ => match &*rule.to_ascii_lowercase() {
                b"on" => user.is_enabled = true,
                b"off" => user.is_enabled = false,
                b"skip-sanitize-payload" => user.skips_sanitizing = true,
                b"sanitize-payload" => user.skips_sanitizing = false,
                b"nopass" => set_no_passwords(user, true),
                b"resetpass" => set_no_passwords(user, false),
                b"resetroles" => user.roles.clear(),
                b"clearselectors" => user.selectors.clear(),
                lower if lower.starts_with(ROLE) => {
                    let role = role_of_text(&rule[ROLE.len()..]).ok_or(RuleError::Syntax)?;
                    if !user.roles.contains(&role) {
                        user.roles.push(role);
                    }
                }
                b"reset" => *user = User::initial(self.all_channels),
                _ => self.apply_to_selector(&mut user.root, rule)?,
            },
        }
        Ok(())
    }

    /// The selector that the rules within a pair of parentheses give.
    fn selector(&self, rules: &[u8]) -> Result<Selector, RuleError> {
        if rules.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
            return Err(RuleError::Syntax);
        }
        // In the line of the user, a word that ends in `)` would end the selector.
        if words(rules).any(|word| word.ends_with(b")")) {
            return Err(RuleError::Syntax);
        }
        let mut selector = Selector::initial(self.all_channels);
        words(rules).try_for_each(|rule| self.apply_to_selector(&mut selector, rule))?;
        Ok(selector)
    }

    fn apply_to_selector(&self, selector: &mut Selector, rule: &[u8]) -> Result<(), RuleError> {
        match &*rule.to_ascii_lowercase() {
            b"allkeys" | b"~*" => selector.keys = KeyPatterns::All,
            b"resetkeys" => selector.keys = KeyPatterns::NONE,
            b"allchannels" | b"&*" => selector.channels = ChannelPatterns::All,
            b"resetchannels" => selector.channels = ChannelPatterns::NONE,
            b"allcommands" | b"+@all" => selector.commands = CommandRules::all_or_none(true),
            b"nocommands" | b"-@all" => selector.commands = CommandRules::all_or_none(false),
            [sign @ (b'+' | b'-'), target @ ..] => {
                let allows = *sign == b'+';
                self.check_target(allows, target)?;
                selector.commands.add(CommandRule { allows, target: target.into() });
            }
            _ => match rule {
                [b'~', pattern @ ..] => selector.keys.add(KeyAccess::BOTH, pattern)?,
                [b'%', rest @ ..] => {
                    if selector.keys == KeyPatterns::All {
                        return Err(RuleError::AfterAllKeys);
                    }
                    let (access, pattern) = access_and_pattern(rest).ok_or(RuleError::Syntax)?;
                    selector.keys.add(access, pattern)?;
                }
                [b'&', pattern @ ..] => selector.channels.add(pattern)?,
                _ => return Err(RuleError::Syntax),
            },
        }
        Ok(())
    }

    /// Checks the target of a rule about commands, which is in lower case.
    fn check_target(&self, allows: bool, target: &[u8]) -> Result<(), RuleError> {
        if let [b'@', category @ ..] = target {
            return Category::named(category).map(drop).ok_or(RuleError::Unknown);
        }
        if self.commands.find(target).is_some() {
            return Ok(());
        }
        let bar = target.iter().rposition(|byte| *byte == b'|').filter(|_| allows);
        let (name, argument) = target.split_at(bar.ok_or(RuleError::Unknown)?);
        let command = self.commands.find(name).ok_or(RuleError::Unknown)?;
        if name.contains(&b'|') {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        match &argument[1..] {
            argument if argument.is_empty() || !is_word(argument) => Err(RuleError::Syntax),
            _ if self.commands.is_container(command) => Err(RuleError::Unknown),
            _ => Ok(()),
        }
    }
}

/// The beginning of a rule that gives a role.
pub(crate) const ROLE: &[u8] = b"role:";

fn derived_of(text: &[u8]) -> Result<DerivedPassword, RuleError> {
    DerivedPassword::from_text(text).ok_or(RuleError::MalformedHash)
}

fn set_no_passwords(user: &mut User, needs_none: bool) {
    user.needs_no_password = needs_none;
    user.passwords.clear();
    user.derived_password = None;
}

fn add_password(user: &mut User, password: PasswordHash) {
    user.needs_no_password = false;
    if !user.passwords.contains(&password) {
        user.passwords.push(password);
    }
}

fn remove_password(user: &mut User, password: PasswordHash) -> Result<(), RuleError> {
    let at = user.passwords.iter().position(|known| *known == password).ok_or(RuleError::NoSuchPassword)?;
    user.passwords.remove(at);
    Ok(())
}

/// Splits a rule for keys, without its `%`, into access and pattern: `R~p`, `W~p`, `RW~p`. Without `~`, the
/// pattern is empty.
fn access_and_pattern(rest: &[u8]) -> Option<(KeyAccess, &[u8])> {
    let end = rest.iter().position(|byte| *byte == b'~').unwrap_or(rest.len());
    let mut access = KeyAccess::NONE;
    for letter in &rest[..end] {
        let more = match letter.to_ascii_lowercase() {
            b'r' => KeyAccess::READ,
            b'w' => KeyAccess::WRITE,
            _ => return None,
        };
        if access.has(more) {
            return None;
        }
        access = access.or(more);
    }
    (access != KeyAccess::NONE).then(|| (access, rest.get(end + 1..).unwrap_or_default()))
}

/// Joins the words of each selector into one rule.
pub(crate) fn merged<'r>(rules: impl IntoIterator<Item = &'r [u8]>) -> Result<Vec<Vec<u8>>, RulesError> {
    let mut merged: Vec<Vec<u8>> = Vec::new();
    // The first word of the last selector in `merged`, while that selector is incomplete.
    let mut open: Option<&[u8]> = None;
    for word in rules {
        match (open, merged.last_mut()) {
            (Some(_), Some(selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
            }
            _ => {
                merged.push(word.to_vec());
                open = word.starts_with(b"(").then_some(word);
            }
        }
        if word.ends_with(b")") {
            open = None;
        }
    }
    match open {
        Some(from) => Err(RulesError::unmatched(from)),
        None => Ok(merged),
    }
}
