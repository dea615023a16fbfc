//! Entries: one key and its value in one allocation.
//!
//! What it is: the packed representation and the only code that reads or writes it. What it is not: a place
//! for policy. This module can tell whether an entry has expired, but treats it like any other.
//!
//! # Layout
//! | bytes | small form | wide form |
//! |-------|------------|-----------|
//! | 0 | flags: type (4 bits), `EXPIRING`, `WIDE`, `BIG`, `EDITED` | the same |
//! | 1..4 | access stamp, 24 bits | the same |
//! | 4.. | key length u8, value length u16 | key length u32, value length u64, capacity u64 |
//! | 7.. / 24.. | deadline u64 if `EXPIRING`, key, value | the same |
//!
//! Numbers are in native byte order and unaligned. With the 7-byte header a 9-byte key and a 32-byte value
//! fill 48 bytes. The value of a small collection is its packed form. The value of a `BIG` entry is the
//! address of a boxed `collection::Big`, which the entry owns.
//!
//! Invariants
//! - An `Entry` owns its allocation, which is aligned to 8 and has the size `Shape::allocated`.
//! - The header, the deadline, the key and `value_len` bytes of value are initialised; the rest is never
//!   read.
//! - Addresses fit 48 bits and their low 3 bits are 0; `table` uses the other bits of a word for other data.

#![allow(unsafe_code)]

mod shape;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;

use crate::access::AccessStamp;
use crate::collection::{Big, View};
use crate::value::ValueType;
use shape::Shape;
pub(crate) use shape::size_class;

const TYPE_MASK: u8 = 0x0f;
const EXPIRING: u8 = 0x10;
const WIDE: u8 = 0x20;
const BIG: u8 = 0x40;
/// Marks a string that an Append or SetRange has changed; see [`EntryRef::is_edited`].
const EDITED: u8 = 0x80;

/// The flags that do not depend on the length or the deadline of the value.
const KIND_MASK: u8 = TYPE_MASK | BIG | EDITED;

const ALIGNMENT: usize = 8;

/// Bytes of the payload of a big collection.
const ADDRESS: usize = size_of::<*mut Big>();

/// An owned entry.
pub(crate) struct Entry {
    base: NonNull<u8>,
}

// SAFETY: an entry owns its allocation and has no tie to the thread that made it.
unsafe impl Send for Entry {}

impl Entry {
    /// A new string in the tightest form.
    pub(crate) fn new(key: &[u8], value: &[u8], expire_at_ms: Option<u64>, stamp: AccessStamp) -> Self {
        Entry::with_kind(ValueType::String as u8, key, value, expire_at_ms, stamp)
    }

    /// A new entry with this payload: the bytes of a string, or the packed form of a collection.
    pub(crate) fn packed(
        value_type: ValueType,
        key: &[u8],
        payload: &[u8],
        expire_at_ms: Option<u64>,
        stamp: AccessStamp,
    ) -> Self {
        Entry::with_kind(value_type as u8, key, payload, expire_at_ms, stamp)
    }

    #[inline]
    fn with_kind(kind: u8, key: &[u8], value: &[u8], expire_at_ms: Option<u64>, stamp: AccessStamp) -> Self {
        let shape = Shape::tight(key.len(), value.len(), expire_at_ms.is_some());
        let mut entry = Entry { base: allocate(shape) };
        entry.write(kind, shape, key, value, expire_at_ms, stamp);
        entry
    }

