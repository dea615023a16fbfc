//! Backups: copies of a running server's snapshot, log and document files, made over HTTP, verified, and
//! published by their `backup.json`; brought up to date by copying only new data.
//!
//! ```text
//! sheaf backup DEST (fetch)                  server (routes -> session -> storage::CopyPlan)
//!   POST   /_backup?session=S&resume=LSN -->  take a snapshot if there is none; pin it and the log after it
//!   GET    /_backup/S/FILE, Range        -->  a file, up to its length in the copy
//!   DELETE /_backup/S                    -->  release the pin
//!   verify every byte, write backup.json
//! ```
//!
//! An increment does the same into a directory that already holds a backup:
//!
//! ```text
//! mark -> same log? -> read DEST again, check its checksums
//! -> per file: does the server have the same last 4 KiB there?
//!   file continues     append its tail in place      log segments, document files; an unchanged snapshot
//!   log file does not  the logs have diverged: refused
//!   other, or damaged  copy all of it beside: NAME.<increment>
//!   control, catalog   always beside: they refer to other files each time
//! -> sync -> verify new data -> backup.json, atomically: the increment is the backup
//! -> remove unneeded files -> unmark
//! ```
//!
//! An increment asks the server for the snapshot with which the backup began. The server keeps two snapshots;
//! while it has the snapshot, only the tail of the log is copied for keys.
//!
//! The reverse direction, making a data directory from a backup, is `sheaf restore`.
//!
//! Invariants
//! - A backup is complete if and only if it has its `backup.json`, which is written last. Everything in it is
//!   verified and durable by then.
//! - An increment changes no byte of the backup, and removes none before it is published: at any time the
//!   directory is the earlier or the later backup. Readers see only the files named by `backup.json`
//!   ([`view()`]).
//! - A backup holds one history: an increment continues the log of the backup. The chain value at the end of
//!   the backup's log proves this (`storage`, `log/footer.rs`); the position of the end does not.
//! - A backup is neither served nor imported into: changed data would no longer be the verified data.
//! - The client chooses the name of its session and keeps it: a new session replaces an earlier one of the
//!   same name.
//! - The files that a session keeps from being removed are bounded, in time and in bytes; beyond a bound the
//!   session ends, and the server goes on.

#![forbid(unsafe_code)]

pub mod fetch;
mod manifest;
pub mod restore;
mod view;

use serde::{Deserialize, Serialize};

pub use manifest::{Manifest, ManifestError, is_being_made, refuse_backup, refuse_incomplete};
pub use view::view;

/// A chain value in the form used in offers and manifests.
pub fn chain_digits(chain: u64) -> String {
    format!("{chain:016x}")
}

/// The parameter of `POST /_backup` that asks for the log alone, as far back as it is kept: for a witness.
pub const LOG_ONLY: &str = "part=log";

/// The parameter of `POST /_backup` of a server that will follow this one. The copy may end with records that
/// are not committed yet: the follower later learns that these records are committed, or cuts them off.
pub const FOR_FOLLOWER: &str = "for=follower";

/// The offer of a session: the reply to `POST /_backup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The name of the session in paths.
    pub session: String,
    /// Identifies the log, and with it the server's data.
    pub log_id: String,
    /// Where snapshot and log begin.
    pub begin_lsn: u64,
    /// The end of the log in the copy: every write that this server had acknowledged when the session began
    /// lies before it.
    pub end_lsn: u64,
    /// The chain value at the end of the log, in hex; it stands for the whole log. Earlier servers omit it.
    #[serde(default)]
    pub end_chain: Option<String>,
    /// The server's time at the end of the log, in milliseconds since 1970.
    pub end_unix_ms: u64,
    /// The files to copy, in this order.
    pub files: Vec<OfferedFile>,
}

/// A file of an [`Offer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedFile {
    /// Its path below the data directory.
    pub name: String,
    /// Its length in the copy.
    pub bytes: u64,
}

/// An error in the form of CouchDB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of error, one word.
    pub error: String,
    /// The reason, for a person.
    pub reason: String,
}
