//! Users and their rights to commands, keys and channels, in the language of Redis' ACL.
//!
//! ```text
//! rules (ACL SETUSER, a file) -> User -> record of the log -> User -> Rights -> judge each call -> Denied
//!                                 '-> ACL LIST, ACL GETUSER, a file
//! ```
//!
//! This crate has the user as data ([`User`]), the language of its rules ([`Grammar`], [`User::line`]), its
//! record ([`User::encode`]), and its compiled form ([`Rights`]) with judgements about calls. It also has the
//! replies and log entries of refusals ([`Denied`], [`DenialLog`]), and the waits after failed logins
//! ([`FailedLogins`]).
//!
//! It has no set of users, which belongs to the data, and no sessions or commands. Time, randomness and the
//! table of commands are arguments.
//!
//! Invariants
//! - A user is declared by names, not by numbers of commands. Only [`Rights`] depend on one table of commands
//!   ([`CommandList`]).
//! - Either all rules of a list are applied, or none.
//! - [`User::line`] is a text from which [`Grammar`] makes an equal user, except for its birth, if it knows
//!   all commands and categories in the text.
//! - A single selector must allow all of a call: command, keys and channels. If no selector does, the call is
//!   denied, unless its command is one that every client may run ([`Command::is_for_all`]).
//! - Passwords exist only as hashes: any number of SHA-256, as Redis keeps them, and at most one derived by
//!   PBKDF2, as documents of `_users` keep it. No error and no rendering shows a password.
//! - Decoding never panics, whatever the bytes are. A user has exactly one encoding.

#![forbid(unsafe_code)]

mod category;
mod codec;
mod command_list;
mod command_rules;
mod command_set;
mod denial_log;
mod denied;
mod derived_password;
mod describe;
mod failed_logins;
mod file;
mod genpass;
mod grammar;
mod judge;
mod login_queue;
mod password;
mod pattern_index;
mod patterns;
mod rights;
mod role_text;
mod rule_error;
#[cfg(test)]
mod samples;
mod selector;
#[cfg(test)]
mod tests;
mod user;
mod words;

pub use category::{Categories, Category};
pub use codec::{DecodeError, VERSION};
pub use command_list::{Command, CommandId, CommandList};
pub use command_rules::{CommandRule, CommandRules};
pub use denial_log::{Context, Denial, DenialLog, LogEntry, MERGE_MS_MAX, Reason};
pub use denied::Denied;
pub use derived_password::{DerivedPassword, ITERATIONS_DEFAULT, ITERATIONS_MAX, Prf, SALT_BYTES_MAX};
pub use describe::{SelectorDescription, UserDescription};
pub use failed_logins::{ADDRESSES_MAX, FORGOTTEN_AFTER_MS, FailedLoginLine, FailedLogins, LoginOf};
pub use file::{FileError, parse_file};
pub use genpass::{GENPASS_BITS_DEFAULT, GENPASS_BITS_MAX, GenpassError, genpass};
pub use grammar::Grammar;
pub use judge::{Call, ChannelUse, KeyUse, PermittedKeys};
pub use login_queue::{Turn, WAITING_MAX, Waiter};
pub use password::PasswordHash;
pub use patterns::{ChannelPatterns, KeyAccess, KeyPattern, KeyPatterns};
pub use rights::Rights;
pub use rule_error::{RuleError, RulesError};
pub use selector::Selector;
pub use user::{User, is_role, is_user_name};
