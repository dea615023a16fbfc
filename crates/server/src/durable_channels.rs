//! The thread of durable channels: reads the log for all clients that have XSUBSCRIBEd, and hands their
//! messages to the workers.
//!
//! ```text
//! workers -- requests --> thread: position in log -> Readers::step over LogMessages -> WorkerOrder::Feed
//!    ^   '-- Flow: sent bytes (wakes it) -^------ log has moved (wakes it)                      |
//!    '------------------------------------------------------------------------------------------'
//! ```
//!
//! This module has the thread, its inbox, and the retention of the log for it (`retention`).
//! [`pubsub::durable`] decides which client gets which message and when; [`engine::log_messages`] reads the
//! messages.
//!
//! Invariants
//! - All messages of a reader come from this thread, so they are in order and without gaps.
//! - The thread sleeps only if the log, a flow or a request will wake it.
//! - Without readers the thread neither reads the log nor asks the log for a wake-up.

mod retention;
#[cfg(test)]
mod tests;

use std::{
    io, mem,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle, Thread},
};

use engine::log_messages::LogMessages;
use lsn::Lsn;
use parking_lot::Mutex;
use pubsub::durable::{Flow, ReaderEvent, Readers, Request};
use storage::{Appender, Log};

pub(crate) use self::retention::Retention;
use crate::mailbox::{Mailbox, WorkerOrder};

/// Unsent bytes of one client above which it falls behind: enough to keep its socket busy, and far below the
/// limits on unsent bytes.
const WINDOW_BYTES: u64 = 4 << 20;

/// Figures for INFO and metrics.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Clients that read durable channels.
    pub(crate) readers: AtomicU64,
    /// Readers that have not caught up.
    pub(crate) behind: AtomicU64,
    /// Deliveries of messages: one message to two clients counts twice.
    pub(crate) messages: AtomicU64,
}

/// Shared state of the thread and its users.
#[derive(Default)]
pub(crate) struct DurableChannels {
    pub(crate) figures: Figures,
    pub(crate) retention: Retention,
    inbox: Arc<Inbox>,
}

/// Requests to the thread, and its wake-up.
#[derive(Default)]
struct Inbox {
    requests: Mutex<Vec<Request>>,
    thread: OnceLock<Thread>,
    stopping: AtomicBool,
}

impl Inbox {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl DurableChannels {
    /// Starts the thread, once the log is open. If a forced recovery has dropped messages, `lost_before` is
    /// the end of the part of the log whose messages are lost.
    pub(crate) fn start(
        self: &Arc<Self>,
        log: &Log,
        lost_before: Option<Lsn>,
        mailboxes: Vec<Mailbox>,
    ) -> io::Result<JoinHandle<()>> {
        let channels = self.clone();
        let messages = LogMessages::new(log).without_messages_before(lost_before);
        let log = log.clone();
        thread::Builder::new().name("channels".into()).spawn(move || channels.run(&log, messages, &mailboxes))
    }

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.inbox.stopping.store(true, Relaxed);
        self.inbox.wake();
    }

    fn run(&self, log: &Log, mut messages: LogMessages, mailboxes: &[Mailbox]) {
        let appender = log.appender();
        let woken = thread::current();
        let _ = self.inbox.thread.set(woken.clone());
        appender.listen(move || woken.unpark());
        let mut readers = Readers::new(mailboxes.len(), WINDOW_BYTES);
        while !self.inbox.stopping.load(Relaxed) {
            for request in mem::take(&mut *self.inbox.requests.lock()) {
                answer(request, &mut readers, &messages);
            }
            let may_go_on = !readers.is_empty() && readers.step(&mut messages);
            readers.take_feeds(|worker, feed| mailboxes[worker].send(WorkerOrder::Feed(feed)));
            self.figures.readers.store(readers.len() as u64, Relaxed);
            self.figures.behind.store(readers.behind() as u64, Relaxed);
            self.figures.messages.store(readers.messages(), Relaxed);
            if !may_go_on && !self.has_more(&readers, &mut messages, &appender) {
                thread::park();
            }
        }
    }

    /// Asks the log for a wake-up, when the thread has nothing to do. Returns whether there is work already.
    fn has_more(&self, readers: &Readers, messages: &mut LogMessages, appender: &Appender) -> bool {
        if readers.is_empty() {
            messages.rest();
        } else if let Some(position) = readers.waits_at() {
            appender.wait_for_movement();
            if appender.log().showable_lsn() > position {
                return true;
            }
        }
        // A request or flow after the last check has unparked the thread, so parking returns at once.
        false
    }
}

impl engine::DurableChannels for DurableChannels {
    fn request(&self, request: Request) {
        self.inbox.requests.lock().push(request);
        self.inbox.wake();
    }

    fn new_flow(&self) -> Arc<Flow> {
        let inbox = self.inbox.clone();
        Arc::new(Flow::new(move || inbox.wake()))
    }
}

fn answer(request: Request, readers: &mut Readers, messages: &LogMessages) {
    match request {
        Request::Subscribe { reader, worker, flow, channel, from } => {
            match messages.place(from, readers.tail()) {
                Ok((position, at)) => readers.subscribe((reader, worker, flow), channel, position, at),
                Err(refused) => {
                    let error = refused.to_string();
                    readers.tell(worker, ReaderEvent::Refused { reader, error });
                }
            }
        }
        Request::Unsubscribe { reader, worker, channels } => readers.unsubscribe(reader, worker, channels),
        Request::Leave { reader } => readers.leave(reader),
    }
}
