//! Hashing of fields: 64 seeded bits.
//!
//! What it is: the hash function of one map, as strong as `hash::KeyHasher`, but its hashes contain no slot.
//! What it is not: part of a snapshot or of the log. Hashes of the same field differ between maps of
//! different seeds.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The seeded hash function of one map. Keeps the secrets that are derived from the seed, because deriving
/// them for each hash would cost more than the hash.
pub(super) struct FieldHasher {
    secrets: RapidSecrets,
    /// Tests narrow hashes to these bits to force collisions.
    #[cfg(test)]
    pub(super) mask: u64,
}

impl FieldHasher {
    pub(super) fn new(seed: u64) -> Self {
        FieldHasher {
            secrets: RapidSecrets::seed(seed),
            #[cfg(test)]
            mask: u64::MAX,
        }
    }

    #[inline]
    pub(super) fn hash(&self, field: &[u8]) -> u64 {
        let hash = rapidhash_v3_seeded(field, &self.secrets);
        #[cfg(test)]
        let hash = hash & self.mask;
        hash
    }
}
