//! Sorted sets in a keyspace against a map, for arbitrary effects and limits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Form, ZsetView};
use crate::collection::testing::element;
use crate::{
    AccessClock, Applied, DbId, Effect, Freed, Items, KeyOp, Keyspace, Options, PackedLimits, ScoredItems,
    Value, View,
};

const KEY: &[u8] = b"key";
const DB: DbId = DbId::ZERO;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<(f64, Vec<u8>)>),
    /// Another score for members by rank.
    Rescore(usize, f64),
    Remove(Vec<Vec<u8>>),
    /// Removal of members by rank.
    RemoveAt(Vec<usize>),
    RemoveRanks(u64, u64),
    Replace(Vec<(f64, Vec<u8>)>),
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-3..4i8).prop_map(f64::from),
        2 => any::<i32>().prop_map(f64::from),
        2 => -1e3..1e3f64,
        1 => prop::sample::select(&[0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e300][..]),
    ]
}

fn scored() -> impl Strategy<Value = Vec<(f64, Vec<u8>)>> {
    prop::collection::vec((score(), element(300)), 1..8)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => scored().prop_map(Step::Put),
        4 => (any::<usize>(), score()).prop_map(|(rank, score)| Step::Rescore(rank, score)),
        2 => prop::collection::vec(element(300), 1..4).prop_map(Step::Remove),
        3 => prop::collection::vec(any::<usize>(), 1..4).prop_map(Step::RemoveAt),
        3 => (0..20u64, 0..6u64).prop_map(|(first, count)| Step::RemoveRanks(first, count)),
        1 => scored().prop_map(Step::Replace),
    ]
}

fn slices(members: &[(f64, Vec<u8>)]) -> Vec<(f64, &[u8])> {
    members.iter().map(|(score, member)| (*score, member.as_slice())).collect()
}

/// The keyspace under test and the expected content of the sorted set.
struct World {
    keyspace: Keyspace,
    members: BTreeMap<Vec<u8>, f64>,
}

impl World {
    fn apply(&self, effect: &Effect<'_>) -> Applied {
        let mut freed = Freed::new();
        let hash = self.keyspace.hash(KEY);
        self.keyspace.lock(hash.slot()).apply(effect, AccessClock::default(), &mut freed)
    }

    /// Members by score, then bytes.
    fn sorted(&self) -> Vec<(Vec<u8>, f64)> {
        let mut sorted: Vec<_> =
            self.members.iter().map(|(member, score)| (member.clone(), *score)).collect();
        sorted.sort_by(|a, b| a.1.partial_cmp(&b.1).expect("no NaN").then(a.0.cmp(&b.0)));
        sorted
    }

    fn put(&mut self, members: &[(f64, Vec<u8>)]) {
        let was_empty = self.members.is_empty();
        let slices = slices(members);
        let applied = self.apply(&KeyOp::ZsetPut { members: ScoredItems::Slices(&slices) }.on(DB, KEY));
        let (mut added, mut updated) = (0, 0);
        for (score, member) in members {
            match self.members.get_mut(member) {
                Some(old) if old == score => {}
                Some(old) => {
                    *old = *score;
                    updated += 1;
                }
                None => {
                    self.members.insert(member.clone(), *score);
                    added += 1;
                }
            }
        }
        let changed = added + updated > 0;
        let len = self.members.len() as u64;
        let expected = Applied { changed, added, updated, len, key_created: was_empty, ..Applied::default() };
        assert_eq!(applied, expected);
    }

    fn remove(&mut self, members: &[Vec<u8>]) {
        let slices: Vec<_> = members.iter().map(Vec::as_slice).collect();
        let applied = self.apply(&KeyOp::ZsetRemove { members: Items::Slices(&slices) }.on(DB, KEY));
        let removed = members.iter().filter(|member| self.members.remove(*member).is_some()).count();
        self.assert_gone(applied, removed);
    }

