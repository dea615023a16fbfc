//! The scheduling priority of the calling thread, and its CPU time.
//!
//! Linux has both per thread; the standard library exposes neither.
//!
//! Invariants
//! - Only the calling thread is affected, or the thread that is started for the given work.

#![allow(unsafe_code)]

use std::{io, panic::resume_unwind, thread};

/// Sets the nice value of the calling thread: 0 is normal, 19 yields to everything else. Lowering the value
/// needs privilege.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: no memory is passed. On Linux `PRIO_PROCESS` with a thread id is about that thread only.
    let status = unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, nice) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `work` on a thread of its own with this nice value and waits for it. Threads that `work` starts
/// inherit the value. The work has a thread of its own, because lowering a nice value again needs privilege.
/// If the nice value is refused, `work` runs at the caller's priority.
///
/// # Errors
/// If the thread cannot be started.
///
/// # Panics
/// With the panic of `work`.
pub fn run_nice<T: Send>(name: &str, nice: i32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let run = || {
            // If the value is refused, the work is done nevertheless.
            let _ = set_nice(nice);
            work()
        };
        let running = thread::Builder::new().name(name.into()).spawn_scoped(scope, run)?;
        Ok(running.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// CPU time that the calling thread has used since it was started, in microseconds.
pub fn cpu_time_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec` that is borrowed exclusively during the call and not retained.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "every Linux has this clock");
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_while_there_is_work() {
        let begun = cpu_time_us();
        while cpu_time_us() == begun {}
        let other = std::thread::spawn(cpu_time_us).join().unwrap();
        assert!(other < cpu_time_us() + 1_000_000, "the time of one thread, not of all");
    }

    fn nice() -> i32 {
        // SAFETY: no memory is passed.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t) }
    }

    #[test]
    fn nice_work_ends_with_its_thread() {
        let before = nice();
        let seen = run_nice("nice", 15, || thread::spawn(nice).join().unwrap()).unwrap();
        assert_eq!((seen, nice()), (before.max(15), before));
    }

    #[test]
    fn only_the_calling_thread_becomes_nicer() {
        let before = nice();
        let other = std::thread::spawn(|| (set_nice(15).map_err(|error| error.kind()), nice()));
        assert_eq!(other.join().unwrap(), (Ok(()), 15));
        assert_eq!(nice(), before);
    }
}
