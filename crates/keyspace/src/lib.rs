//! The keyspace: every key in memory, by slot.
//!
//! What it is: 16 384 hash slots, each with its lock, its tables, its last LSN and its expiry index; entries,
//! effects, SCAN, expiry, sampling for eviction. `Keyspace::lock` gives a `SlotGuard`: reads are methods of
//! the guard, and data changes only by an `Effect` that is applied to the guard, or to several guards
//! together. The one exception is a `Loader`, which fills empty slots. What it is not: a server. No I/O, no
//! clock (`now_ms` is an argument), no randomness but seeds, no commands, no log: the caller that applies an
//! effect notes the LSN of its record under the same guard.
//!
//! Invariants
//! - An entry is only reachable through the locked slot that its key hashes to.
//! - A thread waits for the locks of several slots only in ascending order (see `slot`).
//! - Applying the same effects in the same order gives the same data with every hash seed.
//! - Expired entries stay until an effect removes or replaces them. `SlotGuard::get`, SCAN and `random_key`
//!   treat them as absent; counts and effects do not.
//! - `SlotGuard::get` allocates nothing.
//!
//! # A SET
//! ```
//! use keyspace::{AccessClock, DbId, Freed, KeyOp, Keyspace, Options, Value};
//!
//! let keyspace = Keyspace::new(Options { hash_seed: 7 });
//! let clock = AccessClock { now_ms: 1_700_000_000_000, ..AccessClock::default() };
//! let hash = keyspace.hash(b"greeting");
//! let mut freed = Freed::new();
//! {
//!     let mut slot = keyspace.lock(hash.slot());
//!     let value = Value::String(b"hello");
//!     let effect = KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, b"greeting");
//!     slot.apply_hashed(&effect, &hash, clock, &mut freed);
//!     // Here the server reserves log space and calls `slot.set_last_lsn(lsn)`.
//!     let entry = slot.get(DbId::ZERO, &hash, b"greeting", clock.now_ms).expect("just put");
//!     assert_eq!(entry.string(), Some(&b"hello"[..]));
//! }
//! assert_eq!(keyspace.len(DbId::ZERO), 1);
//! ```

mod access;
mod apply;
mod capture;
mod check;
mod collection;
mod data_settings;
mod digest;
mod effect;
mod entry;
mod eviction;
mod expiry;
mod freed;
mod hash;
mod hints;
mod id;
mod keyspace;
mod libraries;
mod locked;
mod random;
mod scan;
mod slot;
mod slot_set;
mod table;
mod totals;
mod value;

pub use access::{AccessClock, AccessPolicy, AccessStamp};
pub use apply::Applied;
pub use capture::{Capture, Captured, LoadError, Loader};
pub use collection::{
    ConsumerTimes, ConsumerView, Delivery, ENTRIES_READ_MAX, Element, GroupPosition, GroupView, HashField,
    HashView, ListIter, ListView, PackedLimits, PendingView, SetView, SharedEntries, StreamBlock,
    StreamEntry, StreamFields, StreamHead, StreamId, StreamImage, StreamOrder, StreamView, ValueBuf, View,
    ZsetRange, ZsetView,
};
pub use data_settings::DataSettings;
pub use digest::Digest;
pub use effect::{
    Effect, EffectError, EncodedItems, GlobalOp, Item, Items, ItemsBuf, KeyOp, LibraryContent, ListEnd,
    Listable, Listed, LoggedMessage, STRING_BYTES_MAX, Scope, ScoredItems, ScoredItemsBuf,
    encode_documents_into,
};
pub use entry::EntryRef;
pub use eviction::{Candidate, EvictionPolicy};
pub use freed::Freed;
pub use hash::{KeyHash, slot_of};
pub use id::{DB_COUNT, DbId, SLOT_COUNT, SlotId};
pub use keyspace::{IndexBytes, Keyspace, Options};
pub use libraries::{
    Function, FunctionFlags, LIBRARIES_SLOT, Libraries, Library, Published as PublishedLibraries,
};
pub use locked::LockedSlots;
pub use scan::ScanCursor;
pub use slot::{DueFields, SlotGuard};
pub use value::{Value, ValueType};

#[cfg(test)]
mod tests;
