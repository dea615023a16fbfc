//! The options of a log: durability, sizes, limits.

use super::segment::SEGMENT_BYTES_MIN;

/// When the log is synced, and thus what an OK guarantees. See docs/operating.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Durability {
    /// No reply waits for a sync, and syncs are rare; a power cut loses everything that is not yet on stable
    /// storage.
    None = 0,
    /// Synced once a second; a power cut loses at most about a second.
    Interval = 1,
    /// Every write is durable before its OK; reads may show writes that are not durable yet.
    Commit = 2,
    /// Every write is durable before its OK, and before any client can read it.
    Strict = 3,
}

impl Durability {
    /// Whether every batch is made durable before its waiters are released.
    pub fn syncs_every_batch(self) -> bool {
        self >= Durability::Commit
    }

    /// The names used by configuration and replies, weakest first.
    pub const NAMES: [(&'static str, Durability); 4] = [
        ("none", Durability::None),
        ("interval", Durability::Interval),
        ("commit", Durability::Commit),
        ("strict", Durability::Strict),
    ];

    /// The name of this setting.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The setting with this name, ignoring case.
    pub fn parse(name: &str) -> Option<Durability> {
        Self::NAMES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, it)| it)
    }

    pub(super) fn from_byte(byte: u8) -> Durability {
        Self::NAMES[byte as usize].1
    }
}

/// The options with which a log is opened. Only the durability can change while the log is open.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// When the log is synced. Can be changed while running.
    pub durability: Durability,
    /// Bytes of log per segment file; a power of two, at least 256 KiB. Fixed when the directory is created.
    pub segment_bytes: u64,
    /// Bytes of the ring, which holds records that are not yet written; a power of two, at least 64 KiB and
    /// at most a quarter of a segment. The ring should be small enough to stay in the processor's cache.
    pub ring_bytes: u64,
    /// The maximum number of appenders.
    pub appenders_max: usize,
    /// New writes wait while more bytes than this are unwritten, which keeps flushes short. At most half the
    /// ring.
    pub unwritten_bytes_max: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            durability: Durability::Strict,
            segment_bytes: 64 << 20,
            ring_bytes: 4 << 20,
            // At most 128 workers, 32 threads that serve HTTP, 32 of long units, and one each for durable
            // channels, the recorder of settings, the mirror and the applier of a replica.
            appenders_max: 200,
            unwritten_bytes_max: 1 << 20,
        }
    }
}

impl LogOptions {
    /// The options with a ring that fits the segments.
    #[must_use]
    pub fn fitting(self) -> LogOptions {
        let ring_bytes = self.ring_bytes.min(self.segment_bytes / 4);
        let unwritten_bytes_max = self.unwritten_bytes_max.min(ring_bytes / 2);
        LogOptions { ring_bytes, unwritten_bytes_max, ..self }
    }

    pub(super) fn assert_valid(&self) {
        assert!(self.segment_bytes.is_power_of_two() && self.segment_bytes >= SEGMENT_BYTES_MIN * 4);
        assert!(self.ring_bytes.is_power_of_two() && self.ring_bytes >= SEGMENT_BYTES_MIN);
        assert!(self.ring_bytes <= self.segment_bytes / 4);
        assert!(self.unwritten_bytes_max <= self.ring_bytes / 2);
    }
}
