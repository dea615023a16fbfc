//! The keyspace against a map, for arbitrary effects, and its replay from encoded effects.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{clock, db, get, narrow};
use crate::{
    AccessClock, AccessPolicy, DbId, Effect, Freed, GlobalOp, KeyOp, Keyspace, ScanCursor, Scope, SlotId,
    Value, slot_of,
};

type Content = BTreeMap<(DbId, Vec<u8>), (Vec<u8>, Option<u64>)>;

/// An owned effect, or something else that happens between effects.
#[derive(Clone, Debug)]
enum Step {
    Put { db: DbId, key: Vec<u8>, len: usize, expire_at_ms: Option<u64> },
    Delete { db: DbId, key: Vec<u8> },
    SetExpiry { db: DbId, key: Vec<u8>, expire_at_ms: Option<u64> },
    Append { db: DbId, key: Vec<u8>, len: usize },
    SetRange { db: DbId, key: Vec<u8>, offset: u64, len: usize },
    Move { from: (DbId, Vec<u8>), to: (DbId, Vec<u8>) },
    FlushDb(DbId),
    FlushAll,
    SwapDb(DbId, DbId),
    Touch { db: DbId, key: Vec<u8> },
    Advance(u64),
    DeleteExpired,
}

fn any_db() -> impl Strategy<Value = DbId> {
    prop_oneof![6 => Just(0u8), 1 => Just(1u8), 1 => Just(15u8)].prop_map(db)
}

/// A key in one of few slots, so that tables grow. Some keys are alone in their slots.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..120u32).prop_map(|n| format!("{{a}}{n}").into_bytes()),
        1 => (0..8u32).prop_map(|n| format!("{{b}}{n}").into_bytes()),
        1 => (0..8u32).prop_map(|n| format!("alone{n}").into_bytes()),
        1 => (250..260usize).prop_map(|len| vec![b'x'; len]),
    ]
}

fn any_len() -> impl Strategy<Value = usize> {
    prop_oneof![20 => 0..80usize, 4 => 80..2000usize, 1 => 65_000..90_000usize]
}

fn any_deadline() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => Just(None), 1 => (0..2000u64).prop_map(Some)]
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (any_db(), any_key());
    prop_oneof![
        30 => (place(), any_len(), any_deadline())
            .prop_map(|((db, key), len, expire_at_ms)| Step::Put { db, key, len, expire_at_ms }),
        12 => place().prop_map(|(db, key)| Step::Delete { db, key }),
        8 => (place(), any_deadline())
            .prop_map(|((db, key), expire_at_ms)| Step::SetExpiry { db, key, expire_at_ms }),
        6 => (place(), any_len()).prop_map(|((db, key), len)| Step::Append { db, key, len }),
        6 => (place(), 0..300u64, 0..40usize)
            .prop_map(|((db, key), offset, len)| Step::SetRange { db, key, offset, len }),
        8 => (place(), place()).prop_map(|(from, to)| Step::Move { from, to }),
        1 => any_db().prop_map(Step::FlushDb),
        1 => Just(Step::FlushAll),
        1 => (any_db(), any_db()).prop_map(|(a, b)| Step::SwapDb(a, b)),
        6 => place().prop_map(|(db, key)| Step::Touch { db, key }),
        3 => (0..200u64).prop_map(Step::Advance),
        3 => Just(Step::DeleteExpired),
    ]
}

/// The keyspace under test with its expected content, and the log of the applied effects.
struct World {
    keyspace: Keyspace,
    content: Content,
    log: Vec<u8>,
    clock: AccessClock,
}

impl World {
    fn apply(&mut self, effect: &Effect<'_>) {
        effect.encode_into(&mut self.log);
        let mut freed = Freed::new();
        match effect.scope() {
            Scope::Slot(key) => {
                let hash = self.keyspace.hash(key);
                self.keyspace.prefetch_slot(&hash);
                self.keyspace.prefetch_bucket(DbId::ZERO, &hash);
                self.keyspace.prefetch_entry(DbId::ZERO, &hash);
                self.keyspace.lock(hash.slot()).apply_hashed(effect, &hash, self.clock, &mut freed);
            }
            Scope::Two(from, to) => {
                let mut slots = self.keyspace.lock_many([from, to].map(slot_of));
                let applied = slots.apply(effect, self.clock, &mut freed);
                let Effect::Move { db, to_db, .. } = *effect else {
                    unreachable!("only a Move has two keys")
                };
                let found = self.content.contains_key(&(db, from.to_vec()));
                assert_eq!(applied.changed, found && (db, from) != (to_db, to));
            }
            Scope::Global => {
                self.keyspace.lock_all().apply(effect, self.clock, &mut freed);
            }
        }
        self.model(effect);
    }

