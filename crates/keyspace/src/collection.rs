//! Collections: how lists, sets, sorted sets and hashes lie in memory.
//!
//! What it is: for each type a packed form, which is a byte string inside the entry of its key, and a big form
//! for what outgrows it; and the views that read either.
//! What it is not: commands. What a type can do is decided by its effects.

#[cfg_attr(not(test), expect(dead_code, reason = "used by the list type, which follows"))]
pub(crate) mod chunk;
#[cfg_attr(not(test), expect(dead_code, reason = "used by the collection types, which follow"))]
pub(crate) mod element;
#[cfg_attr(not(test), expect(dead_code, reason = "used by the collection types, which follow"))]
pub(crate) mod field_map;
#[cfg_attr(not(test), expect(dead_code, reason = "used by the list type, which follows"))]
pub(crate) mod long_list;
#[cfg_attr(not(test), expect(dead_code, reason = "used by the sorted set, which follows"))]
pub(crate) mod rank_tree;

#[cfg(test)]
mod testing;
