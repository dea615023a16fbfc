//! A user as texts: the line of ACL LIST and of a file, and the fields of ACL GETUSER.
//!
//! After `user NAME`, the line is a list of rules. Applied to a new user, these rules give an equal user,
//! except for its birth. They are refused if they name commands or categories that this version does not
//! know. As in Redis 8, `sanitize-payload` or `skip-sanitize-payload` is always shown.

use crate::grammar::ROLE;
use crate::role_text::text_of_role;
use crate::selector::Selector;
use crate::user::User;
use crate::words::push_spaced;

/// The fields of ACL GETUSER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDescription {
    /// The properties of the user, such as `on` and `nopass`.
    pub flags: Vec<&'static str>,
    /// The hashes of the user's passwords, in hexadecimal digits, and the text of its derived password.
    pub passwords: Vec<String>,
    /// The roles of the user.
    pub roles: Vec<Box<[u8]>>,
    /// The description of the root selector.
    pub root: SelectorDescription,
    /// The descriptions of the other selectors.
    pub selectors: Vec<SelectorDescription>,
}

/// The fields of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorDescription {
    /// The rules about commands, such as `-@all +get`.
    pub commands: Vec<u8>,
    /// The rules about keys, such as `~a %R~b`.
    pub keys: Vec<u8>,
    /// The rules about channels, such as `&a`.
    pub channels: Vec<u8>,
}

impl SelectorDescription {
    fn of(selector: &Selector) -> SelectorDescription {
        SelectorDescription {
            commands: selector.commands.text(),
            keys: selector.keys.text(),
            channels: selector.channels.text(),
        }
    }
}

impl User {
    /// The description of the user for ACL GETUSER.
    pub fn describe(&self) -> UserDescription {
        UserDescription {
            flags: self.flags().collect(),
            passwords: self.password_texts().collect(),
            roles: self.roles.clone(),
            root: SelectorDescription::of(&self.root),
            selectors: self.selectors.iter().map(SelectorDescription::of).collect(),
        }
    }

    /// The user's line for ACL LIST: `user NAME on nopass sanitize-payload ~* &* +@all`.
    pub fn line(&self, name: &[u8]) -> Vec<u8> {
        let mut line = [b"user ", name].concat();
        self.flags().for_each(|flag| push_spaced(&mut line, &[flag.as_bytes()]));
        self.password_texts().for_each(|text| push_spaced(&mut line, &[b"#", text.as_bytes()]));
        for role in &self.roles {
            push_spaced(&mut line, &[ROLE, &text_of_role(role)]);
        }
        push_spaced(&mut line, &[&self.root.text()]);
        for selector in &self.selectors {
            push_spaced(&mut line, &[b"(", &selector.text(), b")"]);
        }
        line
    }

    fn password_texts(&self) -> impl Iterator<Item = String> {
        let derived = self.derived_password.iter().map(|derived| derived.to_text());
        self.passwords.iter().map(|password| password.to_hex()).chain(derived)
    }

    fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            Some(if self.is_enabled { "on" } else { "off" }),
            self.needs_no_password.then_some("nopass"),
            Some(if self.skips_sanitizing { "skip-sanitize-payload" } else { "sanitize-payload" }),
        ];
        flags.into_iter().flatten()
    }
}
