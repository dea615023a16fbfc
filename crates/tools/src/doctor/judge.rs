//! The judgements: figures in, a [`Finding`] out. No I/O.

use env::machine::{FileSystem, FileSystemKind};
use settings::ClientsMax;

use super::{Finding, State};
use crate::disk_sync::{rank, shown};

const MIB: u64 = 1 << 20;
/// The latency of a durable write, in microseconds, above which a client that waits for each reply writes
/// less than 100 times a second.
const SLOW_SYNC_US: u64 = 10_000;
/// The latency of a durable write, in microseconds, below which no disk can have answered. Flash with a
/// protected cache takes at least 20 µs; the difference is a margin.
const IMPLAUSIBLE_SYNC_US: u64 = 8;

/// Judges the limit of open files, which the server raises as far as it may.
pub(super) fn open_files(limit: u64, maxclients: u64) -> Finding {
    let needed = ClientsMax::descriptors(maxclients);
    let possible = ClientsMax::within(limit, maxclients);
    if possible.redis >= maxclients && possible.http >= maxclients {
        return Finding::new(
            "open files",
            State::Fine,
            format!("limit {limit}, enough for maxclients {maxclients}"),
        );
    }
    let text = format!(
        "limit {limit}: only {} clients of Redis and {} of HTTP instead of maxclients {maxclients}. Allow {needed}: \
         LimitNOFILE={needed} in the unit of systemd, `ulimit -n {needed}` in a shell",
        possible.redis, possible.http
    );
    Finding::new("open files", State::Change, text)
}

/// Judges transparent huge pages: no fork copies them, so they cost memory at most.
pub(super) fn huge_pages(policy: Option<&str>) -> Finding {
    let finding = |state, text| Finding::new("huge pages", state, text);
    match policy {
        Some("always") => finding(
            State::Note,
            "always: freed memory may stay resident for longer. The server does not fork, so no latency comes of it; \
             `madvise` in /sys/kernel/mm/transparent_hugepage/enabled saves that memory",
        ),
        Some("madvise") => finding(State::Fine, "madvise"),
        Some(_) => finding(State::Fine, "never"),
        None => finding(State::Note, "the kernel does not say"),
    }
}

/// Judges overcommit, which matters only where it is forbidden: no fork needs it.
pub(super) fn overcommit(mode: Option<u8>) -> Finding {
    let finding = |state, text| Finding::new("overcommit", state, text);
    match mode {
        Some(2) => finding(
            State::Note,
            "vm.overcommit_memory is 2: the kernel refuses memory beyond CommitLimit (/proc/meminfo), and a refused \
             allocation ends the server. Keep maxmemory well below it",
        ),
        Some(_) => finding(State::Fine, "allowed; there is no fork that needs vm.overcommit_memory=1"),
        None => finding(State::Note, "the kernel does not say"),
    }
}

/// Judges `maxmemory` (0: not set) by the memory of the machine or container, `total` (0: not known).
pub(super) fn memory(maxmemory: u64, total: u64) -> Finding {
    let finding = |state, text: String| Finding::new("memory", state, text);
    let total_mib = total / MIB;
    match (maxmemory, total) {
        (_, 0) => finding(State::Note, "the kernel does not say how much there is".into()),
        (0, _) => finding(
            State::Note,
            format!(
                "maxmemory is not set: writes end only when the {total_mib} MiB of this machine do, and then the kernel \
                 ends the server"
            ),
        ),
        _ if maxmemory >= total => finding(
            State::Change,
            format!("maxmemory is {} MiB, the machine has {total_mib}: set a lower one", maxmemory / MIB),
        ),
        _ => finding(State::Fine, format!("maxmemory is {} of {total_mib} MiB", maxmemory / MIB)),
    }
}

/// Judges whether the clock is synchronised; `None` if the kernel does not say.
pub(super) fn clock(is_synchronized: Option<bool>) -> Finding {
    let finding = |state, text| Finding::new("clock", state, text);
    match is_synchronized {
        Some(true) => finding(State::Fine, "synchronised"),
        Some(false) => finding(
            State::Change,
            "not synchronised: keys expire at other times after a failover, and restores to a time are off. Run chrony \
             or systemd-timesyncd",
        ),
        None => finding(State::Note, "the kernel does not say whether it is synchronised"),
    }
}

