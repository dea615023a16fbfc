//! Browsers that speak HTTP to the Redis port: a page of anywhere can make them post there, and what it posts are commands.
//!
//! Invariant: nothing of such a connection is executed. `wire` ends it at the first line of HTTP, without an answer. What is here
//! only tells the operator, and not so often that it fills the log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time between two warnings, whatever comes meanwhile.
const WARNING_INTERVAL_US: u64 = 60_000_000;

/// When the operator was told last; one for all workers.
#[derive(Default)]
pub(crate) struct CrossProtocol {
    /// In microseconds of the monotonic clock; 0 before the first time.
    told_us: AtomicU64,
}

impl CrossProtocol {
    /// A client has sent HTTP and is being disconnected.
    pub(crate) fn note(&self, now_us: u64, peer: &str) {
        if self.is_to_be_told(now_us) {
            tracing::warn!(
                target: "server", peer,
                "disconnected a client that speaks HTTP on the port for Redis: if it is a browser, a page tries to run commands here"
            );
        }
    }

    fn is_to_be_told(&self, now_us: u64) -> bool {
        let now_us = now_us.max(1);
        let told_us = self.told_us.load(Relaxed);
        let is_due = told_us == 0 || now_us.saturating_sub(told_us) >= WARNING_INTERVAL_US;
        // Whoever comes first of several workers tells it.
        is_due && self.told_us.compare_exchange(told_us, now_us, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_a_minute() {
        let noted = CrossProtocol::default();
        assert!(noted.is_to_be_told(0));
        assert!(!noted.is_to_be_told(WARNING_INTERVAL_US));
        assert!(noted.is_to_be_told(WARNING_INTERVAL_US + 1));
        assert!(!noted.is_to_be_told(WARNING_INTERVAL_US + 2));
    }
}