    /// A borrow of the entry for reading.
    #[inline]
    pub(crate) fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { base: self.base, entry: PhantomData }
    }

    /// Gives up ownership.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).base
    }

    /// Takes ownership back.
    ///
    /// # Safety
    /// `base` came from `into_raw` and nothing else owns it.
    #[inline]
    pub(crate) unsafe fn from_raw(base: NonNull<u8>) -> Self {
        Entry { base }
    }

    /// Replaces the value by a string, and replaces the deadline and the stamp. `key` is the key of the
    /// entry. Returns the old entry if the new content needs another size class or the old value was a big
    /// collection.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expire_at_ms: Option<u64>,
        stamp: AccessStamp,
    ) -> Option<Entry> {
        debug_assert_eq!(self.as_ref().key(), key);
        let shape = Shape::tight(key.len(), value.len(), expire_at_ms.is_some());
        let old = self.as_ref();
        if shape.allocated() == old.shape().allocated() && !old.is_big() {
            self.write(ValueType::String as u8, shape, key, value, expire_at_ms, stamp);
            return None;
        }
        Some(mem::replace(self, Entry::new(key, value, expire_at_ms, stamp)))
    }

    /// The big collection, if the value is one.
    #[inline]
    pub(crate) fn big_mut(&mut self) -> Option<&mut Big> {
        if !self.as_ref().is_big() {
            return None;
        }
        // SAFETY: a big entry owns the box whose address it holds, and is borrowed exclusively.
        Some(unsafe { &mut *self.as_ref().big_address() })
    }

    /// The payload, to be changed without changing its length.
    ///
    /// # Panics
    /// If the value is a big collection: its payload is an address.
    #[inline]
    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        assert!(!self.as_ref().is_big(), "the payload of a big collection is an address");
        let shape = self.as_ref().shape();
        // SAFETY: as in `EntryRef::payload`; the entry is borrowed exclusively.
        unsafe {
            NonNull::slice_from_raw_parts(self.base.add(shape.value_offset()), shape.value_len).as_mut()
        }
    }

    /// Whether the value is a big collection whose capture has begun and not ended.
    #[inline]
    pub(crate) fn is_being_captured(&self) -> bool {
        self.as_ref().big().is_some_and(Big::is_being_captured)
    }

    /// Lists at most `max` fields of a hash that are due. The caller removes these fields, because later
    /// calls may not list them.
    pub(crate) fn list_expired_fields(&mut self, now_ms: u64, max: usize, fields: &mut Vec<Vec<u8>>) {
        if let Some(Big::Hash(map)) = self.big_mut() {
            map.expired_fields(now_ms, max, fields);
        }
    }

    /// Replaces the packed form of a collection by its big form. Keeps type, deadline and stamp.
    ///
    /// # Panics
    /// If the entry is big already: its collection would be lost.
    pub(crate) fn promote(&mut self, big: Big) {
        let old = self.as_ref();
        assert!(!old.is_big(), "promoted twice");
        let (kind, expire_at_ms, stamp) = (old.kind() | BIG, old.expire_at_ms(), old.stamp());
        let fresh = Entry::with_kind(kind, old.key(), &[0; ADDRESS], expire_at_ms, stamp);
        let address = Box::into_raw(Box::new(big));
        // SAFETY: the payload of the fresh entry has the size of an address and no other code has seen it.
        unsafe { write_unaligned(fresh.base, fresh.as_ref().shape().value_offset(), address) };
        *self = fresh;
    }

    /// Replaces `removed` bytes at `at` of a packed collection by the concatenation of `inserted`. Keeps
    /// everything else. Panics if the value is a big collection, or if these bytes are not all in the
    /// payload.
    pub(crate) fn splice(&mut self, at: usize, removed: usize, inserted: &[&[u8]]) {
        let old = self.as_ref();
        assert!(!old.is_big(), "the payload of a big collection is an address");
        let shape = old.shape();
        let tail = at + removed;
        assert!(tail <= shape.value_len, "splice outside the payload");
        let inserted_len: usize = inserted.iter().map(|part| part.len()).sum();
        let value_len = shape.value_len - removed + inserted_len;
        let new = if value_len >= shape.value_len {
            shape.grown(value_len, shape.expiring)
        } else {
            Shape::tight(shape.key_len, value_len, shape.expiring)
        };
        let (kind, expire_at_ms, stamp) = (old.kind(), old.expire_at_ms(), old.stamp());
        let stays = new.allocated() == shape.allocated() && new.wide == shape.wide;
        let target = if stays { self.base } else { allocate(new) };
        // SAFETY: both allocations have the sizes of their shapes; `at + removed` is inside the old value,
        // and the three parts together are as long as the new one. `copy_to` allows source and target to
        // overlap, as they do when the entry stays in place; the tail is moved before anything is written
        // over it.
        unsafe {
            let from = self.base.add(shape.value_offset());
            let to = target.add(new.value_offset());
            from.add(tail).copy_to(to.add(at + inserted_len), shape.value_len - tail);
            if !stays {
                self.base.add(shape.key_offset()).copy_to(target.add(new.key_offset()), shape.key_len);
                from.copy_to(to, at);
            }
            let mut place = to.add(at);
            for part in inserted {
                place.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                place = place.add(part.len());
            }
        }
        let mut entry = ManuallyDrop::new(Entry { base: target });
        entry.write_header(kind, new, expire_at_ms, stamp);
        if !stays {
            drop(mem::replace(self, ManuallyDrop::into_inner(entry)));
        }
    }

    /// Sets or removes the deadline. Returns the old allocation if the entry had to move: there was no room
    /// for the deadline, or the entry without its deadline has a smaller size class.
    pub(crate) fn set_expiry(&mut self, expire_at_ms: Option<u64>) -> Option<Entry> {
        let old = self.as_ref();
        let (value_len, stamp) = (old.shape().value_len, old.stamp());
        self.reshape(old.kind(), value_len, expire_at_ms, stamp, |_| ())
    }

    /// Adds bytes to the end of the string. Returns the old allocation if there was no room.
    pub(crate) fn append(&mut self, suffix: &[u8], stamp: AccessStamp) -> Option<Entry> {
        let old = self.as_ref();
        let (start, expire_at_ms) = (old.shape().value_len, old.expire_at_ms());
        self.reshape(old.kind() | EDITED, start + suffix.len(), expire_at_ms, stamp, |value| {
            value[start..].copy_from_slice(suffix);
        })
    }

    /// Overwrites the bytes from `offset` on, growing the string (with zero bytes up to `offset`) if it is
    /// shorter. Returns the old allocation if there was no room.
    ///
    /// # Panics
    /// If the string would be longer than the address space.
    pub(crate) fn set_range(&mut self, offset: u64, bytes: &[u8], stamp: AccessStamp) -> Option<Entry> {
        let old = self.as_ref();
        let (old_len, expire_at_ms) = (old.shape().value_len, old.expire_at_ms());
        let (start, end) = range_in_memory(offset, bytes.len());
        self.reshape(old.kind() | EDITED, old_len.max(end), expire_at_ms, stamp, |value| {
            value[start..end].copy_from_slice(bytes);
        })
    }

    /// The entry under another key, with everything else unchanged; and the old allocation, if there is a new
    /// one. A big collection is not touched. If both keys have the same length, nothing but the new key is
    /// written.
    pub(crate) fn rekeyed(mut self, key: &[u8]) -> (Entry, Option<Entry>) {
        let old = self.as_ref();
        let shape = old.shape();
        if key.len() == shape.key_len {
            // SAFETY: the key is in bounds of the allocation, which `self` owns and no reference borrows.
            unsafe {
                let place = self.base.add(shape.key_offset());
                place.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            }
            return (self, None);
        }
        let fresh = Entry::with_kind(old.kind(), key, old.payload(), old.expire_at_ms(), old.stamp());
        // The payload of a big collection is its address, which both allocations hold now.
        self.disown();
        (fresh, Some(self))
    }

    /// A copy of the entry under another key.
    ///
    /// # Panics
    /// If the value is a big collection: a copy of its address would be a second owner.
    pub(crate) fn copied_to(&self, key: &[u8]) -> Entry {
        let entry = self.as_ref();
        assert!(!entry.is_big(), "the payload of a big collection is an address");
        Entry::with_kind(entry.kind(), key, entry.payload(), entry.expire_at_ms(), entry.stamp())
    }

    #[inline]
    pub(crate) fn set_stamp(&mut self, stamp: AccessStamp) {
        let flags = self.as_ref().flags();
        // SAFETY: every header has 4 bytes of flags and stamp.
        unsafe { write_unaligned(self.base, 0, flags_and_stamp(flags, stamp)) };
    }

    /// Lengthens the value to `value_len` bytes, which must not be fewer than before, and zeroes the new
    /// bytes. Sets kind, deadline and stamp, then lets `fill` write into the value. Returns the old
    /// allocation if the entry had to move.
    fn reshape(
        &mut self,
        kind: u8,
        value_len: usize,
        expire_at_ms: Option<u64>,
        stamp: AccessStamp,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<Entry> {
        let old = self.as_ref().shape();
        let new = old.grown(value_len, expire_at_ms.is_some());
        let content_len = old.key_len + old.value_len;
        let moved = new.allocated() != old.allocated();
        let target = if moved { allocate(new) } else { self.base };
        // SAFETY: key and value are initialised and in bounds at their old offset, and fit at the new one
        // because `value_len >= old.value_len`. `copy_to` allows the two to overlap, as they do when the
        // entry stays in place.
        unsafe {
            let content = self.base.add(old.key_offset());
            content.copy_to(target.add(new.key_offset()), content_len);
        }
        // The header is written after the copy, because a new deadline is written to the place where the key
        // was.
        let mut entry = ManuallyDrop::new(Entry { base: target });
        entry.write_header(kind, new, expire_at_ms, stamp);
        // SAFETY: the value is in bounds; its first `old.value_len` bytes were just copied, the others are
        // zeroed here, so the slice is initialised, and `target` is not reachable from anywhere else.
        let value = unsafe {
            let value = target.add(new.value_offset());
            value.add(old.value_len).write_bytes(0, value_len - old.value_len);
            NonNull::slice_from_raw_parts(value, value_len).as_mut()
        };
        fill(value);
        moved.then(|| {
            let mut old = mem::replace(self, ManuallyDrop::into_inner(entry));
            // The address of a big collection was copied to the new allocation, so the old allocation no
            // longer owns the collection.
            old.disown();
            old
        })
    }

    /// Clears the flag of a big collection, because another entry owns the collection now.
    fn disown(&mut self) {
        let old = self.as_ref();
        let (flags, stamp) = (old.flags() & !BIG, old.stamp());
        // SAFETY: every header has 4 bytes of flags and stamp.
        unsafe { write_unaligned(self.base, 0, flags_and_stamp(flags, stamp)) };
    }

    /// Writes the whole content. The allocation has the size of `shape`.
    #[inline]
    fn write(
        &mut self,
        kind: u8,
        shape: Shape,
        key: &[u8],
        value: &[u8],
        expire_at_ms: Option<u64>,
        stamp: AccessStamp,
    ) {
        self.write_header(kind, shape, expire_at_ms, stamp);
        // SAFETY: `shape` was made from these lengths and the allocation has its size. The sources are
        // borrowed while `self` is borrowed exclusively, so they do not overlap it.
        unsafe {
            self.base.add(shape.key_offset()).copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            self.base
                .add(shape.value_offset())
                .copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
    }

    #[inline]
    fn write_header(&mut self, kind: u8, shape: Shape, expire_at_ms: Option<u64>, stamp: AccessStamp) {
        let flags = kind | if shape.expiring { EXPIRING } else { 0 } | if shape.wide { WIDE } else { 0 };
        // SAFETY: the allocation has the size of `shape`, which includes the header of its form. Lengths fit
        // their fields: `Shape::tight` takes the wide form otherwise, and no slice is longer than 2^63 bytes.
        unsafe {
            write_unaligned(self.base, 0, flags_and_stamp(flags, stamp));
            if shape.wide {
                write_unaligned(self.base, 4, wide_key_len(shape.key_len));
                write_unaligned(self.base, 8, shape.value_len as u64);
                write_unaligned(self.base, 16, shape.capacity as u64);
            } else {
                write_unaligned(self.base, 4, shape.key_len as u8);
                write_unaligned(self.base, 5, shape.value_len as u16);
            }
            if let Some(deadline_ms) = expire_at_ms {
                write_unaligned(self.base, shape.deadline_offset(), deadline_ms);
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.as_ref().is_big() {
            // SAFETY: the entry owns the box and is not used after this.
            drop(unsafe { Box::from_raw(self.as_ref().big_address()) });
        }
        let layout = layout(self.as_ref().shape());
        // SAFETY: the allocation was made with this layout: its size is a function of the header.
        unsafe { dealloc(self.base.as_ptr(), layout) };
    }
}

/// A borrowed entry, which may have expired. Other crates borrow entries from a locked slot. In this crate,
/// an `EntryRef` may also be a field or member of a big collection, or an entry that is in no table.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    base: NonNull<u8>,
    entry: PhantomData<&'a Entry>,
}

impl<'a> EntryRef<'a> {
    /// Borrows the entry at `base`.
    ///
    /// # Safety
    /// `base` came from `Entry::into_raw`, and for `'a` the entry is neither freed nor written.
    #[inline]
    pub(crate) unsafe fn from_raw(base: NonNull<u8>) -> Self {
        EntryRef { base, entry: PhantomData }
    }

    /// The address of the entry, for [`EntryRef::from_raw`]: valid as long as the entry is neither freed nor
    /// resized.
    #[inline]
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.base
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: the key is initialised and in bounds of the allocation, which lives unchanged for 'a.
        unsafe { NonNull::slice_from_raw_parts(self.base.add(shape.key_offset()), shape.key_len).as_ref() }
    }

    /// The value.
    #[inline]
    pub fn view(&self) -> View<'a> {
        match self.big() {
            Some(big) => View::of_big(big),
            None => View::of_packed(self.value_type(), self.payload()),
        }
    }

    /// The big collection, if the value is one.
    #[inline]
    fn big(&self) -> Option<&'a Big> {
        // SAFETY: the entry owns the box, which lives unchanged for 'a.
        self.is_big().then(|| unsafe { &*self.big_address() })
    }

    /// Starts loading these members or fields, if the value is a big collection that has members or fields.
    pub(crate) fn prefetch_members<'m>(&self, members: impl Iterator<Item = &'m [u8]>) {
        if let Some(big) = self.big() {
            big.prefetch_members(members);
        }
    }

    /// The bytes of a string; `None` for another type.
    #[inline]
    pub fn string(&self) -> Option<&'a [u8]> {
        (self.flags() & TYPE_MASK == ValueType::String as u8).then(|| self.payload())
    }

    /// Whether the value is a string that an Append or SetRange has changed since the last Put, or that a
    /// SetRange has made. Only OBJECT ENCODING asks for this mark. The mark is no part of the data: a
    /// snapshot lacks it.
    pub fn is_edited(&self) -> bool {
        self.flags() & EDITED != 0
    }

    /// The type of the value.
    #[inline]
    pub fn value_type(&self) -> ValueType {
        match self.flags() & TYPE_MASK {
            0 => ValueType::String,
            1 => ValueType::List,
            2 => ValueType::Set,
            3 => ValueType::Zset,
            4 => ValueType::Hash,
            5 => ValueType::Stream,
            other => unreachable!("entry header with type {other}"),
        }
    }

    /// Unix time in milliseconds at which the entry expires; `None` for never.
    #[inline]
    pub fn expire_at_ms(&self) -> Option<u64> {
        let flags = self.flags();
        let offset = Shape { wide: flags & WIDE != 0, ..Shape::small(0, 0, false) }.deadline_offset();
        // SAFETY: an entry that expires has its deadline there.
        (flags & EXPIRING != 0).then(|| unsafe { read_unaligned(self.base, offset) })
    }

    /// Whether the entry counts as absent at `now_ms`.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expire_at_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms)
    }

    /// The access stamp.
    #[inline]
    pub fn stamp(&self) -> AccessStamp {
        // SAFETY: every header has 4 bytes of flags and stamp.
        AccessStamp::from_bits(unsafe { read_unaligned::<u32>(self.base, 0) } >> 8)
    }

    /// LRU: seconds since the last access.
    #[inline]
    pub fn idle_seconds(&self, now_ms: u64) -> u32 {
        self.stamp().idle_seconds(now_ms)
    }

    /// LFU: the logarithmic access counter, decayed to `now_ms`.
    #[inline]
    pub fn frequency(&self, now_ms: u64) -> u8 {
        self.stamp().frequency(now_ms)
    }

    /// Bytes of memory that the entry occupies.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        self.shape().allocated() + self.big().map_or(0, Big::bytes)
    }

    /// As `FieldMap::next_deadline_ms`, for a big hash; `None` for any other value.
    #[inline]
    pub(crate) fn next_field_deadline_ms(&self) -> Option<u64> {
        match self.big()? {
            Big::Hash(fields) => fields.next_deadline_ms(),
            _ => None,
        }
    }

    /// Whether the payload is the address of a big collection.
    #[inline]
    pub(crate) fn is_big(&self) -> bool {
        self.flags() & BIG != 0
    }

    /// The address of the big collection. Only for big entries.
    #[inline]
    fn big_address(&self) -> *mut Big {
        debug_assert!(self.is_big());
        // SAFETY: the payload of a big entry is an address.
        unsafe { read_unaligned(self.base, self.shape().value_offset()) }
    }

    #[inline]
    fn kind(&self) -> u8 {
        self.flags() & KIND_MASK
    }

    #[inline]
    pub(crate) fn payload(&self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: `value_len` bytes are initialised and in bounds of the allocation, which lives unchanged
        // for 'a.
        unsafe {
            NonNull::slice_from_raw_parts(self.base.add(shape.value_offset()), shape.value_len).as_ref()
        }
    }

    #[inline]
    fn flags(&self) -> u8 {
        // SAFETY: every header starts with a byte of flags.
        unsafe { self.base.read() }
    }

    #[inline]
    fn shape(&self) -> Shape {
        let flags = self.flags();
        let expiring = flags & EXPIRING != 0;
        // SAFETY: the flags say which form the header has; its fields are initialised.
        unsafe {
            if flags & WIDE == 0 {
                let key_len = read_unaligned::<u8>(self.base, 4);
                let value_len = read_unaligned::<u16>(self.base, 5);
                return Shape::small(key_len.into(), value_len.into(), expiring);
            }
            Shape {
                key_len: read_unaligned::<u32>(self.base, 4) as usize,
                value_len: read_unaligned::<u64>(self.base, 8) as usize,
                capacity: read_unaligned::<u64>(self.base, 16) as usize,
                expiring,
                wide: true,
            }
        }
    }
}

