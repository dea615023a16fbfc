//! Whether a command needs a connection that outlives its reply: a request of HTTP has none.

use wire::Args;

use super::{CommandTable, Family, Flags, Row, WRAPPED_AT};

/// Why a command needs a connection that outlives its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionNeed {
    /// The command may wait, for instance for a key.
    Waiting,
    /// Messages to the connection follow its reply.
    Messages,
    /// The command begins, ends or prepares a transaction, which is a state of the connection.
    Transaction,
    /// The command changes another state of the connection.
    State,
    /// Another server sends the command, and then uses the connection for a protocol between servers.
    Server,
}

impl ConnectionNeed {
    /// The need of a call, and the row that has it: the row of the command, or of the command that it wraps.
    pub fn of(table: &'static CommandTable, args: Args<'_>) -> Option<(&'static Row, ConnectionNeed)> {
        let found = table.resolve_call(args).ok()?;
        let args = if found.row.flags.has(Flags::WRAPS) { args.skip(WRAPPED_AT) } else { args };
        if args.is_empty() {
            return None;
        }
        let row = table.resolve_call(args).ok()?.row;
        Some((row, ConnectionNeed::of_row(row, args)?))
    }

    fn of_row(row: &Row, args: Args<'_>) -> Option<ConnectionNeed> {
        let listens = row.family == Family::Pubsub && row.flags.has(Flags::SUBSCRIBER);
        if row.treatment.connection.is_some() {
            row.treatment.connection
        } else if row.flags.has(Flags::BLOCKING) {
            (row.treatment.may_wait)(args).then_some(ConnectionNeed::Waiting)
        } else if listens {
            Some(ConnectionNeed::Messages)
        } else if row.family == Family::Transactions && !row.flags.has(Flags::WRAPS) {
            Some(ConnectionNeed::Transaction)
        } else {
            None
        }
    }
}
