//! The reasons for closing a connection between a leader and a replica, as texts for lines of the server's
//! log.

use lsn::Lsn;

use crate::{frame::FrameError, timing::SILENCE_MS};

/// Why a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Close {
    /// The bytes received are not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame of a kind that the peer must not send.
    #[error("a frame that does not come from this side")]
    Direction,
    /// A frame for another position than the next one.
    #[error("the frame is for lsn {found}, but lsn {expected} comes next")]
    Gap {
        /// The end of the log here.
        expected: Lsn,
        /// The position in the frame.
        found: Lsn,
    },
    /// A replica acknowledges more than it was sent.
    #[error("lsn {acked} was acknowledged, only lsn {shipped} was reached")]
    NotShipped {
        /// The acknowledged position.
        acked: Lsn,
        /// The end of the shipped log.
        shipped: Lsn,
    },
    /// One of the two sides knows a higher epoch than the leader's: the leader is deposed.
    #[error("epoch {epoch} has begun: the leader of epoch {own} is deposed")]
    Fenced {
        /// The higher epoch.
        epoch: u32,
        /// The leader's epoch, as far as it is known here.
        own: u32,
    },
    /// The peer names an epoch that no leader can have reached.
    #[error("epoch {epoch} is too far ahead of epoch {own} to be believed")]
    Epoch {
        /// The epoch in the frame.
        epoch: u32,
        /// The highest epoch known here.
        own: u32,
    },
    /// No whole frame was received for [`SILENCE_MS`].
    #[error("nothing was heard for {} s", SILENCE_MS / 1000)]
    Silent,
}
