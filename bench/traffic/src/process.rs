//! The kernel's figures about the server's process, read at the start and the end of a measurement.

use std::{fs, io};

/// The unit of the kernel's CPU times, in seconds.
const TICK_S: f64 = 0.01;

/// The process under test.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    /// The process id.
    pub id: u32,
}

impl Process {
    /// User and system time of all its threads, including ended ones, in seconds.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn cpu_s(self) -> io::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id))?;
        cpu_ticks(&stat)
            .map(|ticks| ticks as f64 * TICK_S)
            .ok_or_else(|| io::Error::other("/proc: no CPU time"))
    }

    /// The resident memory.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn rss_bytes(self) -> io::Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// The peak of the resident memory.
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn rss_peak_bytes(self) -> io::Result<u64> {
        self.status_bytes("VmHWM:")
    }

    /// Bytes written to disk so far, as counted by the kernel.
    ///
    /// # Errors
    /// If the process does not exist, or belongs to another user.
    pub fn written_bytes(self) -> io::Result<u64> {
        let io = fs::read_to_string(format!("/proc/{}/io", self.id))?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
        bytes.ok_or_else(|| io::Error::other("/proc: no write_bytes"))
    }

    fn status_bytes(self, name: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kb.map(|kb| kb * 1024).ok_or_else(|| io::Error::other(format!("/proc: no {name}")))
    }
}

/// The sum of the fields `utime` and `stime`, which follow a name with arbitrary characters.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "12 (a) (b 1 2) S 1 2 3 4 5 6 7 8 9 10 70 8 0 0 20";
        assert_eq!(cpu_ticks(stat), Some(78));
        assert_eq!(cpu_ticks("12 (a) S 1 2"), None);
    }

    #[test]
    fn this_process_has_memory() {
        let process = Process { id: std::process::id() };
        assert!(process.rss_bytes().unwrap() > 1 << 16 && process.cpu_s().unwrap() >= 0.0);
        assert!(process.rss_peak_bytes().unwrap() >= process.rss_bytes().unwrap());
        assert!(process.written_bytes().is_ok());
    }
}
