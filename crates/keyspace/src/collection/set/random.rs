//! Random members of a set.
//!
//! What it is: the choice, by a seed, of one member, of members that may repeat, or of different members. In
//! a set that is not big, every member has the same chance; in a big set, nearly the same (see
//! `FieldMap::random`).
//! What it is not: a source of randomness, nor a random order: different members may come in the order in
//! which they lie in memory.

use super::{Form, SetView, member_of};
use crate::collection::element::Element;
use crate::collection::field_map::FieldMap;
use crate::collection::packed;
use prng::Prng;

use crate::random;

impl<'a> SetView<'a> {
    /// A random member; `None` if the set has no member.
    pub fn random(&self, seed: u64) -> Option<Element<'a>> {
        let mut random = Prng::new(seed);
        match self.0 {
            _ if self.is_empty() => None,
            Form::Integers(integers) => Some(integers.element(random.index(integers.len()))),
            Form::Packed(payload) => {
                let rank = random.index(packed::count(payload));
                Some(packed::at(payload, packed::offset(payload, rank)).element)
            }
            Form::Big(map) => draw(map, &mut random),
        }
    }

    /// An endless sequence of random members, each chosen from all members; empty if the set has no member.
    pub fn draws(&self, seed: u64) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let mut random = Prng::new(seed);
        let (map, members) = match self.0 {
            Form::Big(map) => (Some(map), Vec::new()),
            _ => (None, self.iter().collect()),
        };
        std::iter::from_fn(move || match map {
            Some(map) => draw(map, &mut random),
            None => members.get(random.index(members.len())).copied(),
        })
    }

    /// Visits `count` different members; all if there are no more.
    pub fn sample(&self, count: usize, seed: u64, mut visit: impl FnMut(Element<'a>)) {
        let mut random = Prng::new(seed);
        match self.0 {
            Form::Big(map) => map.sample(count, &mut random, |entry| visit(member_of(entry))),
            _ => random::sample(self.iter(), self.len(), count, &mut random, visit),
        }
    }
}

fn draw<'a>(map: &'a FieldMap, random: &mut Prng) -> Option<Element<'a>> {
    map.random(&mut || random.next_u64()).map(member_of)
}
