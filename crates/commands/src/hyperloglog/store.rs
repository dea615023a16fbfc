//! Storing a changed string: a longer or equally long value is written only where it differs.

use std::ops::Range;

use engine::{CommandError, Context};
use keyspace::{KeyOp, Value};

/// The maximum bytes of an effect besides its key and the bytes that it writes. Differences are written
/// together if the equal bytes between them are at most as long as a further effect, which repeats the key.
const EFFECT_BYTES: usize = 20;

/// A new value of a key, and the effects that store it.
pub(super) struct Change {
    value: Vec<u8>,
    how: How,
}

enum How {
    /// Replace the value, with this expiry.
    Replace { expire_at_ms: Option<u64> },
    /// Write these ranges of the new value; the rest of the old value stays.
    Overwrite(Vec<Range<usize>>),
}

impl Change {
    /// The value of a key that does not exist yet.
    pub(super) fn new_key(value: Vec<u8>) -> Change {
        Change { value, how: How::Replace { expire_at_ms: None } }
    }

    /// A new value of an existing key, which keeps its expiry.
    pub(super) fn between(key: &[u8], old: &[u8], value: Vec<u8>, expire_at_ms: Option<u64>) -> Change {
        let how = if value.len() < old.len() {
            How::Replace { expire_at_ms }
        } else {
            How::Overwrite(differences(old, &value, EFFECT_BYTES + key.len()))
        };
        Change { value, how }
    }

    /// Applies the effects.
    ///
    /// # Errors
    /// The errors of [`Context::require_room`]. Nothing has changed then.
    pub(super) fn apply(&self, cx: &mut Context<'_, '_>, key: &[u8]) -> Result<(), CommandError> {
        let value = self.value.as_slice();
        // Several effects together are not longer than one effect that writes the whole value.
        cx.require_room((EFFECT_BYTES + key.len() + value.len()) as u64)?;
        match &self.how {
            How::Replace { expire_at_ms } => {
                let (value, expire_at_ms) = (Value::String(value), *expire_at_ms);
                cx.apply(key, KeyOp::Put { value, expire_at_ms });
            }
            How::Overwrite(parts) => {
                for part in parts {
                    let (offset, bytes) = (part.start as u64, &value[part.clone()]);
                    cx.apply(key, KeyOp::SetRange { offset, bytes });
                }
            }
        }
        Ok(())
    }
}

/// Ranges of `new` that contain all differences from `old`. Between two ranges lie more than `gap_bytes`
/// bytes. `old` must not be longer than `new`.
fn differences(old: &[u8], new: &[u8], gap_bytes: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut add = |differing: Range<usize>| match parts.last_mut() {
        Some(last) if differing.start - last.end <= gap_bytes => last.end = differing.end,
        _ => parts.push(differing),
    };
    let (old_words, old_rest) = old.as_chunks::<8>();
    let (new_words, _) = new.as_chunks::<8>();
    for (word, (old, new)) in old_words.iter().zip(new_words).enumerate() {
        let difference = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if difference != 0 {
            let start = word * 8 + difference.trailing_zeros() as usize / 8;
            add(start..(word + 1) * 8 - difference.leading_zeros() as usize / 8);
        }
    }
    let rest = old_words.len() * 8;
    for (index, (old, new)) in (rest..).zip(old_rest.iter().zip(&new[rest..])) {
        if old != new {
            add(index..index + 1);
        }
    }
    if new.len() > old.len() {
        add(old.len()..new.len());
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn close_differences_are_merged() {
        let old = [0; 100];
        let differing = |indices: &[usize], len| {
            let mut new = vec![0; len];
            indices.iter().for_each(|index| new[*index] = 1);
            let parts = differences(&old, &new, 16);
            parts.iter().map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(differing(&[], 100), []);
        assert_eq!(differing(&[0, 99], 100), [(0, 1), (99, 100)]);
        assert_eq!(differing(&[3, 5], 100), [(3, 6)]);
        assert_eq!(differing(&[10, 27], 100), [(10, 28)]);
        assert_eq!(differing(&[10, 28], 100), [(10, 11), (28, 29)]);
        assert_eq!(differing(&[], 104), [(100, 104)]);
        assert_eq!(differing(&[1, 90], 101), [(1, 2), (90, 101)]);
    }

    proptest! {
        #[test]
        fn applied_differences_give_the_new_string(
            old in prop::collection::vec(0..2u8, 0..200),
            changes in prop::collection::vec((0..200usize, any::<u8>()), 0..5),
            added in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut new = old.clone();
            for (index, value) in changes {
                if let Some(byte) = new.get_mut(index) {
                    *byte = value;
                }
            }
            new.extend(added);
            let mut made = old.clone();
            for part in differences(&old, &new, 16) {
                made.resize(made.len().max(part.end), 0);
                made[part.clone()].copy_from_slice(&new[part]);
            }
            prop_assert_eq!(made, new);
        }
    }
}
