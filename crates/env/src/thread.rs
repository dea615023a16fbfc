//! The scheduling priority of the calling thread.
//!
//! What it is: `nice` per thread, which Linux has and the standard library does not show.
//! What it is not: spawning or naming threads; the standard library does that, and only `server` owns threads.
//!
//! Invariants
//! - Only the calling thread is affected.

#![allow(unsafe_code)]

use std::io;

/// Sets the nice value of the calling thread: 0 normal, up to 19 for work that must yield to everything else.
/// Negative values need privilege.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: no memory is passed. On Linux `PRIO_PROCESS` with a thread id is about that thread only.
    let status = unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, nice) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> i32 {
        // SAFETY: no memory is passed.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t) }
    }

    #[test]
    fn only_the_calling_thread_becomes_nicer() {
        let before = nice();
        let other = std::thread::spawn(|| (set_nice(15).map_err(|error| error.kind()), nice()));
        assert_eq!(other.join().unwrap(), (Ok(()), 15));
        assert_eq!(nice(), before);
    }
}
