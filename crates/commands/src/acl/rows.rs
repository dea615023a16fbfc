//! The rows of the commands on users.

use access::Category;
use engine::{Family, Flags, Keys, Needs, Row, Treatment};

use super::{change, file, log, show};
use crate::help::{help, no_subcommand};

/// Allowed at any time, but not in scripts.
const ANYBODY: Flags = Flags::LOADING.or(Flags::STALE).or(Flags::NOSCRIPT);
/// For administrators, once the users are loaded; not in scripts.
const ADMIN: Flags = Flags::ADMIN.or(Flags::STALE).or(Flags::NOSCRIPT);
/// For administrators who change users. Users are data, so these are writes, and refused on a replica.
const CHANGE: Flags = Flags::ADMIN.or(Flags::WRITE).or(Flags::NOSCRIPT).or(Flags::AUDITED);

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 2,
    flags: ADMIN,
    keys: Keys::Libraries,
    family: Family::Server,
    since: "6.0.0",
    complexity: "O(N) where N is the number of users.",
    summary: "",
    syntax: "",
    handler: no_subcommand,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    // Redis has its ACL commands in neither of these categories, because users are no data there.
    needs: Needs::BY_FLAGS.without(&[Category::Write, Category::Keyspace]),
};

pub(crate) const ROWS: &[Row] = &[Row {
    name: "acl",
    arity: -2,
    flags: Flags::CONTAINER,
    keys: Keys::None,
    complexity: "Depends on the subcommand.",
    summary: "Shows and changes users, and what they may do.",
    subcommands: SUBCOMMANDS,
    ..ROW
}];

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "acl|cat",
        arity: -2,
        flags: ANYBODY,
        keys: Keys::None,
        complexity: "O(N) where N is the number of commands.",
        summary: "Lists the categories of commands, or the commands of one.",
        syntax: "[category]",
        handler: show::cat,
        ..ROW
    },
    Row {
        name: "acl|deluser",
        arity: -3,
        flags: CHANGE,
        summary: "Removes users, and closes their connections.",
        syntax: "username [username ...]",
        handler: change::deluser,
        ..ROW
    },
    Row {
        name: "acl|dryrun",
        arity: -4,
        since: "7.0.0",
        complexity: "O(1)",
        summary: "Says whether a user may make a call, without making it.",
        syntax: "username command [arg [arg ...]]",
        treatment: Treatment::of_secrets(|_, index| index > 3),
        handler: show::dryrun,
        ..ROW
    },
    Row {
        name: "acl|genpass",
        arity: -2,
        flags: ANYBODY,
        keys: Keys::None,
        complexity: "O(1)",
        summary: "Makes a password that nobody can guess.",
        syntax: "[bits]",
        handler: show::genpass,
        ..ROW
    },
    Row {
        name: "acl|getuser",
        arity: 3,
        complexity: "O(N) where N is the number of rules of the user.",
        summary: "Shows the rules of a user.",
        syntax: "username",
        handler: show::getuser,
        ..ROW
    },
    Row {
        name: "acl|help",
        flags: Flags::LOADING.or(Flags::STALE),
        keys: Keys::None,
        complexity: "O(1)",
        summary: "Describes the subcommands.",
        handler: help,
        ..ROW
    },
    Row { name: "acl|list", summary: "Lists the users with their rules.", handler: show::list, ..ROW },
    Row {
        name: "acl|load",
        flags: CHANGE.or(Flags::AWAITS_DISK),
        summary: "Replaces all users by those of the file (aclfile).",
        handler: file::load,
        ..ROW
    },
    Row {
        name: "acl|log",
        arity: -2,
        keys: Keys::None,
        complexity: "O(N) where N is the number of entries.",
        summary: "Shows what was denied lately, or forgets it.",
        syntax: "[count | RESET]",
        handler: log::log,
        ..ROW
    },
    Row {
        name: "acl|save",
        flags: ADMIN.or(Flags::AUDITED).or(Flags::AWAITS_DISK),
        // ACL SAVE needs no lock. A lock would be held until the disk has answered.
        keys: Keys::None,
        summary: "Writes all users to the file (aclfile).",
        handler: file::save,
        ..ROW
    },
    Row {
        name: "acl|setuser",
        arity: -3,
        flags: CHANGE,
        complexity: "O(N) where N is the number of rules.",
        summary: "Makes a user, or changes its rules.",
        syntax: "username [rule [rule ...]]",
        treatment: Treatment::of_secrets(|_, index| index > 2),
        handler: change::setuser,
        ..ROW
    },
    Row { name: "acl|users", summary: "Lists the names of the users.", handler: show::users, ..ROW },
    Row {
        name: "acl|whoami",
        flags: ANYBODY,
        keys: Keys::None,
        complexity: "O(1)",
        summary: "Names the user of this connection.",
        handler: show::whoami,
        ..ROW
    },
];
