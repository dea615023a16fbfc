//! Whatever a record holds, as recovery meets it: what decodes encodes to the same bytes, applies without a panic to the slots
//! that it names and to no others, and leaves a keyspace whose bookkeeping is right.
#![no_main]

use keyspace::{AccessClock, Effect, Freed, Keyspace, Options, Scope, ValueType, slot_of};
use libfuzzer_sys::fuzz_target;

/// Whoever makes effects bounds what a string grows to.
const OFFSET_MAX: u64 = 1 << 20;

/// Whether somebody who makes effects could have made this one: bytes are written into strings only, and not far behind them.
fn is_plausible(keyspace: &Keyspace, effect: &Effect<'_>) -> bool {
    let (db, key) = match *effect {
        Effect::SetRange { offset, .. } if offset > OFFSET_MAX => return false,
        Effect::SetRange { db, key, .. } | Effect::Append { db, key, .. } => (db, key),
        _ => return true,
    };
    let slot = keyspace.lock(slot_of(key));
    slot.get_raw(db, &keyspace.hash(key), key).is_none_or(|entry| entry.value_type() == ValueType::String)
}

fuzz_target!(|input: &[u8]| {
    let keyspace = Keyspace::new(Options { hash_seed: 1 });
    let (clock, mut freed) = (AccessClock::default(), Freed::new());
    let mut rest = input;
    loop {
        let before = rest;
        let Ok(Some(effect)) = Effect::decode_next(&mut rest) else { return };
        let mut again = Vec::new();
        effect.encode_into(&mut again);
        assert_eq!(again, before[..before.len() - rest.len()], "{effect:?}");
        if !is_plausible(&keyspace, &effect) {
            continue;
        }
        match effect.scope() {
            Scope::Slot(key) => {
                let mut slot = keyspace.lock(slot_of(key));
                slot.apply(&effect, clock, &mut freed);
                slot.check();
            }
            Scope::Two(from, to) => {
                let mut slots = keyspace.lock_many([from, to].map(slot_of));
                slots.apply(&effect, clock, &mut freed);
                slots.iter().for_each(|slot| slot.check());
            }
            Scope::Global => {
                keyspace.lock_all().apply(&effect, clock, &mut freed);
            }
        }
    }
});
