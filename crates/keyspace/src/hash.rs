//! Hashing of keys: the slot (CRC16 with hash tags) and the position inside the slot's table.
//!
//! What it is: `slot_of`, which never changes because every Redis Cluster client computes it, too; and
//! `KeyHash`, which has all that the keyspace needs to know about a key except its bytes. What it is not:
//! stored on disk. `h16` and `tag` depend on a seed.
//!
//! Invariants
//! - `KeyHash::tag` is never 0: 0 marks a free place in a bucket.
//! - Two keys with equal `KeyHash` are not necessarily equal.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::id::SlotId;

/// All that a lookup needs besides the bytes of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash {
    /// The hash slot that the key belongs to.
    pub(crate) slot: SlotId,
    /// The upper part of the position in the slot's table, by which SCAN orders keys.
    pub(crate) h16: u16,
    /// The fingerprint in the bucket, 1..=255, which is also the lower part of the position.
    pub(crate) tag: u8,
}

impl KeyHash {
    /// The hash slot that the key belongs to.
    #[inline]
    pub const fn slot(&self) -> SlotId {
        self.slot
    }

    /// The 24-bit position that orders the entries of a table.
    #[inline]
    pub const fn position(&self) -> u32 {
        position(self.h16, self.tag)
    }
}

/// The 24-bit position of an entry with these two parts of its hash.
#[inline]
pub(crate) const fn position(h16: u16, tag: u8) -> u32 {
    (h16 as u32) << 8 | tag as u32
}

/// The seeded hash function of one keyspace.
pub(crate) struct KeyHasher {
    secrets: RapidSecrets,
    /// Tests narrow the position to these bits to force collisions.
    #[cfg(test)]
    pub(crate) position_mask: u32,
}

impl KeyHasher {
    pub(crate) fn new(seed: u64) -> Self {
        KeyHasher {
            secrets: RapidSecrets::seed(seed),
            #[cfg(test)]
            position_mask: u32::MAX,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let wide = rapidhash_v3_seeded(key, &self.secrets);
        #[cfg(test)]
        let wide = wide & u64::from(self.position_mask);
        let tag = (wide as u8).max(1);
        KeyHash { slot: slot_of(key), h16: (wide >> 8) as u16, tag }
    }
}

/// The hash slot of a key, by the rule of Redis Cluster. A hash tag is the bytes between the first `{` and
/// the first `}` after it, if there is at least one byte. If the key has a hash tag, only the tag is hashed;
/// otherwise the whole key is hashed.
#[inline]
pub fn slot_of(key: &[u8]) -> SlotId {
    SlotId::of_crc(crc16(hash_tag(key).unwrap_or(key)))
}

/// The bytes that decide the slot of a key with a hash tag.
#[inline]
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}')? {
        0 => None,
        close => Some(&rest[..close]),
    }
}

/// `CRC_TABLES[n][b]`: the contribution of byte `b`, followed by `n` zero bytes, to a CRC16/XMODEM
/// (polynomial 0x1021).
static CRC_TABLES: [[u16; 256]; 8] = crc_tables();

const fn crc_tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[zeros - 1][byte];
            tables[zeros][byte] = crc << 8 ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// CRC16/XMODEM, eight bytes per step: the table lookups of one step do not wait for each other. Zero bytes
/// at the start do not change this CRC, so bytes whose length is no multiple of eight are padded at the
/// start.
#[inline]
fn crc16(bytes: &[u8]) -> u16 {
    let (head, chunks) = bytes.as_rchunks::<8>();
    let mut first = [0; 8];
    first[8 - head.len()..].copy_from_slice(head);
    chunks.iter().fold(crc16_step(0, &first), crc16_step)
}

#[inline]
fn crc16_step(crc: u16, chunk: &[u8; 8]) -> u16 {
    let [high, low] = crc.to_be_bytes();
    CRC_TABLES[7][(chunk[0] ^ high) as usize]
        ^ CRC_TABLES[6][(chunk[1] ^ low) as usize]
        ^ CRC_TABLES[5][chunk[2] as usize]
        ^ CRC_TABLES[4][chunk[3] as usize]
        ^ CRC_TABLES[3][chunk[4] as usize]
        ^ CRC_TABLES[2][chunk[5] as usize]
        ^ CRC_TABLES[1][chunk[6] as usize]
        ^ CRC_TABLES[0][chunk[7] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRC16 by its definition, bit by bit.
    fn crc16_slow(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0u16, |crc, &byte| {
            (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
                if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 }
            })
        })
    }

    #[test]
    fn crc_matches_its_check_value_and_its_definition() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let bytes: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37) ^ 0x5a).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc16(&bytes[..len]), crc16_slow(&bytes[..len]), "length {len}");
        }
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot_of(b"foo").get(), 12_182);
        assert_eq!(slot_of(b"123456789").get(), 12_739);
        assert_eq!(slot_of(b"").get(), 0);
    }

    #[test]
    fn only_the_first_non_empty_tag_counts() {
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"a{b}c{d}"), slot_of(b"b"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        for whole in [&b"foo{}{bar}"[..], b"foo{bar", b"foo}bar{"] {
            assert_eq!(slot_of(whole).get(), crc16_slow(whole) % 16_384);
        }
    }

    #[test]
    fn the_seed_moves_positions_but_not_slots() {
        let (a, b) = (KeyHasher::new(1), KeyHasher::new(2));
        let keys: Vec<Vec<u8>> = (0..64).map(|n| format!("key:{n}").into_bytes()).collect();
        assert!(keys.iter().all(|key| a.hash(key).slot() == b.hash(key).slot()));
        assert!(keys.iter().any(|key| a.hash(key).position() != b.hash(key).position()));
        assert!(keys.iter().all(|key| a.hash(key).tag != 0));
    }
}
