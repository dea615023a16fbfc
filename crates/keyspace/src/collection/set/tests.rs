//! Sets in a keyspace against a set of the standard library, for arbitrary effects and limits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Form, SetView};
use crate::collection::testing::element;
use crate::{
    AccessClock, Applied, DbId, Effect, Freed, Items, KeyOp, Keyspace, Options, PackedLimits, Value, View,
};

const KEY: &[u8] = b"key";
const DB: DbId = DbId::ZERO;

type Members = Vec<Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Add(Members),
    Remove(Members),
    /// Removal of members by their place in order.
    RemoveAt(Vec<usize>),
    Replace(Members),
}

fn integer() -> impl Strategy<Value = Vec<u8>> {
    (any::<i64>(), 0u32..64).prop_map(|(value, shift)| (value >> shift).to_string().into_bytes())
}

/// Members to add or remove. Some lists consist of integers only, so that sets stay sets of integers for some
/// steps.
fn members(strings: bool) -> impl Strategy<Value = Members> {
    let any = if strings { element(300).boxed() } else { integer().boxed() };
    prop_oneof![1 => prop::collection::vec(integer(), 1..3), 1 => prop::collection::vec(any, 1..8)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    any::<bool>().prop_flat_map(|strings| {
        let step = prop_oneof![
            8 => members(strings).prop_map(Step::Add),
            2 => members(strings).prop_map(Step::Remove),
            3 => prop::collection::vec(any::<usize>(), 1..4).prop_map(Step::RemoveAt),
            1 => members(strings).prop_map(Step::Replace),
        ];
        prop::collection::vec(step, 1..40)
    })
}

fn limits() -> impl Strategy<Value = PackedLimits> {
    let (integers, entries, bytes) =
        (prop::sample::select(&[0, 1, 8, 1000][..]), 0..20u32, prop::sample::select(&[0, 4, 64, 1000][..]));
    (integers, entries, bytes).prop_map(|(set_integers, set_entries, set_value_bytes)| PackedLimits {
        set_integers,
        set_entries,
        set_value_bytes,
        ..PackedLimits::DEFAULT
    })
}

/// The keyspace under test and the expected content of the set.
struct World {
    keyspace: Keyspace,
    members: BTreeSet<Vec<u8>>,
}

impl World {
    fn new(limits: PackedLimits) -> World {
        let keyspace = Keyspace::new(Options { hash_seed: 3 });
        keyspace.set_packed_limits(limits);
        World { keyspace, members: BTreeSet::new() }
    }

    fn apply(&self, effect: &Effect<'_>) -> Applied {
        let mut freed = Freed::new();
        let hash = self.keyspace.hash(KEY);
        self.keyspace.lock(hash.slot()).apply(effect, AccessClock::default(), &mut freed)
    }

    fn add(&mut self, members: &[Vec<u8>]) {
        let key_created = self.members.is_empty();
        let slices: Vec<_> = members.iter().map(Vec::as_slice).collect();
        let applied = self.apply(&KeyOp::SetAdd { members: Items::Slices(&slices) }.on(DB, KEY));
        let added = members.iter().filter(|member| self.members.insert(member.to_vec())).count() as u64;
        let len = self.members.len() as u64;
        assert_eq!(applied, Applied { changed: added > 0, added, len, key_created, ..Applied::default() });
    }

    fn remove(&mut self, members: &[Vec<u8>]) {
        let slices: Vec<_> = members.iter().map(Vec::as_slice).collect();
        let applied = self.apply(&KeyOp::SetRemove { members: Items::Slices(&slices) }.on(DB, KEY));
        let removed = members.iter().filter(|member| self.members.remove(*member)).count() as u64;
        let key_removed = removed > 0 && self.members.is_empty();
        let len = self.members.len() as u64;
        assert_eq!(
            applied,
            Applied { changed: removed > 0, removed, len, key_removed, ..Applied::default() }
        );
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Add(members) => self.add(members),
            Step::Remove(members) => self.remove(members),
            Step::RemoveAt(_) if self.members.is_empty() => {}
            Step::RemoveAt(places) => {
                let member = |place: &usize| self.members.iter().nth(place % self.members.len());
                let members: Members = places.iter().filter_map(member).cloned().collect();
                self.remove(&members);
            }
            Step::Replace(members) => {
                let slices: Vec<_> = members.iter().map(Vec::as_slice).collect();
                let value = Value::Set(Items::Slices(&slices));
                self.apply(&KeyOp::Put { value, expire_at_ms: None }.on(DB, KEY));
                self.members = members.iter().cloned().collect();
            }
        }
        self.keyspace.lock(self.keyspace.hash(KEY).slot()).check();
        self.view(|view| self.check(view));
    }

    /// Calls `look` with the set, unless the set is empty: its key is then absent.
    fn view(&self, look: impl FnOnce(SetView<'_>)) {
        let hash = self.keyspace.hash(KEY);
        let slot = self.keyspace.lock(hash.slot());
        match slot.get(DB, &hash, KEY, 0).map(|entry| entry.view()) {
            Some(View::Set(view)) => look(view),
            Some(_) => panic!("another type"),
            None => assert!(self.members.is_empty()),
        }
    }

    fn check(&self, view: SetView<'_>) {
        let found: Members = view.iter().map(|member| member.to_vec()).collect();
        assert_eq!(found.len(), self.members.len(), "none twice");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), self.members);
        assert_eq!((view.len(), view.is_empty()), (self.members.len(), false));
        assert!(self.members.iter().all(|member| view.contains(member)) && !view.contains(b"absent"));
        let mut scanned = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = view.scan(cursor, 3, |member| scanned.push(member.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        scanned.sort();
        assert!(scanned.iter().eq(&self.members), "each once: {scanned:?}");
        if let Form::Big(map) = view.0 {
            map.check();
        }
    }
}

proptest! {
    #[test]
    fn effects_on_a_set_match_the_model(limits in limits(), steps in steps()) {
        let mut world = World::new(limits);
        steps.iter().for_each(|step| world.run(step));
        let members: Members = world.members.iter().cloned().collect();
        world.remove(&members);
        world.keyspace.check();
        prop_assert!(world.keyspace.is_empty());
    }
}

fn numbered(prefix: &str, count: usize) -> Members {
    (0..count).map(|number| format!("{prefix}{number}").into_bytes()).collect()
}

fn encoding(world: &World) -> &'static str {
    let mut encoding = "";
    world.view(|view| encoding = view.encoding());
    encoding
}

