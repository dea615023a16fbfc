//! Value types and the values that effects carry.
//!
//! What it is: the names that TYPE reports, and the form in which effects carry a value.
//! What it is not: the representation in memory (see `entry` and `collection`).

use crate::collection::StreamHead;
use crate::effect::{Items, ScoredItems};

/// The type of a value. The numbers are in the headers of entries and in the rows of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ValueType {
    /// Bytes.
    String = 0,
    /// A list of strings.
    List = 1,
    /// A set of strings.
    Set = 2,
    /// A set of strings ordered by score.
    Zset = 3,
    /// A map from field to string.
    Hash = 4,
    /// A stream of entries.
    Stream = 5,
}

impl ValueType {
    /// The name that TYPE replies.
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::String => "string",
            ValueType::List => "list",
            ValueType::Set => "set",
            ValueType::Zset => "zset",
            ValueType::Hash => "hash",
            ValueType::Stream => "stream",
        }
    }
}

/// The value that a Put carries. A value in the keyspace is read through a [`View`](crate::View).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// Bytes.
    String(&'a [u8]),
    /// Elements from head to tail.
    List(Items<'a>),
    /// Members.
    Set(Items<'a>),
    /// Members with their scores.
    Zset(ScoredItems<'a>),
    /// Fields and values in turn.
    Hash(Items<'a>),
    /// A stream without entries and groups, which separate effects add.
    Stream(StreamHead),
}

impl Value<'_> {
    /// The type of the value.
    #[inline]
    pub const fn value_type(&self) -> ValueType {
        match self {
            Value::String(_) => ValueType::String,
            Value::List(_) => ValueType::List,
            Value::Set(_) => ValueType::Set,
            Value::Zset(_) => ValueType::Zset,
            Value::Hash(_) => ValueType::Hash,
            Value::Stream(_) => ValueType::Stream,
        }
    }
}
