//! Random members of a set.
//!
//! What it is: one member, members that may repeat, and different members, by a seed. Every member has the same chance, in a
//! big set nearly (see `FieldMap::random`).
//! What it is not: a source of randomness, nor an order: different members may come in the order in which they lie.

use std::collections::HashSet;

use super::{Form, SetView, member_of};
use crate::collection::element::Element;
use crate::collection::field_map::FieldMap;
use crate::collection::packed;
use crate::random::Sequence;

/// A sample of at least one member in so many is taken by a walk over all, a smaller one by drawing members until there
/// are enough different ones. Here a draw takes about as long as so many steps of a walk, and few draws repeat.
const WALKED_SHARE: usize = 4;

impl<'a> SetView<'a> {
    /// A member; `None` if there is none.
    pub fn random(&self, seed: u64) -> Option<Element<'a>> {
        let mut random = Sequence::new(seed);
        match self.0 {
            _ if self.is_empty() => None,
            Form::Integers(integers) => Some(integers.element(random.below(integers.len()))),
            Form::Packed(payload) => {
                let rank = random.below(packed::count(payload));
                Some(packed::at(payload, packed::offset(payload, rank)).element)
            }
            Form::Big(map) => draw(map, &mut random),
        }
    }

    /// Visits `count` members, each chosen from all; nothing if there are none.
    pub fn draw(&self, count: usize, seed: u64, mut visit: impl FnMut(Element<'a>)) {
        let mut random = Sequence::new(seed);
        if let Form::Big(map) = self.0 {
            return (0..count).filter_map(|_| draw(map, &mut random)).for_each(visit);
        }
        let members: Vec<Element<'a>> = self.iter().collect();
        if !members.is_empty() {
            (0..count).for_each(|_| visit(members[random.below(members.len())]));
        }
    }

    /// Visits `count` different members; all if there are no more.
    pub fn sample(&self, count: usize, seed: u64, mut visit: impl FnMut(Element<'a>)) {
        let mut random = Sequence::new(seed);
        let len = self.len();
        match self.0 {
            Form::Big(map) if count < len / WALKED_SHARE => {
                // Members stay where they are meanwhile, so their addresses tell them apart.
                let mut drawn = HashSet::with_capacity(count);
                while drawn.len() < count {
                    let Some(member) = draw(map, &mut random) else { return };
                    if drawn.insert(member.as_ptr()) {
                        visit(member);
                    }
                }
            }
            _ => {
                // Of those that are left the chance is the share that is still wanted: exactly `count` are chosen.
                let (mut wanted, mut left) = (count.min(len), len);
                for member in self.iter() {
                    if random.below(left) < wanted {
                        visit(member);
                        wanted -= 1;
                    }
                    left -= 1;
                }
            }
        }
    }
}

fn draw<'a>(map: &'a FieldMap, random: &mut Sequence) -> Option<Element<'a>> {
    map.random(&mut || random.next()).map(member_of)
}
