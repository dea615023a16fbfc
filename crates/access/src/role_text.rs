//! Roles as words in rules: `role:NAME`.
//!
//! A role is any text that a document of `_users` may hold, and a word has no spaces. So spaces, control
//! characters and `%` are percent-encoded.

use crate::user::is_role;

/// The word that stands for a role.
pub(crate) fn text_of_role(role: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(role.len());
    for byte in role {
        match byte {
            b'%' | b' ' | 0..=0x1f | 0x7f => text.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            byte => text.push(*byte),
        }
    }
    text
}

/// The role that a word stands for. `None` if the word is malformed, or users cannot have the role.
pub(crate) fn role_of_text(text: &[u8]) -> Option<Box<[u8]>> {
    let (mut role, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            role.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        role.extend_from_slice(&hex::decode(digits).ok()?);
        rest = after;
    }
    is_role(&role).then(|| role.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_but_the_servers_own_is_a_word() {
        for role in ["writers", "two words", "100%", "a\tb\n", "é", "(x)", "#1"] {
            let text = text_of_role(role.as_bytes());
            assert!(!text.contains(&b' '), "{role}");
            assert_eq!(role_of_text(&text).as_deref(), Some(role.as_bytes()));
        }
        for refused in ["", "_admin", "%5Fadmin", "a%", "a%2", "a%zz"] {
            assert_eq!(role_of_text(refused.as_bytes()), None, "{refused}");
        }
    }
}
