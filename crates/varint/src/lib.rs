//! LEB128 numbers: seven bits per byte, the least significant first; bit 7 is set if another byte follows.
//!
//! Files contain such numbers, so their encoding cannot change.
//!
//! Invariants
//! - Only the shortest form of a number is read, so that equal values have equal bytes.
//! - Reading never panics.
//! - [`take_trusted`] is the exception to both: it does not check the form, and panics if the input ends.

#![forbid(unsafe_code)]

/// Appends a number.
#[inline]
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How many bytes [`put`] appends for a number: 1 to 10.
#[inline]
pub fn len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Why no number can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberError {
    /// The input is empty, or ends within the number.
    Truncated,
    /// The number has more than 64 bits, or it is not in its shortest form.
    Malformed,
}

/// Takes a number off the front of `input`. After an error, the position of `input` is undefined.
///
/// # Errors
/// See [`NumberError`].
#[inline]
pub fn read(input: &mut &[u8]) -> Result<u64, NumberError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or(NumberError::Truncated)?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        let fits = bits << shift >> shift == bits;
        // A trailing zero byte would be a second encoding of the same number.
        if !fits || (byte == 0 && shift > 0) {
            return Err(NumberError::Malformed);
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(NumberError::Malformed)
}

/// As [`read`]; `None` for any error.
#[inline]
pub fn take(input: &mut &[u8]) -> Option<u64> {
    read(input).ok()
}

/// Takes a number off the front of bytes that [`put`] has made, and that were checked before or never left
/// this process. Nothing but the end of the input is checked.
///
/// # Panics
/// If the input ends within the number; with overflow checks, also if the number takes more than 10 bytes.
#[inline]
pub fn take_trusted(input: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = input[0];
        *input = &input[1..];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_shortest_form_of_64_bits_is_read() {
        let number = |bytes: &[u8]| take(&mut &bytes[..]);
        assert_eq!(number(&[0]), Some(0));
        assert_eq!(number(&[0x80, 1]), Some(128));
        assert_eq!(number(&[0x80, 0]), None, "longer than necessary");
        assert_eq!(number(&[0x80]), None, "cut");
        assert_eq!(number(&[]), None);
        assert_eq!(number(&[0xff; 11]), None, "endless");
        let mut last = [0xff; 10];
        last[9] = 1;
        assert_eq!(number(&last), Some(u64::MAX));
        last[9] = 2;
        assert_eq!(number(&last), None, "65 bits");
        assert_eq!(read(&mut &last[..]), Err(NumberError::Malformed));
        assert_eq!(read(&mut &last[..9]), Err(NumberError::Truncated));
    }

    proptest! {
        #[test]
        fn a_number_is_read_back_with_the_bytes_behind_it(number: u64, shift in 0..64, behind: Vec<u8>) {
            let (number, mut out) = (number >> shift, Vec::new());
            put(&mut out, number);
            prop_assert_eq!(out.len(), len(number));
            out.extend_from_slice(&behind);
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(number));
            prop_assert_eq!(rest, &behind[..]);
            let mut rest = &out[..];
            prop_assert_eq!(take_trusted(&mut rest), number);
            prop_assert_eq!(rest, &behind[..]);
        }

        #[test]
        fn any_input_that_is_read_has_no_other_encoding(input: Vec<u8>) {
            let mut rest = &input[..];
            if let Some(number) = take(&mut rest) {
                let mut out = Vec::new();
                put(&mut out, number);
                prop_assert_eq!(&out[..], &input[..input.len() - rest.len()]);
            }
        }
    }
}
