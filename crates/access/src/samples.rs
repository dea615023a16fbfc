//! Some commands with their categories, as Redis 8.2 has them.

use std::sync::LazyLock;

use crate::category::Category;
use crate::command_list::{Command, CommandList};
use crate::grammar::Grammar;
use crate::user::User;

const COMMANDS: &[(&str, &str)] = &[
    ("get", "read string fast"),
    ("set", "write string slow"),
    ("mget", "read string fast"),
    ("getset", "write string fast"),
    ("exists", "keyspace read fast"),
    ("del", "keyspace write slow"),
    ("keys", "keyspace read slow dangerous"),
    ("scan", "keyspace read slow"),
    ("sort", "write set sortedset list slow dangerous"),
    ("flushall", "keyspace write slow dangerous"),
    ("hget", "read hash fast"),
    ("xadd", "write stream fast"),
    ("blpop", "write list slow blocking"),
    ("config", "slow"),
    ("config|get", "admin slow dangerous"),
    ("config|set", "admin slow dangerous"),
    ("config|help", "slow"),
    ("acl", "slow"),
    ("acl|cat", "slow"),
    ("acl|whoami", "slow"),
    ("acl|setuser", "admin slow dangerous"),
    ("client", "slow"),
    ("client|id", "slow connection"),
    ("client|kill", "admin slow dangerous connection"),
    ("object", "slow"),
    ("object|encoding", "keyspace read slow"),
    ("object|help", "keyspace slow"),
    ("select", "fast connection"),
    ("auth", "fast connection"),
    ("hello", "fast connection"),
    ("quit", "fast connection"),
    ("reset", "fast connection"),
    ("ping", "fast connection"),
    ("subscribe", "pubsub slow"),
    ("psubscribe", "pubsub slow"),
    ("publish", "pubsub fast"),
    ("multi", "fast transaction"),
    ("exec", "slow transaction"),
    ("eval", "slow scripting"),
    ("info", "slow dangerous"),
    ("debug", "admin slow dangerous"),
];

static LIST: LazyLock<CommandList> = LazyLock::new(|| {
    CommandList::new(COMMANDS.iter().map(|(name, categories)| Command {
        name,
        categories:
            categories.split(' ').map(|name| Category::named(name.as_bytes()).expect("a category")).collect(),
        is_for_all: matches!(*name, "auth" | "hello" | "quit" | "reset"),
    }))
});

pub(crate) fn commands() -> &'static CommandList {
    &LIST
}

/// The grammar for a list of commands, in which new selectors permit no channels.
pub(crate) const fn grammar(commands: &CommandList) -> Grammar<'_> {
    Grammar { commands, all_channels: false }
}

/// The user with these rules, which are separated by single spaces.
pub(crate) fn user(rules: &str) -> User {
    let commands = commands();
    let rules = rules.split(' ').map(str::as_bytes);
    grammar(commands).apply(&User::initial(false), rules).expect("rules")
}
