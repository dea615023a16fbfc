//! LZF: the compression of long strings.
//!
//! What it is: decompression. What it is not: a compressor; what is written stays plain.
//!
//! A control byte below 32 is followed by as many literal bytes plus one. Others hold a length in the upper 3 bits (7: the
//! next byte adds to it) and, with the byte that follows, how far back to copy from; two more bytes than the length says.

use crate::Error;

/// Most bytes that one compressed byte stands for: three bytes copy up to 264.
pub const LZF_RATIO_MAX: usize = 88;

/// Decompresses to exactly `len` bytes.
pub(crate) fn decompress(input: &[u8], len: usize) -> Result<Vec<u8>, Error> {
    const MALFORMED: Error = Error::Malformed("compressed string");
    if len > input.len().saturating_mul(LZF_RATIO_MAX) {
        return Err(MALFORMED);
    }
    let mut out: Vec<u8> = Vec::with_capacity(len);
    let mut rest = input.iter().copied();
    while let Some(control) = rest.next() {
        if control < 32 {
            let count = usize::from(control) + 1;
            let literal = rest.as_slice_checked(count).ok_or(MALFORMED)?;
            out.extend(literal);
        } else {
            let mut count = usize::from(control >> 5);
            if count == 7 {
                count += usize::from(rest.next().ok_or(MALFORMED)?);
            }
            let low = usize::from(rest.next().ok_or(MALFORMED)?);
            let distance = (usize::from(control & 0x1f) << 8 | low) + 1;
            let start = out.len().checked_sub(distance).ok_or(MALFORMED)?;
            // Byte by byte: what is copied may overlap what it is copied from.
            for at in start..start + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return Err(MALFORMED);
        }
    }
    if out.len() == len { Ok(out) } else { Err(MALFORMED) }
}

/// Taking several bytes off an iterator, or none if there are fewer.
trait Take: Iterator<Item = u8> + ExactSizeIterator {
    fn as_slice_checked(&mut self, count: usize) -> Option<Vec<u8>> {
        (self.len() >= count).then(|| self.take(count).collect())
    }
}

impl<I: Iterator<Item = u8> + ExactSizeIterator> Take for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_copies_are_joined() {
        // "ab", then 10 bytes from 2 back.
        assert_eq!(decompress(&[1, b'a', b'b', 7 << 5, 1, 1], 12).unwrap(), b"abababababab");
        assert_eq!(decompress(&[0, b'x'], 1).unwrap(), b"x");
        assert_eq!(decompress(&[], 0).unwrap(), b"");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (input, len) in [
            (&[1u8, b'a'][..], 2),
            (&[1, b'a', b'b'], 1),
            (&[0, b'a'], 2),
            (&[0x20, 5], 3),
            (&[0xe0], 9),
            (&[0, b'a'], usize::MAX),
        ] {
            assert!(decompress(input, len).is_err(), "{input:?}");
        }
    }
}
