//! Log lines on their way to a file or to standard error. Either may accept nothing for a long time: the disk
//! may be frozen, or the reader of a pipe may not read.
//!
//! ```text
//! any thread: line -> queue, or dropped and counted -> thread "log-lines" -> file or standard error
//! ```
//!
//! Invariants
//! - No thread but "log-lines" waits for the file. The queue has at most [`QUEUED_BYTES_MAX`]; further lines
//!   are dropped, and a line says how many once all lines in the queue are written.
//! - Lines are written in the order in which they were queued. When another file is opened, all lines that
//!   are not written yet go to that file.
//! - The queue is emptied ([`LineQueue::flush`]), as long as the file takes lines, before the process ends in
//!   order, because of a panic, or because of a failed log.

use std::{
    collections::VecDeque,
    thread::{self, ThreadId},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// The maximum number of bytes of the lines that wait to be written.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// The next work of the thread that writes.
pub(super) enum Work {
    /// Open the file of this name. An empty name closes the present file.
    Reopen(String),
    /// Write a line.
    Line(Vec<u8>),
    /// Queue a line which says that so many lines were dropped.
    Lost(u64),
}

/// The queue; see the module documentation.
pub(super) struct LineQueue {
    state: Mutex<State>,
    /// Notified when there is work, and when all is done.
    changed: Condvar,
}

struct State {
    /// The file to be opened before the next line is written.
    reopens: Option<String>,
    lines: VecDeque<Vec<u8>>,
    queued_bytes: usize,
    lost: u64,
    is_working: bool,
    /// The thread that writes; `None` before it begins.
    writer: Option<ThreadId>,
}

impl State {
    fn take_work(&mut self) -> Option<Work> {
        if let Some(name) = self.reopens.take() {
            return Some(Work::Reopen(name));
        }
        if let Some(line) = self.lines.pop_front() {
            self.queued_bytes -= line.len();
            return Some(Work::Line(line));
        }
        (self.lost > 0).then(|| Work::Lost(std::mem::take(&mut self.lost)))
    }

    fn has_work(&self) -> bool {
        self.reopens.is_some() || !self.lines.is_empty() || self.lost > 0
    }
}

impl LineQueue {
    pub(super) const fn new() -> LineQueue {
        let state = State {
            reopens: None,
            lines: VecDeque::new(),
            queued_bytes: 0,
            lost: 0,
            is_working: false,
            writer: None,
        };
        LineQueue { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Queues a line, or drops and counts it.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.queued_bytes + line.len() > QUEUED_BYTES_MAX {
            state.lost += 1;
            return;
        }
        state.queued_bytes += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Has the file of this name opened before the next line is written: the name is new, or the file was
    /// renamed.
    pub(super) fn reopen(&self, name: &str) {
        self.state.lock().reopens = Some(name.into());
        self.changed.notify_all();
    }

    /// Carries out each piece of work as it comes, for ever.
    pub(super) fn run(&self, carry_out: impl Fn(Work)) {
        self.state.lock().writer = Some(thread::current().id());
        loop {
            carry_out(self.next());
        }
    }

    fn next(&self) -> Work {
        let mut state = self.state.lock();
        loop {
            let work = state.take_work();
            state.is_working = work.is_some();
            if let Some(work) = work {
                return work;
            }
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
    }

    /// Waits until all lines are written, for the time `within` at most. Does nothing before the queue has a
    /// writer, or on the thread of the writer.
    pub(super) fn flush(&self, within: Duration) {
        // After a panic, the panicking thread may itself hold the lock.
        let Some(mut state) = self.state.try_lock_for(within) else { return };
        if state.writer.is_none_or(|writer| writer == thread::current().id()) {
            return;
        }
        let is_busy = |state: &mut State| state.is_working || state.has_work();
        let _ = self.changed.wait_while_for(&mut state, is_busy, within);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc::channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn nobody_waits_for_a_file_that_takes_no_lines_and_what_is_lost_is_told() {
        let queue = Arc::new(LineQueue::new());
        let (permits, permitted) = channel::<()>();
        let (reached, reports) = channel();
        let (written, lines) = channel();
        let working = queue.clone();
        thread::spawn(move || {
            working.run(|work| match work {
                Work::Line(line) => {
                    let _ = reached.send(());
                    let _ = permitted.recv();
                    let _ = written.send(String::from_utf8_lossy(&line).into_owned());
                }
                Work::Lost(lost) => working.push(format!("{lost} lost\n").as_bytes()),
                Work::Reopen(_) => {}
            })
        });
        queue.push(b"first\n");
        reports.recv_timeout(PATIENCE).expect("the line is being written");
        queue.flush(Duration::ZERO);
        (0..5).for_each(|_| queue.push(&vec![b'x'; QUEUED_BYTES_MAX / 2]));
        drop(permits);
        queue.flush(PATIENCE);
        let lines: Vec<String> = lines.try_iter().collect();
        assert_eq!(lines.len(), 4, "all of them are written before the flush ends");
        assert_eq!((lines[0].as_str(), lines[3].as_str()), ("first\n", "3 lost\n"));
    }

    #[test]
    fn lines_are_written_in_order_and_into_the_file_that_was_opened_before() {
        let queue = Arc::new(LineQueue::new());
        let (done, order) = channel();
        let working = queue.clone();
        for number in 0..100 {
            queue.push(&[number]);
        }
        queue.reopen("a.log");
        thread::spawn(move || {
            working.run(|work| {
                let _ = done.send(match work {
                    Work::Reopen(name) => name,
                    Work::Line(line) => line[0].to_string(),
                    Work::Lost(_) => "lost".into(),
                });
            })
        });
        let expected = std::iter::once("a.log".to_string()).chain((0..100).map(|number| number.to_string()));
        assert!(order.iter().take(101).eq(expected));
    }
}
