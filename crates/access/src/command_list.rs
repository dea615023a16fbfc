//! The commands that rules can name, with the facts about them that this crate needs.
//!
//! Invariants
//! - The position of a command in the list is its [`CommandId`].
//! - Only commands that directly follow a container in the list are its subcommands (`container|sub`).

use std::collections::HashMap;
use std::ops::Range;

use crate::category::Categories;

/// The position of a command in its [`CommandList`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u16);

/// A command, with the facts about it on which rules depend.
#[derive(Debug, Clone)]
pub struct Command {
    /// The name in lower case; `container|sub` for subcommands.
    pub name: &'static str,
    /// The categories of the command.
    pub categories: Categories,
    /// Whether every client may run the command, whatever the rules of its user.
    pub is_for_all: bool,
}

/// All commands of a server.
#[derive(Debug)]
pub struct CommandList {
    commands: Vec<Command>,
    ids: HashMap<&'static [u8], CommandId>,
}

impl CommandList {
    /// A list of these commands. If two have the same name, only the later one is found.
    ///
    /// # Panics
    /// If there are more than 65,535.
    pub fn new(commands: impl IntoIterator<Item = Command>) -> CommandList {
        let commands: Vec<Command> = commands.into_iter().collect();
        assert!(commands.len() <= usize::from(u16::MAX), "too many commands for their numbers");
        let ids =
            commands.iter().enumerate().map(|(at, command)| (command.name.as_bytes(), id(at))).collect();
        CommandList { commands, ids }
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// All commands with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (CommandId, &Command)> {
        self.commands.iter().enumerate().map(|(at, command)| (id(at), command))
    }

    /// The command or subcommand (`container|sub`) of this name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<CommandId> {
        self.ids.get(name).or_else(|| self.ids.get(&*name.to_ascii_lowercase())).copied()
    }

    /// The name of a command; empty if it is not in the list.
    pub fn name(&self, id: CommandId) -> &'static str {
        self.commands.get(usize::from(id.0)).map_or("", |command| command.name)
    }

    /// A command and, if it is a container, its subcommands.
    pub(crate) fn with_subcommands(&self, id: CommandId) -> Range<u16> {
        let is_subcommand = |command: &&Command| {
            command.name.split_once('|').is_some_and(|(container, _)| container == self.name(id))
        };
        let after = self.commands.get(usize::from(id.0) + 1..).unwrap_or_default();
        let count = after.iter().take_while(is_subcommand).count();
        id.0..id.0 + 1 + count as u16
    }

    /// Whether a command has subcommands.
    pub(crate) fn is_container(&self, id: CommandId) -> bool {
        self.with_subcommands(id).len() > 1
    }
}

fn id(at: usize) -> CommandId {
    CommandId(at as u16)
}
