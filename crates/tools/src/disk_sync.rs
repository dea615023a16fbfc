//! The latency of durable writes, for which every acknowledged write waits.

use std::{io, path::Path};

use env::{AlignedBytes, BLOCK_BYTES, Clock, Disk, Entropy, RealClock, RealDisk, RealEntropy};

/// The number of durable writes that are timed: enough for a p99, and done within seconds on a slow disk.
pub(crate) const WRITES: usize = 100;

/// The times of durable writes as the log makes them, in microseconds: one block each, in place, in a file in
/// `dir` that is removed.
///
/// # Errors
/// If the file cannot be made, written or removed.
pub(crate) fn measure(dir: &Path) -> io::Result<Vec<u64>> {
    // With this ending, a start in this directory would remove a file that a kill leaves behind.
    let path = dir.join(format!(".doctor-{:016x}.tmp", RealEntropy.random_u64()));
    let file = RealDisk.create_new(&path)?;
    let write = || -> io::Result<Vec<u64>> {
        let block = AlignedBytes::zeroed(BLOCK_BYTES);
        let places = (0..WRITES).map(|number| (number * BLOCK_BYTES) as u64);
        for offset in places.clone() {
            file.write_all_at(&block, offset)?;
        }
        file.sync_all()?;
        let timed = |offset| -> io::Result<u64> {
            let begin_us = RealClock.monotonic_us();
            file.write_durable_at(&block, offset)?;
            Ok(RealClock.monotonic_us() - begin_us)
        };
        places.map(timed).collect()
    };
    let latencies = write();
    let removed = RealDisk.remove(&path);
    latencies.and_then(|latencies| removed.map(|()| latencies))
}

/// The smallest value that `percent` per cent of the sorted values do not exceed.
pub(crate) fn rank(sorted: &[u64], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}

/// A time in milliseconds, for people.
pub(crate) fn shown(us: u64) -> String {
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_leaves_nothing_behind() {
        let dir = std::env::temp_dir().join(format!("sheaf-doctor-{:016x}", RealEntropy.random_u64()));
        RealDisk.create_dir_all(&dir).unwrap();
        assert_eq!(measure(&dir).unwrap().len(), WRITES);
        assert!(RealDisk.names(&dir).unwrap().is_empty());
        std::fs::remove_dir(&dir).unwrap();
        assert!(measure(&dir).is_err());
    }
}
