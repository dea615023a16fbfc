//! Clients that wait for a position: on the disks of replicas (WAIT, WAITAOF), or in the memory of this
//! server (WAITLSN).
//!
//! [`Waits`] holds the deferred replies until they can be answered or time out. A client has at most one
//! wait, so `maxclients` bounds their number; the timer of a wait ends with the wait. [`Waits`] does not know
//! positions: the caller passes a function that looks them up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use engine::{CommandError, Responder, replication::Wanted};
use lsn::Lsn;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::Node;

/// The condition of a wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum Awaited {
    Flushed(Wanted),
    Shown(Lsn),
}

/// How far the condition is met: the number of replicas that meet it, whether this server does, and whether
/// the whole condition is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitState {
    pub(super) replicas: usize,
    pub(super) is_local: bool,
    pub(super) is_enough: bool,
}

struct Waiting {
    number: u64,
    awaited: Awaited,
    responder: Option<Responder>,
    timer: Option<AbortHandle>,
}

impl Waiting {
    fn is_of(&self, client: u64) -> bool {
        self.responder.as_ref().is_some_and(|responder| responder.client_id() == client)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

/// The waiting clients.
#[derive(Default)]
pub(super) struct Waits {
    /// The number of waits, so that threads that advance positions take no lock while there are none.
    count: AtomicUsize,
    waiting: Mutex<(u64, Vec<Waiting>)>,
}

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Adds a wait, and returns its number for [`Waits::expire`]. The caller must call [`Waits::settle`]
    /// afterwards, because the condition may be met already.
    pub(super) fn add(&self, awaited: Awaited, responder: Responder) -> u64 {
        let (next, waiting) = &mut *self.waiting.lock();
        *next += 1;
        responder.block();
        waiting.push(Waiting { number: *next, awaited, responder: Some(responder), timer: None });
        self.count.store(waiting.len(), SeqCst);
        *next
    }

    /// Sets the timer that ends a wait. If the wait has ended already, the timer is stopped.
    fn set_timer(&self, number: u64, timer: AbortHandle) {
        let (_, waiting) = &mut *self.waiting.lock();
        match waiting.iter_mut().find(|one| one.number == number) {
            Some(one) => one.timer = Some(timer),
            None => timer.abort(),
        }
    }

    /// Answers the waits whose condition is met, and drops the waits of disconnected clients.
    pub(super) fn settle(&self, look: impl Fn(&Awaited) -> WaitState) {
        self.take(|waiting| {
            let found = look(&waiting.awaited);
            let is_gone = waiting.responder.as_ref().is_none_or(Responder::is_void);
            (found.is_enough || is_gone).then_some(found)
        });
    }

    /// Ends a wait at its timeout, if it still waits: answers the client with the current state.
    pub(super) fn expire(&self, number: u64, look: impl Fn(&Awaited) -> WaitState) {
        self.take(|waiting| (waiting.number == number).then(|| look(&waiting.awaited)));
    }

    /// Ends the wait of a client with the current state. Returns whether the client had a wait.
    fn expire_of(&self, client: u64, look: impl Fn(&Awaited) -> WaitState) -> bool {
        self.take(|waiting| waiting.is_of(client).then(|| look(&waiting.awaited)))
    }

    /// Fails the waits for replicas, because this server does not lead any more.
    pub(super) fn fail_flushed(&self) {
        let are_over = |one: &Waiting| matches!(one.awaited, Awaited::Flushed(_));
        self.fail(are_over, &CommandError::Unblocked);
    }

    /// Fails the waits for which `are_over` is true. Returns whether there were any.
    fn fail(&self, are_over: impl Fn(&Waiting) -> bool, error: &CommandError) -> bool {
        let failed: Vec<Waiting> = {
            let (_, waiting) = &mut *self.waiting.lock();
            let failed = waiting.extract_if(.., |one| are_over(one)).collect();
            self.count.store(waiting.len(), SeqCst);
            failed
        };
        let any = !failed.is_empty();
        for responder in failed.into_iter().filter_map(|mut waiting| waiting.responder.take()) {
            responder.keep(Err(error.to_string()));
        }
        any
    }

    /// Answers the waits for which `answer` returns a state. Returns whether there were any.
    fn take(&self, mut answer: impl FnMut(&Waiting) -> Option<WaitState>) -> bool {
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
        let any = !taken.is_empty();
        for (mut waiting, found) in taken {
            let Some(responder) = waiting.responder.take() else { continue };
            responder.answer(|reply| match waiting.awaited {
                Awaited::Shown(_) => reply.integer(found.is_enough.into()),
                Awaited::Flushed(Wanted { tells_local: false, .. }) => reply.integer(found.replicas as i64),
                Awaited::Flushed(_) => {
                    reply.array(2);
                    reply.integer(found.is_local.into());
                    reply.integer(found.replicas as i64);
                }
            });
        }
        any
    }
}

impl Node {
    /// Answers the clients whose position has been reached.
    pub(crate) fn settle_waits(&self) {
        if !self.waits.is_empty() {
            self.waits.settle(|awaited| self.look(awaited));
        }
    }

    /// Ends the wait of a client, if it has one, with the current state or with an error. Returns whether the
    /// client had a wait.
    pub(super) fn unblock(&self, client: u64, with_error: bool) -> bool {
        match with_error {
            true => self.waits.fail(|waiting| waiting.is_of(client), &CommandError::UnblockedByClient),
            false => self.waits.expire_of(client, |awaited| self.look(awaited)),
        }
    }

    pub(super) fn look(&self, awaited: &Awaited) -> WaitState {
        match *awaited {
            Awaited::Shown(lsn) => {
                WaitState { replicas: 0, is_local: true, is_enough: lsn <= self.shown_lsn() }
            }
            Awaited::Flushed(Wanted { lsn, replicas: wanted, local, .. }) => {
                let (replicas, is_local) = (self.count_flushed(lsn), lsn <= self.durable_lsn());
                WaitState { replicas, is_local, is_enough: replicas >= wanted && (is_local || !local) }
            }
        }
    }

    pub(super) fn wait(self: &Arc<Self>, awaited: Awaited, timeout_ms: Option<u64>, responder: Responder) {
        let number = self.waits.add(awaited, responder);
        self.settle_waits();
        // This server may have been demoted after the command was checked. If so, either the demotion has
        // failed this wait, or this check finds the demotion.
        if !self.role().leads() {
            self.waits.fail_flushed();
        }
        let (Some(timeout_ms), Some(runtime)) = (timeout_ms, self.runtime.get()) else { return };
        let node = self.clone();
        let timer = runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(timeout_ms)).await;
            node.waits.expire(number, |awaited| node.look(awaited));
        });
        self.waits.set_timer(number, timer.abort_handle());
    }
}
