//! Memory for bodies of requests that are on their way: one limit for all of them together.
//!
//! Invariants
//! - What is received of bodies and not answered yet takes no more than [`BODIES_BYTES_MAX`], or one body of the largest size that
//!   is allowed, if that is more. What a connection's own small buffer holds is not counted.
//! - Who has not shown who it is shares a small part of that: it cannot take the place of those who have.
//! - Nobody waits for memory: whoever finds none is told to come back, and gives up what it has.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::failure::Failure;

/// Bytes of all bodies.
pub(super) const BODIES_BYTES_MAX: u64 = 256 << 20;
/// Bytes of those of clients that have not logged in, where there are passwords.
pub(super) const ANONYMOUS_BODIES_BYTES_MAX: u64 = 16 << 20;
/// A claim grows by as much at once, so that small pieces cost nothing.
const CLAIM_STEP_BYTES: u64 = 64 << 10;

/// What is used.
#[derive(Default)]
pub(super) struct BodyMemory {
    all: AtomicU64,
    anonymous: AtomicU64,
}

/// What one request uses. It is given back when this is dropped.
pub(super) struct Claim {
    memory: Arc<BodyMemory>,
    is_anonymous: bool,
    /// How much all may use together.
    all_max: u64,
    bytes: u64,
}

impl Claim {
    /// A claim of nothing. `body_bytes_max`: how large one body may be.
    pub(super) fn new(memory: &Arc<BodyMemory>, is_anonymous: bool, body_bytes_max: u64) -> Claim {
        let all_max = BODIES_BYTES_MAX.max(body_bytes_max);
        Claim { memory: memory.clone(), is_anonymous, all_max, bytes: 0 }
    }

    /// No body of the client can be larger.
    fn bytes_max(&self) -> u64 {
        if self.is_anonymous { ANONYMOUS_BODIES_BYTES_MAX } else { self.all_max }
    }

    /// Makes sure that the claim covers so many bytes.
    ///
    /// # Errors
    /// If others use too much.
    pub(super) fn cover(&mut self, bytes: usize) -> Result<(), Failure> {
        let bytes = bytes as u64;
        if bytes <= self.bytes {
            return Ok(());
        }
        // No step leads beyond what one body may have.
        let wanted = bytes.next_multiple_of(CLAIM_STEP_BYTES).min(self.bytes_max()).max(bytes);
        let more = wanted - self.bytes;
        take(&self.memory.all, more, self.all_max)?;
        if self.is_anonymous
            && let Err(busy) = take(&self.memory.anonymous, more, ANONYMOUS_BODIES_BYTES_MAX)
        {
            self.memory.all.fetch_sub(more, Relaxed);
            return Err(busy);
        }
        self.bytes = wanted;
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.all.fetch_sub(self.bytes, Relaxed);
            if self.is_anonymous {
                self.memory.anonymous.fetch_sub(self.bytes, Relaxed);
            }
        }
    }
}

fn take(used: &AtomicU64, more: u64, max: u64) -> Result<(), Failure> {
    if used.fetch_add(more, Relaxed) + more <= max {
        return Ok(());
    }
    used.fetch_sub(more, Relaxed);
    Err(Failure::Busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: u64 = 64 << 20;

    #[test]
    fn all_bodies_share_one_limit_and_give_back_what_they_had() {
        let memory = Arc::<BodyMemory>::default();
        let mut claims: Vec<_> = (0..4).map(|_| Claim::new(&memory, false, BODY)).collect();
        for claim in &mut claims {
            assert_eq!(claim.cover(BODY as usize), Ok(()));
        }
        let mut late = Claim::new(&memory, false, BODY);
        assert_eq!(late.cover(1), Err(Failure::Busy));
        claims.pop();
        assert_eq!(late.cover(1), Ok(()));
        drop((claims, late));
        assert_eq!(memory.all.load(Relaxed), 0);
        let mut large = Claim::new(&memory, false, 1 << 30);
        assert_eq!(large.cover(1 << 30), Ok(()), "one body of the largest size always has room");
    }

    #[test]
    fn who_is_unknown_shares_a_part_and_takes_nothing_of_the_rest() {
        let memory = Arc::<BodyMemory>::default();
        let mut unknown = Claim::new(&memory, true, BODY);
        assert_eq!(unknown.cover(unknown.bytes_max() as usize), Ok(()));
        assert_eq!(Claim::new(&memory, true, BODY).cover(1), Err(Failure::Busy));
        assert_eq!(memory.all.load(Relaxed), ANONYMOUS_BODIES_BYTES_MAX, "what was refused takes nothing");
        assert_eq!(Claim::new(&memory, false, BODY).cover(BODY as usize), Ok(()));
        drop(unknown);
        assert_eq!((memory.all.load(Relaxed), memory.anonymous.load(Relaxed)), (0, 0));
    }
}
