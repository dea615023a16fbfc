//! `sheaf import --from`: what a running Redis or Valkey holds, into a running Sheaf server without downtime, or into the
//! directory of a stopped one.
//!
//! ```text
//! source -- PSYNC --> RDB file -> spool -> verified whole -> commands that make its keys --> target
//!        -- its writes -------------------> forwarded in order, as they are -------------> target, acks back to the source
//! Ctrl-C: what the source has at that moment still comes; then clients can be pointed at the target
//! ```
//!
//! What it is: a replica to the source, a client to the target, and nothing that lasts between the two.
//! What it is not: part of a server; nor a judge of time: the target is told that the source alone says what has expired
//! (CLIENT IMPORT-SOURCE).
//!
//! Invariants
//! - Nothing is written before the source's RDB file was verified to its end, and what it holds that cannot be copied was told.
//! - The target gets every write once, in the source's order; what was left out was told, and is the exit status.
//! - What the source is told to be applied, the target has answered.
//! - A target that holds keys is left alone, unless it was said that they may go.

pub mod address;
mod commands;
mod copying;
mod following;
mod keys;
mod left_out;
mod open_stream;
mod peer;
mod source;
mod spool;
mod status;
mod stream;
mod target;
mod transfer;
mod watch;

use std::{io, path::PathBuf};

use recovery::offline::ProgressBars;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{address::Address, copying::Copy, spool::Spool};
pub use self::{keys::KeysError, peer::PeerError, transfer::TransferError};
use crate::{
    import::{self, Existing, ImportError},
    password,
};

/// What is copied, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The server to copy.
    pub source: Address,
    /// A file with its password.
    pub source_password_file: Option<PathBuf>,
    /// Where the copy goes.
    pub destination: Destination,
    /// The directory for the RDB file of the source.
    pub spool_dir: PathBuf,
}

/// Where a copy goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Into a running server, and on with what the source writes.
    Server(IntoServer),
    /// Into the directory of a stopped server, as the source is now.
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What becomes of keys that it holds.
        existing: Existing,
    },
}

/// A copy into a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntoServer {
    /// The server.
    pub target: Address,
    /// A file with its password.
    pub password_file: Option<PathBuf>,
    /// Whether the keys that it holds are removed first, and again if the copy has to begin anew.
    pub flushes: bool,
    /// Whether what Sheaf does not have is left out.
    pub skips_unsupported: bool,
}

/// Why a copy ended before it was complete; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// Source or target.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The target, while it held a part of the copy.
    #[error("{0}. The copy ends here and is of no use: run the same command again with --flush")]
    TargetFailed(PeerError),
    /// The source sends no file.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The file cannot be kept here.
    #[error("cannot keep the source's RDB file: {0}. --spool names a directory with room for it")]
    Spool(io::Error),
    /// The file, or the directory.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The file, at the second reading.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// What follows the file is no stream of commands.
    #[error("the source's stream is malformed: {0}")]
    Stream(wire::ProtocolError),
    /// A password file.
    #[error("cannot read the password in {}: {source}", path.display())]
    Password {
        /// The RDB file.
        path: PathBuf,
        /// What the OS said.
        source: io::Error,
    },
    /// The target has keys.
    #[error("the target {address} holds {keys} keys: it must be empty. --flush removes its keys")]
    HoldsKeys {
        /// The target.
        address: String,
        /// How many.
        keys: u64,
    },
    /// Found before anything was written.
    #[error(
        "the source holds data that Sheaf does not support; nothing was written. --skip-unsupported copies the rest:\n{0}"
    )]
    Unsupported(String),
    /// A write of the source cannot be done by the target.
    #[error(
        "the target cannot do what the source did: {command} on \"{key}\": {error}. The copy ends here, and is the \
         source up to offset {offset}. --skip-unsupported leaves out what Sheaf does not have"
    )]
    Refused {
        /// The command.
        command: String,
        /// Its first argument.
        key: String,
        /// What the target said.
        error: String,
        /// The position.
        offset: u64,
    },
    /// The source has forgotten what came meanwhile.
    #[error(
        "the source has no longer what it wrote behind offset {offset}, when the connection was lost: the copy would have to \
         begin anew. With --flush it does so by itself; a larger repl-backlog-size of the source, and a \
         client-output-buffer-limit for replicas that holds what is written during the first copy, make it needless"
    )]
    CannotResume {
        /// The position.
        offset: u64,
    },
    /// Somebody has stopped it before it had begun to follow.
    #[error("interrupted before all keys were copied{}", if *.has_begun { ": the target holds a part of them" } else { "" })]
    Interrupted {
        /// Whether something was written.
        has_begun: bool,
    },
    /// It came to its end, and has left out something.
    #[error("the copy is not complete: the list above names the missing keys")]
    Incomplete,
    /// Threads or signals.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// `sheaf import --from`: copies until it is interrupted or, into a directory, until everything is there.
///
/// # Errors
/// See [`MigrationError`].
pub fn run(mut options: Options) -> Result<(), MigrationError> {
    use_password(&mut options.source, options.source_password_file.as_ref())?;
    if let Destination::Server(IntoServer { target, password_file, .. }) = &mut options.destination {
        use_password(target, password_file.as_ref())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &options.destination {
        Destination::Directory { dir, existing } => {
            let spool = runtime.block_on(fetch(&options))?;
            Ok(import::run_named(spool.path(), &options.source.to_string(), dir, *existing)?)
        }
        Destination::Server(into) => {
            runtime.block_on(async { Copy::open(&options, into).await?.run().await })
        }
    }
}

fn use_password(address: &mut Address, file: Option<&PathBuf>) -> Result<(), MigrationError> {
    if let Some(path) = file {
        let text =
            password::read(path).map_err(|source| MigrationError::Password { path: path.clone(), source })?;
        address.password = Some(text);
    }
    Ok(())
}

/// The source's data as a file.
async fn fetch(options: &Options) -> Result<Spool, MigrationError> {
    let mut interruption = Interruption::new()?;
    let bars = ProgressBars::default();
    let received = tokio::select! {
        received = copying::receive(options, &bars) => received,
        () = interruption.next() => Err(MigrationError::Interrupted { has_begun: false }),
    };
    bars.finish();
    received.map(|(_, _, spool)| spool)
}

/// Ctrl-C, or SIGTERM.
struct Interruption {
    interrupt: Signal,
    terminate: Signal,
}

impl Interruption {
    fn new() -> io::Result<Interruption> {
        Ok(Interruption {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one. If this is cancelled, nothing is lost.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
