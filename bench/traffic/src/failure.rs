//! Why a run has no figures.

use std::io;

use thiserror::Error;

use crate::{documents::answer::NoHttp, frames::Garbled, sequence::Faults};

/// Maximum bytes of a response in a message.
const SHOWN_BYTES: usize = 300;

/// The reason why a run has no figures.
#[derive(Debug, Error)]
pub enum Failure {
    /// Messages were lost, duplicated, reordered or stray.
    #[error("messages: {0}")]
    Faults(Faults),
    /// The server replied with an error.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server closed a connection.
    #[error("the server closed a connection")]
    Closed,
    /// The server sent unexpected bytes.
    #[error(transparent)]
    Garbled(#[from] Garbled),
    /// An HTTP server sent unexpected bytes.
    #[error(transparent)]
    NoHttp(#[from] NoHttp),
    /// The server gave a wrong reply.
    #[error("the server answered wrongly: {0}")]
    Wrong(String),
    /// The options are contradictory.
    #[error("not possible: {0}")]
    Impossible(&'static str),
    /// Nothing was received for too long.
    #[error("the server sends nothing any more: {0}")]
    Stalled(&'static str),
    /// A socket failed, or the server's process does not exist.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Failure {
    /// The failure for an unexpected response to `asked`.
    pub fn unexpected(asked: &str, status: u16, body: &[u8]) -> Failure {
        let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]);
        Failure::Wrong(format!("{asked}: {status} {shown}"))
    }
}
