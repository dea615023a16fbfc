//! The scheduling priority of the calling thread, and the time that it has had.
//!
//! What it is: `nice` and CPU time per thread, which Linux has and the standard library does not show.
//! What it is not: spawning or naming threads; the standard library does that, and only `server` owns threads.
//!
//! Invariants
//! - Only the calling thread is affected.

#![allow(unsafe_code)]

use std::{io, panic::resume_unwind, thread};

/// Sets the nice value of the calling thread: 0 normal, up to 19 for work that must yield to everything else.
/// Negative values need privilege.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: no memory is passed. On Linux `PRIO_PROCESS` with a thread id is about that thread only.
    let status = unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, nice) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `work` on a thread of its own with this nice value, which the threads that it starts have as well, and waits for it:
/// nobody can take a nice value back without privilege, but a thread can end.
///
/// # Errors
/// There is no thread to be had.
pub fn run_nice<T: Send>(name: &str, nice: i32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let run = || {
            // Where it is refused, the work is done all the same.
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
    // SAFETY: the pointer is to a `timespec` that is borrowed exclusively for the call, which keeps nothing of it.
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
