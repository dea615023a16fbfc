//! Starts threads that get a value, such as the answer channel of a client.
//!
//! Invariant
//! - The value is never lost: if the system refuses the thread, the caller gets the value back, and can
//!   answer the client.

use std::{io, sync::Arc, thread};

use parking_lot::Mutex;

/// The system has refused to start a thread.
pub(crate) struct Refused<T> {
    pub(crate) value: T,
    pub(crate) error: io::Error,
}

/// Starts a thread that runs `run` with the value.
///
/// # Errors
/// The value and the reason, if the system refuses the thread.
pub(crate) fn spawn_with<T: Send + 'static>(
    thread: thread::Builder,
    value: T,
    run: impl FnOnce(T) + Send + 'static,
) -> Result<(), Refused<T>> {
    let handed = Arc::new(Mutex::new(Some(value)));
    let taken = handed.clone();
    let run = move || {
        let value = taken.lock().take();
        run(value.expect("only a caller whose thread was refused takes it back"));
    };
    let Err(error) = thread.spawn(run) else { return Ok(()) };
    let value = handed.lock().take().expect("no thread has taken it");
    Err(Refused { value, error })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_gets_the_value() {
        let (sender, receiver) = mpsc::channel();
        let started =
            spawn_with(thread::Builder::new(), 7, move |value| sender.send(value).expect("awaited"));
        assert!(started.is_ok());
        assert_eq!(receiver.recv(), Ok(7));
    }

    #[test]
    fn a_refused_thread_gives_the_value_back() {
        // No address space has room for this stack.
        let thread = thread::Builder::new().stack_size(usize::MAX / 4);
        let refused = spawn_with(thread, 7, |_| ()).expect_err("refused");
        assert_eq!(refused.value, 7);
    }
}
