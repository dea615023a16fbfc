//! Why no figures came about.

use std::io;

use thiserror::Error;

use crate::{documents::answer::NoHttp, frames::Garbled, sequence::Faults};

/// So much of an answer is shown.
const SHOWN_BYTES: usize = 300;

/// See the module documentation.
#[derive(Debug, Error)]
pub enum Failure {
    /// Messages that were not delivered as they must be.
    #[error("messages: {0}")]
    Faults(Faults),
    /// The server answered with an error.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server ended a connection.
    #[error("the server closed a connection")]
    Closed,
    /// The server sent something unexpected.
    #[error(transparent)]
    Garbled(#[from] Garbled),
    /// The same of an HTTP server.
    #[error(transparent)]
    NoHttp(#[from] NoHttp),
    /// The server answered, but not what it must.
    #[error("the server answered wrongly: {0}")]
    Wrong(String),
    /// What is to be done cannot be.
    #[error("not possible: {0}")]
    Impossible(&'static str),
    /// Nothing has come for too long.
    #[error("the server sends nothing any more: {0}")]
    Stalled(&'static str),
    /// A socket failed, or the process of the server is not there.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Failure {
    /// An answer that does not belong to what was asked.
    pub fn unexpected(asked: &str, status: u16, body: &[u8]) -> Failure {
        let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]);
        Failure::Wrong(format!("{asked}: {status} {shown}"))
    }
}
