//! Entries against a model, through every form and every transition between forms.

use proptest::prelude::*;

use super::*;

fn stamp(bits: u32) -> AccessStamp {
    AccessStamp::from_bits(bits)
}

/// The expected content of an entry.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    key: Vec<u8>,
    value: Vec<u8>,
    expire_at_ms: Option<u64>,
    stamp: AccessStamp,
}

fn read(entry: &Entry) -> Model {
    let entry = entry.as_ref();
    Model {
        key: entry.key().to_vec(),
        value: entry.string().expect("a string").to_vec(),
        expire_at_ms: entry.expire_at_ms(),
        stamp: entry.stamp(),
    }
}

#[test]
fn the_common_entry_takes_48_bytes() {
    let entry = Entry::new(b"k:1234567", &[7; 32], None, stamp(0x00ff_ffff));
    assert_eq!(entry.as_ref().allocated_bytes(), 48);
    assert_eq!(entry.as_ref().stamp(), stamp(0x00ff_ffff));
    assert_eq!(entry.as_ref().value_type(), ValueType::String);
}

#[test]
fn an_overwrite_of_the_same_size_class_stays_in_place() {
    let mut entry = Entry::new(b"key", b"0123456789", None, stamp(1));
    let base = entry.base;
    assert!(entry.put(b"key", b"98765432109876543210", None, stamp(2)).is_none());
    assert!(entry.put(b"key", b"01234567890", Some(u64::MAX), stamp(2)).is_none());
    assert!(entry.append(b"!", stamp(3)).is_none());
    assert!(entry.set_expiry(None).is_none());
    assert_eq!(entry.base, base);
    assert_eq!(read(&entry).value, b"01234567890!");
    let replaced = entry.put(b"key", &[1; 100], None, stamp(4)).expect("another class");
    assert_eq!(replaced.base, base);
    assert_eq!(read(&replaced).value, b"01234567890!");
}

#[test]
fn zero_bytes_fill_the_gap_before_a_range() {
    let mut entry = Entry::new(b"key", b"abc", Some(9), stamp(0));
    entry.set_range(6, b"xy", stamp(0));
    assert_eq!(read(&entry).value, b"abc\0\0\0xy");
    entry.set_range(1, b"--", stamp(0));
    assert_eq!(read(&entry).value, b"a--\0\0\0xy");
    entry.set_range(10, b"", stamp(0));
    assert_eq!(read(&entry).value, b"a--\0\0\0xy\0\0");
    assert_eq!(read(&entry).expire_at_ms, Some(9));
}

#[test]
fn a_value_that_grows_gets_room_and_a_new_small_value_gives_it_back() {
    let mut entry = Entry::new(b"key", &vec![1; 65_535], Some(5), stamp(0));
    entry.append(&[2], stamp(0)).expect("from the small to the wide form");
    let allocated = entry.as_ref().allocated_bytes();
    assert!(entry.append(&[3; 10_000], stamp(0)).is_none(), "there was a quarter of room");
    assert!(entry.set_expiry(None).is_none() && entry.set_expiry(Some(6)).is_none());
    assert_eq!(entry.as_ref().allocated_bytes(), allocated);
    assert_eq!(read(&entry).value.len(), 75_536);
    assert_eq!(read(&entry).value[65_534..65_537], [1, 2, 3]);
    entry.put(b"key", b"small", None, stamp(0)).expect("back to the small form");
    assert_eq!(entry.as_ref().allocated_bytes(), 16);
}

#[derive(Clone, Debug)]
enum Step {
    Put { len: usize, expire_at_ms: Option<u64> },
    Append { len: usize },
    SetRange { offset: usize, len: usize },
    SetExpiry(Option<u64>),
    SetStamp(u32),
}

fn len() -> impl Strategy<Value = usize> {
    let wide = if cfg!(miri) { 65_530..65_540usize } else { 65_000..140_000usize };
    prop_oneof![8 => 0..70usize, 3 => 200..1000usize, 1 => 65_520..65_540usize, 1 => wide]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (len(), any::<Option<u64>>()).prop_map(|(len, expire_at_ms)| Step::Put { len, expire_at_ms }),
        len().prop_map(|len| Step::Append { len }),
        (len(), 0..50usize).prop_map(|(offset, len)| Step::SetRange { offset, len }),
        any::<Option<u64>>().prop_map(Step::SetExpiry),
        (0..1u32 << 24).prop_map(Step::SetStamp),
    ]
}

/// Applies a step to the entry and to the model.
fn run(step: &Step, fill: u8, entry: &mut Entry, model: &mut Model) -> Option<Entry> {
    match *step {
        Step::Put { len, expire_at_ms } => {
            (model.value, model.expire_at_ms) = (vec![fill; len], expire_at_ms);
            entry.put(&model.key, &model.value, expire_at_ms, model.stamp)
        }
        Step::Append { len } => {
            model.value.resize(model.value.len() + len, fill);
            entry.append(&vec![fill; len], model.stamp)
        }
        Step::SetRange { offset, len } => {
            let end = model.value.len().max(offset + len);
            model.value.resize(end, 0);
            model.value[offset..offset + len].fill(fill);
            entry.set_range(offset as u64, &vec![fill; len], model.stamp)
        }
        Step::SetExpiry(expire_at_ms) => {
            model.expire_at_ms = expire_at_ms;
            entry.set_expiry(expire_at_ms)
        }
        Step::SetStamp(bits) => {
            model.stamp = stamp(bits);
            entry.set_stamp(model.stamp);
            None
        }
    }
}

proptest! {
    #[test]
    fn an_entry_holds_its_last_write(
        key_len in prop_oneof![0..40usize, 250..260usize],
        first in (len(), any::<Option<u64>>()),
        steps in prop::collection::vec(step(), 0..12),
    ) {
        let mut model = Model {
            key: vec![b'k'; key_len],
            value: vec![b'v'; first.0],
            expire_at_ms: first.1,
            stamp: stamp(5),
        };
        let value = &model.value;
        let mut entry = Entry::new(&model.key, value, model.expire_at_ms, model.stamp);
        for (fill, step) in steps.iter().enumerate() {
            let before = (read(&entry), entry.base);
            let replaced = run(step, fill as u8, &mut entry, &mut model);
            prop_assert_eq!(&read(&entry), &model);
            // The replaced value is still complete, so that it may be freed later and on another thread.
            prop_assert_eq!(replaced.is_some(), entry.base != before.1);
            if let Some(replaced) = replaced {
                prop_assert_eq!(&read(&replaced), &before.0);
            }
            let allocated = entry.as_ref().allocated_bytes();
            prop_assert_eq!(size_class(allocated), allocated);
        }
    }
}
