//! Sampling: a random key, and the best of a few random keys for eviction.
//!
//! What it is: Redis' approximation of LRU, LFU and TTL order without any list through the entries.
//! What it is not: the eviction itself. The caller logs and applies a Delete of the candidate, as it does
//! with any other effect.
//!
//! A sample is one entry of a random slot. By policy, it is any entry, an entry with a deadline, or the entry
//! that expires next. The slot must have entries or, if the policy evicts only keys with a deadline, items in
//! its expiry index. The choice is uneven if slots differ in size: an entry of a slot with many entries is
//! chosen less often. Without hash tags, slots are about the same size.

use std::borrow::Borrow;
use std::convert::Infallible;

use crate::access::AccessPolicy;
use crate::entry::EntryRef;
use crate::hash::KeyHash;
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::locked::LockedSlots;
use prng::Prng;

use crate::random::scale;
use crate::slot::SlotGuard;

/// The maximum number of random tries of `random_key` before it searches in order.
const RANDOM_KEY_TRIES: usize = 64;

/// A call that wants `n` samples makes at most `n` times this many tries: a try fails if its slot has no
/// entry for the policy.
const TRIES_PER_SAMPLE: usize = 4;

/// Which key of a random sample is evicted when memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EvictionPolicy {
    /// Evicts no key: when memory is full, commands that need more are refused.
    #[default]
    NoEviction,
    /// Evicts the key that was not used for longest.
    AllKeysLru,
    /// Evicts the key that is used least.
    AllKeysLfu,
    /// Evicts a random key.
    AllKeysRandom,
    /// Evicts, among the keys with a deadline, the key that was not used for the longest time.
    VolatileLru,
    /// Evicts, among the keys with a deadline, the key that is used least.
    VolatileLfu,
    /// Evicts, among the keys with a deadline, a random key.
    VolatileRandom,
    /// Evicts the key that expires next.
    VolatileTtl,
}

impl EvictionPolicy {
    /// The meaning of the access stamps under this policy.
    pub const fn access_policy(self) -> AccessPolicy {
        match self {
            EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu => AccessPolicy::Lfu,
            _ => AccessPolicy::Lru,
        }
    }

    /// How good a victim the entry is: the higher the better. Expired entries are the best.
    fn score(self, entry: EntryRef<'_>, now_ms: u64) -> u64 {
        if entry.is_expired(now_ms) {
            return u64::MAX;
        }
        match self {
            EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru => entry.idle_seconds(now_ms).into(),
            EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu => {
                u64::from(u8::MAX - entry.frequency(now_ms))
            }
            EvictionPolicy::VolatileTtl => !entry.expire_at_ms().unwrap_or(u64::MAX),
            EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom | EvictionPolicy::NoEviction => 0,
        }
    }
}

/// A key to evict. The key may have changed or been removed by the time its slot is locked again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Database of the key.
    pub db: DbId,
    /// The key.
    pub key: Vec<u8>,
    /// The hash of the key.
    pub hash: KeyHash,
    /// How good a victim the key is, under the policy for which it was sampled; the higher the better.
    pub score: u64,
}

impl Keyspace {
    /// Appends a random key of `db` that is not expired to `out`; `false` if there is none. While few keys
    /// are expired, all slots that have keys of `db` have the same chance, and so have all keys within a
    /// slot. If most keys are expired or in other databases, the call becomes a search that begins at a
    /// random slot and locks one slot at a time.
    pub fn random_key(&self, db: DbId, seed: u64, now_ms: u64, out: &mut Vec<u8>) -> bool {
        if self.len(db) == 0 {
            return false;
        }
        let lock = |slot| Ok::<_, Infallible>(self.lock(slot));
        let Ok(found) = self.random_key_locking(lock, db, seed, now_ms, out);
        found
    }

