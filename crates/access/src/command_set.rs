//! A set of commands, with one bit for each command of a list.

use crate::command_list::{CommandId, CommandList};

#[derive(Debug, Clone)]
pub(crate) struct CommandSet(Box<[u64]>);

impl CommandSet {
    /// All commands of the list, or none.
    pub(crate) fn all_or_none(commands: &CommandList, is_all: bool) -> CommandSet {
        let word = if is_all { u64::MAX } else { 0 };
        CommandSet(vec![word; commands.len().div_ceil(64)].into())
    }

    /// Whether the set has a command, which must be in the list of the set.
    #[inline]
    pub(crate) fn has(&self, CommandId(id): CommandId) -> bool {
        self.0.get(usize::from(id / 64)).is_some_and(|word| word >> (id % 64) & 1 != 0)
    }

    pub(crate) fn set(&mut self, CommandId(id): CommandId, is_in: bool) {
        if let Some(word) = self.0.get_mut(usize::from(id / 64)) {
            let bit = 1 << (id % 64);
            if is_in { *word |= bit } else { *word &= !bit }
        }
    }

    /// Adds all of another set of the same list.
    pub(crate) fn add(&mut self, other: &CommandSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }
}
