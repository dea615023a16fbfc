//! The commands that run no server: on a stopped server's directory, or as the client of a running one.
//!
//! What it is: `sheaf check`, `log`, `import`, `export`, `backup`, `restore` and `tail`, each as a function that prints its progress and result.
//! What it is not: the command line (`sheaf`), nor part of a server's life.
//!
//! Invariants
//! - A directory that a server uses is locked: nothing here opens it.
//! - A directory is complete, or says that it is not (`recovery::unfinished`).

#![forbid(unsafe_code)]

pub mod backup;
mod client;
pub mod export;
pub mod import;
pub mod inspect;
pub mod migration;
mod password;
pub mod restore;
pub mod tail;
