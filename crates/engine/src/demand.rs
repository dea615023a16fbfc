//! The room in the log and in memory that a command needs, or a transaction as a whole.

/// The room in the log and in memory that commands need before they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Whether the commands may append to the log by themselves, not by a script.
    pub(crate) appends: bool,
    /// Whether the commands may add data by themselves, not by a script.
    pub(crate) grows: bool,
    /// Whether the commands run scripts, whose own commands are refused one by one.
    pub(crate) runs_scripts: bool,
    /// Bytes of the arguments of all commands that may append.
    pub(crate) args_bytes: u64,
}

impl Demand {
    /// The demand of the commands of both together.
    pub(crate) fn and(self, other: Demand) -> Demand {
        Demand {
            appends: self.appends || other.appends,
            grows: self.grows || other.grows,
            runs_scripts: self.runs_scripts || other.runs_scripts,
            args_bytes: self.args_bytes + other.args_bytes,
        }
    }
}
