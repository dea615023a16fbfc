//! The servers that ask to join at the moment, and how many there may be.
//!
//! Without a password, everybody who reaches the port can send GROUP JOIN. Each server that asks occupies a
//! thread of the leader until the leader has checked its address and the change is committed.
//!
//! Invariants
//! - At most [`ASKERS_MAX`] are served at a time; others are told to try again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// The maximum number of servers that are served at a time.
pub(super) const ASKERS_MAX: usize = 16;

/// The servers that ask; see the module documentation.
#[derive(Default)]
pub(super) struct Askers(Arc<AtomicUsize>);

/// The place of a server that asks. Dropping the value frees the place.
pub(super) struct Place(Arc<AtomicUsize>);

impl Askers {
    /// Takes a place; `None` if all are taken.
    pub(super) fn enter(&self) -> Option<Place> {
        let one_more = |count: usize| (count < ASKERS_MAX).then_some(count + 1);
        self.0.fetch_update(SeqCst, SeqCst, one_more).ok()?;
        Some(Place(self.0.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaving_asker_frees_a_place() {
        let askers = Askers::default();
        let mut places: Vec<Place> = (0..ASKERS_MAX).filter_map(|_| askers.enter()).collect();
        assert_eq!(places.len(), ASKERS_MAX);
        assert!(askers.enter().is_none() && askers.enter().is_none());
        places.pop();
        places.extend(askers.enter());
        assert!(places.len() == ASKERS_MAX && askers.enter().is_none());
    }
}