    /// Applies the effect to the map.
    fn model(&mut self, effect: &Effect<'_>) {
        let content = &mut self.content;
        match *effect {
            Effect::Key { db, key, op } => {
                let place = (db, key.to_vec());
                match op {
                    KeyOp::Put { value: Value::String(value), expire_at_ms } => {
                        content.insert(place, (value.to_vec(), expire_at_ms));
                    }
                    KeyOp::Delete => _ = content.remove(&place),
                    KeyOp::SetExpiry { expire_at_ms } => {
                        content.entry(place).and_modify(|(_, deadline)| *deadline = expire_at_ms);
                    }
                    KeyOp::Append { suffix } => {
                        content.entry(place).or_default().0.extend_from_slice(suffix);
                    }
                    KeyOp::SetRange { offset, bytes } => {
                        let (value, _) = content.entry(place).or_default();
                        let (start, end) = (offset as usize, offset as usize + bytes.len());
                        value.resize(value.len().max(end), 0);
                        value[start..end].copy_from_slice(bytes);
                    }
                    _ => unreachable!("this model knows strings"),
                }
            }
            Effect::Move { db, key, to_db, to_key } => {
                if let Some(held) = content.remove(&(db, key.to_vec())) {
                    content.insert((to_db, to_key.to_vec()), held);
                }
            }
            Effect::Global(GlobalOp::FlushDb { db }) => content.retain(|(in_db, _), _| *in_db != db),
            Effect::Global(GlobalOp::FlushAll) => content.clear(),
            Effect::Global(GlobalOp::SwapDb { a, b }) => {
                let swapped = |db| {
                    if db == a {
                        b
                    } else if db == b {
                        a
                    } else {
                        db
                    }
                };
                *content = std::mem::take(content)
                    .into_iter()
                    .map(|((db, key), held)| ((swapped(db), key), held))
                    .collect();
            }
            Effect::Library { .. } | Effect::Setting { .. } => unreachable!("this model knows keys"),
        }
    }

    fn step(&mut self, step: &Step) {
        let fill = self.log.len() as u8;
        match step {
            Step::Put { db, key, len, expire_at_ms } => {
                let value = vec![fill; *len];
                let expire_at_ms = expire_at_ms.map(|after_ms| self.clock.now_ms + after_ms);
                self.apply(&KeyOp::Put { value: Value::String(&value), expire_at_ms }.on(*db, key));
            }
            Step::Delete { db, key } => self.apply(&KeyOp::Delete.on(*db, key)),
            Step::SetExpiry { db, key, expire_at_ms } => {
                let expire_at_ms = expire_at_ms.map(|after_ms| self.clock.now_ms + after_ms);
                self.apply(&KeyOp::SetExpiry { expire_at_ms }.on(*db, key));
            }
            Step::Append { db, key, len } => {
                self.apply(&KeyOp::Append { suffix: &vec![fill; *len] }.on(*db, key));
            }
            Step::SetRange { db, key, offset, len } => {
                self.apply(&KeyOp::SetRange { offset: *offset, bytes: &vec![fill; *len] }.on(*db, key));
            }
            Step::Move { from: (db, key), to: (to_db, to_key) } => {
                self.apply(&Effect::Move { db: *db, key, to_db: *to_db, to_key });
            }
            Step::FlushDb(db) => self.apply(&Effect::Global(GlobalOp::FlushDb { db: *db })),
            Step::FlushAll => self.apply(&Effect::Global(GlobalOp::FlushAll)),
            Step::SwapDb(a, b) => self.apply(&Effect::Global(GlobalOp::SwapDb { a: *a, b: *b })),
            Step::Touch { db, key } => self.touch(*db, key),
            Step::Advance(ms) => self.clock.now_ms += ms,
            Step::DeleteExpired => self.delete_expired(),
        }
        for tag in [b"a", b"b"] {
            self.keyspace.lock(crate::slot_of(tag)).check();
        }
    }

    fn touch(&mut self, db: DbId, key: &[u8]) {
        let hash = self.keyspace.hash(key);
        let mut guard = self.keyspace.lock(hash.slot());
        let found = guard.get_and_touch(db, &hash, key, self.clock);
        let found = found.map(|entry| (entry.string().expect("a string").to_vec(), entry.expire_at_ms()));
        let now_ms = self.clock.now_ms;
        let held = self.content.get(&(db, key.to_vec()));
        assert_eq!(found.as_ref(), held.filter(|(_, deadline)| deadline.is_none_or(|ms| ms > now_ms)));
    }

