//! LZF decompression of long strings. There is no compressor: strings are written uncompressed.
//!
//! ```text
//! 000nnnnn                     the next n + 1 bytes are literal
//! lllddddd dddddddd            copy l + 2 bytes (l = 1..=6) from d + 1 bytes back in the output
//! 111ddddd mmmmmmmm dddddddd   copy m + 9 bytes from d + 1 bytes back in the output
//! ```

use crate::Error;
use crate::input::{Input, Reader};

/// The maximum number of decompressed bytes per compressed byte: three bytes stand for a copy of up to 264.
pub const LZF_RATIO_MAX: usize = 88;

/// Replaces `out` with the decompressed string, which must have exactly `len` bytes.
pub(crate) fn decompress(input: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    const MALFORMED: Error = Error::Malformed("compressed string");
    if len > input.len().saturating_mul(LZF_RATIO_MAX) {
        return Err(MALFORMED);
    }
    out.clear();
    out.reserve(len);
    let mut reader = Reader::new(input);
    while !reader.is_at_end() {
        let control = reader.byte()?;
        if control < 32 {
            let literal = reader.take(usize::from(control) + 1).map_err(|_| MALFORMED)?;
            out.extend_from_slice(literal);
        } else {
            let mut count = usize::from(control >> 5) + 2;
            if control >> 5 == 7 {
                count += usize::from(reader.byte().map_err(|_| MALFORMED)?);
            }
            let low = usize::from(reader.byte().map_err(|_| MALFORMED)?);
            let distance = (usize::from(control & 0x1f) << 8 | low) + 1;
            let start = out.len().checked_sub(distance).ok_or(MALFORMED)?;
            // A copy may overlap its source; the copied bytes then repeat.
            while count > 0 {
                let step = count.min(out.len() - start);
                out.extend_from_within(start..start + step);
                count -= step;
            }
        }
        if out.len() > len {
            return Err(MALFORMED);
        }
    }
    if out.len() == len { Ok(()) } else { Err(MALFORMED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decompressed(input: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        let mut out = b"what was there before".to_vec();
        decompress(input, len, &mut out).map(|()| out)
    }

    #[test]
    fn literals_and_copies_are_joined() {
        // "ab", then 10 bytes from 2 back.
        assert_eq!(decompressed(&[1, b'a', b'b', 7 << 5, 1, 1], 12).unwrap(), b"abababababab");
        // Three from 3 back, without overlap.
        assert_eq!(decompressed(&[2, b'a', b'b', b'c', 1 << 5, 2], 6).unwrap(), b"abcabc");
        assert_eq!(decompressed(&[0, b'x'], 1).unwrap(), b"x");
        assert_eq!(decompressed(&[], 0).unwrap(), b"");
    }

    #[test]
    fn a_wrong_length_or_reference_is_refused() {
        for (input, len) in [
            (&[1u8, b'a'][..], 2),
            (&[1, b'a', b'b'], 1),
            (&[0, b'a'], 2),
            (&[0x20, 5], 3),
            (&[0xe0], 9),
            (&[0, b'a'], usize::MAX),
        ] {
            assert!(decompressed(input, len).is_err(), "{input:?}");
        }
    }
}
