//! How recently and how often an entry was used: 24 bits in every entry, as in Redis.
//!
//! What it is: the two meanings of the access stamp. LRU: the second of the last access, modulo 2^24 (194
//! days). LFU: the minute of the last access, modulo 2^16, and an 8-bit logarithmic counter.
//! What it is not: part of the data. Stamps are neither logged nor replicated, and differ between replicas.
//!
//! Invariants
//! - Everything here is a pure function: the time and the randomness are arguments.

/// The first value of an LFU counter, so that a new key is not the first to be evicted.
const LFU_INIT: u8 = 5;
/// The factor in the odds that a hit raises the counter (see `increment`). With 10, it takes about 310,000
/// hits in quick succession to bring the counter of a new key to 255.
const LFU_LOG_FACTOR: u64 = 10;
/// Minutes without access after which the counter falls by one.
const LFU_DECAY_MINUTES: u16 = 1;

const STAMP_MASK: u32 = 0x00ff_ffff;

/// The meaning of an access stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessPolicy {
    /// The stamp is the time of the last access.
    #[default]
    Lru,
    /// The stamp is a logarithmic access counter that decays.
    Lfu,
}

/// The moment of an access, with the randomness that the LFU counter needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessClock {
    /// Unix time in milliseconds.
    pub now_ms: u64,
    /// The meaning of the stamps.
    pub policy: AccessPolicy,
    /// Any evenly distributed number; only LFU uses it.
    pub random: u32,
}

impl AccessClock {
    /// The stamp of an entry that is created now.
    #[inline]
    pub fn initial(&self) -> AccessStamp {
        match self.policy {
            AccessPolicy::Lru => AccessStamp::lru(self.now_ms),
            AccessPolicy::Lfu => AccessStamp::lfu(minutes(self.now_ms), LFU_INIT),
        }
    }

    /// The stamp of an entry that had `old` and is used now.
    #[inline]
    pub fn touched(&self, old: AccessStamp) -> AccessStamp {
        match self.policy {
            AccessPolicy::Lru => AccessStamp::lru(self.now_ms),
            AccessPolicy::Lfu => {
                let counter = increment(old.frequency(self.now_ms), self.random);
                AccessStamp::lfu(minutes(self.now_ms), counter)
            }
        }
    }
}

/// The 24-bit access stamp of one entry. It has a meaning only together with the `AccessPolicy` under which
/// it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccessStamp(u32);

impl AccessStamp {
    /// LRU: the stamp of an entry that was used this many seconds before `now_ms`. Above half of the range
    /// of a stamp (97 days), `seconds` counts as that half. Otherwise the idle time could soon wrap to 0.
    pub fn idle(seconds: u64, now_ms: u64) -> Self {
        let seconds = seconds.min(u64::from(STAMP_MASK / 2));
        AccessStamp(AccessStamp::lru(now_ms).0.wrapping_sub(seconds as u32) & STAMP_MASK)
    }

    /// LFU: the stamp of an entry with this counter at `now_ms`.
    pub fn frequent(counter: u8, now_ms: u64) -> Self {
        AccessStamp::lfu(minutes(now_ms), counter)
    }

    #[inline]
    fn lru(now_ms: u64) -> Self {
        AccessStamp((now_ms / 1000) as u32 & STAMP_MASK)
    }

    #[inline]
    fn lfu(minutes: u16, counter: u8) -> Self {
        AccessStamp(u32::from(minutes) << 8 | u32::from(counter))
    }

    /// The stamp with these 24 bits; higher bits are cut off.
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        AccessStamp(bits & STAMP_MASK)
    }

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// LRU: seconds since the last access, modulo 2^24.
    #[inline]
    pub fn idle_seconds(self, now_ms: u64) -> u32 {
        AccessStamp::lru(now_ms).0.wrapping_sub(self.0) & STAMP_MASK
    }

    /// LFU: the logarithmic counter after the decay that is due at `now_ms`, 0..=255.
    #[inline]
    pub fn frequency(self, now_ms: u64) -> u8 {
        let elapsed = minutes(now_ms).wrapping_sub((self.0 >> 8) as u16);
        let decay = elapsed / LFU_DECAY_MINUTES;
        (self.0 as u8).saturating_sub(u8::try_from(decay).unwrap_or(u8::MAX))
    }
}

#[inline]
fn minutes(now_ms: u64) -> u16 {
    (now_ms / 60_000) as u16
}

/// Raises the counter with probability 1 / ((counter - LFU_INIT) * LFU_LOG_FACTOR + 1), and always if it is
/// below LFU_INIT. The counter never exceeds 255.
#[inline]
fn increment(counter: u8, random: u32) -> u8 {
    let base = u64::from(counter.saturating_sub(LFU_INIT));
    let odds = base * LFU_LOG_FACTOR + 1;
    // random / 2^32 < 1 / odds, without a division.
    if u64::from(random) * odds <= u64::from(u32::MAX) { counter.saturating_add(1) } else { counter }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(policy: AccessPolicy, now_ms: u64, random: u32) -> AccessClock {
        AccessClock { now_ms, policy, random }
    }

    #[test]
    fn idle_time_counts_from_the_last_access_and_survives_wrapping() {
        let stamp = clock(AccessPolicy::Lru, 5_000, 0).initial();
        assert_eq!(stamp.idle_seconds(65_000), 60);
        let late = clock(AccessPolicy::Lru, ((1 << 24) - 1) * 1000, 0).initial();
        assert_eq!(late.idle_seconds(((1 << 24) + 9) * 1000), 10);
    }

    #[test]
    fn a_stamp_can_tell_of_the_past() {
        let now_ms = 1_700_000_000_000;
        for (seconds, shown) in [(0, 0), (1000, 1000), (u64::MAX, STAMP_MASK / 2)] {
            assert_eq!(AccessStamp::idle(seconds, now_ms).idle_seconds(now_ms), shown);
        }
        assert_eq!(AccessStamp::idle(1000, 5_000).idle_seconds(5_000), 1000, "longer than time has run");
        let frequent = AccessStamp::frequent(100, now_ms);
        assert_eq!((frequent.frequency(now_ms), frequent.frequency(now_ms + 60_000)), (100, 99));
    }

    #[test]
    fn an_lfu_counter_starts_at_five_rises_on_luck_and_decays_by_minutes() {
        let stamp = clock(AccessPolicy::Lfu, 0, 0).initial();
        assert_eq!(stamp.frequency(0), 5);
        // At the initial value every hit raises the counter; at a higher value only one hit in (counter - 5)
        // * 10 + 1 does.
        let six = clock(AccessPolicy::Lfu, 0, u32::MAX).touched(stamp);
        assert_eq!(six.frequency(0), 6);
        assert_eq!(clock(AccessPolicy::Lfu, 0, u32::MAX).touched(six).frequency(0), 6);
        assert_eq!(clock(AccessPolicy::Lfu, 0, 0).touched(six).frequency(0), 7);
        assert_eq!(six.frequency(4 * 60_000), 2);
        assert_eq!(six.frequency(400 * 60_000), 0);
    }

    #[test]
    fn a_million_hits_saturate_the_counter_and_a_thousand_do_not() {
        let hits = |count: u32| {
            let mut random = 1u32;
            let mut stamp = clock(AccessPolicy::Lfu, 0, 0).initial();
            for _ in 0..count {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                stamp = clock(AccessPolicy::Lfu, 0, random).touched(stamp);
            }
            stamp.frequency(0)
        };
        assert!((10..30).contains(&hits(1_000)), "{}", hits(1_000));
        if !cfg!(miri) {
            assert_eq!(hits(1_000_000), 255);
        }
    }
}
