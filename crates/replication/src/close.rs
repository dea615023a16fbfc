//! Why a connection between a leader and a replica ends, in words for the log.

use lsn::Lsn;

use crate::{frame::FrameError, timing::SILENCE_MS};

/// See the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Close {
    /// What came makes no sense.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame that only the other side sends.
    #[error("a frame that does not come from this side")]
    Direction,
    /// A frame for another position than the one that comes next.
    #[error("the frame is for lsn {found}, but lsn {expected} comes next")]
    Gap {
        /// Where the log ends here.
        expected: Lsn,
        /// What came.
        found: Lsn,
    },
    /// A replica says that it has what it was never sent.
    #[error("lsn {acked} was acknowledged, only lsn {shipped} was reached")]
    NotShipped {
        /// What it says.
        acked: Lsn,
        /// Where what was shipped ends.
        shipped: Lsn,
    },
    /// The peer knows a higher epoch than the leader's: that is none any more.
    #[error("epoch {epoch} has begun: the leader of epoch {own} is deposed")]
    Fenced {
        /// The higher epoch.
        epoch: u32,
        /// The leader's.
        own: u32,
    },
    /// The peer speaks of an epoch that nobody can have reached.
    #[error("epoch {epoch} is too far ahead of epoch {own} to be believed")]
    Epoch {
        /// What it says.
        epoch: u32,
        /// What is known here.
        own: u32,
    },
    /// Nothing came for too long.
    #[error("nothing was heard for {} s", SILENCE_MS / 1000)]
    Silent,
}
