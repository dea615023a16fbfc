//! Backups: a copy of a running server's snapshot, log and files of documents, made over HTTP, verified, and published
//! by its `backup.json`; brought up to date by copying what is new.
//!
//! ```text
//! sheaf backup DEST (fetch)                         server (routes -> session -> storage::CopyPlan)
//!   POST   /_backup?session=S&resume=LSN    ------>  a snapshot, if there is none; pin it and the log behind it
//!   GET    /_backup/S/FILE, Range           ------>  a file, as far as it belongs to the copy
//!   DELETE /_backup/S                       ------>  the pin goes
//!   verify every byte, write backup.json
//! ```
//!
//! An increment is the same into a directory that is a backup:
//!
//! ```text
//! mark -> the same log? -> read DEST again: is it what was copied? -> per file: do its last 4 KiB stand there on the server, too?
//!   file continued     append its tail in place           segments of the log, files of documents; the snapshot, if it is the same
//!   file of the log that is not: the histories have parted, refused
//!   other, or damaged  copy it whole beside: NAME.<increment>
//!   control, catalog   always beside: they vouch for other bytes each time
//! -> sync -> verify what is new -> backup.json, atomically: the increment is the backup -> what it does not need goes -> mark goes
//! ```
//!
//! The server is asked for the snapshot that the backup begins with, and keeps two: as long as it has that one, only
//! tails of log are copied for keys.
//!
//! What it is not: `sheaf restore`, which makes a data directory of a backup.
//!
//! Invariants
//! - A backup is complete if and only if it has its `backup.json`, which is written last. Everything in it is verified
//!   and durable by then.
//! - An increment changes no byte that the backup consists of, and removes none before it is the backup: at every
//!   moment the directory is the earlier backup or the later one. Whoever reads it sees what its `backup.json` names
//!   ([`view()`]), and nothing else.
//! - A backup holds one history: where it ends, the log of the server goes on. The chain value at its end says so (`storage`,
//!   `log/footer.rs`), not its position.
//! - A backup is neither served nor imported into: what was written there would no longer be what was verified.
//! - Whoever copies chooses the name of its session and keeps it: a session takes the place of an earlier one of the
//!   same name.
//! - What a session keeps from being removed is bounded, in time and in bytes; over it the session ends, not the
//!   server.

#![forbid(unsafe_code)]

pub mod fetch;
mod manifest;
pub mod restore;
mod view;

use serde::{Deserialize, Serialize};

pub use manifest::{Manifest, ManifestError, is_being_made, refuse_backup, refuse_incomplete};
pub use view::view;

/// A chain value as offers and manifests say it.
pub fn chain_digits(chain: u64) -> String {
    format!("{chain:016x}")
}

/// What a session offers: the reply to `POST /_backup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Names the session in paths.
    pub session: String,
    /// Identifies the log, and with it the server's data.
    pub log_id: String,
    /// Where snapshot and log begin.
    pub begin_lsn: u64,
    /// Where the log ends: what was acknowledged before the session began lies before.
    pub end_lsn: u64,
    /// The chain value there, in hex: it stands for all of the log up to there. Earlier servers do not say it.
    #[serde(default)]
    pub end_chain: Option<String>,
    /// The server's time when it ended there, in milliseconds since 1970.
    pub end_unix_ms: u64,
    /// What is to be copied, in this order.
    pub files: Vec<OfferedFile>,
}

/// A file of an [`Offer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedFile {
    /// Its path below the directory.
    pub name: String,
    /// Its length, as far as it belongs to the copy.
    pub bytes: u64,
}

/// An error as CouchDB words it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of error, one word.
    pub error: String,
    /// The reason, for a person.
    pub reason: String,
}
