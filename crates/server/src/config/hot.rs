//! Copies of the settings that are read for every command, tick or connection, most of them without a lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};

use engine::{EventClass, MemoryLimits, audit::AUDIT_CHANNEL, clients::ClientKind};
use keyspace::EvictionPolicy;
use parking_lot::RwLock;
use settings::{Key, OutputLimit, OutputLimits, Settings};

use super::possible_clients;

/// The eviction policies by the names that `maxmemory-policy` takes.
const POLICIES: [(&str, EvictionPolicy); 8] = [
    ("noeviction", EvictionPolicy::NoEviction),
    ("allkeys-lru", EvictionPolicy::AllKeysLru),
    ("allkeys-lfu", EvictionPolicy::AllKeysLfu),
    ("allkeys-random", EvictionPolicy::AllKeysRandom),
    ("volatile-lru", EvictionPolicy::VolatileLru),
    ("volatile-lfu", EvictionPolicy::VolatileLfu),
    ("volatile-random", EvictionPolicy::VolatileRandom),
    ("volatile-ttl", EvictionPolicy::VolatileTtl),
];

#[derive(Default)]
pub(crate) struct HotSettings {
    memory_bytes_max: AtomicU64,
    eviction_policy: AtomicU8,
    eviction_samples: AtomicU64,
    bulk_bytes_max: AtomicU64,
    sparse_bytes_max: AtomicU64,
    request_bytes_max: AtomicU64,
    clients_max: AtomicU64,
    http_clients_max: AtomicU64,
    idle_timeout_seconds: AtomicU64,
    has_admin_password: AtomicBool,
    is_protected: AtomicBool,
    emulates_cluster: AtomicBool,
    event_classes: AtomicU16,
    output_limits: RwLock<OutputLimits>,
    has_durable_channels: AtomicBool,
    is_audited: AtomicBool,
    /// Patterns of channels whose messages are kept in the log.
    durable_channels: RwLock<Vec<Box<[u8]>>>,
}

impl HotSettings {
    /// Takes over these settings.
    pub(super) fn refresh(&self, settings: &Settings) {
        self.memory_bytes_max.store(settings.integer(Key::Maxmemory), Relaxed);
        self.eviction_samples.store(settings.integer(Key::MaxmemorySamples), Relaxed);
        let policy = settings.text(Key::MaxmemoryPolicy);
        let number =
            POLICIES.iter().position(|(name, _)| *name == policy).expect("every choice is a policy; tested");
        self.eviction_policy.store(number as u8, Relaxed);
        self.bulk_bytes_max.store(settings.integer(Key::ProtoMaxBulkLen), Relaxed);
        self.sparse_bytes_max.store(settings.integer(Key::HllSparseMaxBytes), Relaxed);
        self.request_bytes_max.store(settings.integer(Key::ClientQueryBufferLimit), Relaxed);
        let clients_max = possible_clients(settings.integer(Key::Maxclients));
        self.clients_max.store(clients_max.redis, Relaxed);
        self.http_clients_max.store(clients_max.http, Relaxed);
        self.idle_timeout_seconds.store(settings.integer(Key::Timeout), Relaxed);
        self.has_admin_password.store(!settings.text(Key::AdminPassword).is_empty(), Relaxed);
        self.is_protected.store(settings.switch(Key::ProtectedMode), Relaxed);
        self.emulates_cluster.store(settings.switch(Key::ClusterEmulation), Relaxed);
        let classes = EventClass::parse(settings.text(Key::NotifyKeyspaceEvents)).unwrap_or_default();
        self.event_classes.store(classes.bits(), Relaxed);
        *self.output_limits.write() = settings.output_limits();
        self.is_audited.store(settings.switch(Key::Audit), Relaxed);
        let patterns = settings.text(Key::DurableChannels).split_ascii_whitespace();
        let patterns: Vec<Box<[u8]>> = patterns.map(|pattern| pattern.as_bytes().into()).collect();
        self.has_durable_channels.store(!patterns.is_empty(), Relaxed);
        *self.durable_channels.write() = patterns;
    }

    pub(super) fn memory_limits(&self) -> MemoryLimits {
        let (_, policy) = POLICIES[self.eviction_policy.load(Relaxed) as usize];
        MemoryLimits {
            memory_bytes_max: self.memory_bytes_max.load(Relaxed),
            policy,
            samples: self.eviction_samples.load(Relaxed) as usize,
        }
    }

    /// The maximum bytes of one argument of a command.
    pub(crate) fn bulk_bytes_max(&self) -> usize {
        self.bulk_bytes_max.load(Relaxed) as usize
    }

    /// The length up to which a HyperLogLog keeps the sparse encoding.
    pub(super) fn sparse_bytes_max(&self) -> usize {
        self.sparse_bytes_max.load(Relaxed) as usize
    }

    /// The setting `client-query-buffer-limit`: the maximum bytes of one request that is not inline.
    pub(crate) fn request_bytes_max(&self) -> usize {
        self.request_bytes_max.load(Relaxed) as usize
    }

    /// The limits for the unsent bytes of a client of this kind.
    pub(crate) fn output_limit(&self, kind: ClientKind) -> OutputLimit {
        self.output_limits.read().of(kind)
    }

    /// The seconds of the setting `timeout`; 0: no client is disconnected because it sends no commands.
    pub(crate) fn idle_timeout_seconds(&self) -> u64 {
        self.idle_timeout_seconds.load(Relaxed)
    }

    /// Whether `admin-password` is set.
    pub(crate) fn has_admin_password(&self) -> bool {
        self.has_admin_password.load(Relaxed)
    }

    /// Whether `protected-mode` is on.
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected.load(Relaxed)
    }

    /// Whether `cluster-emulation` is on.
    pub(crate) fn emulates_cluster(&self) -> bool {
        self.emulates_cluster.load(Relaxed)
    }

    /// The maximum number of clients of the Redis protocol; replicas and members have a few places beyond
    /// these.
    pub(crate) fn clients_max(&self) -> u64 {
        self.clients_max.load(Relaxed)
    }

    /// The maximum number of connections to the HTTP port.
    pub(crate) fn http_clients_max(&self) -> u64 {
        self.http_clients_max.load(Relaxed)
    }

    pub(super) fn event_classes(&self) -> EventClass {
        EventClass::from_bits(self.event_classes.load(Relaxed))
    }

    /// Whether `durable-channels` has any pattern.
    pub(crate) fn has_durable_channels(&self) -> bool {
        self.has_durable_channels.load(Relaxed)
    }

    /// Whether the log is kept for readers of messages.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.has_durable_channels() || self.is_audited.load(Relaxed)
    }

    pub(super) fn is_durable_channel(&self, channel: &[u8]) -> bool {
        channel == AUDIT_CHANNEL
            || self.has_durable_channels()
                && self.durable_channels.read().iter().any(|pattern| wire::glob::matches(pattern, channel))
    }
}

#[cfg(test)]
mod tests {
    use settings::{Kind, OPTIONS};

    use super::*;

    #[test]
    fn every_choice_of_the_policy_setting_is_a_policy() {
        let Kind::Choice(names) = OPTIONS[Key::MaxmemoryPolicy as usize].kind else { panic!("a choice") };
        assert!(names.iter().eq(POLICIES.iter().map(|(name, _)| name)));
    }
}
