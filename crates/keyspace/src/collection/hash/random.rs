//! Random fields of a hash.
//!
//! What it is: one field, and different fields, by a seed. Every field has the same chance, in a big hash nearly (see
//! `FieldMap::random`). Expired fields come up like others.
//! What it is not: a source of randomness.

use std::collections::HashSet;

use super::{Form, HashField, HashView};
use crate::random::Sequence;

/// A sample of at least one field in so many is taken by a walk over all, a smaller one by drawing.
const WALKED_SHARE: usize = 4;

impl<'a> HashView<'a> {
    /// A field; `None` if there is none.
    pub fn random(&self, seed: u64) -> Option<HashField<'a>> {
        let mut random = Sequence::new(seed);
        match self.0 {
            Form::Packed(_) => self.iter().nth(random.below(self.len())),
            Form::Big(map) => map.random(&mut || random.next()).map(HashField::of_entry),
        }
    }

    /// Visits `count` different fields; all if there are no more.
    pub fn sample(&self, count: usize, seed: u64, mut visit: impl FnMut(HashField<'a>)) {
        let mut random = Sequence::new(seed);
        let len = self.len();
        if let Form::Big(map) = self.0
            && count < len / WALKED_SHARE
        {
            // Fields stay where they are meanwhile, so their addresses tell them apart.
            let mut drawn = HashSet::with_capacity(count);
            while drawn.len() < count {
                let Some(entry) = map.random(&mut || random.next()) else { return };
                if drawn.insert(entry.key().as_ptr()) {
                    visit(HashField::of_entry(entry));
                }
            }
            return;
        }
        // Of those that are left the chance is the share that is still wanted: exactly `count` are chosen.
        let (mut wanted, mut left) = (count.min(len), len);
        for field in self.iter() {
            if random.below(left) < wanted {
                visit(field);
                wanted -= 1;
            }
            left -= 1;
        }
    }
}
