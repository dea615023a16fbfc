//! Limits of requests that run commands of the Redis protocol, and the reasons why such a request ends early.

/// Limit of the requests that run commands at a time.
pub(super) const RUNS_MAX: usize = 8;
/// Limit of the requests that wait for messages at a time.
pub(super) const FOLLOWS_MAX: usize = 8;

/// Why commands were not run, or their replies are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// There are [`RUNS_MAX`] or [`FOLLOWS_MAX`] requests already, or the OS has no descriptors.
    #[error("Too many requests run commands already; try again later.")]
    Busy,
    /// The server does not serve another client, or the log-in failed.
    #[error("{0}")]
    NotServed(String),
    /// The replies are longer than the limit, or have too many values.
    #[error(
        "The replies are longer than 8 MiB together, or have more than 262144 values: ask for less. The changes of the commands are kept."
    )]
    TooLong,
    /// The commands did not end within 30 s.
    #[error("The commands took longer than 30 s: whether the last of them were executed is unknown.")]
    Late,
    /// The connection was closed, for instance by CLIENT KILL or SHUTDOWN.
    #[error(
        "The connection was closed before the last reply: whether all commands were executed is unknown."
    )]
    Closed,
}
