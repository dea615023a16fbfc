//! The thread of durable channels: reads the log for all who have XSUBSCRIBEd, and hands workers what their clients get.
//!
//! ```text
//! workers -- requests --> thread: place in the log -> Followers::step over LogMessages -> Message::Feed --> workers
//!    '-------- Flow: what was taken (wakes it) ----------^------ log has moved (wakes it)
//! ```
//!
//! What it is: the thread, its inbox, and how long the log is kept for it (`retention`). What it is not: who gets what when, which
//! is [`pubsub::durable`]'s, nor the reading, which is [`engine::log_messages`]'.
//!
//! Invariants
//! - Everything a follower gets comes from this thread, so it is in order and without gaps.
//! - It sleeps only if the log, a flow or a request will wake it.
//! - While nobody follows it neither reads nor wakes with the log.

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
use parking_lot::Mutex;
use pubsub::durable::{Flow, FollowerEvent, Followers, Request};
use storage::{Appender, Log};

pub(crate) use self::retention::Retention;
use crate::mailbox::{Mailbox, Message};

/// Bytes handed out to a client and not taken above which it is left behind: enough for its socket to be busy, and far below what
/// a client may leave unsent.
const WINDOW_BYTES: u64 = 4 << 20;

/// What INFO and metrics show.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Clients that follow.
    pub(crate) followers: AtomicU64,
    /// Those of them that have not caught up.
    pub(crate) behind: AtomicU64,
    /// Messages handed out, counted for each client.
    pub(crate) messages: AtomicU64,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct DurableChannels {
    pub(crate) figures: Figures,
    pub(crate) retention: Retention,
    inbox: Arc<Inbox>,
}

/// How others reach the thread.
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
    /// Starts the thread, once there is a log.
    pub(crate) fn start(self: &Arc<Self>, log: &Log, mailboxes: Vec<Mailbox>) -> io::Result<JoinHandle<()>> {
        let (channels, log) = (self.clone(), log.clone());
        thread::Builder::new().name("channels".into()).spawn(move || channels.run(&log, &mailboxes))
    }

    /// Has the thread end.
    pub(crate) fn stop(&self) {
        self.inbox.stopping.store(true, Relaxed);
        self.inbox.wake();
    }

    fn run(&self, log: &Log, mailboxes: &[Mailbox]) {
        let appender = log.appender();
        let woken = thread::current();
        let _ = self.inbox.thread.set(woken.clone());
        appender.listen(move || woken.unpark());
        let (mut followers, mut messages) =
            (Followers::new(mailboxes.len(), WINDOW_BYTES), LogMessages::new(log));
        while !self.inbox.stopping.load(Relaxed) {
            for request in mem::take(&mut *self.inbox.requests.lock()) {
                answer(request, &mut followers, &messages);
            }
            let may_go_on = !followers.is_empty() && followers.step(&mut messages);
            followers.take_feeds(|worker, feed| mailboxes[worker].send(Message::Feed(feed)));
            self.figures.followers.store(followers.len() as u64, Relaxed);
            self.figures.behind.store(followers.behind() as u64, Relaxed);
            self.figures.messages.store(followers.messages(), Relaxed);
            if !may_go_on && !self.has_more(&followers, &mut messages, &appender) {
                thread::park();
            }
        }
    }

    /// Nothing is to be done now; asks to be woken when something is. Whether something is by now.
    fn has_more(&self, followers: &Followers, messages: &mut LogMessages, appender: &Appender) -> bool {
        if followers.is_empty() {
            messages.rest();
        } else if let Some(tail) = followers.tail() {
            appender.wait_for_movement();
            if appender.log().showable_lsn() > tail {
                return true;
            }
        }
        // What came after the last look has left a token: parking returns at once.
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

/// Does what is asked.
fn answer(request: Request, followers: &mut Followers, messages: &LogMessages) {
    match request {
        Request::Subscribe { follower, worker, flow, channel, from } => {
            match messages.place(from, followers.tail()) {
                Ok((position, at)) => followers.subscribe((follower, worker, flow), channel, position, at),
                Err(refused) => {
                    let error = refused.to_string();
                    followers.tell(worker, FollowerEvent::Refused { follower, error });
                }
            }
        }
        Request::Unsubscribe { follower, worker, channels } => {
            followers.unsubscribe(follower, worker, channels)
        }
        Request::Leave { follower } => followers.leave(follower),
    }
}