/// Judges the kind of the file system.
pub(super) fn file_system(found: FileSystem) -> Finding {
    let name = found.name.unwrap_or("of a kind that is not known here");
    let finding = |state, text: String| Finding::new("file system", state, text);
    match found.kind {
        FileSystemKind::Disk => finding(State::Fine, name.into()),
        FileSystemKind::Memory => finding(
            State::Change,
            format!("{name}: a restart of the machine loses everything. Use a directory on a disk"),
        ),
        FileSystemKind::Network => finding(
            State::Change,
            format!(
                "{name}: on another machine, whose syncs and locks the server must trust. Use a local disk, and replicas"
            ),
        ),
        FileSystemKind::Container => finding(
            State::Change,
            format!("{name}: it is removed together with the container. Mount a volume there"),
        ),
    }
}

/// Judges the latencies of small durable writes, in microseconds and in any order.
pub(super) fn syncs(mut latencies_us: Vec<u64>, is_in_memory: bool) -> Finding {
    latencies_us.sort_unstable();
    let (Some(p50), Some(p99)) = (rank(&latencies_us, 50), rank(&latencies_us, 99)) else {
        return Finding::new("disk sync", State::Unseen, "nothing was measured");
    };
    let figures = format!("p50 {}, p99 {}", shown(p50), shown(p99));
    let rate = 1_000_000 / p50.max(1);
    let finding = |state, text: String| Finding::new("disk sync", state, format!("{figures}: {text}"));
    let meaning = format!(
        "a SET takes this and the network; a client that waits for each OK makes {rate} a second at most"
    );
    match p50 {
        _ if is_in_memory => finding(State::Note, "no disk was written".into()),
        ..IMPLAUSIBLE_SYNC_US => finding(
            State::Change,
            "no disk is so fast: it reports writes that a power cut loses. Turn its volatile cache off, or ask who runs \
             the storage"
                .into(),
        ),
        SLOW_SYNC_US.. => finding(
            State::Change,
            format!("{meaning}. Use flash with power-loss protection; --durability interval does not wait"),
        ),
        _ if p99 >= 20 * p50.max(500) => finding(
            State::Note,
            format!("{meaning}; one in a hundred takes far longer: the disk has other work, or is limited"),
        ),
        _ => finding(State::Fine, format!("{meaning}; writes of many clients share a sync")),
    }
}

/// The room that a directory needs in addition to its present files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Growth {
    /// Bytes of the newest snapshot: the next one is written beside the snapshots that are kept.
    pub(super) snapshot: u64,
    /// Bytes of files of documents: compaction writes them again.
    pub(super) documents: u64,
    /// The value of the setting `snapshot-log-bytes`.
    pub(super) snapshot_log: u64,
    /// The value of the setting `log-segment-bytes`.
    pub(super) segment: u64,
}

impl Growth {
    /// Bytes that must be free: for the next snapshot, the log until the snapshot is complete, two segments
    /// ahead, and a compaction.
    fn needed(self) -> u64 {
        let log = self.snapshot.max(self.snapshot_log);
        [log, self.documents, self.segment, self.segment]
            .iter()
            .fold(self.snapshot, |sum, part| sum.saturating_add(*part))
    }
}

