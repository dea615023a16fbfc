//! Random fields of a hash.
//!
//! What it is: the choice, by a seed, of one field or of several different fields. In a packed hash, every
//! field has the same chance; in a big hash, nearly the same (see `FieldMap::random`). Expired fields are
//! chosen like others.
//! What it is not: a source of randomness.

use super::{Form, HashField, HashView};
use prng::Prng;

use crate::random;

impl<'a> HashView<'a> {
    /// A random field; `None` if the hash has no field.
    pub fn random(&self, seed: u64) -> Option<HashField<'a>> {
        let mut random = Prng::new(seed);
        match self.0 {
            Form::Packed(_) => self.iter().nth(random.index(self.len())),
            Form::Big(map) => map.random(&mut || random.next_u64()).map(HashField::of_entry),
        }
    }

    /// Visits `count` different fields; all if there are no more.
    pub fn sample(&self, count: usize, seed: u64, mut visit: impl FnMut(HashField<'a>)) {
        let mut random = Prng::new(seed);
        match self.0 {
            Form::Packed(_) => random::sample(self.iter(), self.len(), count, &mut random, visit),
            Form::Big(map) => map.sample(count, &mut random, |entry| visit(HashField::of_entry(entry))),
        }
    }
}
