//! The hashes of a command's keys, computed once for prefetching, for locking, and for accesses that follow
//! the order of the keys.
//!
//! Keys are identified by their address: arguments stay in place while their command runs.

use std::cell::Cell;

use keyspace::KeyHash;

#[derive(Clone, Copy)]
struct Known {
    start: *const u8,
    len: usize,
    hash: KeyHash,
}

impl Known {
    #[inline]
    fn is(&self, key: &[u8]) -> bool {
        std::ptr::eq(self.start, key.as_ptr()) && self.len == key.len()
    }
}

#[derive(Default)]
pub(super) struct KnownKeys {
    /// The only or the first key. Most commands have only one.
    first: Option<Known>,
    others: Vec<Known>,
    /// The index in `others` of the key found last: commands go through their keys in order.
    last: Cell<usize>,
}

impl KnownKeys {
    #[inline]
    pub(super) fn one(key: &[u8], hash: KeyHash) -> KnownKeys {
        let first = Some(Known { start: key.as_ptr(), len: key.len(), hash });
        KnownKeys { first, ..KnownKeys::default() }
    }

    pub(super) fn push(&mut self, key: &[u8], hash: KeyHash) {
        let known = Known { start: key.as_ptr(), len: key.len(), hash };
        match self.first {
            None => self.first = Some(known),
            Some(_) => self.others.push(known),
        }
    }

    /// Forgets all keys, because their addresses may be reused.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.first = None;
        self.others.clear();
        self.last.set(0);
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = &KeyHash> {
        self.first.iter().chain(&self.others).map(|known| &known.hash)
    }

    /// The hash of a key; `None` unless it is the first key, the key found last, or the key after that.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> Option<KeyHash> {
        let first = self.first.as_ref()?;
        if first.is(key) {
            return Some(first.hash);
        }
        let from = self.last.get();
        let near = self.others.get(from..)?.iter().take(2).position(|known| known.is(key))?;
        self.last.set(from + near);
        Some(self.others[from + near].hash)
    }
}