/// Judges the free space of the disk, in bytes.
pub(super) fn space(free: u64, growth: Growth) -> Finding {
    let needed = growth.needed();
    let parts = format!(
        "the next snapshot {} MiB, log until then {}, compaction of documents {}, two segments {}",
        growth.snapshot / MIB,
        growth.snapshot.max(growth.snapshot_log) / MIB,
        growth.documents / MIB,
        2 * (growth.segment / MIB),
    );
    let text =
        format!("{} MiB free, {} needed at the data's present size ({parts})", free / MIB, needed / MIB);
    match free {
        _ if free < needed => {
            Finding::new("disk space", State::Change, format!("{text}. Free some, or use a larger disk"))
        }
        _ => Finding::new("disk space", State::Fine, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(finding: &Finding) -> State {
        finding.state
    }

    #[test]
    fn open_files_are_enough_for_all_clients_or_the_number_is_told() {
        assert_eq!(state(&open_files(20_096, 10_000)), State::Fine);
        let few = open_files(1024, 10_000);
        assert_eq!(few.state, State::Change);
        assert!(few.text.contains("only 696 clients of Redis and 232 of HTTP"), "{}", few.text);
        assert!(few.text.contains("LimitNOFILE=20096"), "{}", few.text);
    }

    #[test]
    fn memory_policies_matter_only_where_they_cost() {
        let states: Vec<State> =
            ["always", "madvise", "never"].iter().map(|policy| huge_pages(Some(policy)).state).collect();
        assert_eq!(states, [State::Note, State::Fine, State::Fine]);
        assert_eq!(state(&huge_pages(None)), State::Note);
        let states: Vec<State> = [0, 1, 2].iter().map(|mode| overcommit(Some(*mode)).state).collect();
        assert_eq!(states, [State::Fine, State::Fine, State::Note]);
    }

    #[test]
    fn a_limit_of_data_as_large_as_the_memory_is_to_be_changed() {
        assert_eq!(state(&memory(0, 1 << 30)), State::Note);
        assert_eq!(state(&memory(1 << 30, 1 << 30)), State::Change);
        assert_eq!(state(&memory(1 << 29, 1 << 30)), State::Fine);
        assert_eq!(state(&memory(1 << 29, 0)), State::Note);
    }

    #[test]
    fn a_clock_is_synchronised_or_not_known() {
        assert_eq!(state(&clock(Some(true))), State::Fine);
        assert_eq!(state(&clock(Some(false))), State::Change);
        assert_eq!(state(&clock(None)), State::Note);
    }

    #[test]
    fn only_disks_of_this_machine_are_fine() {
        for (kind, expected) in [
            (FileSystemKind::Disk, State::Fine),
            (FileSystemKind::Memory, State::Change),
            (FileSystemKind::Network, State::Change),
            (FileSystemKind::Container, State::Change),
        ] {
            assert_eq!(state(&file_system(FileSystem { name: None, kind })), expected);
        }
    }

    #[test]
    fn latencies_are_told_as_what_a_client_sees() {
        let fine = syncs((1..=100).map(|number| number * 2).collect(), false);
        assert_eq!(fine.state, State::Fine);
        assert!(fine.text.starts_with("p50 0.10 ms, p99 0.19 ms: a SET takes"), "{}", fine.text);
        assert!(fine.text.contains("makes 10000 a second"), "{}", fine.text);
        assert_eq!(state(&syncs(vec![15_000; 100], false)), State::Change);
        assert_eq!(state(&syncs(vec![3; 100], false)), State::Change);
        assert_eq!(state(&syncs(vec![3; 100], true)), State::Note);
        let mut tail = vec![100; 90];
        tail.extend([40_000; 10]);
        assert_eq!(state(&syncs(tail, false)), State::Note);
        assert_eq!(state(&syncs(Vec::new(), false)), State::Unseen);
    }

    #[test]
    fn ranks_of_few_values() {
        assert_eq!((rank(&[7], 50), rank(&[7], 99), rank(&[], 50)), (Some(7), Some(7), None));
        assert_eq!((rank(&[1, 2, 3, 4], 50), rank(&[1, 2, 3, 4], 99)), (Some(2), Some(4)));
    }

    #[test]
    fn space_is_for_the_next_snapshot_and_the_log_until_then() {
        let growth =
            Growth { snapshot: 100 * MIB, documents: 10 * MIB, snapshot_log: 64 * MIB, segment: 64 * MIB };
        assert_eq!(growth.needed(), (100 + 100 + 10 + 128) * MIB);
        assert_eq!(state(&space(338 * MIB, growth)), State::Fine);
        let short = space(337 * MIB, growth);
        assert_eq!(short.state, State::Change);
        assert!(short.text.starts_with("337 MiB free, 338 needed"), "{}", short.text);
        let small = Growth { snapshot_log: 64 * MIB, segment: 64 * MIB, ..Growth::default() };
        assert_eq!(small.needed(), 192 * MIB);
    }
}