    fn delete_expired(&mut self) {
        let now_ms = self.clock.now_ms;
        let due: Vec<SlotId> = self.keyspace.due_slots(now_ms, SlotId::FIRST, SlotId::LAST).collect();
        for slot in due {
            let mut keys = Vec::new();
            self.keyspace.lock(slot).expired_keys(now_ms, usize::MAX, &mut keys);
            for (db, key) in keys {
                let (_, deadline) = self.content[&(db, key.clone())];
                assert!(deadline.is_some_and(|ms| ms <= now_ms), "{key:?} was not due");
                self.apply(&KeyOp::Delete.on(db, &key));
            }
        }
        assert!(self.content.values().all(|(_, deadline)| deadline.is_none_or(|ms| ms > now_ms)));
        assert_eq!(self.keyspace.due_slots(now_ms, SlotId::FIRST, SlotId::LAST).count(), 0);
    }
}

fn content(keyspace: &Keyspace) -> Content {
    let slots = keyspace.lock_all();
    let entries = slots.iter().flat_map(|guard| DbId::all().map(move |db| (guard, db)));
    entries
        .flat_map(|(guard, db)| guard.entries(db).map(move |entry| (db, entry)))
        .map(|(db, entry)| {
            let value = entry.string().expect("a string").to_vec();
            ((db, entry.key().to_vec()), (value, entry.expire_at_ms()))
        })
        .collect()
}

proptest! {
    #[test]
    fn the_keyspace_is_a_map_and_its_log_rebuilds_it(
        mask in prop::sample::select(&[0u32, 0x00ff_0000, 0x0000_8003, u32::MAX][..]),
        is_lfu in any::<bool>(),
        steps in prop::collection::vec(step(), 0..if cfg!(miri) { 20 } else { 300 }),
    ) {
        let policy = if is_lfu { AccessPolicy::Lfu } else { AccessPolicy::Lru };
        let mut world = World {
            keyspace: narrow(3, mask),
            content: Content::new(),
            log: Vec::new(),
            clock: AccessClock { now_ms: 1_700_000_000_000, policy, random: 1 << 30 },
        };
        for step in &steps {
            world.step(step);
        }
        world.keyspace.check();
        prop_assert!(content(&world.keyspace) == world.content);

        // Reads hide expired keys; counts include them.
        let now_ms = world.clock.now_ms;
        for ((db, key), (value, deadline)) in &world.content {
            let visible = deadline.is_none_or(|ms| ms > now_ms).then(|| value.clone());
            prop_assert!(get(&world.keyspace, *db, key, now_ms) == visible);
        }
        for db in DbId::all() {
            let count = world.content.keys().filter(|(in_db, _)| *in_db == db).count();
            prop_assert_eq!(world.keyspace.len(db), count as u64);
            let mut seen = 0;
            let end = world.keyspace.scan(db, ScanCursor::START, usize::MAX, 0, &mut |_, _| seen += 1);
            prop_assert_eq!((end, seen), (ScanCursor::START, count));
        }

        // Another process with another seed and another clock gets the same data from the log.
        let replayed = narrow(4, u32::MAX);
        let (mut log, mut freed) = (&world.log[..], Freed::new());
        while let Some(effect) = Effect::decode_next(&mut log).expect("what was encoded decodes") {
            match effect.scope() {
                Scope::Slot(key) => {
                    replayed.lock(slot_of(key)).apply(&effect, clock(9), &mut freed);
                }
                Scope::Two(from, to) => {
                    replayed.lock_many([from, to].map(slot_of)).apply(&effect, clock(9), &mut freed);
                }
                // Each slot applies its share of the effect, one slot after the other.
                Scope::Global => SlotId::all().for_each(|slot| {
                    replayed.lock(slot).apply(&effect, clock(9), &mut freed);
                }),
            }
        }
        replayed.check();
        prop_assert!(content(&replayed) == world.content);

        // After the removal of all keys, no memory is left.
        for (db, key) in world.content.clone().into_keys() {
            world.apply(&KeyOp::Delete.on(db, &key));
        }
        world.keyspace.check();
        prop_assert_eq!(world.keyspace.bytes(), 0);
        prop_assert!(world.keyspace.is_empty());
    }
}
