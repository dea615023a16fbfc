//! `ValueBuf`: a value taken out of the keyspace.
//!
//! What it is: a copy of the value at a key, in the form in which effects carry it.
//! What it is not: cheap for big values; it holds the whole value.

use super::View;
use super::stream::StreamImage;
use crate::effect::{Effect, Items, ItemsBuf, KeyOp, ScoredItemsBuf};
use crate::entry::EntryRef;
use crate::id::DbId;
use crate::value::{Value, ValueType};

/// An owned value.
#[derive(Clone, Debug)]
pub struct ValueBuf {
    form: Form,
    /// Fields of a hash that expire, each with its deadline in Unix milliseconds.
    field_deadlines: Vec<(Vec<u8>, u64)>,
}

#[derive(Clone, Debug)]
enum Form {
    String(Vec<u8>),
    List(ItemsBuf),
    Set(ItemsBuf),
    Zset(ScoredItemsBuf),
    Hash(ItemsBuf),
    Stream(Box<StreamImage>),
}

impl ValueBuf {
    /// A copy of the value of an entry.
    pub fn of(entry: EntryRef<'_>) -> Self {
        let mut field_deadlines = Vec::new();
        let form = match entry.view() {
            View::String(bytes) => Form::String(bytes.to_vec()),
            View::List(list) => Form::List(gather(list.iter())),
            View::Set(set) => Form::Set(gather(set.iter())),
            View::Zset(zset) => {
                let mut members = ScoredItemsBuf::new();
                zset.iter().for_each(|(member, score)| members.push(score, &member));
                Form::Zset(members)
            }
            View::Hash(hash) => {
                let mut pairs = ItemsBuf::new();
                for field in hash.iter() {
                    pairs.push(&field.name);
                    pairs.push(&field.value);
                    if let Some(deadline_ms) = field.expire_at_ms {
                        field_deadlines.push((field.name.to_vec(), deadline_ms));
                    }
                }
                Form::Hash(pairs)
            }
            View::Stream(stream) => Form::Stream(Box::new(stream.image())),
        };
        ValueBuf { form, field_deadlines }
    }

    /// The value, for a Put. It lacks the deadlines of hash fields, and the entries and groups of a stream:
    /// see [`ValueBuf::for_each_effect`].
    pub fn as_value(&self) -> Value<'_> {
        match &self.form {
            Form::String(bytes) => Value::String(bytes),
            Form::List(items) => Value::List(items.as_items()),
            Form::Set(members) => Value::Set(members.as_items()),
            Form::Zset(members) => Value::Zset(members.as_items()),
            Form::Hash(pairs) => Value::Hash(pairs.as_items()),
            Form::Stream(image) => Value::Stream(image.head().unwrap_or_default()),
        }
    }

    /// The fields of a hash that expire, each with its deadline in Unix milliseconds.
    pub fn field_deadlines(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.field_deadlines.iter().map(|(field, deadline_ms)| (field.as_slice(), *deadline_ms))
    }

    /// About the number of bytes of the effects that put the value at a key.
    pub fn size_bytes(&self) -> usize {
        let value = match &self.form {
            Form::String(bytes) => bytes.len(),
            Form::List(items) | Form::Set(items) | Form::Hash(items) => items.size_bytes(),
            Form::Zset(members) => members.size_bytes(),
            Form::Stream(image) => image.size_bytes(),
        };
        let deadlines: usize = self.field_deadlines.iter().map(|(field, _)| field.len() + 32).sum();
        value + deadlines
    }

    /// Visits the effects that put the value at a key, with a deadline of the key.
    pub fn for_each_effect(
        &self,
        db: DbId,
        key: &[u8],
        expire_at_ms: Option<u64>,
        mut visit: impl FnMut(&Effect<'_>),
    ) {
        if let Form::Stream(image) = &self.form {
            return image.for_each_effect(db, key, expire_at_ms, visit);
        }
        visit(&KeyOp::Put { value: self.as_value(), expire_at_ms }.on(db, key));
        for (field, deadline_ms) in self.field_deadlines() {
            let fields = Items::Slices(&[field]);
            visit(&KeyOp::HashSetExpiry { fields, expire_at_ms: Some(deadline_ms) }.on(db, key));
        }
    }
}

impl PartialEq for ValueBuf {
    /// Whether both buffers hold the same value. The order of members and fields in memory does not count.
    fn eq(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Stream(one), Form::Stream(two)) => one == two,
            _ => self.canonical() == other.canonical(),
        }
    }
}

impl Eq for ValueBuf {}

impl ValueBuf {
    /// Type and content, in an order that depends only on the content; for a stream, only the type.
    fn canonical(&self) -> (ValueType, Vec<Vec<&[u8]>>, Vec<u64>) {
        let value = self.as_value();
        let (mut parts, mut numbers) = (Vec::new(), Vec::new());
        match value {
            Value::String(bytes) => parts.push(vec![bytes]),
            Value::List(items) => parts.extend(items.iter().map(|item| vec![item])),
            Value::Stream(_) => {}
            Value::Set(members) => {
                parts.extend(members.iter().map(|member| vec![member]));
                parts.sort_unstable();
            }
            Value::Zset(members) => {
                for (score, member) in members.iter() {
                    // 0.0 and -0.0 are the same score.
                    numbers.push((score + 0.0).to_bits());
                    parts.push(vec![member]);
                }
            }
            Value::Hash(pairs) => {
                parts.extend(pairs.pairs().map(|(field, value)| vec![field, value]));
                parts.sort_unstable();
                let mut deadlines: Vec<_> = self.field_deadlines().collect();
                deadlines.sort_unstable();
                for (field, deadline_ms) in deadlines {
                    parts.push(vec![field]);
                    numbers.push(deadline_ms);
                }
            }
        }
        (value.value_type(), parts, numbers)
    }
}

fn gather<E: AsRef<[u8]>>(elements: impl Iterator<Item = E>) -> ItemsBuf {
    let mut items = ItemsBuf::new();
    elements.for_each(|element| items.push(element.as_ref()));
    items
}
