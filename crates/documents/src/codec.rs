//! Encoding primitives of the crate: numbers of variable length, and strings with their length before them.
//!
//! [`Input`] is a reader that never reads past its end; [`put_bytes`] and the crate `varint` write the same
//! encodings. Complete formats are described by the modules that use them.

/// Appends the length and then the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The unread part of an input. Malformed input reads as `None`.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Reads `bytes` from their start.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    /// Whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }

    /// Reads `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*array)
    }

    /// Reads `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    /// Reads a number; `None` also if it has more than 64 bits or is not in its shortest form.
    pub fn number(&mut self) -> Option<u64> {
        varint::take(&mut self.bytes)
    }

    /// Reads a number that must fit into 32 bits.
    pub fn number_u32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Reads the count of items that follow, each of at least `item_bytes` bytes. `None` if the remaining
    /// input cannot hold them, so that the result may size an allocation.
    pub fn count(&mut self, item_bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count.checked_mul(item_bytes)? <= self.bytes.len()).then_some(count)
    }

    /// Reads bytes after their length.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.count(1)?;
        self.take(count)
    }

    /// Reads UTF-8 text after its length.
    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_shortest_form_of_a_number_is_read() {
        let number = |bytes: &[u8]| Input::new(bytes).number();
        assert_eq!(number(&[0]), Some(0));
        assert_eq!(number(&[0x80, 1]), Some(128));
        assert_eq!(number(&[0x80, 0]), None);
        assert_eq!(number(&[0x80]), None);
        let last = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(number(&last), Some(u64::MAX));
        let mut beyond = last;
        beyond[9] = 2;
        assert_eq!(number(&beyond), None);
    }

    #[test]
    fn lengths_beyond_the_input_are_refused() {
        assert_eq!(Input::new(&[3, 1, 2]).bytes(), None);
        assert_eq!(Input::new(&[2, 0, 0, 0]).count(2), None);
        assert_eq!(Input::new(&[2, 0, 0, 0, 0]).count(2), Some(2));
        assert_eq!(Input::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).count(16), None);
        assert_eq!(Input::new(&[1, 0xff]).text(), None);
    }

    proptest! {
        #[test]
        fn numbers_and_bytes_are_read_back(number: u64, bytes: Vec<u8>) {
            let mut out = Vec::new();
            varint::put(&mut out, number);
            put_bytes(&mut out, &bytes);
            let mut input = Input::new(&out);
            prop_assert_eq!(input.number(), Some(number));
            prop_assert_eq!(input.bytes(), Some(&bytes[..]));
            prop_assert!(input.is_empty());
        }
    }
}
