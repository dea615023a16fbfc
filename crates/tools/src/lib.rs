//! Commands that run no server in their process: most work on a data directory, or as the client of a running
//! server.
//!
//! The crate has `sheaf check`, `log`, `import`, `export`, `backup`, `restore`, `tail`, `group`, `health`,
//! `doctor`, `bench` and `certs`, each as a function that prints its progress and result. The command line is
//! parsed in `sheaf`.
//!
//! Invariants
//! - A directory in use by a server is locked: the commands that need the lock refuse it.
//! - A directory is complete, or marked as incomplete (`recovery::unfinished`; a backup has its own marker).

#![forbid(unsafe_code)]

pub mod backup;
pub mod bench;
pub mod certs;
pub mod check;
mod client;
mod counted;
mod disk_sync;
pub mod doctor;
pub mod export;
pub mod group;
pub mod health;
pub mod import;
mod interruption;
pub mod log;
pub mod migration;
mod outage;
pub mod restore;
pub mod tail;
