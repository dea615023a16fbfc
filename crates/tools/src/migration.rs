//! `sheaf import --from`: copies the data of a running Redis or Valkey into a running Sheaf server without
//! downtime, or into the directory of a stopped one.
//!
//! ```text
//! source -- PSYNC --> RDB file -> spool -> verified -> commands that create its keys --> target
//!        -- its writes ------------> forwarded, in order           -----------------> target
//!        <-- acks -------------------------------------------------------------------
//! Ctrl-C: the writes that the source has made by then still follow; then clients can use the target
//! ```
//!
//! The command is a replica of the source and a client of the target, without durable state of its own. It
//! does not expire keys: it tells the target that only the source expires keys (CLIENT IMPORT-SOURCE).
//!
//! Invariants
//! - Nothing is written before the source's RDB file is verified to its end, and its unsupported data is
//!   reported.
//! - The target gets every write once, in the source's order; omissions are reported, and change the exit
//!   status.
//! - Until all keys are copied, only the offset of the RDB file is acknowledged to the source; after that,
//!   only offsets up to which the target has answered.
//! - A target with keys is left unchanged, unless removing them was requested.

mod adapting;
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
use crate::import::{self, Existing, ImportError};

/// The source and the destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The address of the server to copy.
    pub source: Address,
    /// The file with the password of the source.
    pub source_password_file: Option<PathBuf>,
    /// The destination of the copy.
    pub destination: Destination,
    /// The directory for the source's RDB file.
    pub spool_dir: PathBuf,
}

/// The destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A running server, which also gets the later writes of the source.
    Server(IntoServer),
    /// The directory of a stopped server, which gets the present state of the source.
    Directory {
        /// The path of the directory.
        dir: PathBuf,
        /// The treatment of keys already in it.
        existing: Existing,
    },
}

/// Options of a copy into a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntoServer {
    /// The address of the server.
    pub target: Address,
    /// The file with the password of the target.
    pub password_file: Option<PathBuf>,
    /// Whether the target's keys are removed first, and again if the copy has to start over.
    pub flushes: bool,
    /// Whether data that Sheaf does not support is left out.
    pub skips_unsupported: bool,
}

/// Why a copy ended before it was complete; the message says how to proceed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// An error of source or target.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The target failed while it held a part of the copy.
    #[error("{0}. The copy is incomplete and unusable: run the same command again with --flush")]
    TargetFailed(PeerError),
    /// The source sends no RDB file.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The RDB file cannot be stored here.
    #[error("cannot keep the source's RDB file: {0}. --spool names a directory with room for it")]
    Spool(io::Error),
    /// The RDB file is invalid, or the directory cannot be used.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The RDB file cannot be read a second time.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The source's stream after the file is not a stream of commands.
    #[error("the source's stream is malformed: {0}")]
    Stream(wire::ProtocolError),
    /// A password file cannot be read.
    #[error("cannot read the password in {}: {source}", path.display())]
    Password {
        /// The path of the password file.
        path: PathBuf,
        /// An error of the operating system, or the fault of the first line of the file.
        source: io::Error,
    },
    /// The target has keys, and the command was not told to remove them.
    #[error("the target {address} holds {keys} keys: it must be empty. --flush removes its keys")]
    HoldsKeys {
        /// The address of the target.
        address: String,
        /// The number of keys in all databases of the target.
        keys: u64,
    },
    /// The source has unsupported data; found before anything was written.
    #[error(
        "the source holds data that Sheaf does not support; nothing was written. --skip-unsupported copies the rest:\n{0}"
    )]
    Unsupported(String),
    /// The source has begun to send its data several times, and never came to the end.
    #[error(
        "the source began {times} times to send its data and never came to the end: {error}. Its log says why. If it \
         cannot store a key in this version of RDB (Redis {}, Valkey {}), remove or change that key, or export the \
         other keys; if it disconnects slow replicas, raise its client-output-buffer-limit for them, and repl-timeout",
        rdb::FILE_VERSION_MAX,
        rdb::FILE_VERSION_VALKEY
    )]
    NeverSends {
        /// The number of attempts of the source.
        times: u32,
        /// The error of the last attempt.
        error: PeerError,
    },
    /// The target refuses a key of the source.
    #[error(
        "the target cannot hold what the source has: {command} on \"{key}\": {error}. The copy is incomplete and \
         unusable: --flush removes it. --skip-unsupported leaves out what Sheaf does not have"
    )]
    KeyRefused {
        /// The name of the refused command.
        command: String,
        /// The first argument of the command.
        key: String,
        /// The error reply of the target.
        error: String,
    },
    /// The target refuses a write of the source.
    #[error(
        "the target cannot do what the source did: {command} on \"{key}\": {error}. The copy ends here. The target has \
         all writes of the source up to offset {offset}, not this one, and maybe some later ones, so it is not as the \
         source was at any time: --flush removes it. --skip-unsupported leaves out what Sheaf does not have. A source \
         that renames a command sends the other name: undo its rename-command for commands that write"
    )]
    Refused {
        /// The name of the refused command.
        command: String,
        /// The first argument of the command.
        key: String,
        /// The error reply of the target.
        error: String,
        /// The offset up to which nothing is missing.
        offset: u64,
    },
    /// The source no longer has the writes since the connection was lost.
    #[error(
        "the source has no longer what it wrote behind offset {offset}, when the connection was lost: the copy would have to \
         begin anew. With --flush it does so by itself; a larger repl-backlog-size of the source, and a \
         client-output-buffer-limit for replicas that holds what is written during the first copy, make it needless"
    )]
    CannotResume {
        /// The offset of the last write received.
        offset: u64,
    },
    /// The copy was interrupted before all keys were copied.
    #[error("interrupted before all keys were copied{}", if *.has_begun { ": the target holds a part of them" } else { "" })]
    Interrupted {
        /// Whether anything may have been written to the target.
        has_begun: bool,
    },
    /// The copy ended regularly, but with omissions.
    #[error("the copy is not complete: the list above names what is missing")]
    Incomplete,
    /// The copy ended before it was known to have all that the source had when the user ended it.
    #[error("the copy ended before it was known to have all that the source has")]
    Behind,
    /// Another error of the operating system.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// `sheaf import --from`: copies until it is interrupted or, into a directory, until all data is copied.
///
/// # Errors
/// [`MigrationError`].
pub fn run(mut options: Options) -> Result<(), MigrationError> {
    use_password(&mut options.source, options.source_password_file.as_ref())?;
    if let Destination::Server(IntoServer { target, password_file, .. }) = &mut options.destination {
        use_password(target, password_file.as_ref())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &options.destination {
        Destination::Directory { dir, existing } => {
            let spool = runtime.block_on(fetch(&options))?;
            let source = options.source.to_string();
            Ok(import::run_named(spool.path(), (&source, &source), dir, *existing)?)
        }
        Destination::Server(into) => {
            runtime.block_on(async { Copy::open(&options, into).await?.run().await })
        }
    }
}

fn use_password(address: &mut Address, file: Option<&PathBuf>) -> Result<(), MigrationError> {
    if let Some(path) = file {
        let text = settings::read_password(path)
            .map_err(|source| MigrationError::Password { path: path.clone(), source })?;
        address.password = Some(text);
    }
    Ok(())
}

/// Receives the source's RDB file.
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

/// A receiver of Ctrl-C and SIGTERM.
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

    /// Waits for the next signal. Cancel-safe.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