#[test]
fn limits_decide_the_form_of_a_set() {
    let filled = |prefix, count| {
        let mut world = World::new(PackedLimits::DEFAULT);
        world.add(&numbered(prefix, count));
        world
    };
    for (prefix, count, form, and_one, and_text) in [
        ("", 127, "intset", "intset", "listpack"),
        ("", 128, "intset", "intset", "hashtable"),
        ("", 511, "intset", "intset", "hashtable"),
        ("", 512, "intset", "hashtable", "hashtable"),
        ("", 513, "hashtable", "hashtable", "hashtable"),
        ("x", 127, "listpack", "listpack", "listpack"),
        ("x", 128, "listpack", "hashtable", "hashtable"),
        ("x", 129, "hashtable", "hashtable", "hashtable"),
    ] {
        for (member, expected) in [("0", form), ("1000000", and_one), ("text", and_text)] {
            let mut world = filled(prefix, count);
            assert_eq!(encoding(&world), form, "{count} times {prefix:?}");
            if prefix.is_empty() || member != "0" {
                world.add(&[member.into()]);
            }
            assert_eq!(encoding(&world), expected, "{count} times {prefix:?} and {member}");
        }
    }
    let mut world = filled("", 511);
    world.add(&[b"1000000".to_vec(), b"1000000".to_vec(), b"3".to_vec()]);
    assert_eq!(encoding(&world), "intset", "a member that is given twice counts once");
    let mut world = filled("x", 1);
    world.add(&[vec![b'x'; 64]]);
    assert_eq!(encoding(&world), "listpack");
    world.add(&[vec![b'x'; 65]]);
    assert_eq!(encoding(&world), "hashtable");
    world.remove(&[vec![b'x'; 65]]);
    assert_eq!(encoding(&world), "hashtable", "and never back");
}

/// A set of 40 members in each form.
fn of_each_form() -> [World; 3] {
    [("", 512, "intset"), ("x", 128, "listpack"), ("x", 0, "hashtable")].map(|(prefix, entries, form)| {
        let mut world = World::new(PackedLimits { set_entries: entries, ..PackedLimits::DEFAULT });
        world.add(&numbered(prefix, 40));
        assert_eq!(encoding(&world), form);
        world
    })
}

/// Asserts that every member was seen about equally often in a number of tries, each of which shows `shown`
/// members.
fn assert_even(seen: &BTreeMap<Vec<u8>, usize>, tries: usize, shown: usize) {
    let expected = tries * shown / 40;
    assert_eq!(seen.len(), 40);
    for (member, times) in seen {
        // The tolerance is more than seven standard deviations.
        let is_near = times.abs_diff(expected) * 3 < expected;
        assert!(is_near, "{} seen {times} times, not about {expected}", member.escape_ascii());
    }
}

#[test]
fn every_member_is_drawn_as_often() {
    const TRIES: usize = 20_000;
    for world in of_each_form() {
        world.view(|view| {
            let mut alone = BTreeMap::<_, usize>::new();
            for seed in 0..TRIES as u64 {
                *alone.entry(view.random(seed).expect("not empty").to_vec()).or_default() += 1;
            }
            assert_even(&alone, TRIES, 1);
            let mut together = BTreeMap::<_, usize>::new();
            for member in view.draws(1).take(TRIES) {
                *together.entry(member.to_vec()).or_default() += 1;
            }
            assert_even(&together, TRIES, 1);
        });
    }
}

#[test]
fn a_sample_has_no_member_twice() {
    for world in of_each_form() {
        world.view(|view| {
            for count in [0, 1, 5, 9, 10, 11, 39, 40, 41, usize::MAX] {
                let mut sampled = Vec::new();
                view.sample(count, 7, |member| sampled.push(member.to_vec()));
                assert_eq!(sampled.len(), count.min(40));
                let different: BTreeSet<_> = sampled.into_iter().collect();
                assert_eq!(different.len(), count.min(40));
                assert!(different.is_subset(&world.members));
            }
            for count in [5, 20] {
                let mut seen = BTreeMap::<_, usize>::new();
                for seed in 0..4000 {
                    view.sample(count, seed, |member| *seen.entry(member.to_vec()).or_default() += 1);
                }
                assert_even(&seen, 4000, count);
            }
        });
    }
}
