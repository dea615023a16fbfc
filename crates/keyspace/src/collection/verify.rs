//! Verifying: whether bytes from outside are a packed collection.
//!
//! What it is: the check that the last element ends where the payload ends, that the count of elements is
//! right, and that no score is NaN. A snapshot holds packed collections as they lie in memory. To load one,
//! a server walks over its elements once and copies the payload.
//! What it is not: proof that these are the bytes that were written; checksums prove that. So this check
//! ignores the order of elements, repeated elements, and encodings that are longer than necessary.

use super::chunk::{self, BACK_LEN_MAX};
use super::element;
use super::limits::PackedLimits;
use super::packed::{self, HEADER};
use super::set::integers;
use super::zset;
use crate::value::ValueType;

/// Whether a verified payload fits the limits in force. These may differ from the limits under which the
/// payload was packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    /// The payload stays as it is.
    Packed,
    /// The payload exceeds a limit, so the collection becomes big.
    Big,
}

/// How large a payload is, as the limits measure it.
struct Measured {
    elements: usize,
    longest_bytes: usize,
}

/// Verifies the payload of a collection or a string; `None` if it is invalid.
#[inline]
pub(crate) fn verify(value_type: ValueType, payload: &[u8], limits: &PackedLimits) -> Option<Fit> {
    let fits = match value_type {
        ValueType::String => true,
        ValueType::Hash => {
            let measured = measure(payload, 2, |rest| Some(element::checked_len(rest)?.into()))?;
            measured.is_within(2 * limits.hash_entries as usize, limits.hash_value_bytes)
        }
        ValueType::Set if payload.len() > HEADER && integers::is_integers(payload) => {
            integers::verify(payload)? <= limits.set_integers as usize
        }
        ValueType::Set => {
            let measured = measure(payload, 1, |rest| Some(element::checked_len(rest)?.into()))?;
            measured.is_within(limits.set_entries as usize, limits.set_value_bytes)
        }
        ValueType::Zset => {
            let measured = measure(payload, 1, checked_pair)?;
            measured.is_within(limits.zset_entries as usize, limits.zset_value_bytes)
        }
        ValueType::List => {
            let measured = measure(payload, 1, checked_list_item)?;
            measured.elements <= limits.list_entries as usize && payload.len() <= limits.list_bytes as usize
        }
        ValueType::Stream => return None,
    };
    Some(if fits { Fit::Packed } else { Fit::Big })
}

impl Measured {
    fn is_within(&self, elements: usize, longest_bytes: u32) -> bool {
        self.elements <= elements.min(packed::COUNT_MAX) && self.longest_bytes <= longest_bytes as usize
    }
}

/// One verified element of a payload, with its score (in a sorted set) or its length (in a list).
struct Step {
    /// The length in the payload, in bytes, including the score or the length of the element.
    len: usize,
    /// Bytes of the element's string; for an integer or an empty string, bytes of the encoding.
    string_bytes: usize,
}

impl From<element::Checked> for Step {
    #[inline]
    fn from(checked: element::Checked) -> Self {
        Step { len: checked.encoded_len, string_bytes: checked.string_bytes }
    }
}

/// Walks a payload step by step. The number of elements must be the count in the header, a multiple of
/// `stride`, and not 0.
#[inline]
fn measure(payload: &[u8], stride: usize, step: impl Fn(&[u8]) -> Option<Step>) -> Option<Measured> {
    let (header, mut rest) = payload.split_first_chunk::<HEADER>()?;
    let (mut elements, mut longest_bytes) = (0, 0);
    while !rest.is_empty() {
        let passed = step(rest)?;
        rest = rest.get(passed.len..)?;
        longest_bytes = longest_bytes.max(passed.string_bytes);
        elements += 1;
    }
    let counted = u16::from_le_bytes(*header) as usize;
    (elements == counted && elements > 0 && elements.is_multiple_of(stride))
        .then_some(Measured { elements, longest_bytes })
}

/// Verifies a member and its score.
fn checked_pair(rest: &[u8]) -> Option<Step> {
    let member = element::checked_len(rest)?;
    let score_len = zset::checked_score_len(&rest[member.encoded_len..])?;
    Some(Step { len: member.encoded_len + score_len, string_bytes: member.string_bytes })
}

