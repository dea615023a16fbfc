//! Why no figures came about.

use std::io;

use thiserror::Error;

use crate::{frames::Garbled, sequence::Faults};

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
    /// Nothing has come for too long.
    #[error("the server sends nothing any more: {0}")]
    Stalled(&'static str),
    /// A socket failed, or the process of the server is not there.
    #[error(transparent)]
    Io(#[from] io::Error),
}
