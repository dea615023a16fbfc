//! The periodic work of a worker: expiry, eviction, deadlines, the limits of clients, tracked keys beyond the
//! limit, and unused memory.

use std::{cmp::Reverse, rc::Rc, time::Duration};

use engine::clients::ClientKind;
use keyspace::{SLOT_COUNT, SlotId};

use super::Worker;
use crate::connection::{Connection, UNSENT_BYTES_MAX};

/// Period of active expiry and of the other checks.
const PERIOD: Duration = Duration::from_millis(100);
/// The period of the checks that need not be made every [`PERIOD`], such as the one of unsent bytes.
const LIMITS_PERIOD_MS: u64 = 1000;
/// The minimum number of ended subscriptions for which memory is given back, because that takes milliseconds
/// per gigabyte.
const SUBSCRIPTIONS_ENDED_MIN: usize = 1 << 16;

impl Worker {
    /// Expires keys in this worker's share of the slots, and makes the periodic checks.
    pub(super) async fn upkeep_loop(self: Rc<Self>, index: usize, workers: usize) {
        let share = |worker: usize| SlotId::new((SLOT_COUNT * worker / workers) as u16);
        let from = share(index).unwrap_or(SlotId::FIRST);
        let to = SlotId::new((SLOT_COUNT * (index + 1) / workers - 1) as u16).unwrap_or(SlotId::LAST);
        let mut timer = tokio::time::interval(PERIOD);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            timer.tick().await;
            self.expire(from, to);
            if index == 0 {
                self.evict_excess().await;
                self.warn_of_slow_scripts();
                self.parts.data.interests.tracking().trim(&self.host.clients);
            }
            self.close_idle();
            self.enforce_limits();
            self.look_at_unread();
            self.end_overlong_waits();
            self.send_withheld();
            self.close_unanswerable();
            self.refuse_overdue();
        }
    }

    /// Ends the waits of blocked and held commands at their deadlines.
    pub(super) async fn timeout_loop(self: Rc<Self>) {
        loop {
            let client_id = self.timeouts.next().await;
            let connection = self.connections.borrow().get(&client_id).cloned();
            if let Some(connection) = connection {
                connection.time_out();
            }
        }
    }

    /// Closes connections that have sent no request for the time of the setting `timeout`. Exceptions are
    /// connections of subscribers, and of clients whose command blocks or runs on a thread of its own.
    fn close_idle(&self) {
        let timeout_seconds = self.parts.config.hot().idle_timeout_seconds();
        if timeout_seconds == 0 {
            return;
        }
        let now_ms = self.parts.clock.unix_ms();
        let silent = |connection: &Connection| {
            let client = connection.client();
            // A subscriber has nothing to send, so its silence does not count.
            let waits = client.is_blocked() || client.kind() == ClientKind::PubSub;
            client.idle_seconds(now_ms) >= timeout_seconds && !waits && !connection.is_away()
        };
        let idle: Vec<_> = self.connections.borrow().values().filter(|it| silent(it)).cloned().collect();
        idle.iter().for_each(|connection| connection.kill());
    }

    /// Runs once a second. Disconnects clients that receive too slowly or do not log in, gives back memory of
    /// ended subscriptions, and renews the figures of the inventory.
    fn enforce_limits(&self) {
        let now_ms = self.host.monotonic_us() / 1000;
        if now_ms < self.limits_due_ms.get() {
            return;
        }
        self.limits_due_ms.set(now_ms + LIMITS_PERIOD_MS);
        let users = self.parts.progress.loading().is_none().then(|| self.host.users.current());
        for connection in self.connections.borrow().values() {
            connection.enforce_limits(now_ms);
            if let Some(users) = &users {
                connection.require_login(users);
            }
        }
        self.give_back_subscriptions();
        self.parts.inventory.figures();
    }

    /// Makes the worker check the connection regularly, as long as its commands wait or its limit is raised.
    pub(crate) fn watch_unread(&self, connection: &Rc<Connection>) {
        self.unread.borrow_mut().push(connection.clone());
    }

    /// Checks the watched connections: those whose commands wait until the client has read its replies, or
    /// whose limit of unsent bytes is raised. If a client has read nothing for a moment while its commands
    /// wait, further commands are executed, if the limits permit. If it has read nothing for too long, it is
    /// disconnected, but only while its commands wait or the bytes are needed for others: see the module
    /// `connection::unread`.
    fn look_at_unread(&self) {
        let now_ms = self.host.monotonic_us() / 1000;
        self.unread.borrow_mut().retain(|connection| connection.look_at_unread(now_ms));
    }

    /// Gives memory back after at least [`SUBSCRIPTIONS_ENDED_MIN`] subscriptions, and half of all, have
    /// ended. Without this, the allocator would give memory back only after much more was freed.
    fn give_back_subscriptions(&self) {
        let now = self.executor.borrow_mut().channels().total();
        let most = self.subscriptions_most.get().max(now);
        let are_over = most - now >= SUBSCRIPTIONS_ENDED_MIN && now <= most / 2;
        self.subscriptions_most.set(if are_over { now } else { most });
        if are_over {
            env::allocator::release_unused();
        }
    }

    /// Disconnects the subscribers that are furthest behind, until the unsent bytes of all subscribers of
    /// this worker are at most [`UNSENT_BYTES_MAX`].
    pub(super) fn enforce_common_limit(&self) {
        let is_too_much = || {
            let block_bytes = self.executor.borrow_mut().channels().block_bytes();
            self.unsent_bytes.get() + block_bytes > UNSENT_BYTES_MAX
        };
        if !is_too_much() {
            return;
        }
        let connections = self.connections.borrow();
        let mut behind: Vec<_> = connections.values().filter(|connection| connection.is_behind()).collect();
        behind.sort_by_key(|connection| Reverse(connection.limited_bytes()));
        behind.iter().take_while(|_| is_too_much()).for_each(|connection| connection.cut_for_others());
    }
}
