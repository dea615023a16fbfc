//! Encoding values.
//!
//! What it is: the plain forms, which every version that is in use reads: nothing packed, nothing compressed, integers and
//! strings as strings. What it is not: the smallest encoding.

use crate::file::opcodes;
use crate::types;

/// Where encoded bytes go. What goes wrong there is kept and told at the end, so that encoding is no matter of errors.
pub trait Output {
    /// Adds bytes at the end.
    fn put(&mut self, bytes: &[u8]);
}

impl Output for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes encoded values.
#[derive(Debug)]
pub struct Writer<O = Vec<u8>> {
    out: O,
    /// The key of the next value, which stands behind its type number in files and nowhere in payloads.
    key: Option<Vec<u8>>,
    /// Whether readers know fields that expire; for others they are fields that do not.
    knows_expiring_fields: bool,
    /// Whether readers know when a consumer of a stream got something last.
    knows_active_times: bool,
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Self {
        Writer::into_output(Vec::new(), true, false)
    }

    /// The position of the awaited write.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}

impl<O: Output> Writer<O> {
    pub(crate) fn into_output(out: O, knows_expiring_fields: bool, knows_active_times: bool) -> Self {
        Writer { out, key: None, knows_expiring_fields, knows_active_times }
    }

    pub(crate) fn output(&mut self) -> &mut O {
        &mut self.out
    }

    pub(crate) fn into_inner(self) -> O {
        self.out
    }

    /// Sets the key of the next value.
    pub(crate) fn set_key(&mut self, key: &[u8]) {
        let mut buffer = self.key.take().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(key);
        self.key = Some(buffer);
    }

    pub(crate) fn knows_active_times(&self) -> bool {
        self.knows_active_times
    }

    /// The source of a library of functions.
    pub(crate) fn library(&mut self, source: &[u8]) {
        self.out.put(&[opcodes::FUNCTION]);
        self.string(source);
    }

    pub(crate) fn begin(&mut self, value_type: u8) {
        self.out.put(&[value_type]);
        if let Some(key) = self.key.take() {
            self.string(&key);
        }
    }

    /// A length.
    pub fn number(&mut self, number: u64) {
        match number {
            0..=0x3f => self.out.put(&[number as u8]),
            0x40..=0x3fff => self.out.put(&(0x4000 | number as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.out.put(&[0x80]);
                self.out.put(&(number as u32).to_be_bytes());
            }
            _ => {
                self.out.put(&[0x81]);
                self.out.put(&number.to_be_bytes());
            }
        }
    }

    /// A string.
    pub fn string(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.put(bytes);
    }

    /// The type number and a string value.
    pub fn string_value(&mut self, bytes: &[u8]) {
        self.begin(types::STRING);
        self.string(bytes);
    }

    /// The type number and the length of a list; as many [`Writer::string`] follow, from head to tail.
    pub fn begin_list(&mut self, len: usize) {
        self.begin(types::LIST);
        self.number(len as u64);
    }

    /// The type number and the length of a set; as many [`Writer::string`] follow.
    pub fn begin_set(&mut self, len: usize) {
        self.begin(types::SET);
        self.number(len as u64);
    }

    /// The type number and the length of a sorted set; as many [`Writer::scored`] follow.
    pub fn begin_zset(&mut self, len: usize) {
        self.begin(types::ZSET_2);
        self.number(len as u64);
    }

    /// A member of a sorted set.
    pub fn scored(&mut self, member: &[u8], score: f64) {
        self.string(member);
        self.out.put(&score.to_le_bytes());
    }

    /// The type number and the length of a hash; as many pairs of [`Writer::string`] follow.
    pub fn begin_hash(&mut self, len: usize) {
        self.begin(types::HASH);
        self.number(len as u64);
    }

    /// The type number and the length of a hash in which fields expire, the first at `first_ms` in Unix milliseconds; as
    /// many [`Writer::expiring_field`] follow. Only readers of RDB version 12 know it: for others it is a plain hash.
    pub fn begin_expiring_hash(&mut self, len: usize, first_ms: u64) {
        if !self.knows_expiring_fields {
            return self.begin_hash(len);
        }
        self.begin(types::HASH_METADATA);
        self.out.put(&first_ms.to_le_bytes());
        self.number(len as u64);
    }

    /// A field of a hash begun with [`Writer::begin_expiring_hash`], with the same `first_ms`.
    pub fn expiring_field(&mut self, name: &[u8], value: &[u8], expire_at_ms: Option<u64>, first_ms: u64) {
        if self.knows_expiring_fields {
            self.number(expire_at_ms.map_or(0, |deadline_ms| deadline_ms.saturating_sub(first_ms) + 1));
        }
        self.string(name);
        self.string(value);
    }
}
