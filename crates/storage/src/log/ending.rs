//! The end of the log for a hand-over. The thread that flushes ends the log on request, because the caller
//! must not wait for the disk without limit.
//!
//! ```text
//! hand-over:  request_end -> a number      has_ended(number)? .. has_ended(number)? .. true, or it gives up
//! flusher:         flush .. end_if_requested: end_for_handover -> the number is done
//! ```
//!
//! Invariants
//! - An end answers only requests made before it began. So records that are appended after a request was
//!   given up lie before the end that answers the next request.
//! - Only the thread that flushes answers requests. So a request that was given up writes nothing after the
//!   clean end of the log: the thread has ended by then, or finds the log ended.

use parking_lot::Mutex;

use super::Log;
use crate::Error;

/// The latest request and the latest end.
#[derive(Default)]
pub(super) struct Ending(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of the latest request; 0 before the first one.
    requested: u64,
    /// The latest request that was answered.
    done: u64,
    /// The error, if the latest answer is a failure; `None` once the caller has been told.
    failure: Option<Error>,
}

impl Log {
    /// Asks the thread that flushes to end the log, as [`Log::end_for_handover`] does. Returns the number of
    /// the request. Nothing may be appended from now on until [`Log::has_ended`] has answered this number; a
    /// caller that gives up needs to do nothing.
    pub fn request_end(&self) -> u64 {
        let number = {
            let mut state = self.shared.ending.0.lock();
            state.requested += 1;
            state.requested
        };
        if let Some(wake) = self.shared.wake_flusher.get() {
            wake();
        }
        number
    }

    /// Whether the log has ended since [`Log::request_end`] returned `number`.
    ///
    /// # Errors
    /// As [`Log::end_for_handover`].
    pub fn has_ended(&self, number: u64) -> Result<bool, Error> {
        let mut state = self.shared.ending.0.lock();
        if state.done < number {
            return Ok(false);
        }
        state.failure.take().map_or(Ok(true), Err)
    }

    /// Ends the log if that is requested. To be called by the thread that flushes, after each flush. Blocks.
    pub fn end_if_requested(&self) {
        let requested = {
            let state = self.shared.ending.0.lock();
            if state.done == state.requested {
                return;
            }
            state.requested
        };
        let failure = self.end_for_handover().err();
        let mut state = self.shared.ending.0.lock();
        (state.done, state.failure) = (requested, failure);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::log::tests::{disk, recover};

    #[test]
    fn an_end_answers_only_requests_made_before_it_began() {
        let (_, log) = recover(&disk()).unwrap();
        log.end_if_requested();
        let first = log.request_end();
        assert!(!log.has_ended(first).unwrap());
        let second = log.request_end();
        log.end_if_requested();
        assert!(log.has_ended(first).unwrap() && log.has_ended(second).unwrap());
        let third = log.request_end();
        assert!(!log.has_ended(third).unwrap(), "records may have been appended since");
        log.end_if_requested();
        assert!(log.has_ended(third).unwrap());
    }
}
