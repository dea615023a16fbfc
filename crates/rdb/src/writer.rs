//! Encoding values.
//!
//! What it is: the plain forms, which every version that is in use reads: nothing packed, nothing compressed, integers and
//! strings as strings. What it is not: the smallest encoding.

use crate::types;

/// Writes encoded values to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Self {
        Writer::default()
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// A length.
    pub fn number(&mut self, number: u64) {
        match number {
            0..=0x3f => self.out.push(number as u8),
            0x40..=0x3fff => self.out.extend_from_slice(&(0x4000 | number as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.out.push(0x80);
                self.out.extend_from_slice(&(number as u32).to_be_bytes());
            }
            _ => {
                self.out.push(0x81);
                self.out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// A string.
    pub fn string(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// The type number and a string value.
    pub fn string_value(&mut self, bytes: &[u8]) {
        self.out.push(types::STRING);
        self.string(bytes);
    }

    /// The type number and the length of a list; as many [`Writer::string`] follow, from head to tail.
    pub fn begin_list(&mut self, len: usize) {
        self.out.push(types::LIST);
        self.number(len as u64);
    }

    /// The type number and the length of a set; as many [`Writer::string`] follow.
    pub fn begin_set(&mut self, len: usize) {
        self.out.push(types::SET);
        self.number(len as u64);
    }

    /// The type number and the length of a sorted set; as many [`Writer::scored`] follow.
    pub fn begin_zset(&mut self, len: usize) {
        self.out.push(types::ZSET_2);
        self.number(len as u64);
    }

    /// A member of a sorted set.
    pub fn scored(&mut self, member: &[u8], score: f64) {
        self.string(member);
        self.out.extend_from_slice(&score.to_le_bytes());
    }

    /// The type number and the length of a hash; as many pairs of [`Writer::string`] follow.
    pub fn begin_hash(&mut self, len: usize) {
        self.out.push(types::HASH);
        self.number(len as u64);
    }

    /// The type number and the length of a hash in which fields expire, the first at `first_ms` in Unix milliseconds; as
    /// many [`Writer::expiring_field`] follow. Only readers of RDB version 12 know it.
    pub fn begin_expiring_hash(&mut self, len: usize, first_ms: u64) {
        self.out.push(types::HASH_METADATA);
        self.out.extend_from_slice(&first_ms.to_le_bytes());
        self.number(len as u64);
    }

    /// A field of a hash begun with [`Writer::begin_expiring_hash`], with the same `first_ms`.
    pub fn expiring_field(&mut self, name: &[u8], value: &[u8], expire_at_ms: Option<u64>, first_ms: u64) {
        self.number(expire_at_ms.map_or(0, |deadline_ms| deadline_ms.saturating_sub(first_ms) + 1));
        self.string(name);
        self.string(value);
    }
}
