//! How the engine treats a command, beyond its flags; COMMAND INFO shows none of it.

use wire::Args;

use super::{ConnectionNeed, Mobility};

/// The particulars of a row. Most rows have [`Treatment::DEFAULT`].
#[derive(Debug, Clone, Copy)]
pub struct Treatment {
    /// The index of the argument that names a member or field of the collection, whose memory is then
    /// prefetched; 0 for none.
    pub member: u8,
    /// Whether the command can leave its worker; `None`: as its flags say.
    pub mobility: Option<Mobility>,
    /// Why the command needs a connection that outlives its reply; `None`: as its flags say.
    pub connection: Option<ConnectionNeed>,
    /// Whether a call may wait, if the flags say that the command may.
    pub may_wait: fn(Args<'_>) -> bool,
    /// Whether the argument at this index is a secret, which SLOWLOG and MONITOR do not show.
    pub is_secret: fn(Args<'_>, usize) -> bool,
    /// Whether the command never replies BUSY, because clients may ignore its reply and rely on its effect
    /// (WATCH).
    pub is_never_busy: bool,
    /// Whether the command also runs while clients are paused, because it ends the pause.
    pub is_never_paused: bool,
    /// Whether the command only asks whether the process is alive: it is then also answered where data may
    /// not be shown.
    pub asks_for_life: bool,
    /// How the command's first argument names the script or function that the command runs; `None`: it runs
    /// none.
    pub calls: Option<Callee>,
}

/// How a command names the code that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// The source of a script, as for EVAL.
    Source,
    /// The SHA-1 of a script, as for EVALSHA.
    Sha,
    /// The name of a function, as for FCALL.
    Function,
}

impl Treatment {
    /// As the flags of the row say, and nothing more.
    pub const DEFAULT: Treatment = Treatment {
        member: 0,
        mobility: None,
        connection: None,
        may_wait: |_| true,
        is_secret: |_, _| false,
        is_never_busy: false,
        is_never_paused: false,
        asks_for_life: false,
        calls: None,
    };

    /// The treatment of a command that looks up members or fields. The argument at `index` is the first of
    /// these, unless options come before it.
    pub const fn of_member(index: u8) -> Treatment {
        Treatment { member: index, ..Treatment::DEFAULT }
    }

    /// The treatment of a command with a mobility of its own.
    pub const fn of_mobility(mobility: Mobility) -> Treatment {
        Treatment { mobility: Some(mobility), ..Treatment::DEFAULT }
    }

    /// The treatment of a command with a need of its own for a connection.
    pub const fn of_connection(need: ConnectionNeed) -> Treatment {
        Treatment { connection: Some(need), ..Treatment::DEFAULT }
    }

    /// The treatment of a command that runs a script or function.
    pub const fn of_callee(callee: Callee) -> Treatment {
        Treatment { calls: Some(callee), ..Treatment::DEFAULT }
    }

    /// The treatment of a command with secret arguments.
    pub const fn of_secrets(is_secret: fn(Args<'_>, usize) -> bool) -> Treatment {
        Treatment { is_secret, ..Treatment::DEFAULT }
    }
}
