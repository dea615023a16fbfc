//! Lines of users: an ACL file.
//!
//! The form is that of Redis. A line is `user NAME rule ...`, with one space before the name and one or more
//! spaces between further words. Empty lines are skipped, and a comment is an error. All errors of a file are
//! reported together, and a single error means that no user of the file is taken.

use std::collections::BTreeMap;

use crate::grammar::{Grammar, merged};
use crate::rule_error::{RuleError, RulesError};
use crate::user::{User, is_user_name};
use crate::words::up_to_null;

/// Why a file is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The text without `ERR`. It names each line that has an error.
    pub text: Vec<u8>,
}

const NOTHING_CHANGED: &[u8] =
    b"WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

/// The users of a file by their names. `path` is the file's name in errors.
///
/// # Errors
/// All errors of the file, as Redis reports them.
pub fn parse_file(
    grammar: &Grammar<'_>,
    path: &[u8],
    text: &[u8],
) -> Result<BTreeMap<Box<[u8]>, User>, FileError> {
    let mut users = BTreeMap::new();
    let mut errors = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let number = (index + 1).to_string();
        let mut error = |parts: &[&[u8]]| {
            [&[path, b":", number.as_bytes()], parts]
                .concat()
                .iter()
                .for_each(|part| errors.extend_from_slice(part));
        };
        let mut words = line.split(|byte| *byte == b' ');
        let name = match (words.next(), words.next()) {
            (Some(b"user"), Some(name)) => name,
            _ => {
                error(&[b" should start with user keyword followed by the username. "]);
                continue;
            }
        };
        if !is_user_name(name) {
            error(&[b": username '", up_to_null(name), b"' contains invalid characters. "]);
            continue;
        }
        if users.contains_key(name) {
            let parts = [b"WARNING: Duplicate user '", name, b"' found on line ", number.as_bytes(), b". "];
            parts.iter().for_each(|part| errors.extend_from_slice(part));
            continue;
        }
        let Ok(rules) = merged(words) else {
            error(&[b": Unmatched parenthesis in selector definition."]);
            continue;
        };
        let mut user = User::initial(grammar.all_channels);
        for rule in &rules {
            match grammar.apply_one(&mut user, rule).map_err(|error| RulesError::rule(rule, error)) {
                Err(RulesError::Rule { rule, error: why @ RuleError::Unknown }) => {
                    error(&[b": Error in applying operation '", &rule, b"': ", why.text().as_bytes(), b". "]);
                }
                Err(RulesError::Rule { error: why, .. }) => error(&[b": ", why.text().as_bytes(), b". "]),
                _ => {}
            }
        }
        users.insert(name.into(), user);
    }
    if errors.is_empty() {
        return Ok(users);
    }
    errors.extend_from_slice(NOTHING_CHANGED);
    Err(FileError { text: errors })
}
