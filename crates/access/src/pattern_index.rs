//! Patterns, ordered so that a text is compared with few of them.
//!
//! Entries are sorted by the literal bytes at the start of their pattern, its prefix. A pattern can match a
//! text only if its prefix is one of the text's. Of all prefixes that do not come after the text, the last
//! one begins with every such prefix. So a binary search finds that entry, and the chain of entries whose
//! prefixes begin it has all candidates.

use wire::glob;

use crate::patterns::KeyAccess;

#[derive(Debug, Clone, Default)]
pub(crate) struct PatternIndex {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    prefix: Box<[u8]>,
    /// What follows the prefix.
    rest: Rest,
    access: KeyAccess,
    /// The last entry before this one whose prefix begins the prefix of this one, or equals it.
    shorter: Option<u32>,
}

#[derive(Debug, Clone)]
enum Rest {
    Nothing,
    Anything,
    Glob(Box<[u8]>),
}

impl PatternIndex {
    pub(crate) fn new<'p>(patterns: impl IntoIterator<Item = (KeyAccess, &'p [u8])>) -> PatternIndex {
        let entry = |(access, pattern): (KeyAccess, &[u8])| {
            let (prefix, rest) = pattern.split_at(glob::literal_prefix(pattern).len());
            let rest = match rest {
                b"" => Rest::Nothing,
                b"*" => Rest::Anything,
                _ => Rest::Glob(rest.into()),
            };
            Entry { prefix: prefix.into(), rest, access, shorter: None }
        };
        let mut entries: Vec<Entry> = patterns.into_iter().map(entry).collect();
        entries.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        // The chain of the entry before: those whose prefix may still begin the next one.
        let mut chain: Vec<u32> = Vec::new();
        for at in 0..entries.len() {
            while chain
                .last()
                .is_some_and(|last| !entries[at].prefix.starts_with(&entries[*last as usize].prefix))
            {
                chain.pop();
            }
            entries[at].shorter = chain.last().copied();
            chain.push(at as u32);
        }
        PatternIndex { entries }
    }

    /// Whether one pattern matches the text and permits this access.
    pub(crate) fn permits(&self, text: &[u8], access: KeyAccess) -> bool {
        let after = self.entries.partition_point(|entry| *entry.prefix <= *text);
        let mut next = after.checked_sub(1);
        while let Some(entry) = next.and_then(|at| self.entries.get(at)) {
            if entry.access.has(access)
                && let Some(rest) = text.strip_prefix(&*entry.prefix)
                && match &entry.rest {
                    Rest::Nothing => rest.is_empty(),
                    Rest::Anything => true,
                    Rest::Glob(pattern) => glob::matches(pattern, rest),
                }
            {
                return true;
            }
            next = entry.shorter.map(|at| at as usize);
        }
        false
    }
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
