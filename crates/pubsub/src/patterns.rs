//! The patterns with subscribers, indexed so that a channel name is compared with few of them.
//!
//! ```text
//! news.*       by the literal prefix, up to AFFIX_BYTES_MAX of it       { "news." }
//! *.created    else by the literal suffix                               { ".created" }
//! ?x[ab]*      else in the list that is always compared
//! ```
//!
//! The index consists of hash tables of affixes. A name is looked up once per affix length in use, and
//! compared with the patterns found there and with the list. The index is not a trie, because clients could
//! choose the depth of a trie.
//!
//! Publishing a message reads an immutable version. Changes go to a working copy that shares unchanged shards
//! with the published version: the first change of a shard after a version is published copies the shard,
//! further changes before the next version do not. So all changes between two versions, in any number of
//! commands and workers, cost one copy of the shards that they touch.
//!
//! Invariants
//! - A pattern is in the working copy once while it has subscribers.
//! - [`Patterns::publish`] makes all earlier changes of all workers visible to all of them.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use wire::glob;

use crate::topic::Topic;

/// The maximum bytes of a prefix or suffix by which patterns are found; the comparison of the whole name
/// covers the rest.
const AFFIX_BYTES_MAX: usize = 64;
/// Number of parts of a table that are copied independently.
const SHARDS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Patterns {
    working: Mutex<Working>,
    published: ArcSwap<Version>,
}

#[derive(Debug, Default)]
struct Working {
    version: Version,
    changed: bool,
}

impl Patterns {
    /// Adds a pattern to the working copy, unless it is there already.
    pub(crate) fn add(&self, pattern: &Topic) {
        let mut working = self.working.lock();
        working.version.change(pattern, |patterns| {
            if !patterns.iter().any(|known| known.is(pattern)) {
                patterns.push(pattern.clone());
            }
        });
        working.changed = true;
    }

    /// Removes a pattern without subscribers from the working copy.
    pub(crate) fn remove(&self, pattern: &Topic) {
        let mut working = self.working.lock();
        working.version.change(pattern, |patterns| {
            if let Some(position) = patterns.iter().position(|known| known.is(pattern)) {
                patterns.swap_remove(position);
            }
        });
        working.changed = true;
    }

    /// Publishes the working copy if it has changes that are not published yet.
    pub(crate) fn publish(&self) {
        let mut working = self.working.lock();
        if std::mem::take(&mut working.changed) {
            self.published.store(Arc::new(working.version.clone()));
        }
    }

    /// Calls `each` for every published pattern that matches the name.
    pub(crate) fn for_each_match(&self, name: &[u8], mut each: impl FnMut(&Topic)) {
        let version = self.published.load();
        version.for_each_candidate(name, |pattern| {
            if glob::matches(pattern.name(), name) {
                each(pattern);
            }
        });
    }
}

#[derive(Debug, Clone, Default)]
struct Version {
    prefixes: Affixes,
    suffixes: Affixes,
    others: Arc<Vec<Topic>>,
}

impl Version {
    /// Edits the list of patterns that have the same affix as this pattern.
    fn change(&mut self, pattern: &Topic, edit: impl FnOnce(&mut Vec<Topic>)) {
        let prefix = glob::literal_prefix(pattern.name());
        let suffix = literal_suffix(pattern.name());
        if !prefix.is_empty() {
            self.prefixes.change(&prefix[..prefix.len().min(AFFIX_BYTES_MAX)], edit);
        } else if !suffix.is_empty() {
            self.suffixes.change(&suffix[suffix.len().saturating_sub(AFFIX_BYTES_MAX)..], edit);
        } else {
            edit(Arc::make_mut(&mut self.others));
        }
    }

    fn for_each_candidate(&self, name: &[u8], mut each: impl FnMut(&Topic)) {
        self.prefixes.lengths(name).filter_map(|len| self.prefixes.get(&name[..len])).for_each(|patterns| {
            patterns.iter().for_each(&mut each);
        });
        let suffix = |len: usize| &name[name.len() - len..];
        self.suffixes.lengths(name).filter_map(|len| self.suffixes.get(suffix(len))).for_each(|patterns| {
            patterns.iter().for_each(&mut each);
        });
        self.others.iter().for_each(each);
    }
}

type Shard = HashMap<Box<[u8]>, Vec<Topic>>;

/// Patterns by the prefix, or by the suffix, of all their matches. No affix is empty.
#[derive(Debug, Clone)]
struct Affixes {
    /// Number of patterns by length of their affix, from 1.
    counts: [u32; AFFIX_BYTES_MAX],
    /// The lengths with patterns, as bits: bit 0 is length 1.
    used: u64,
    shards: [Arc<Shard>; SHARDS],
}

impl Default for Affixes {
    fn default() -> Affixes {
        Affixes { counts: [0; AFFIX_BYTES_MAX], used: 0, shards: std::array::from_fn(|_| Arc::default()) }
    }
}

impl Affixes {
    fn change(&mut self, affix: &[u8], edit: impl FnOnce(&mut Vec<Topic>)) {
        let shard = Arc::make_mut(&mut self.shards[shard_of(affix)]);
        let patterns = shard.entry(affix.into()).or_default();
        let before = patterns.len();
        edit(patterns);
        let after = patterns.len();
        if after == 0 {
            shard.remove(affix);
            if shard.len() < shard.capacity() / 4 {
                shard.shrink_to_fit();
            }
        }
        let bit = affix.len() - 1;
        let count = &mut self.counts[bit];
        *count = *count + after as u32 - before as u32;
        self.used = if *count > 0 { self.used | 1 << bit } else { self.used & !(1 << bit) };
    }

