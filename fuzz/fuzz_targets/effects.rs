//! Arbitrary records, as decoded by recovery: an item that decodes encodes to the same bytes; messages change
//! nothing; effects apply without a panic to the slots that they name and to no others, and leave a
//! consistent keyspace.
#![no_main]

use std::{collections::BTreeSet, sync::LazyLock};

use keyspace::{AccessClock, Effect, Freed, Item, Keyspace, Options, Scope, ValueType, slot_of};
use libfuzzer_sys::fuzz_target;

/// The commands that make effects bound the size of strings.
const OFFSET_MAX: u64 = 1 << 20;

/// Whether a command could have made this effect: bytes are written only into strings, and not far beyond
/// their end.
fn is_plausible(keyspace: &Keyspace, effect: &Effect<'_>) -> bool {
    let (db, key) = match *effect {
        Effect::SetRange { offset, .. } if offset > OFFSET_MAX => return false,
        Effect::SetRange { db, key, .. } | Effect::Append { db, key, .. } => (db, key),
        _ => return true,
    };
    let slot = keyspace.lock(slot_of(key));
    slot.get_raw(db, &keyspace.hash(key), key).is_none_or(|entry| entry.value_type() == ValueType::String)
}

/// Kept between runs, because creating one takes longer than a run: each run empties the slots that it has
/// touched.
static KEYSPACE: LazyLock<Keyspace> = LazyLock::new(|| Keyspace::new(Options { hash_seed: 1 }));

fuzz_target!(|input: &[u8]| {
    let (clock, mut freed) = (AccessClock::default(), Freed::new());
    let mut touched = BTreeSet::new();
    let mut rest = input;
    loop {
        let before = rest;
        let Ok(Some(item)) = Item::decode_next(&mut rest) else { break };
        let mut again = Vec::new();
        match &item {
            Item::Effect(effect) => effect.encode_into(&mut again),
            Item::Message(message) => message.encode_into(&mut again),
            Item::Documents(change) => keyspace::encode_documents_into(change, &mut again),
        }
        assert_eq!(again, before[..before.len() - rest.len()], "{item:?}");
        let Item::Effect(effect) = item else { continue };
        if !is_plausible(&KEYSPACE, &effect) {
            continue;
        }
        match effect.scope() {
            Scope::Slot(key) => {
                touched.insert(slot_of(key));
                KEYSPACE.lock(slot_of(key)).apply(&effect, clock, &mut freed);
            }
            Scope::Two(from, to) => {
                touched.extend([from, to].map(slot_of));
                KEYSPACE.lock_many([from, to].map(slot_of)).apply(&effect, clock, &mut freed);
            }
            // Only the touched slots: the others are empty, so the effect would not change them.
            Scope::Global => touched.iter().for_each(|&slot| {
                KEYSPACE.lock(slot).apply(&effect, clock, &mut freed);
            }),
        }
        touched.iter().for_each(|&slot| KEYSPACE.lock(slot).check());
    }
    for slot in touched {
        KEYSPACE.lock(slot).apply(&Effect::FlushAll, clock, &mut freed);
    }
    assert!(KEYSPACE.is_empty() && KEYSPACE.bytes() == 0, "something was changed that no effect has named");
});
