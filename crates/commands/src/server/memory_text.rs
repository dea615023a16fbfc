//! The text of MEMORY DOCTOR.

use engine::MemoryLimits;
use keyspace::EvictionPolicy;

use super::memory::{Usage, ratio};

const MIB: u64 = 1 << 20;
/// Less data than this counts as hardly any.
const DATA_BYTES_MIN: u64 = 5 * MIB;
/// A smaller difference between two sizes of memory is not reported.
const WASTE_BYTES_MIN: u64 = 10 * MIB;
/// Takes the place of [`WASTE_BYTES_MIN`] while there is hardly any data: the process itself can make such a
/// difference.
const EMPTY_WASTE_BYTES_MIN: u64 = 100 * MIB;
/// This much memory per client, or more, suggests that some clients send large commands or do not read their
/// replies.
const CLIENT_BYTES_MAX: u64 = 200 << 10;

/// The findings, one paragraph each.
pub(super) fn diagnosis(usage: &Usage, limits: &MemoryLimits) -> String {
    let findings: Vec<String> =
        [limit(usage, limits), machine(usage, limits), waste(usage), past(usage), clients(usage)]
            .into_iter()
            .flatten()
            .collect();
    match (findings.is_empty(), usage.data < DATA_BYTES_MIN) {
        (true, true) => "There is hardly any data yet, and nothing to complain about.\n".into(),
        (true, false) => "Nothing to complain about.\n".into(),
        (false, _) => findings.concat(),
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB as f64)
}

/// The smallest difference that is reported.
fn waste_bytes_min(usage: &Usage) -> u64 {
    if usage.data < DATA_BYTES_MIN { EMPTY_WASTE_BYTES_MIN } else { WASTE_BYTES_MIN }
}

fn limit(usage: &Usage, limits: &MemoryLimits) -> Option<String> {
    let max = limits.memory_bytes_max;
    if max == 0 || usage.data / 9 < max / 10 {
        return None;
    }
    let consequence = if limits.policy == EvictionPolicy::NoEviction {
        "Beyond it writes are refused, because maxmemory-policy is noeviction: raise the limit, remove keys, or choose \
         a policy that evicts."
    } else {
        "Keys are or will soon be evicted; INFO stats counts them (evicted_keys)."
    };
    Some(format!("Near the limit: {} of {} (maxmemory) are used. {consequence}\n", mib(usage.data), mib(max)))
}

fn machine(usage: &Usage, limits: &MemoryLimits) -> Option<String> {
    let (resident, system) = (usage.figures.resident_bytes, usage.figures.system_bytes);
    if system == 0 || resident / 8 < system / 10 {
        return None;
    }
    let cause =
        if limits.memory_bytes_max == 0 { "There is no maxmemory: set one" } else { "Lower maxmemory" };
    Some(format!(
        "Little memory left: the process has {} of {} that the machine or its control group has. {cause} before the \
         system ends the process.\n",
        mib(resident),
        mib(system)
    ))
}

fn waste(usage: &Usage) -> Option<String> {
    let (resident, used) = (usage.figures.resident_bytes, usage.explained());
    if ratio(resident, used) < 1.4 || resident.saturating_sub(used) < waste_bytes_min(usage) {
        return None;
    }
    Some(format!(
        "Fragmentation: the process has {} and uses {} of it. After many keys were removed this is normal, and new keys \
         will use it; MEMORY PURGE gives back what is free in one piece.\n",
        mib(resident),
        mib(used)
    ))
}

fn past(usage: &Usage) -> Option<String> {
    let (resident, max) = (usage.figures.resident_bytes, usage.figures.resident_bytes_max);
    if max / 3 < resident / 2 || max.saturating_sub(resident) < waste_bytes_min(usage) {
        return None;
    }
    Some(format!(
        "Past peak: the process once had {}, now it has {}. Plan for the peak if it can come again.\n",
        mib(max),
        mib(resident)
    ))
}

fn clients(usage: &Usage) -> Option<String> {
    let each = usage.clients.checked_div(usage.client_count)?;
    if each < CLIENT_BYTES_MAX {
        return None;
    }
    Some(format!(
        "Large client buffers: {} for {} clients. Some send large commands or do not read their replies; CLIENT LIST \
         shows them (qbuf, obl).\n",
        mib(usage.clients),
        usage.client_count
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::host::MemoryFigures;

    const LIMITS: MemoryLimits =
        MemoryLimits { memory_bytes_max: 0, policy: EvictionPolicy::NoEviction, samples: 5 };

    fn healthy() -> Usage {
        let figures = MemoryFigures {
            resident_bytes: 120 * MIB,
            resident_bytes_max: 130 * MIB,
            system_bytes: 1000 * MIB,
            log_buffer_bytes: 4 * MIB,
            beside_data_bytes: 0,
        };
        Usage { figures, data: 100 * MIB, clients: MIB, client_count: 50 }
    }

    #[test]
    fn a_healthy_server_has_no_complaints() {
        assert_eq!(diagnosis(&healthy(), &LIMITS), "Nothing to complain about.\n");
        let empty = Usage { data: MIB, ..Usage::default() };
        assert!(diagnosis(&empty, &LIMITS).starts_with("There is hardly any data"));
        // The memory of a process that has just started, and its peak during the start.
        let mut new = Usage { data: 0, ..healthy() };
        (new.figures.resident_bytes, new.figures.resident_bytes_max) = (45 * MIB, 90 * MIB);
        assert!(diagnosis(&new, &LIMITS).starts_with("There is hardly any data"));
        new.figures.resident_bytes = 500 * MIB;
        assert!(diagnosis(&new, &LIMITS).starts_with("Fragmentation: "), "after many keys were removed");
        // A small keyspace beside the memory that the process had from the start.
        let mut small = Usage { data: 30 * MIB, ..healthy() };
        small.figures.beside_data_bytes = 85 * MIB;
        assert_eq!(diagnosis(&small, &LIMITS), "Nothing to complain about.\n");
    }

    #[test]
    fn each_finding_is_told_with_its_figures() {
        let told = |usage: &Usage, limits: &MemoryLimits, head: &str| {
            let text = diagnosis(usage, limits);
            assert!(text.starts_with(head) && text.lines().count() == 1, "{head}: {text}");
            text
        };
        let limited = MemoryLimits { memory_bytes_max: 105 * MIB, ..LIMITS };
        assert!(told(&healthy(), &limited, "Near the limit: 100.0 MiB of 105.0 MiB").contains("noeviction"));
        let evicting = MemoryLimits { policy: EvictionPolicy::AllKeysLru, ..limited };
        assert!(told(&healthy(), &evicting, "Near the limit").contains("evicted_keys"));
        let mut usage = healthy();
        usage.figures.system_bytes = 140 * MIB;
        assert!(told(&usage, &LIMITS, "Little memory left: the process has 120.0 MiB").contains("set one"));
        usage = Usage { data: 50 * MIB, ..healthy() };
        told(&usage, &LIMITS, "Fragmentation: the process has 120.0 MiB and uses 56.");
        usage = healthy();
        usage.figures.resident_bytes_max = 300 * MIB;
        told(&usage, &LIMITS, "Past peak: the process once had 300.0 MiB, now it has 120.0 MiB");
        usage = Usage { clients: 20 * MIB, ..healthy() };
        told(&usage, &LIMITS, "Large client buffers: 20.0 MiB for 50 clients");
    }
}
