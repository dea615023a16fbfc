//! The limit on how far an epoch may be ahead of the known epochs.
//!
//! An epoch rises by one with each start of a leader and by at most 2^16 with each promotion (`storage`). A
//! server that meets a higher epoch believes it for ever, so a single false message, or a flipped bit, would
//! shut the real leader out. Therefore a server does not believe an epoch that the other servers cannot have
//! reached while it was away.

/// The largest credible advance: 256 promotions, or millions of starts.
pub const EPOCH_JUMP_MAX: u32 = 1 << 24;

/// Whether `epoch` must be a mistake or a lie, given the highest `known` epoch.
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
