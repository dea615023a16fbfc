//! Figures of the HTTP port, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::StatusCode;

/// The classes of status: 1xx to 5xx.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counters of the HTTP port, over all threads of an incarnation.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Connections that are open now.
    pub(crate) connections: AtomicU64,
    responses: [AtomicU64; CLASSES.len()],
    /// See [`Traffic::login_timeouts`].
    login_timeouts: AtomicU64,
}

impl Traffic {
    /// The number of connections that are open now.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// (class of status, responses begun) for every class. Refusals of malformed requests by the HTTP library
    /// are not counted.
    pub fn responses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.responses.iter().map(|count| count.load(Relaxed)))
    }

    /// Clients that had to log in, and were disconnected because their first request, or a head that they had
    /// begun, did not come in time.
    pub fn login_timeouts(&self) -> u64 {
        self.login_timeouts.load(Relaxed)
    }

    /// Sets [`Traffic::login_timeouts`] to 0.
    pub fn reset_login_timeouts(&self) {
        self.login_timeouts.store(0, Relaxed);
    }

    /// Adds 1 to [`Traffic::login_timeouts`].
    pub(crate) fn login_timed_out(&self) {
        self.login_timeouts.fetch_add(1, Relaxed);
    }

    /// Counts a response under the class of its status.
    pub(crate) fn responded(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len());
        self.responses[class - 1].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_class() {
        let traffic = Traffic::default();
        for status in [200, 201, 404, 503, 999] {
            traffic.responded(StatusCode::from_u16(status).unwrap());
        }
        let counts: Vec<_> = traffic.responses().collect();
        assert_eq!(counts, [("1xx", 0), ("2xx", 2), ("3xx", 0), ("4xx", 1), ("5xx", 2)]);
    }
}
