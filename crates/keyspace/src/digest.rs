//! Digests: whether two keyspaces hold the same data.
//!
//! What it is: 128 bits that depend on databases, keys, types, deadlines, content, libraries and settings,
//! and on nothing else: not on the forms values have in memory, nor on the order in which members and fields
//! lie, nor on hash seeds.
//! What it is not: proof against values that are made to have equal digests.

use std::iter::Sum;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::collection::{StreamId, StreamView, View};
use crate::effect::Listable;
use crate::entry::EntryRef;
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::libraries::Library;
use crate::slot::SlotGuard;

/// A digest. The digest of several keys, slots, libraries or settings is the sum of their digests, so it can
/// be computed step by step and in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digest(u128);

impl Digest {
    /// The digest of a value, without its key and deadline.
    pub fn of_value(view: View<'_>) -> Self {
        match view {
            View::String(bytes) => Digest::of(&[b"string", bytes]),
            View::List(list) => Digest::in_order(b"list", list.iter().map(|element| Digest::of(&[&element]))),
            View::Zset(zset) => {
                let member = |(member, score): (crate::Element<'_>, f64)| {
                    // 0.0 and -0.0 are the same score.
                    Digest::of(&[&member, &(score + 0.0).to_le_bytes()])
                };
                Digest::in_order(b"zset", zset.iter().map(member))
            }
            View::Set(set) => Digest::in_any_order(b"set", set.iter().map(|member| Digest::of(&[&member]))),
            View::Hash(hash) => {
                let field = |field: crate::HashField<'_>| {
                    Digest::of(&[&field.name, &field.value, &deadline_bytes(field.expire_at_ms)])
                };
                Digest::in_any_order(b"hash", hash.iter().map(field))
            }
            View::Stream(stream) => Digest::of_stream(stream),
        }
    }

    fn of_stream(stream: StreamView<'_>) -> Self {
        let entry = |entry: crate::StreamEntry<'_>| {
            let field = |(name, value): (&[u8], crate::Element<'_>)| Digest::of(&[name, &value]);
            let fields = Digest::in_order(b"entry", entry.fields().map(field));
            Digest::of(&[&record_bytes(&entry.id), &fields.0.to_le_bytes()])
        };
        let group = |(name, group): (&[u8], crate::GroupView<'_>)| {
            let consumer = |consumer: crate::ConsumerView<'_>| {
                Digest::of(&[consumer.name(), &record_bytes(&consumer.times())])
            };
            let consumers = Digest::in_order(b"consumers", group.consumers().map(consumer));
            let pending =
                |it: crate::PendingView<'_>| Digest::of(&[it.consumer, &record_bytes(&it.delivery)]);
            let all = StreamId::ZERO..=StreamId::MAX;
            let pending = Digest::in_order(b"pending", group.pending_in(all).map(pending));
            let parts = [consumers.0.to_le_bytes(), pending.0.to_le_bytes()].concat();
            Digest::of(&[name, &record_bytes(&group.position()), &parts])
        };
        let entries = Digest::in_order(b"entries", stream.range(StreamId::ZERO..=StreamId::MAX).map(entry));
        let groups = Digest::in_order(b"groups", stream.groups().map(group));
        let parts = [entries.0.to_le_bytes(), groups.0.to_le_bytes()].concat();
        Digest::of(&[b"stream", &record_bytes(&stream.head()), &parts])
    }

    /// The digest of a value and its deadline, without its key.
    pub fn of_entry(entry: EntryRef<'_>) -> Self {
        let value = Digest::of_value(entry.view());
        Digest::of(&[&deadline_bytes(entry.expire_at_ms()), &value.0.to_le_bytes()])
    }

    fn of_library(library: &Library) -> Self {
        let mut bytes = Vec::new();
        library.with_effect(|effect| effect.encode_into(&mut bytes));
        Digest::of(&[b"library", &bytes])
    }

    fn of_setting(name: &[u8], value: &[u8]) -> Self {
        Digest::of(&[b"setting", name, value])
    }

    fn of_key(db: DbId, entry: EntryRef<'_>) -> Self {
        Digest::of(&[&[db.get()], entry.key(), &Digest::of_entry(entry).0.to_le_bytes()])
    }

    /// The digest of byte strings, each with its length.
    fn of(parts: &[&[u8]]) -> Self {
        const LOW: RapidSecrets = RapidSecrets::seed(0x5368_6561_6620_6c6f);
        const HIGH: RapidSecrets = RapidSecrets::seed(0x5368_6561_6620_6869);
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        let (low, high) = (rapidhash_v3_seeded(&bytes, &LOW), rapidhash_v3_seeded(&bytes, &HIGH));
        Digest(u128::from(high) << 64 | u128::from(low))
    }

    fn in_order(type_name: &[u8], elements: impl Iterator<Item = Digest>) -> Self {
        elements.fold(Digest::of(&[type_name]), |all, one| {
            Digest::of(&[&all.0.to_le_bytes(), &one.0.to_le_bytes()])
        })
    }

    fn in_any_order(type_name: &[u8], elements: impl Iterator<Item = Digest>) -> Self {
        Digest::of(&[type_name, &elements.sum::<Digest>().0.to_le_bytes()])
    }

    /// The digest as DEBUG DIGEST shows it: 40 hexadecimal digits.
    pub fn to_hex(self) -> String {
        format!("{:040x}", self.0)
    }
}

fn record_bytes(record: &impl Listable) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.visit(&mut |number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

fn deadline_bytes(deadline_ms: Option<u64>) -> [u8; 8] {
    deadline_ms.unwrap_or(u64::MAX).to_le_bytes()
}

impl Sum for Digest {
    fn sum<I: Iterator<Item = Digest>>(digests: I) -> Self {
        Digest(digests.fold(0, |sum, one| sum.wrapping_add(one.0)))
    }
}

impl SlotGuard<'_> {
    /// The digest of the slot's keys in all databases, expired ones included.
    pub fn digest(&self) -> Digest {
        DbId::all().flat_map(|db| self.entries(db).map(move |entry| Digest::of_key(db, entry))).sum()
    }
}

impl Keyspace {
    /// The digest of all keys of all databases, expired ones included, and of all libraries and settings.
    /// Locks one slot at a time, so the digest is exact only while no thread writes.
    pub fn digest(&self) -> Digest {
        let slots = self.occupied.members(SlotId::FIRST, SlotId::LAST).map(|slot| self.lock(slot).digest());
        let published = self.libraries();
        let settings = self.data_settings();
        let settings = settings.iter().map(|(name, value)| Digest::of_setting(name, value));
        let libraries = published.libraries.iter().map(|library| Digest::of_library(library));
        slots.chain(libraries).chain(settings).sum()
    }
}
