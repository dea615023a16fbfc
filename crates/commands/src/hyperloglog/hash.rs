//! The hash of elements: MurmurHash64A (Austin Appleby, public domain) with the seed of Redis.

const SEED: u64 = 0xADC8_3B19;
const MULTIPLIER: u64 = 0xC6A4_A793_5BD1_E995;

pub(super) fn hash(element: &[u8]) -> u64 {
    let (words, rest) = element.as_chunks();
    let mut hash = SEED ^ (element.len() as u64).wrapping_mul(MULTIPLIER);
    for word in words {
        let word = spread(u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    spread(spread(hash).wrapping_mul(MULTIPLIER))
}

fn spread(bits: u64) -> u64 {
    bits ^ bits >> 47
}
