//! What the tests of several modules share: values by chance, and their encoding.

use proptest::prelude::*;

use crate::value::{HashField, Value};
use crate::writer::{Output, Writer};

/// Writes a value, with its type number.
pub(crate) fn write_value(value: &Value, writer: &mut Writer<impl Output>) {
    match value {
        Value::String(bytes) => writer.string_value(bytes),
        Value::List(elements) => {
            writer.begin_list(elements.len());
            elements.iter().for_each(|element| writer.string(element));
        }
        Value::Set(members) => {
            writer.begin_set(members.len());
            members.iter().for_each(|member| writer.string(member));
        }
        Value::Zset(members) => {
            writer.begin_zset(members.len());
            members.iter().for_each(|(score, member)| writer.scored(member, *score));
        }
        Value::Hash(fields) => match fields.iter().filter_map(|field| field.expire_at_ms).min() {
            None => {
                writer.begin_hash(fields.len());
                for field in fields {
                    writer.string(&field.name);
                    writer.string(&field.value);
                }
            }
            Some(first_ms) => {
                writer.begin_expiring_hash(fields.len(), first_ms);
                for HashField { name, value, expire_at_ms } in fields {
                    writer.expiring_field(name, value, *expire_at_ms, first_ms);
                }
            }
        },
    }
}

fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..80), 1..20)
        .prop_map(|names| names.into_iter().collect())
}

/// A value of any type.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let score = any::<f64>().prop_filter("a number", |score| !score.is_nan());
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20_000).prop_map(Value::String),
        names().prop_map(Value::List),
        names().prop_map(Value::Set),
        (names(), score)
            .prop_map(|(names, score)| Value::Zset(names.into_iter().map(|name| (score, name)).collect())),
        (names(), prop::option::of(any::<u32>())).prop_map(|(names, deadline)| {
            let field = |(index, name): (usize, Vec<u8>)| HashField {
                value: name.clone(),
                name,
                expire_at_ms: deadline.filter(|_| index % 2 == 0).map(|ms| u64::from(ms) + 1),
            };
            Value::Hash(names.into_iter().enumerate().map(field).collect())
        }),
    ]
}
