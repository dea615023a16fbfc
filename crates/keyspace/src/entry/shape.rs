//! Sizes and offsets inside an entry: pure arithmetic, no memory.
//!
//! What it is: `Shape`, the division of an entry's allocation, and the size classes to which allocations are
//! rounded. What it is not: code that touches entries (see `entry`).
//!
//! Invariants
//! - `Shape::allocated` is a pure function of the fields of an entry header, so an entry can always be freed.
//! - The size of every allocation is a result of `size_class`, so the allocator does not round it up to
//!   memory that is not accounted for.

/// The maximum bytes of a key in the small form.
const SMALL_KEY_MAX: usize = u8::MAX as usize;
const SMALL_VALUE_MAX: usize = u16::MAX as usize;

/// Header bytes before the optional deadline.
const SMALL_HEADER: usize = 7;
const WIDE_HEADER: usize = 24;
/// Bytes of the deadline in an entry that expires.
const DEADLINE: usize = 8;

/// How the allocation of an entry is divided: header, deadline, key, value, unused room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    /// Bytes available for the value, `>= value_len`.
    pub(crate) capacity: usize,
    pub(crate) expiring: bool,
    /// Whether the header has the wide form, with wide lengths and an explicit capacity.
    pub(crate) wide: bool,
}

impl Shape {
    /// The smallest shape for a new value.
    #[inline]
    pub(crate) fn tight(key_len: usize, value_len: usize, expiring: bool) -> Self {
        let wide = key_len > SMALL_KEY_MAX || value_len > SMALL_VALUE_MAX;
        let shape = Shape { key_len, value_len, capacity: 0, expiring, wide };
        shape.with_class_of(value_len)
    }

    /// The shape read back from a header of the small form.
    #[inline]
    pub(crate) fn small(key_len: usize, value_len: usize, expiring: bool) -> Self {
        let shape = Shape { key_len, value_len, capacity: 0, expiring, wide: false };
        shape.with_class_of(value_len)
    }

    /// The shape after the value has grown to `value_len` bytes, which are not fewer than before, or
    /// `expiring` has changed. A value of the wide form keeps its room. When the room is used up, the value
    /// gets a quarter more than it needs, so that only a few of many small steps copy the value.
    pub(crate) fn grown(&self, value_len: usize, expiring: bool) -> Self {
        let tight = Shape::tight(self.key_len, value_len, expiring);
        let wide = Shape { wide: true, ..tight };
        if self.wide && wide.value_offset() + value_len <= self.allocated() {
            return Shape { capacity: self.allocated() - wide.value_offset(), ..wide };
        }
        if tight.wide && value_len > self.value_len {
            return tight.with_class_of(value_len + value_len / 4);
        }
        tight
    }

    #[inline]
    fn with_class_of(self, capacity_min: usize) -> Self {
        let offset = self.value_offset();
        Shape { capacity: size_class(offset + capacity_min) - offset, ..self }
    }

    #[inline]
    pub(crate) fn deadline_offset(&self) -> usize {
        if self.wide { WIDE_HEADER } else { SMALL_HEADER }
    }

    #[inline]
    pub(crate) fn key_offset(&self) -> usize {
        self.deadline_offset() + if self.expiring { DEADLINE } else { 0 }
    }

    #[inline]
    pub(crate) fn value_offset(&self) -> usize {
        self.key_offset() + self.key_len
    }

    /// Bytes of the whole allocation.
    #[inline]
    pub(crate) fn allocated(&self) -> usize {
        self.value_offset() + self.capacity
    }
}

/// The size that an allocation of `bytes` is rounded up to: steps of 16 up to 128, then four steps per
/// doubling up to 1 MiB, then steps of 256 KiB. These are the classes of mimalloc, where it has classes.
#[inline]
pub(crate) fn size_class(bytes: usize) -> usize {
    const LARGEST_STEP: usize = 256 << 10;
    if bytes <= 128 {
        return (bytes + 15) & !15;
    }
    let step = (1usize << ((bytes - 1).ilog2() - 2)).min(LARGEST_STEP);
    (bytes + step - 1) & !(step - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_round_up_by_bounded_steps() {
        let expected = [
            (1, 16),
            (48, 48),
            (49, 64),
            (128, 128),
            (129, 160),
            (160, 160),
            (257, 320),
            (1000, 1024),
            (1025, 1280),
            (65_537, 81_920),
            (1 << 20, 1 << 20),
            ((1 << 20) + 1, 5 << 18),
            ((8 << 20) + 1, (8 << 20) + (1 << 18)),
        ];
        for (bytes, class) in expected {
            assert_eq!(size_class(bytes), class, "{bytes}");
            assert_eq!(size_class(class), class, "a class is its own class");
        }
    }

    #[test]
    fn the_common_entry_has_no_waste() {
        let shape = Shape::tight(9, 32, false);
        assert_eq!((shape.value_offset(), shape.allocated(), shape.wide), (16, 48, false));
        assert_eq!(Shape::tight(9, 32, true).allocated(), 64);
    }

    #[test]
    fn long_keys_or_values_take_the_wide_form() {
        assert!(!Shape::tight(255, 65_535, true).wide);
        assert!(Shape::tight(256, 0, false).wide);
        assert!(Shape::tight(0, 65_536, false).wide);
    }

    #[test]
    fn growth_by_one_byte_reallocates_rarely() {
        let mut shape = Shape::tight(3, 0, false);
        let mut allocations = 0;
        let len_max = if cfg!(miri) { 5_000 } else { 4 << 20 };
        for value_len in 1..len_max {
            let grown = shape.grown(value_len, false);
            assert!(grown.capacity >= value_len && grown.value_len == value_len);
            allocations += usize::from(grown.allocated() != shape.allocated());
            shape = grown;
        }
        assert!(allocations < 80, "{allocations}");
    }

    #[test]
    fn a_wide_entry_with_room_takes_a_deadline_in_place() {
        let shape = Shape::tight(3, 70_000, false).grown(70_001, false);
        let expiring = shape.grown(70_001, true);
        assert_eq!(expiring.allocated(), shape.allocated());
        assert_eq!(expiring.capacity, shape.capacity - 8);
        assert_eq!(expiring.grown(70_001, false), shape);
    }
}
