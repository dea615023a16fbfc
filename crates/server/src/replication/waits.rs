//! Clients that wait for a position: on the disks of replicas (WAIT, WAITAOF), or in the memory of this server (WAITLSN).
//!
//! What it is: the promises, until they can be kept or their time is over. One per client at most, so `maxclients` bounds them.
//! What it is not: who knows how far anybody is; it asks.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use engine::{Responder, replication::Wanted};
use lsn::Lsn;
use parking_lot::Mutex;

/// What a client waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Awaited {
    Flushed(Wanted),
    Shown(Lsn),
}

/// What there is of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) replicas: usize,
    pub(super) is_local: bool,
    pub(super) is_enough: bool,
}

struct Waiting {
    number: u64,
    awaited: Awaited,
    responder: Responder,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Waits {
    /// How many there are, so that those who move positions need not lock anything while nobody waits.
    count: AtomicUsize,
    waiting: Mutex<(u64, Vec<Waiting>)>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Adds one; its number is for [`Waits::expire`]. [`Waits::settle`] it afterwards: it may have come true meanwhile.
    pub(super) fn add(&self, awaited: Awaited, responder: Responder) -> u64 {
        let (next, waiting) = &mut *self.waiting.lock();
        *next += 1;
        waiting.push(Waiting { number: *next, awaited, responder });
        self.count.store(waiting.len(), SeqCst);
        *next
    }

    /// Answers those for whom there is enough, and forgets those who have gone.
    pub(super) fn settle(&self, look: impl Fn(&Awaited) -> Found) {
        self.take(|waiting| {
            let found = look(&waiting.awaited);
            (found.is_enough || waiting.responder.is_void()).then_some(found)
        });
    }

    /// The time of this one is over, if it is still there: it is answered with what there is.
    pub(super) fn expire(&self, number: u64, look: impl Fn(&Awaited) -> Found) {
        self.take(|waiting| (waiting.number == number).then(|| look(&waiting.awaited)));
    }

    fn take(&self, mut answer: impl FnMut(&Waiting) -> Option<Found>) {
        let mut taken = Vec::new();
        {
            let (_, waiting) = &mut *self.waiting.lock();
            let mut index = 0;
            while let Some(one) = waiting.get(index) {
                match answer(one) {
                    Some(found) => taken.push((waiting.swap_remove(index), found)),
                    None => index += 1,
                }
            }
            self.count.store(waiting.len(), SeqCst);
        }
        for (Waiting { awaited, responder, .. }, found) in taken {
            responder.answer(|reply| match awaited {
                Awaited::Shown(_) => reply.integer(found.is_enough.into()),
                Awaited::Flushed(Wanted { local: false, .. }) => reply.integer(found.replicas as i64),
                Awaited::Flushed(_) => {
                    reply.array(2);
                    reply.integer(found.is_local.into());
                    reply.integer(found.replicas as i64);
                }
            });
        }
    }
}
