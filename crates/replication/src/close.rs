//! Why a connection between a leader and a replica is closed, as messages for the server's log.

use lsn::Lsn;

use crate::{frame::FrameError, timing::SILENCE_MS};

/// The reason for closing a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Close {
    /// The bytes received are not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame kind that only the other side may send.
    #[error("a frame that does not come from this side")]
    Direction,
    /// A frame does not start at the position expected next.
    #[error("what came is for lsn {found}, lsn {expected} comes next")]
    Gap {
        /// The end of the log here.
        expected: Lsn,
        /// The position in the frame.
        found: Lsn,
    },
    /// A replica acknowledged a position that was never shipped to it.
    #[error("lsn {acked} was acknowledged, only lsn {shipped} was reached")]
    NotShipped {
        /// The acknowledged position.
        acked: Lsn,
        /// The end of the bytes shipped.
        shipped: Lsn,
    },
    /// The peer has seen a higher epoch than the leader's: the leader is fenced.
    #[error("epoch {epoch} has begun, the leader of epoch {own} is none any more")]
    Fenced {
        /// The higher epoch.
        epoch: u32,
        /// The epoch of the fenced leader.
        own: u32,
    },
    /// The peer's epoch is implausibly far ahead; see [`crate::epoch`].
    #[error("epoch {epoch} is too far ahead of epoch {own} to be believed")]
    Epoch {
        /// The epoch that the peer sent.
        epoch: u32,
        /// The highest epoch known here.
        own: u32,
    },
    /// No bytes arrived for [`SILENCE_MS`].
    #[error("nothing was heard for {} s", SILENCE_MS / 1000)]
    Silent,
}
