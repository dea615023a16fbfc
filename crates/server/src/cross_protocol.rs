//! Warnings about browsers that speak HTTP on the Redis port: a web page of any site can make a browser post
//! a request there, with commands as the body.
//!
//! Invariant: nothing from the first line of HTTP on is executed. `wire` ends the connection there, without a
//! reply. This module only warns the operator, at a limited rate.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The shortest time between two warnings.
const WARNING_INTERVAL_US: u64 = 60_000_000;

/// Time of the last warning, shared by all workers.
#[derive(Default)]
pub(crate) struct CrossProtocol {
    /// Microseconds of the monotonic clock; 0 before the first warning.
    told_us: AtomicU64,
}

impl CrossProtocol {
    /// Notes a client that has sent HTTP and is being disconnected.
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
        // Of several workers, the first one warns.
        is_due && self.told_us.compare_exchange(told_us, now_us, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_protocol_requests_are_logged_once_a_minute() {
        let noted = CrossProtocol::default();
        assert!(noted.is_to_be_told(0));
        assert!(!noted.is_to_be_told(WARNING_INTERVAL_US));
        assert!(noted.is_to_be_told(WARNING_INTERVAL_US + 1));
        assert!(!noted.is_to_be_told(WARNING_INTERVAL_US + 2));
    }
}