    fn assert_gone(&self, applied: Applied, removed: usize) {
        let (changed, key_removed) = (removed > 0, removed > 0 && self.members.is_empty());
        let removed = removed as u64;
        let len = self.members.len() as u64;
        assert_eq!(applied, Applied { changed, removed, len, key_removed, ..Applied::default() });
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Put(members) => self.put(members),
            Step::Rescore(rank, score) => {
                let sorted = self.sorted();
                if !sorted.is_empty() {
                    self.put(&[(*score, sorted[rank % sorted.len()].0.clone())]);
                }
            }
            Step::Remove(members) => self.remove(members),
            Step::RemoveAt(ranks) => {
                let sorted = self.sorted();
                if !sorted.is_empty() {
                    let members: Vec<_> =
                        ranks.iter().map(|rank| sorted[rank % sorted.len()].0.clone()).collect();
                    self.remove(&members);
                }
            }
            Step::RemoveRanks(first, count) => {
                let applied =
                    self.apply(&KeyOp::ZsetRemoveRanks { first: *first, count: *count }.on(DB, KEY));
                let gone: Vec<_> =
                    self.sorted().into_iter().skip(*first as usize).take(*count as usize).collect();
                self.members.retain(|member, _| !gone.iter().any(|(it, _)| it == member));
                self.assert_gone(applied, gone.len());
            }
            Step::Replace(members) => {
                let value = slices(members);
                let value = Value::Zset(ScoredItems::Slices(&value));
                self.apply(&KeyOp::Put { value, expire_at_ms: None }.on(DB, KEY));
                self.members.clear();
                for (score, member) in members {
                    // The model follows ZsetPut: an equal score does not change the sign of a zero.
                    let old = self.members.entry(member.clone()).or_insert(*score);
                    if *old != *score {
                        *old = *score;
                    }
                }
            }
        }
        self.keyspace.lock(self.keyspace.hash(KEY).slot()).check();
    }

    /// Calls `look` with the sorted set, unless the set is empty: its key is then absent.
    fn view(&self, look: impl FnOnce(ZsetView<'_>)) {
        let hash = self.keyspace.hash(KEY);
        let slot = self.keyspace.lock(hash.slot());
        match slot.get(DB, &hash, KEY, 0).map(|entry| entry.view()) {
            Some(View::Zset(view)) => look(view),
            Some(_) => panic!("another type"),
            None => assert!(self.members.is_empty()),
        }
    }

    fn check(&self) {
        self.view(|view| {
            let sorted = self.sorted();
            let bits = |(member, score): (&[u8], f64)| (member.to_vec(), score.to_bits());
            let expected: Vec<_> = sorted.iter().map(|(member, score)| bits((member, *score))).collect();
            let found: Vec<_> = view.iter().map(|(member, score)| bits((&member, score))).collect();
            assert_eq!(found, expected);
            assert_eq!((view.len(), view.iter().len(), view.is_empty()), (sorted.len(), sorted.len(), false));
            let mut backwards: Vec<_> =
                view.iter().rev().map(|(member, score)| bits((&member, score))).collect();
            backwards.reverse();
            assert_eq!(backwards, expected);
            for (rank, (member, score)) in sorted.iter().enumerate() {
                assert_eq!((view.rank(member), view.score(member)), (Some((rank, *score)), Some(*score)));
                assert_eq!(
                    view.get(rank).map(|(member, score)| bits((&member, score))).as_ref(),
                    expected.get(rank)
                );
                let below = sorted.iter().filter(|(_, other)| other < score).count();
                assert_eq!(view.partition_by_score(|other| other < *score), below);
                assert!(view.partition_by_score(|other| other <= *score) > rank);
            }
            assert_eq!((view.rank(b"absent"), view.score(b"absent")), (None, None));
            assert!(view.get(sorted.len()).is_none());
            if let Form::Big(map) = view.0 {
                map.check();
            }
            let mut scanned = BTreeMap::new();
            let mut cursor = 0;
            loop {
                cursor = view.scan(cursor, 3, |member, score| {
                    assert!(scanned.insert(member.to_vec(), score).is_none(), "seen twice");
                });
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(scanned, self.members);
        });
    }
}

fn world(zset_entries: u32, zset_value_bytes: u32) -> World {
    let keyspace = Keyspace::new(Options { hash_seed: 3 });
    keyspace.set_packed_limits(PackedLimits { zset_entries, zset_value_bytes, ..PackedLimits::DEFAULT });
    World { keyspace, members: BTreeMap::new() }
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "too long; see `ranked_map`")]
    fn a_sorted_set_is_a_map_in_order(
        entries in prop::sample::select(&[0u32, 5, 40, u32::MAX][..]),
        value_bytes in prop::sample::select(&[12u32, 1000][..]),
        steps in prop::collection::vec(step(), 0..120),
        ranks in prop::collection::vec((0..60usize, 0..60usize), 4),
    ) {
        let mut world = world(entries, value_bytes);
        for step in &steps {
            world.run(step);
        }
        world.check();
        world.keyspace.check();
        let sorted = world.sorted();
        world.view(|view| {
            for (from, to) in ranks {
                let expected: Vec<_> = sorted.iter().take(to).skip(from).cloned().collect();
                let owned = |(member, score): (crate::Element<'_>, f64)| (member.to_vec(), score);
                let range = view.range(from..to);
                assert_eq!(range.len(), expected.len());
                let (mut front, mut back) = (Vec::new(), Vec::new());
                let mut range = range.map(owned);
                while let Some(member) = range.next() {
                    front.push(member);
                    back.extend(range.next_back());
                }
                front.extend(back.into_iter().rev());
                assert_eq!(front, expected);
            }
        });
        world.remove(&sorted.into_iter().map(|(member, _)| member).collect::<Vec<_>>());
        assert_eq!(world.keyspace.bytes(), 0);
    }
}

#[test]
fn limits_decide_the_form() {
    for (entries, value_bytes, encoding) in
        [(3, 4, "listpack"), (2, 4, "skiplist"), (3, 3, "skiplist"), (0, 9, "skiplist")]
    {
        let mut world = world(entries, value_bytes);
        world.put(&[(1.0, b"a".to_vec()), (2.0, b"long".to_vec()), (3.0, b"c".to_vec())]);
        // A new score for a member is no reason for the set to become big.
        world.put(&[(4.0, b"a".to_vec())]);
        world.view(|view| assert_eq!(view.encoding(), encoding));
        world.check();
    }
}

#[test]
fn members_of_one_score_are_found_by_their_bytes() {
    for entries in [0, 100] {
        let mut world = world(entries, 64);
        let names = [&b"a"[..], b"b", b"ba", b"10", b"9", b"", b"\xff"];
        world.put(&names.map(|name| (0.0, name.to_vec())));
        world.view(|view| {
            assert_eq!(view.partition_by_member(|member| member < b"b"), 4);
            assert_eq!(view.partition_by_member(|member| member <= b"b"), 5);
            assert_eq!((view.partition_by_member(|_| true), view.partition_by_member(|_| false)), (7, 0));
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_large_sorted_set_takes_few_bytes_a_member() {
    let mut world = world(0, 64);
    let count = 100_000;
    let mut sequence = prng::Prng::new(7);
    for number in 0..count {
        let member = format!("m:{number:08}").into_bytes();
        world.put(&[(sequence.next_u64() as f64, member)]);
    }
    world.keyspace.check();
    let bytes = world.keyspace.bytes() as f64 / f64::from(count);
    assert!(bytes <= 75.0, "{bytes} bytes a member");
}
