//! Integers of any width at any bit offset of a string, with the most significant bit first and without
//! alignment, and the handling of overflow. The commands are in `field`.

/// The maximum number of bytes that an integer touches: 64 bits that start within a byte.
pub(super) const BYTES_MAX: usize = 9;

/// The type of a field: `u1` to `u63`, `i1` to `i64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoding {
    signed: bool,
    width: u32,
}

/// The handling of a number that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Discards the upper bits of the number.
    Wrap,
    /// Stores the nearest number that fits.
    Saturate,
    /// Stores nothing.
    Fail,
}

impl Encoding {
    /// Parses a name such as `u8` or `i16`.
    pub(super) fn parse(name: &[u8]) -> Option<Encoding> {
        let (signed, width_max, digits) = match name {
            [b'i', digits @ ..] => (true, 64, digits),
            [b'u', digits @ ..] => (false, 63, digits),
            _ => return None,
        };
        let width = u32::try_from(wire::number::parse_i64(digits)?).ok()?;
        (1..=width_max).contains(&width).then_some(Encoding { signed, width })
    }

    /// The width in bits.
    pub(super) fn width(self) -> u32 {
        self.width
    }

    /// The number that a client wants to store. For an unsigned field, the 64 bits of the argument are read
    /// as unsigned, as in Redis: -1 is 2^64 - 1.
    pub(super) fn wanted(self, number: i64) -> i128 {
        if self.signed { number.into() } else { (number as u64).into() }
    }

    /// The number to store; `None` if it does not fit and `overflow` is [`Overflow::Fail`].
    pub(super) fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = match self.signed {
            true => (-1i128 << (self.width - 1), (1i128 << (self.width - 1)) - 1),
            false => (0, (1i128 << self.width) - 1),
        };
        if (min..=max).contains(&number) {
            return Some(number as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.extend(number as u64)),
            Overflow::Saturate => Some(number.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }

    /// Reads the number at a bit offset of a string; bits beyond its end are 0.
    pub(super) fn read(self, bytes: &[u8], offset: u64) -> i64 {
        let window = window(bytes, offset);
        self.extend((window >> self.shift(offset)) as u64)
    }

    /// The smallest patch that stores `number` at a bit offset of a string; `None` if no byte changes.
    pub(super) fn write(self, bytes: &[u8], offset: u64, number: i64) -> Option<Patch> {
        let (old, shift) = (window(bytes, offset), self.shift(offset));
        let mask = u128::from(u64::MAX >> (64 - self.width)) << shift;
        let new = old & !mask | (number as u128) << shift & mask;
        let difference = old ^ new;
        let start = difference.leading_zeros() as usize / 8;
        let end = size_of::<u128>() - difference.trailing_zeros() as usize / 8;
        (difference != 0).then(|| Patch {
            offset: offset / 8 + start as u64,
            window: new.to_be_bytes(),
            range: (start, end),
        })
    }

    /// The distance of the number's last bit from the end of its window.
    fn shift(self, offset: u64) -> u32 {
        u128::BITS - self.width - (offset % 8) as u32
    }

    /// Extends the lower bits to 64 bits, with or without sign.
    fn extend(self, bits: u64) -> i64 {
        let idle = 64 - self.width;
        if self.signed { (bits << idle) as i64 >> idle } else { (bits << idle >> idle) as i64 }
    }
}

/// Bytes to write into a string.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Patch {
    /// The byte offset in the string.
    pub(super) offset: u64,
    window: [u8; 16],
    range: (usize, usize),
}

impl Patch {
    /// The bytes from the first to the last one that change.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.window[self.range.0..self.range.1]
    }
}

/// The [`BYTES_MAX`] bytes of a string from the byte with the number's first bit on, in the upper bits of the
/// result; zeros beyond the end of the string.
fn window(bytes: &[u8], offset: u64) -> u128 {
    let tail = usize::try_from(offset / 8).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
    let len = tail.len().min(BYTES_MAX);
    let mut window = [0; 16];
    window[..len].copy_from_slice(&tail[..len]);
    u128::from_be_bytes(window)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encodings() -> impl Strategy<Value = Encoding> {
        (any::<bool>(), 1..=64u32).prop_map(|(signed, width)| Encoding {
            signed,
            width: if signed { width } else { width.min(63) },
        })
    }

    proptest! {
        #[test]
        fn a_written_integer_is_read_back_and_other_bits_stay(
            bytes in prop::collection::vec(any::<u8>(), 24),
            offset in 0..100u64,
            encoding in encodings(),
            number in any::<i64>(),
        ) {
            let number = encoding.fit(number.into(), Overflow::Wrap).expect("it wraps");
            let mut written = bytes.clone();
            if let Some(patch) = encoding.write(&bytes, offset, number) {
                let start = patch.offset as usize;
                prop_assert_ne!(patch.bytes().first(), bytes.get(start), "only what changes");
                let end = start + patch.bytes().len();
                prop_assert_ne!(patch.bytes().last(), bytes.get(end - 1), "only what changes");
                written[start..end].copy_from_slice(patch.bytes());
            }
            prop_assert_eq!(encoding.read(&written, offset), number);
            let one_bit = Encoding { signed: false, width: 1 };
            for bit in (0..192).filter(|bit| !(offset..offset + u64::from(encoding.width)).contains(bit)) {
                prop_assert_eq!(one_bit.read(&written, bit), one_bit.read(&bytes, bit));
            }
        }

        #[test]
        fn numbers_that_fit_are_left_alone(encoding in encodings(), number in any::<i64>()) {
            let saturated = encoding.fit(number.into(), Overflow::Saturate).expect("it saturates");
            for overflow in [Overflow::Wrap, Overflow::Saturate, Overflow::Fail] {
                prop_assert_eq!(encoding.fit(saturated.into(), overflow), Some(saturated));
            }
            prop_assert_eq!(encoding.fit(number.into(), Overflow::Fail).is_some(), saturated == number);
        }
    }

    #[test]
    fn encodings_have_one_spelling() {
        for (name, expected) in [
            ("u1", Some((false, 1))),
            ("u63", Some((false, 63))),
            ("i1", Some((true, 1))),
            ("i64", Some((true, 64))),
            ("u64", None),
            ("i65", None),
            ("u0", None),
            ("i-1", None),
            ("u08", None),
            ("u", None),
            ("U8", None),
            ("8", None),
            ("", None),
            ("i99999999999999999999", None),
        ] {
            let expected = expected.map(|(signed, width)| Encoding { signed, width });
            assert_eq!(Encoding::parse(name.as_bytes()), expected, "{name}");
        }
    }
}
