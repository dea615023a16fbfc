//! Patterns, arranged so that a text is compared with few of them.
//!
//! Patterns are grouped by their prefix, the literal bytes at their start. A pattern can match a text only if
//! the text begins with the pattern's prefix. The lookup goes through the lengths that prefixes have, in
//! ascending order. For each length, it hashes the beginning of the text (continuing from the hash of the
//! previous length), and looks up the group with that hash. The bytes with which all patterns begin are
//! compared once, before that.
//!
//! The time depends on the length of the longest prefix, not on the number of patterns, unless many patterns
//! have the same prefix.

use wire::glob;

use crate::patterns::KeyAccess;

#[derive(Debug, Clone, Default)]
pub(crate) struct PatternIndex {
    /// The bytes with which every pattern begins. The other fields are about the bytes after this common
    /// part.
    common: Box<[u8]>,
    /// The lengths of prefixes, ascending.
    lengths: Box<[usize]>,
    groups: Vec<Group>,
    /// An open hash table of the groups. A slot has the index of a group plus 1, or 0 if it is free. The
    /// number of slots is a power of two.
    slots: Box<[u32]>,
}

/// The patterns that share one prefix.
#[derive(Debug, Clone)]
struct Group {
    hash: u64,
    prefix: Box<[u8]>,
    tails: Vec<Tail>,
}

/// The part of a pattern after its prefix, and the access that the pattern permits.
#[derive(Debug, Clone)]
struct Tail {
    access: KeyAccess,
    rest: Rest,
}

#[derive(Debug, Clone)]
enum Rest {
    Nothing,
    Anything,
    Glob(Box<[u8]>),
}

impl Tail {
    fn new(access: KeyAccess, rest: &[u8]) -> Tail {
        let rest = match rest {
            b"" => Rest::Nothing,
            b"*" => Rest::Anything,
            _ => Rest::Glob(rest.into()),
        };
        Tail { access, rest }
    }

    fn permits(&self, rest: &[u8], access: KeyAccess) -> bool {
        self.access.has(access)
            && match &self.rest {
                Rest::Nothing => rest.is_empty(),
                Rest::Anything => true,
                Rest::Glob(pattern) => glob::matches(pattern, rest),
            }
    }
}

impl PatternIndex {
    pub(crate) fn new<'p>(patterns: impl IntoIterator<Item = (KeyAccess, &'p [u8])>) -> PatternIndex {
        let mut patterns: Vec<(KeyAccess, &[u8])> = patterns.into_iter().collect();
        patterns.sort_by_key(|(_, pattern)| glob::literal_prefix(pattern));
        let ends = (patterns.first(), patterns.last());
        let (Some((_, first)), Some((_, last))) = ends else { return PatternIndex::default() };
        // The patterns are sorted, so the bytes that the first and the last one share are shared by all.
        let (first, last) = (glob::literal_prefix(first), glob::literal_prefix(last));
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let common: Box<[u8]> = first[..common].into();

        let mut groups: Vec<Group> = Vec::new();
        for (access, pattern) in patterns {
            let (prefix, rest) = pattern.split_at(glob::literal_prefix(pattern).len());
            let prefix = &prefix[common.len()..];
            let tail = Tail::new(access, rest);
            match groups.last_mut().filter(|group| *group.prefix == *prefix) {
                Some(group) => group.tails.push(tail),
                None => groups.push(Group { hash: 0, prefix: prefix.into(), tails: vec![tail] }),
            }
        }
        let mut lengths: Vec<usize> = groups.iter().map(|group| group.prefix.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut index = PatternIndex {
            common,
            lengths: lengths.into(),
            slots: vec![0; (groups.len() * 2).next_power_of_two()].into(),
            groups: Vec::new(),
        };
        for (at, group) in groups.iter_mut().enumerate() {
            group.hash = hash_of(&group.prefix, &index.lengths);
            let free = index.probe(group.hash).find(|slot| index.slots[*slot] == 0);
            index.slots[free.expect("half of the slots are free")] = at as u32 + 1;
        }
        index.groups = groups;
        index
    }

    /// Whether any pattern matches the text and permits this access.
    pub(crate) fn permits(&self, text: &[u8], access: KeyAccess) -> bool {
        if !begins_with(text, &self.common) {
            return false;
        }
        let text = &text[self.common.len()..];
        let (mut hash, mut hashed) = (HASH_SEED, 0);
        for &length in &self.lengths {
            let Some(more) = text.get(hashed..length) else { return false };
            (hash, hashed) = (hash_on(hash, more), length);
            if let Some(group) = self.group(hash, &text[..length])
                && group.tails.iter().any(|tail| tail.permits(&text[length..], access))
            {
                return true;
            }
        }
        false
    }

    fn group(&self, hash: u64, prefix: &[u8]) -> Option<&Group> {
        self.probe(hash).map_while(|slot| self.groups.get((self.slots[slot] as usize).checked_sub(1)?)).find(
            |group| {
                group.hash == hash && group.prefix.len() == prefix.len() && begins_with(prefix, &group.prefix)
            },
        )
    }

    /// The slots in which a group with this hash may be, in the order in which they are tried.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let start = hash as usize;
        (0..=mask).map(move |step| (start + step) & mask)
    }
}

/// Does the same as `starts_with`, but does not compare an empty prefix. An empty prefix has no valid memory,
/// and memcmp took 80 ns to compare zero bytes at such an address when this was measured.
#[inline]
fn begins_with(text: &[u8], prefix: &[u8]) -> bool {
    prefix.is_empty() || text.starts_with(prefix)
}

const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a prefix, computed piece by piece from each length in `lengths` to the next.
fn hash_of(prefix: &[u8], lengths: &[usize]) -> u64 {
    let mut from = 0;
    lengths.iter().take_while(|length| **length <= prefix.len()).fold(HASH_SEED, |hash, length| {
        let bytes = &prefix[std::mem::replace(&mut from, *length)..*length];
        hash_on(hash, bytes)
    })
}

/// The hash after more bytes, given the hash of the bytes before them.
#[inline]
fn hash_on(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}

#[inline]
fn mix(hash: u64, bits: u64) -> u64 {
    let product = u128::from(hash ^ bits) * u128::from(HASH_FACTOR);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_permits_what_a_pattern_permits(
            patterns in prop::collection::vec((1..4_u8, "[ab]{0,3}[*?\\[\\]a]{0,2}[ab]?"), 0..12),
            texts in prop::collection::vec("[abc]{0,5}", 1..20),
            access in 0..4_u8,
        ) {
            let access = KeyAccess::from_bits(access).unwrap();
            let patterns: Vec<(KeyAccess, &[u8])> = patterns
                .iter()
                .map(|(bits, pattern)| (KeyAccess::from_bits(*bits).unwrap(), pattern.as_bytes()))
                .collect();
            let index = PatternIndex::new(patterns.iter().copied());
            for text in &texts {
                let expected = patterns
                    .iter()
                    .any(|(known, pattern)| known.has(access) && glob::matches(pattern, text.as_bytes()));
                prop_assert_eq!(index.permits(text.as_bytes(), access), expected, "{}", text);
            }
        }
    }
}
