//! A transaction being queued: the commands of a client since MULTI.
//!
//! This module has the queue, its limits, and the facts that EXEC needs before it begins: slots to lock, room
//! to ask for. The execution is in `commands::transactions`, the checks before a command is queued are in
//! `queueing`.

use keyspace::{KeyHash, LIBRARIES_SLOT, slot_of};
use wire::{Args, OwnedArgs};

use crate::{
    CommandError, Flags, Keys, Row,
    demand::Demand,
    row::Mobility,
    row::{ResolvedCommand, innermost},
    unit::Slots,
};

/// The maximum number of commands in one transaction.
pub const QUEUED_COMMANDS_MAX: usize = 1 << 20;

/// The maximum memory of the commands of one transaction, in bytes. This is half the limit of a record: the
/// effects of a command may be larger than its arguments.
pub const QUEUED_BYTES_MAX: usize = 1 << 30;

/// A command that waits for EXEC.
#[derive(Debug)]
pub struct Queued {
    /// The row of the command.
    pub found: ResolvedCommand,
    /// The properties of the command, and those of the command that it wraps.
    pub flags: Flags,
    /// The arguments of the command, the name first.
    pub args: OwnedArgs,
}

/// The queue of a client between MULTI and EXEC.
#[derive(Debug, Default)]
pub struct Transaction {
    commands: Vec<Queued>,
    /// Memory of the queue, in bytes.
    bytes: usize,
    demand: Demand,
    flags: Flags,
    /// A command that cannot be undone, if there is one.
    lasting: Option<&'static Row>,
    /// Slots of all keys; unsorted, with duplicates.
    slots: Slots,
    needs_all_slots: bool,
    mobility: Mobility,
    failed: bool,
}

impl Transaction {
    /// Adds a command. `hash` is the hash of the command's first key, if known.
    ///
    /// # Errors
    /// The transaction is too large, or would have both a command on documents, whose failure undoes the
    /// transaction, and a command that cannot be undone.
    pub fn push(
        &mut self,
        found: ResolvedCommand,
        args: Args<'_>,
        hash: Option<KeyHash>,
        demand: Demand,
    ) -> Result<(), CommandError> {
        let row = found.row;
        let (inner, _) = innermost(found, args);
        let queued = Queued { found, flags: row.flags.or(inner.row.flags), args: args.into() };
        let bytes = size_of::<Queued>() + queued.args.heap_bytes();
        if self.commands.len() == QUEUED_COMMANDS_MAX || self.bytes + bytes > QUEUED_BYTES_MAX {
            return Err(CommandError::Text("ERR the transaction has too many or too large commands"));
        }
        let lasting = [row, inner.row].into_iter().find(|row| !row.can_be_undone()).or(self.lasting);
        if let Some(lasting) = lasting
            && self.flags.or(queued.flags).has(Flags::DOCUMENTS)
        {
            let name = lasting.name.to_uppercase().replace('|', " ");
            return Err(CommandError::Composed(format!(
                "ERR {name} cannot be undone: it cannot be in one transaction with DOC commands"
            )));
        }
        self.lasting = lasting;
        let first = row.keys.first().zip(hash);
        row.keys.for_each(args, |index| {
            let known = first.filter(|(first, _)| *first == index).map(|(_, hash)| hash.slot());
            self.slots.push(known.unwrap_or_else(|| slot_of(args.at(index))));
        });
        if let Keys::Libraries = row.keys {
            self.slots.push(LIBRARIES_SLOT);
        }
        // A script may touch undeclared keys, and a command in a transaction cannot be run again with more
        // locks.
        let roams = inner.row.flags.has(Flags::READS_ALL) || inner.row.flags.has(Flags::RUNS_SCRIPTS);
        self.needs_all_slots |= row.keys.spans_all(args) || roams;
        self.flags = self.flags.or(queued.flags);
        self.mobility = self.mobility.max(Mobility::of(found, args));
        self.demand = self.demand.and(demand);
        self.bytes += bytes;
        self.commands.push(queued);
        Ok(())
    }

    /// Notes that a command could not be queued: EXEC will refuse to run.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether a command could not be queued.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The queued commands, in the order in which EXEC runs them.
    pub fn commands(&self) -> &[Queued] {
        &self.commands
    }

    /// Whether any of the commands has this property.
    pub fn any(&self, flag: Flags) -> bool {
        self.flags.has(flag)
    }

    /// Whether the transaction has a command on documents: the first of these that fails undoes the whole
    /// transaction.
    pub fn is_undone_on_failure(&self) -> bool {
        self.any(Flags::DOCUMENTS)
    }

    /// Until when the transaction can be offloaded: the least of what its commands allow.
    pub fn mobility(&self) -> Mobility {
        self.mobility
    }

    /// The room that the commands need together.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Bytes of the arguments of all commands that may append to the log.
    pub fn args_bytes(&self) -> u64 {
        self.demand.args_bytes
    }

    /// The slots of all keys; `None`: every slot.
    pub fn slots(&self) -> Option<&Slots> {
        (!self.needs_all_slots).then_some(&self.slots)
    }
}
