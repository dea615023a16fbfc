//! Random passwords: ACL GENPASS.

/// The number of bits of a password if the client gives none.
pub const GENPASS_BITS_DEFAULT: i64 = 256;
/// The maximum number of bits that a client can request.
pub const GENPASS_BITS_MAX: i64 = 4096;

/// The requested number of bits is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenpassError;

impl GenpassError {
    /// The whole reply.
    pub const TEXT: &'static str = "ERR ACL GENPASS argument must be the number of bits for the output \
                                    password, a positive number up to 4096";
}

/// A password of `bits` bits, rounded up to whole hexadecimal digits. `fill` fills a slice with random bytes
/// from a source that is fit for secrets.
///
/// # Errors
/// If `bits` is not in 1..=[`GENPASS_BITS_MAX`].
pub fn genpass(bits: i64, fill: impl FnOnce(&mut [u8])) -> Result<String, GenpassError> {
    if !(1..=GENPASS_BITS_MAX).contains(&bits) {
        return Err(GenpassError);
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    fill(&mut bytes);
    let mut text = hex::encode(bytes);
    text.truncate(digits);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_rounded_up_to_digits() {
        for (bits, digits) in [(1, 1), (4, 1), (5, 2), (9, 3), (GENPASS_BITS_DEFAULT, 64), (4096, 1024)] {
            let password = genpass(bits, |bytes| bytes.fill(0xa5)).unwrap();
            assert_eq!(password, "a5".repeat(512)[..digits], "{bits}");
        }
        for bits in [0, -1, i64::MIN, 4097] {
            assert_eq!(genpass(bits, |_| unreachable!()), Err(GenpassError));
        }
    }
}
