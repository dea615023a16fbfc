//! A transaction in the making: the commands that a client has queued since MULTI.
//!
//! What it is: the queue, its limits, and what EXEC must know before it begins: slots to lock, room to ask for.
//! What it is not: the execution (see `families::transactions`), nor what is checked before a command is queued (see
//! `queueing`).

use keyspace::{KeyHash, LIBRARIES_SLOT, slot_of};
use wire::{Args, OwnedArgs};

use crate::{
    CommandError, Flags, Keys, Row,
    long_units::Mobility,
    row::{Found, innermost},
    unit::Slots,
};

/// Commands in one transaction.
pub const QUEUED_COMMANDS_MAX: usize = 1 << 20;

/// Memory of the commands of one transaction, in bytes. Half of what a record can hold: what a command logs may be larger
/// than its arguments.
pub const QUEUED_BYTES_MAX: usize = 1 << 30;

/// A command that waits for EXEC.
#[derive(Debug)]
pub struct Queued {
    /// The row of the command.
    pub found: Found,
    /// Its properties, and those of a command that it wraps.
    pub flags: Flags,
    /// Its arguments, the name first.
    pub args: OwnedArgs,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Transaction {
    commands: Vec<Queued>,
    /// Memory of the queue.
    bytes: usize,
    /// Bytes of all arguments.
    args_bytes: u64,
    /// What any of the commands is.
    flags: Flags,
    /// Whether any of the commands may append to the log.
    writes: bool,
    /// A command that cannot be undone.
    lasting: Option<&'static Row>,
    /// Slots of all keys; unsorted, some more than once.
    slots: Slots,
    needs_all_slots: bool,
    mobility: Mobility,
    failed: bool,
}

impl Transaction {
    /// Adds a command, whose first key has this hash, if it is known, and which may append to the log or does not.
    ///
    /// # Errors
    /// The transaction is too large, or must be undone if it fails, and could not be.
    pub fn push(
        &mut self,
        found: Found,
        args: Args<'_>,
        hash: Option<KeyHash>,
        writes: bool,
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
        // A script may touch keys that it has not declared; what is in a transaction cannot be run again.
        let roams = inner.row.flags.has(Flags::READS_ALL) || inner.row.flags.has(Flags::RUNS_SCRIPTS);
        self.needs_all_slots |= row.keys.spans_all(args) || roams;
        self.flags = self.flags.or(queued.flags);
        self.mobility = self.mobility.max(Mobility::of(found, args));
        self.writes |= writes;
        self.args_bytes += args.size_bytes() as u64;
        self.bytes += bytes;
        self.commands.push(queued);
        Ok(())
    }

    /// A command could not be queued: EXEC will refuse.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether a command could not be queued.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The commands in order.
    pub fn commands(&self) -> &[Queued] {
        &self.commands
    }

    /// Whether any of the commands has this property.
    pub fn any(&self, flag: Flags) -> bool {
        self.flags.has(flag)
    }

    /// Whether one command that fails undoes all: those on documents do.
    pub fn is_undone_on_failure(&self) -> bool {
        self.any(Flags::DOCUMENTS)
    }

    /// When it can be handed over.
    pub fn mobility(&self) -> Mobility {
        self.mobility
    }

    /// Whether any of the commands may append to the log.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Bytes of all arguments.
    pub fn args_bytes(&self) -> u64 {
        self.args_bytes
    }

    /// The slots of all keys; `None`: every slot.
    pub fn slots(&self) -> Option<&Slots> {
        (!self.needs_all_slots).then_some(&self.slots)
    }
}
