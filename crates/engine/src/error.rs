//! The errors that commands reply with.
//!
//! Where Redis 7.2 has the error, this is its exact text: clients match prefixes and whole texts, so such a
//! text is changed only if Redis changes it.

use std::fmt;

/// Why a command cannot run now: a unit on a thread of its own holds one of its slots, or the client has to
/// wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockContended {
    /// The command is to be retried after this many milliseconds; meanwhile the worker serves its other
    /// clients.
    Later(u64),
    /// The command gets BUSY: a script has held the slot for too long.
    Busy,
}

/// The refusal of a command that would go on from data which a forced recovery has left incomplete.
pub const UNCONFIRMED: &str =
    "ERR a forced recovery must be confirmed first: CONFIG SET force-recovery confirmed";

/// An error reply. The error itself does not close the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// The first argument names no command.
    UnknownCommand {
        /// The name as it was sent.
        name: Vec<u8>,
        /// The first of the arguments that followed.
        args: Vec<Vec<u8>>,
    },
    /// A container command has no such subcommand.
    UnknownSubcommand {
        /// The name of the container command, lower case.
        command: &'static str,
        /// The subcommand as it was sent.
        subcommand: Vec<u8>,
    },
    /// Too few or too many arguments for the command of this name.
    WrongArity(&'static str),
    /// The key holds another type.
    WrongType,
    /// The arguments do not have the form that the command takes.
    Syntax,
    /// The argument, or in INCR and related commands the value of the key, is not an integer.
    NotAnInteger,
    /// The argument is not a valid count: it is no integer, negative, or 0 where that is not accepted.
    NotPositive,
    /// The argument, or in INCRBYFLOAT and HINCRBYFLOAT the stored value, is not a floating point number.
    NotAFloat,
    /// A number outside its range, where Redis gives no details.
    OutOfRange,
    /// INCR and related commands would leave the range of 64 bits.
    IncrementOverflow,
    /// DECRBY of the smallest number.
    DecrementOverflow,
    /// INCRBYFLOAT or HINCRBYFLOAT would give no finite number.
    NotFinite,
    /// A time to live or a deadline that the command of this name refuses: it is zero or less where it must
    /// be positive, or outside the range of deadlines.
    InvalidExpire(&'static str),
    /// A string would exceed `proto-max-bulk-len`.
    StringTooLong,
    /// An offset is negative, for instance that of SETRANGE.
    OffsetOutOfRange,
    /// The command, such as RENAME, needs an existing key, and the key is absent.
    NoSuchKey,
    /// COPY or MOVE of a key onto itself.
    SameObject,
    /// A database number outside the range.
    DbOutOfRange,
    /// The `first` or the `second` argument of SWAPDB is not a number.
    InvalidDbIndex(&'static str),
    /// A cursor that SCAN and related commands do not take.
    InvalidCursor,
    /// A command of a client that has not logged in, or whose user was deleted.
    NoAuth,
    /// A login that is not accepted, for instance with a wrong name or password, as a user that is disabled,
    /// or in a transaction that cannot wait for it.
    WrongPass,
    /// AUTH without a name while `default` needs no password.
    NoPasswordSet,
    /// HELLO with a version other than 2 and 3.
    NoProto,
    /// A blocked client is woken with an error: CLIENT UNBLOCK.
    UnblockedByClient,
    /// A blocked client is woken with an error: this server does not lead any more.
    Unblocked,
    /// The server is still loading.
    Loading,
    /// The data exceeds the memory limit, and eviction has not made enough room.
    OutOfMemory,
    /// The log has no room. The text is the reason.
    DiskFull(String),
    /// The server was recovered past damage (`--force-recovery`), and no operator has accepted the loss yet.
    RecoveryUnconfirmed,
    /// The disk has not answered for seconds.
    LogStalled,
    /// The log is poisoned, so the server is about to stop.
    LogFailed,
    /// Too few replicas have acknowledged within `ack-timeout` what the command wrote or would show. All of
    /// that is in this server's log.
    NotReplicated,
    /// Not for clients: the log must admit a record of this many bytes first. The executor asks the log, and
    /// runs the command again.
    NeedsRoom(u64),
    /// Not for clients: the command needs slots that its arguments do not name. The executor runs it again
    /// with all slots.
    NeedsAllSlots,
    /// Not for clients: a long unit holds a slot that the command needs. The executor has the command retried
    /// later.
    SlotTaken {
        /// The delay before the retry, in milliseconds.
        pause_ms: u64,
    },
    /// Not for clients: clients are paused (CLIENT PAUSE), and this one was noted as held. The executor has
    /// the command retried when the pause is over.
    Held {
        /// Milliseconds until the pause ends.
        left_ms: u64,
    },
    /// Not for clients: the client has to wait before this command. The executor has the command retried
    /// later.
    Later {
        /// The delay before the retry, in milliseconds.
        pause_ms: u64,
    },
    /// Not for clients: the command takes long on a thread that serves other clients. The executor has it
    /// offloaded.
    NeedsOwnThread,
    /// Not for clients: the handler has written an error as its reply, and counted it. The handler's changes
    /// stay.
    Replied,
    /// A script has run for too long, and holds a slot or a thread that the command needs. Also the error of
    /// FUNCTION KILL while such a script runs, because FUNCTION KILL does not end scripts.
    Busy,
    /// As [`CommandError::Busy`], for a function; SCRIPT KILL does not end functions.
    BusyFunction,
    /// Any other text, prefix included.
    Text(&'static str),
    /// As [`CommandError::Text`], with a part that varies.
    Composed(String),
}

impl CommandError {
    /// Appends the text after the `-`, prefix included.
    pub fn render(&self, out: &mut Vec<u8>) {
        match self {
            CommandError::UnknownCommand { name, args } => {
                out.extend_from_slice(b"ERR unknown command '");
                out.extend_from_slice(&name[..name.len().min(128)]);
                out.extend_from_slice(b"', with args beginning with: ");
                let start = out.len();
                for arg in args {
                    let room = 128usize.saturating_sub(out.len() - start);
                    if room == 0 {
                        break;
                    }
                    out.push(b'\'');
                    out.extend_from_slice(&arg[..arg.len().min(room)]);
                    out.extend_from_slice(b"' ");
                }
            }
            CommandError::UnknownSubcommand { command, subcommand } => {
                out.extend_from_slice(b"ERR unknown subcommand '");
                out.extend_from_slice(&subcommand[..subcommand.len().min(128)]);
                out.extend_from_slice(format!("'. Try {} HELP.", command.to_uppercase()).as_bytes());
            }
            other => out.extend_from_slice(other.to_string().as_bytes()),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            CommandError::UnknownCommand { .. } | CommandError::UnknownSubcommand { .. } => {
                let mut out = Vec::new();
                self.render(&mut out);
                return f.write_str(&String::from_utf8_lossy(&out));
            }
            CommandError::WrongArity(name) => {
                return write!(f, "ERR wrong number of arguments for '{name}' command");
            }
            CommandError::InvalidExpire(name) => {
                return write!(f, "ERR invalid expire time in '{name}' command");
            }
            CommandError::InvalidDbIndex(which) => return write!(f, "ERR invalid {which} DB index"),
            CommandError::DiskFull(reason) => {
                return write!(
                    f,
                    "MISCONF Sheaf cannot make room for its log and is read-only until it can. Free disk space for a \
                     segment of the log (log-segment-bytes) and a little more; writes are accepted again by \
                     themselves. Reason: {reason}"
                );
            }
            CommandError::NeedsRoom(bytes) => {
                return write!(f, "ERR a record of {bytes} bytes was not admitted");
            }
            CommandError::Composed(text) => return f.write_str(text),
            CommandError::Busy => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            CommandError::BusyFunction => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
            }
            CommandError::NeedsAllSlots => "ERR the command needs every slot",
            CommandError::NeedsOwnThread => "ERR the command needs a thread of its own",
            CommandError::Replied => "ERR the command has replied with an error",
            CommandError::SlotTaken { .. } => "ERR a long-running command holds keys that this command needs",
            CommandError::Held { .. } => "ERR clients are paused",
            CommandError::Later { .. } => "ERR the command has to wait",
            CommandError::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            CommandError::Syntax => "ERR syntax error",
            CommandError::NotAnInteger => "ERR value is not an integer or out of range",
            CommandError::NotPositive => "ERR value is out of range, must be positive",
            CommandError::NotAFloat => "ERR value is not a valid float",
            CommandError::OutOfRange => "ERR value is out of range",
            CommandError::IncrementOverflow => "ERR increment or decrement would overflow",
            CommandError::DecrementOverflow => "ERR decrement would overflow",
            CommandError::NotFinite => "ERR increment would produce NaN or Infinity",
            CommandError::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            CommandError::OffsetOutOfRange => "ERR offset is out of range",
            CommandError::NoSuchKey => "ERR no such key",
            CommandError::SameObject => "ERR source and destination objects are the same",
            CommandError::DbOutOfRange => "ERR DB index is out of range",
            CommandError::InvalidCursor => "ERR invalid cursor",
            CommandError::NoAuth => "NOAUTH Authentication required.",
            CommandError::WrongPass => "WRONGPASS invalid username-password pair or user is disabled.",
            CommandError::NoPasswordSet => {
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?"
            }
            CommandError::NoProto => "NOPROTO unsupported protocol version",
            CommandError::UnblockedByClient => "UNBLOCKED client unblocked via CLIENT UNBLOCK",
            CommandError::Unblocked => {
                "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
            }
            CommandError::Loading => "LOADING Redis is loading the dataset in memory",
            CommandError::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            CommandError::RecoveryUnconfirmed => {
                "MISCONF Sheaf has left out damaged data at its start (--force-recovery) and is read-only. Read \
                 recovery-report.json in its directory, then accept the loss: CONFIG SET force-recovery confirmed"
            }
            CommandError::LogStalled => {
                "BUSY log stalled: the disk has not answered for seconds, try again later"
            }
            CommandError::LogFailed => "IOERR commit outcome unknown: the log failed, the server is stopping",
            CommandError::NotReplicated => {
                "NOREPLICAS not enough replicas have acknowledged within ack-timeout. The command was executed, but what it wrote, \
                 or would show, is lost if another server leads that does not have it: read before you repeat it. INFO \
                 replication shows the replicas"
            }
            CommandError::Text(text) => text,
        };
        f.write_str(text)
    }
}

impl std::error::Error for CommandError {}

impl From<LockContended> for CommandError {
    fn from(taken: LockContended) -> CommandError {
        match taken {
            LockContended::Later(pause_ms) => CommandError::SlotTaken { pause_ms },
            LockContended::Busy => CommandError::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_shown_with_their_first_arguments() {
        let args = [b"a".to_vec(), b"b c".to_vec()];
        let error = CommandError::UnknownCommand { name: b"foo".to_vec(), args: args.to_vec() };
        assert_eq!(error.to_string(), "ERR unknown command 'foo', with args beginning with: 'a' 'b c' ");
        let error = CommandError::UnknownCommand { name: vec![b'x'; 500], args: vec![vec![b'y'; 500]; 3] };
        let shown = format!("'{}', with args beginning with: '{}' ", "x".repeat(128), "y".repeat(128));
        assert_eq!(error.to_string(), format!("ERR unknown command {shown}"));
    }
}
