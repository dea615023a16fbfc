//! Figures of the OS about this process and machine: memory, CPU time, descriptors, cores.
//!
//! Each figure costs a few system calls or reads of small files, so it must not be read for every request.
//!
//! Invariants
//! - Nothing here fails the server: a figure that the OS does not give has the documented value (0, zeros or
//!   1).

#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::thread;

/// Resident memory of this process in bytes; 0 if unknown.
pub fn rss_bytes() -> u64 {
    kib_field("/proc/self/status", "VmRSS:").unwrap_or(0)
}

/// The highest resident memory of this process so far, in bytes; 0 if unknown.
pub fn peak_rss_bytes() -> u64 {
    kib_field("/proc/self/status", "VmHWM:").unwrap_or(0)
}

/// Memory available to this process, in bytes: the memory of the machine, or the limit of the control group
/// at `/sys/fs/cgroup` if that is less. 0 if unknown.
pub fn memory_total_bytes() -> u64 {
    let machine = kib_field("/proc/meminfo", "MemTotal:").unwrap_or(0);
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
        .unwrap_or(u64::MAX);
    machine.min(group)
}

/// The user as whom this process runs: its name in `/etc/passwd`, or its number if it is not there.
pub fn user() -> String {
    // SAFETY: the call only reads, and cannot fail.
    let id = unsafe { libc::geteuid() }.to_string();
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(&*id)).then(|| name.to_owned())
    });
    named.unwrap_or(id)
}

/// Cores this process may use (affinity and quota considered); at least 1.
pub fn cores_available() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// CPU time used by all threads of this process so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuTime {
    /// In user space, microseconds.
    pub user_us: u64,
    /// In the kernel, microseconds.
    pub system_us: u64,
}

/// CPU time used so far; zeros if unknown.
pub fn cpu_time() -> CpuTime {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is writable memory of the right type.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return CpuTime::default();
    }
    // SAFETY: the call succeeded, so it has filled `usage`.
    let usage = unsafe { usage.assume_init() };
    CpuTime { user_us: micros(usage.ru_utime), system_us: micros(usage.ru_stime) }
}

fn micros(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64
}

/// Microseconds since the machine's start, suspended time included.
pub(crate) fn boot_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a live value of the right type. (The clock exists on every Linux that this runs on;
    // without it, the time would stay 0.)
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Descriptors that this process has open; 0 if unknown.
pub fn open_files() -> u64 {
    // The directory itself is open while it is read.
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1) as u64)
}

/// Descriptors this process may have open at once; 0 if unknown.
pub fn open_files_max() -> u64 {
    open_files_limit().map_or(0, |limit| limit.rlim_cur)
}

/// Raises the limit of open descriptors to `wanted`, or as far as allowed, and returns the limit now in
/// force; 0 if it is unknown. Never lowers it.
pub fn raise_open_files_limit(wanted: u64) -> u64 {
    let Ok(limit) = open_files_limit() else { return 0 };
    if limit.rlim_cur >= wanted {
        return limit.rlim_cur;
    }
    // The first try raises the hard limit, too, which may need privilege; the second stays within it.
    let full = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
    let allowed = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), rlim_max: limit.rlim_max };
    for target in [full, allowed] {
        // SAFETY: reads a live value of the right type.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &target) } == 0 {
            return target.rlim_cur;
        }
    }
    limit.rlim_cur
}

fn open_files_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable memory of the right type.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The value of a line `<name> <number> kB` of a proc file, in bytes.
fn kib_field(path: &str, name: &str) -> Option<u64> {
    parse_kib_field(&fs::read_to_string(path).ok()?, name)
}

fn parse_kib_field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_figures_are_plausible() {
        // The resident memory is read first, because the peak never falls afterwards.
        let rss = rss_bytes();
        assert!(rss > 100 * 1024 && rss <= peak_rss_bytes() && rss < memory_total_bytes());
    }

    #[test]
    fn a_process_runs_as_a_user() {
        let name = user();
        assert!(!name.is_empty() && !name.contains(':'), "{name}");
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let total_us = || cpu_time().user_us + cpu_time().system_us;
        let before_us = total_us();
        // The loop itself uses CPU time, which the kernel accounts at least once per timer tick.
        assert!((0..10_000_000).any(|_| total_us() > before_us));
        assert!(cores_available() >= 1);
    }

    #[test]
    fn open_files_limit_is_raised_never_lowered() {
        let before = open_files_max();
        assert!(before > 0);
        assert_eq!(raise_open_files_limit(1), before);
        let after = raise_open_files_limit(before + 1);
        assert!(after == before || after == before + 1);
        assert_eq!(open_files_max(), after);
    }

    #[test]
    fn proc_lines() {
        let text = "Name:\tx\nVmRSS:\t    1234 kB\nBad: 5 MB\n";
        assert_eq!(parse_kib_field(text, "VmRSS:"), Some(1234 * 1024));
        assert_eq!(parse_kib_field(text, "Bad:"), None);
        assert_eq!(parse_kib_field(text, "VmHWM:"), None);
    }
}
