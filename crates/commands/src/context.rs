//! What a handler works with.

use keyspace::{Applied, DbId, Effect, Keyspace};
use storage::Durability;
use wire::ReplyWriter;

use crate::{CommandError, Host, Session, Unit};

/// The surroundings of one command while it runs.
pub struct Context<'a, 'k> {
    /// The keys it has locked.
    pub unit: Unit<'k>,
    /// The keyspace, for commands that walk it without naming keys. They must not touch slots that `unit` has locked.
    pub keyspace: &'k Keyspace,
    /// The client.
    pub session: &'a mut Session,
    /// The process.
    pub host: &'a dyn Host,
    /// Where the reply goes. If the handler returns an error, what it wrote is taken back.
    pub reply: ReplyWriter<'a>,
    /// The server's durability.
    pub durability: Durability,
    /// Longest string a command may build, in bytes.
    pub bulk_bytes_max: usize,
    /// The log has admitted a record of this many bytes.
    pub(crate) admitted_bytes: u64,
}

impl Context<'_, '_> {
    /// The selected database.
    #[inline]
    pub fn db(&self) -> DbId {
        self.session.db
    }

    /// The time of the command, unix milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.unit.now_ms()
    }

    /// To be called before the first change by commands whose record can be much larger than their arguments: makes sure
    /// that the log has room for a record with `bytes` of content.
    ///
    /// # Errors
    /// [`CommandError::NeedsRoom`], to be passed on: the executor asks the log and runs the command again.
    pub fn require_room(&self, bytes: u64) -> Result<(), CommandError> {
        if bytes <= self.admitted_bytes { Ok(()) } else { Err(CommandError::NeedsRoom(bytes)) }
    }

    /// Makes a change; see [`Unit::apply`].
    #[inline]
    pub fn apply(&mut self, effect: &Effect<'_>) -> Applied {
        self.unit.apply(effect)
    }
}