    /// The affix lengths in use that do not exceed the name's length.
    fn lengths(&self, name: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let fitting = if name.len() >= AFFIX_BYTES_MAX { u64::MAX } else { (1 << name.len()) - 1 };
        let mut left = self.used & fitting;
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (bit < 64).then_some(bit + 1)
        })
    }

    fn get(&self, affix: &[u8]) -> Option<&Vec<Topic>> {
        self.shards[shard_of(affix)].get(affix)
    }
}

/// The shard of an affix. If clients choose affixes that all fall into one shard, its copies take longer;
/// lookups do not.
fn shard_of(affix: &[u8]) -> usize {
    (rapidhash::v3::rapidhash_v3(affix) >> 32) as usize % SHARDS
}

/// The literal bytes at the end of every match of a pattern. A pattern without a special byte is literal as a
/// whole. Otherwise these are the bytes after the last special byte, if that byte is a `*` or `?` and no `[`
/// or `\` comes before it; else there are none.
fn literal_suffix(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().rposition(|byte| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\'));
    match special {
        Some(position) if !matches!(pattern[position], b'*' | b'?') => &[],
        // `[*` is a set that is never closed, and in `\*` the star is literal.
        Some(position) if pattern[..position].iter().any(|byte| matches!(byte, b'[' | b'\\')) => &[],
        Some(position) => &pattern[position + 1..],
        None => pattern,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topic::Name;

    fn topic(pattern: &[u8]) -> Topic {
        Topic::new(Name { bytes: pattern, hash: 0 })
    }

    fn matching(patterns: &Patterns, name: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        patterns.for_each_match(name, |pattern| found.push(pattern.name().to_vec()));
        found.sort();
        found
    }

    #[test]
    fn changes_are_seen_when_they_are_published() {
        let (patterns, a) = (Patterns::default(), topic(b"a*"));
        patterns.add(&a);
        patterns.add(&a);
        assert!(matching(&patterns, b"ab").is_empty());
        patterns.publish();
        assert_eq!(matching(&patterns, b"ab"), [b"a*"]);
        patterns.remove(&a);
        patterns.remove(&a);
        assert_eq!(matching(&patterns, b"ab"), [b"a*"]);
        patterns.publish();
        assert!(matching(&patterns, b"ab").is_empty());
    }

    #[test]
    fn every_match_of_a_pattern_ends_with_its_suffix() {
        for (pattern, suffix) in [
            ("*.created", ".created"),
            ("a*?b", "b"),
            ("*", ""),
            ("?", ""),
            ("abc", "abc"),
            ("*[ab]c", ""),
            ("*\\*c", ""),
            ("[*c", ""),
            ("[x]*c", ""),
            ("*]c", ""),
        ] {
            assert_eq!(literal_suffix(pattern.as_bytes()), suffix.as_bytes(), "{pattern}");
        }
    }

    #[test]
    fn only_patterns_with_a_fitting_affix_are_compared() {
        let patterns = Patterns::default();
        for number in 0..10_000 {
            patterns.add(&topic(format!("news:{number:05}:*").as_bytes()));
            patterns.add(&topic(format!("*:log:{number:05}").as_bytes()));
        }
        patterns.publish();
        let mut compared = 0;
        patterns.published.load().for_each_candidate(b"news:00042:x:log:00007", |_| compared += 1);
        assert_eq!(compared, 2);
    }

    #[test]
    fn versions_share_unchanged_parts() {
        let patterns = Patterns::default();
        for number in 0..1000 {
            patterns.add(&topic(format!("{number}:*").as_bytes()));
        }
        patterns.publish();
        let before = patterns.published.load_full();
        patterns.add(&topic(b"x*"));
        patterns.add(&topic(b"y*"));
        patterns.publish();
        let after = patterns.published.load_full();
        let shards = before.prefixes.shards.iter().zip(&after.prefixes.shards);
        assert!(shards.filter(|(before, after)| !Arc::ptr_eq(before, after)).count() <= 2);
    }

    proptest! {
        #[test]
        fn the_index_finds_the_same_patterns_as_a_scan(
            steps in prop::collection::vec(("[ab*?\\[\\]\\\\]{0,5}|[ab]{60,70}\\*?|\\*[ab]{60,70}", any::<bool>()), 0..60),
            names in prop::collection::vec("[ab]{0,6}|[ab]{60,75}", 1..20),
        ) {
            let patterns = Patterns::default();
            let mut model: Vec<Topic> = Vec::new();
            for (pattern, adds) in steps {
                let known = model.iter().position(|it| it.name() == pattern.as_bytes());
                match known {
                    Some(position) if !adds => patterns.remove(&model.swap_remove(position)),
                    None if adds => {
                        model.push(topic(pattern.as_bytes()));
                        patterns.add(model.last().unwrap());
                    }
                    _ => {}
                }
            }
            patterns.publish();
            for name in names {
                let scan = model.iter().filter(|it| glob::matches(it.name(), name.as_bytes()));
                let mut expected: Vec<_> = scan.map(|it| it.name().to_vec()).collect();
                expected.sort();
                prop_assert_eq!(matching(&patterns, name.as_bytes()), expected);
            }
            for pattern in model {
                patterns.remove(&pattern);
            }
            patterns.publish();
            let version = patterns.published.load();
            prop_assert!(version.others.is_empty() && version.prefixes.used | version.suffixes.used == 0);
        }
    }
}
