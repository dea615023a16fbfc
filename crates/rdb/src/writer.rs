//! Encodes values in the plain forms that every version in use reads: nothing packed or compressed, integers
//! as strings. These are not the smallest encodings. The exceptions are hashes with field expiry, which older
//! versions cannot read, and streams, which are always packed (see `stream`).

use crate::{opcodes, types};

/// A sink of encoded bytes. Implementations keep an error until the end, so that encoding itself cannot fail.
pub trait Output {
    /// Appends bytes.
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
    /// The key of the next value. In files, the key follows the type number; payloads have no key.
    key: Option<Vec<u8>>,
    /// Whether the format has field expiry; otherwise deadlines of fields are dropped.
    knows_expiring_fields: bool,
    /// Whether the format has the time of a stream consumer's last delivery.
    knows_active_times: bool,
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    /// A writer into an empty buffer.
    pub fn new() -> Self {
        Writer::into_output(Vec::new(), true, false)
    }

    /// As [`Writer::new`], with the time of a stream consumer's last delivery: for Redis since 7.2, and for
    /// Valkey.
    pub fn with_active_times() -> Self {
        Writer::into_output(Vec::new(), true, true)
    }

    /// The encoded bytes.
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

    pub(crate) fn set_key(&mut self, key: &[u8]) {
        let mut buffer = self.key.take().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(key);
        self.key = Some(buffer);
    }

    pub(crate) fn knows_active_times(&self) -> bool {
        self.knows_active_times
    }

    /// Writes the source of a function library, with its opcode.
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

    /// Writes a length or a count.
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

    /// Writes a string.
    pub fn string(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.put(bytes);
    }

    /// Writes a string value with its type number.
    pub fn string_value(&mut self, bytes: &[u8]) {
        self.begin(types::STRING);
        self.string(bytes);
    }

    /// Writes the type number and the length of a list. That many [`Writer::string`] calls must follow, from
    /// head to tail.
    pub fn begin_list(&mut self, len: usize) {
        self.begin(types::LIST);
        self.number(len as u64);
    }

    /// Writes the type number and the length of a set. That many [`Writer::string`] calls must follow.
    pub fn begin_set(&mut self, len: usize) {
        self.begin(types::SET);
        self.number(len as u64);
    }

    /// Writes the type number and the length of a sorted set. That many [`Writer::scored`] calls must follow.
    pub fn begin_zset(&mut self, len: usize) {
        self.begin(types::ZSET_2);
        self.number(len as u64);
    }

    /// Writes a member of a sorted set.
    pub fn scored(&mut self, member: &[u8], score: f64) {
        self.string(member);
        self.out.put(&score.to_le_bytes());
    }

    /// Writes the type number and the length of a hash. That many pairs of [`Writer::string`] calls must
    /// follow.
    pub fn begin_hash(&mut self, len: usize) {
        self.begin(types::HASH);
        self.number(len as u64);
    }

    /// Writes the type number and the length of a hash with field expiry, where `first_ms` is the earliest
    /// deadline in Unix milliseconds. That many [`Writer::expiring_field`] calls must follow. Before RDB
    /// version 12, the hash is written without deadlines.
    pub fn begin_expiring_hash(&mut self, len: usize, first_ms: u64) {
        if !self.knows_expiring_fields {
            return self.begin_hash(len);
        }
        self.begin(types::HASH_METADATA);
        self.out.put(&first_ms.to_le_bytes());
        self.number(len as u64);
    }

    /// Writes a field of a hash begun with [`Writer::begin_expiring_hash`], with the same `first_ms`.
    pub fn expiring_field(&mut self, name: &[u8], value: &[u8], expire_at_ms: Option<u64>, first_ms: u64) {
        if self.knows_expiring_fields {
            self.number(expire_at_ms.map_or(0, |deadline_ms| deadline_ms.saturating_sub(first_ms) + 1));
        }
        self.string(name);
        self.string(value);
    }
}
