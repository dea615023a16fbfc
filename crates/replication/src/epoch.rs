//! The plausibility limit for epochs received from peers.
//!
//! An epoch rises by one with each start of a leader and by 2^16 with each promotion (`storage`), and a
//! server that accepts a higher epoch keeps it for ever: a single forged message, or a flipped bit, would
//! lock out the real leader. Epochs that no group of servers can reach while one of them is away are
//! therefore rejected.

/// The largest plausible step of an epoch: 256 promotions, or millions of starts.
pub const EPOCH_JUMP_MAX: u32 = 1 << 24;

/// Whether `epoch` is implausible for a server that knows `known`.
pub fn is_too_far(epoch: u32, known: u32) -> bool {
    epoch > known.saturating_add(EPOCH_JUMP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_that_nobody_reaches_are_too_far() {
        assert!(!is_too_far(7, 7) && !is_too_far(7, 9) && !is_too_far(EPOCH_JUMP_MAX + 7, 7));
        assert!(is_too_far(EPOCH_JUMP_MAX + 8, 7) && is_too_far(u32::MAX, 1 << 30));
        assert!(!is_too_far(u32::MAX, u32::MAX - 1), "the last ones can be reached");
    }
}