impl std::fmt::Debug for EntryRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key().escape_ascii().to_string())
            .field("value_type", &self.value_type())
            .field("value_len", &self.shape().value_len)
            .field("expire_at_ms", &self.expire_at_ms())
            .finish()
    }
}

/// The start and the end of the `len` bytes at `offset`. Panics if they exceed the address space.
fn range_in_memory(offset: u64, len: usize) -> (usize, usize) {
    let start = usize::try_from(offset).expect("callers limit the length of values");
    let end = start.checked_add(len).expect("callers limit the length of values");
    (start, end)
}

fn wide_key_len(len: usize) -> u32 {
    u32::try_from(len).expect("callers limit the length of keys")
}

#[inline]
fn flags_and_stamp(flags: u8, stamp: AccessStamp) -> u32 {
    // The layout is for little-endian machines only, where the lowest byte, which holds the flags, comes
    // first.
    const { assert!(cfg!(target_endian = "little")) };
    u32::from(flags) | stamp.bits() << 8
}

fn layout(shape: Shape) -> Layout {
    Layout::from_size_align(shape.allocated(), ALIGNMENT).expect("callers limit the length of values")
}

fn allocate(shape: Shape) -> NonNull<u8> {
    let layout = layout(shape);
    // SAFETY: the size is not zero: every shape has a header.
    let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    assert!(base.addr().get() >> 48 == 0, "allocator returned an address above 48 bits");
    base
}

/// # Safety
/// The bytes of a `T` at `base + offset` are in bounds and initialised.
#[inline]
unsafe fn read_unaligned<T: Copy>(base: NonNull<u8>, offset: usize) -> T {
    // SAFETY: promised by the caller.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
}

/// # Safety
/// The bytes of a `T` at `base + offset` are in bounds and not borrowed.
#[inline]
unsafe fn write_unaligned<T: Copy>(base: NonNull<u8>, offset: usize, value: T) {
    // SAFETY: promised by the caller.
    unsafe { base.add(offset).cast::<T>().write_unaligned(value) };
}

#[cfg(test)]
mod tests;
