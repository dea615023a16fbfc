//! Memory for request bodies: one limit for all of them together.
//!
//! Invariants
//! - All claims together are at most [`BODIES_BYTES_MAX`], or one body of the largest permitted size, if that
//!   is more. The small buffer of each connection is not counted.
//! - If passwords are set, the claims of clients that have not authenticated are at most
//!   [`ANONYMOUS_BODIES_BYTES_MAX`] together: they cannot crowd out the others.
//! - No request waits for memory: without memory it is refused with [`Failure::Busy`], and gives up its
//!   claim.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::failure::Failure;

/// Limit of all bodies together, unless the largest permitted size of one body is more.
pub(super) const BODIES_BYTES_MAX: u64 = 256 << 20;
/// Limit of the bodies of unauthenticated clients, if passwords are set.
pub(super) const ANONYMOUS_BODIES_BYTES_MAX: u64 = 16 << 20;
/// A claim grows in steps of this size, so that small pieces are cheap.
const CLAIM_STEP_BYTES: u64 = 64 << 10;

/// Counters of the claimed bytes: of all requests, and of those of anonymous clients.
#[derive(Default)]
pub(super) struct BodyMemory {
    all: AtomicU64,
    anonymous: AtomicU64,
}

/// The bytes of one request's body. Dropping the claim gives them back.
pub(super) struct Claim {
    memory: Arc<BodyMemory>,
    is_anonymous: bool,
    /// The limit for all claims together.
    all_max: u64,
    bytes: u64,
}

impl Claim {
    /// An empty claim. `body_bytes_max`: the largest permitted size of one body.
    pub(super) fn new(memory: &Arc<BodyMemory>, is_anonymous: bool, body_bytes_max: u64) -> Claim {
        let all_max = BODIES_BYTES_MAX.max(body_bytes_max);
        Claim { memory: memory.clone(), is_anonymous, all_max, bytes: 0 }
    }

    /// The largest claim that this client can have.
    fn bytes_max(&self) -> u64 {
        if self.is_anonymous { ANONYMOUS_BODIES_BYTES_MAX } else { self.all_max }
    }

    /// Grows the claim to at least `bytes`.
    ///
    /// # Errors
    /// [`Failure::Busy`] if the limit for all bodies, or the limit for anonymous clients, would be exceeded.
    pub(super) fn cover(&mut self, bytes: usize) -> Result<(), Failure> {
        let bytes = bytes as u64;
        if bytes <= self.bytes {
            return Ok(());
        }
        // Rounding up to a step does not take the claim beyond its limit.
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
    fn all_bodies_share_one_limit_and_give_back_their_memory() {
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
    fn anonymous_bodies_share_a_part_of_the_limit() {
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