    /// Does the same as [`Keyspace::random_key`], with slots locked by `lock`. Looks at all slots even if
    /// [`Keyspace::len`] is 0, because the keys of a unit that has not ended are not counted yet.
    ///
    /// # Errors
    /// The error that `lock` returns for a slot.
    pub fn random_key_locking<'k, G: Borrow<SlotGuard<'k>>, E>(
        &self,
        lock: impl Fn(SlotId) -> Result<G, E>,
        db: DbId,
        seed: u64,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, E> {
        let mut sequence = Prng::new(seed);
        for _ in 0..RANDOM_KEY_TRIES {
            let Some(slot) = self.occupied.random(&mut sequence) else { return Ok(false) };
            let guard = lock(slot)?;
            let Some(table) = guard.borrow().state.table(db) else { continue };
            let entry = table.random_entry(&mut || sequence.next_u64());
            if let Some(entry) = entry.filter(|entry| !entry.is_expired(now_ms)) {
                out.extend_from_slice(entry.key());
                return Ok(true);
            }
        }
        let start = SlotId::of_crc(sequence.next_u64() as u16);
        let before = self.occupied.members(SlotId::FIRST, start);
        for slot in self.occupied.members(start, SlotId::LAST).chain(before) {
            let guard = lock(slot)?;
            let entry = guard.borrow().entries(db).find(|entry| !entry.is_expired(now_ms));
            if let Some(entry) = entry {
                out.extend_from_slice(entry.key());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks at up to `samples` random entries of all databases and returns the best victim; `None` if the
    /// policy evicts nothing or no entry was found that it may evict. Slots are locked by `lock`.
    ///
    /// # Errors
    /// The error that `lock` returns for a slot.
    pub fn sample_for_eviction<'k, E>(
        &'k self,
        lock: impl Fn(SlotId) -> Result<SlotGuard<'k>, E>,
        seed: u64,
        samples: usize,
        policy: EvictionPolicy,
        now_ms: u64,
    ) -> Result<Option<Candidate>, E> {
        let mut sequence = Prng::new(seed);
        let mut best = None;
        let mut samples_left = samples;
        for _ in 0..samples * TRIES_PER_SAMPLE {
            if samples_left == 0 {
                break;
            }
            samples_left -= usize::from(self.sample(&lock, &mut sequence, policy, now_ms, &mut best)?);
        }
        Ok(best)
    }

    /// Looks at one random entry, and makes it the best candidate if its score is higher; `false` if no entry
    /// was found.
    fn sample<'k, E>(
        &'k self,
        lock: &impl Fn(SlotId) -> Result<SlotGuard<'k>, E>,
        sequence: &mut Prng,
        policy: EvictionPolicy,
        now_ms: u64,
        best: &mut Option<Candidate>,
    ) -> Result<bool, E> {
        let slots = match policy {
            EvictionPolicy::NoEviction => return Ok(false),
            EvictionPolicy::AllKeysLru | EvictionPolicy::AllKeysLfu | EvictionPolicy::AllKeysRandom => {
                &self.occupied
            }
            _ => &self.expiring,
        };
        let Some(slot) = slots.random(sequence) else { return Ok(false) };
        let mut guard = lock(slot)?;
        let found = match policy {
            EvictionPolicy::VolatileTtl => guard.next_due(),
            EvictionPolicy::VolatileLru | EvictionPolicy::VolatileLfu | EvictionPolicy::VolatileRandom => {
                guard.random_expiring(sequence)
            }
            _ => guard.random_entry(sequence),
        };
        let Some((db, entry)) = found else { return Ok(false) };
        let score = policy.score(entry, now_ms);
        if best.as_ref().is_none_or(|best| score > best.score) {
            let key = entry.key().to_vec();
            *best = Some(Candidate { db, hash: self.hash(&key), key, score });
        }
        Ok(true)
    }
}

impl LockedSlots<'_> {
    /// As [`Keyspace::random_key_locking`], but locks nothing: the caller holds the locks of all slots.
    ///
    /// # Panics
    /// If a slot is not locked.
    pub fn random_key(&self, db: DbId, seed: u64, now_ms: u64, out: &mut Vec<u8>) -> bool {
        let locked = |slot| Ok::<_, Infallible>(self.expect(slot));
        let Ok(found) = self.keyspace().random_key_locking(locked, db, seed, now_ms, out);
        found
    }
}

impl SlotGuard<'_> {
    /// A random entry of all databases; every entry has the same chance.
    fn random_entry(&self, sequence: &mut Prng) -> Option<(DbId, EntryRef<'_>)> {
        let len: usize = self.state.tables().map(|(_, table)| table.len() as usize).sum();
        let mut rank = scale(sequence.next_u64() as u32, len);
        for (db, table) in self.state.tables() {
            if rank < table.len() as usize {
                return Some((db, table.random_entry(&mut || sequence.next_u64())?));
            }
            rank -= table.len() as usize;
        }
        None
    }

    /// A random entry with a deadline, of all databases: the entry of a random item of the expiry heap.
    /// `None` if there is no item, or if no entry at the item's place has the item's deadline or a later one.
    fn random_expiring(&self, sequence: &mut Prng) -> Option<(DbId, EntryRef<'_>)> {
        let items = self.state.heap()?.items();
        let item = items.get(scale(sequence.next_u64() as u32, items.len()))?.0;
        let mut found = None;
        self.state.table(item.db())?.for_each_at(&item.hash(self.slot()), |entry| {
            if entry.expire_at_ms() >= Some(item.deadline_ms) {
                found = Some((item.db(), entry));
            }
        });
        found
    }
}