/// Verifies an element, and the length after it, by which a list is read backwards.
fn checked_list_item(rest: &[u8]) -> Option<Step> {
    let element = element::checked_len(rest)?;
    let encoded_len = element.encoded_len;
    let behind = &rest[encoded_len..];
    let mut back = [0; BACK_LEN_MAX];
    let back = chunk::write_back(encoded_len, &mut back);
    let len = encoded_len + back.len();
    behind.starts_with(back).then_some(Step { len, string_bytes: element.string_bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access::AccessStamp;
    use crate::collection::{Rules, ValueBuf, create};
    use crate::effect::{Items, ScoredItems};
    use crate::entry::Entry;
    use crate::value::Value;

    const RULES: Rules = Rules { limits: PackedLimits::DEFAULT, seed: 1 };
    const TYPES: [ValueType; 5] =
        [ValueType::String, ValueType::List, ValueType::Set, ValueType::Zset, ValueType::Hash];

    fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let text = prop_oneof![
            any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            (0..300u32).prop_map(|number| number.to_string().into_bytes()),
            prop::collection::vec(any::<u8>(), 0..70),
        ];
        prop::collection::btree_set(text, 1..20).prop_map(|texts| texts.into_iter().collect())
    }

    /// An entry of each type, of these texts.
    fn entries(texts: &[Vec<u8>]) -> Vec<Entry> {
        let items: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let pairs: Vec<&[u8]> = items.iter().flat_map(|&item| [item, item]).collect();
        let scored: Vec<(f64, &[u8])> =
            items.iter().map(|&item| (item.len() as f64 / 3.0 - 5.0, item)).collect();
        let values = [
            Value::String(items[0]),
            Value::List(Items::Slices(&items)),
            Value::Set(Items::Slices(&items)),
            Value::Zset(ScoredItems::Slices(&scored)),
            Value::Hash(Items::Slices(&pairs)),
        ];
        let entry = |value| create(b"key", value, None, AccessStamp::default(), &RULES);
        values.into_iter().map(entry).filter(|entry| !entry.as_ref().is_big()).collect()
    }

    proptest! {
        #[test]
        fn packed_values_are_verified_and_stay_packed(texts in texts()) {
            for entry in entries(&texts) {
                let entry = entry.as_ref();
                let fit = verify(entry.value_type(), entry.payload(), &PackedLimits::DEFAULT);
                prop_assert_eq!(fit, Some(Fit::Packed), "{:?}", entry);
            }
        }

        #[test]
        fn a_payload_that_is_cut_is_refused(texts in texts(), cut in any::<prop::sample::Index>()) {
            for entry in entries(&texts) {
                let (value_type, payload) = (entry.as_ref().value_type(), entry.as_ref().payload());
                // A truncated set of integers may be a valid set of fewer integers, because its payload has
                // no count.
                if value_type != ValueType::String && !(value_type == ValueType::Set && integers::is_integers(payload)) {
                    let cut = &payload[..cut.index(payload.len())];
                    prop_assert_eq!(verify(value_type, cut, &PackedLimits::DEFAULT), None);
                }
            }
        }

        #[test]
        fn verified_values_are_readable(
            texts in texts(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            for entry in entries(&texts) {
                let mut payload = entry.as_ref().payload().to_vec();
                if payload.is_empty() {
                    continue;
                }
                for (index, byte) in &changes {
                    let at = index.index(payload.len());
                    payload[at] = *byte;
                }
                for value_type in TYPES {
                    if verify(value_type, &payload, &PackedLimits::DEFAULT).is_some() {
                        let entry = Entry::packed(value_type, b"key", &payload, None, AccessStamp::default());
                        ValueBuf::of(entry.as_ref());
                    }
                }
            }
        }
    }

    #[test]
    fn verified_values_take_the_form_of_the_limits_in_force() {
        let tight = PackedLimits {
            list_entries: 1,
            set_integers: 1,
            set_entries: 1,
            zset_entries: 1,
            hash_entries: 1,
            ..PackedLimits::DEFAULT
        };
        for texts in [["1", "2"], ["a", "b"]] {
            let texts = texts.map(|text| text.as_bytes().to_vec());
            for entry in entries(&texts).iter().skip(1) {
                let entry = entry.as_ref();
                assert_eq!(verify(entry.value_type(), entry.payload(), &tight), Some(Fit::Big), "{entry:?}");
            }
        }
    }
}
