//! Serving the clients that wait for keys which a unit has filled.
//!
//! ```text
//! unit: applied -> for each key made ready, for each of its waiters, in order: serve -> commit -> answer
//!                                                     | needs a slot that is not locked,
//!                                                     | or users have changed
//!                                                     '-> later: a unit of its own
//! ```
//!
//! If a waiter is served in the unit that filled the key, the effects of both are in one record: no other
//! client and no crash comes in between. A BLMOVE into a slot that is not locked is served in a later unit,
//! if no other client has taken the element meanwhile. Until then the waiters behind the BLMOVE at the same
//! key wait, and so do the waiters of keys that were made ready later. The reason: a client that waits for
//! several of these keys must be served from the key that was made ready first.
//!
//! After a change of users, perhaps by this unit, nobody is served before the new users are in force: a
//! waiter is judged by the rights that it has when it is served.
//!
//! The loops end: each iteration serves a waiter, which is then no longer waiting, or goes on to the next
//! waiter. Serving BLMOVE makes a key ready, whose waiters are served in the same way.
//!
//! On a replica the records of the leader fill keys, which serves the waiters that only read
//! ([`Executor::serve_applied`]).

use std::{collections::VecDeque, sync::Arc};

use keyspace::{DbId, EvictionPolicy, SlotId, slot_of};
use lsn::Lsn;
use storage::Appender;
use wire::ReplyWriter;

use crate::{
    CommandError, Context, Executor, Flags, Host, Session, Unit,
    clients::{Waiter, Wants},
    context::{EVERYTHING_ADMITTED, Surroundings},
    execute::{gate, notice_gates},
    judgement::refuse_waiter,
    observe::Watch,
    replication::WriteRefusal,
    rules::Rules,
    tracking::BY_SERVER,
    unit::{LockPolicy, Locks, Slots, UnitAccess},
};

/// The size of a unit's record, in bytes, above which the unit serves no further waiters. The other waiters
/// are served later, so that records do not grow without bound.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// Keys whose waiters are still to be served. One executor hands these keys to another.
#[derive(Default)]
pub struct PendingServes(pub(crate) VecDeque<PendingServe>);

impl PendingServes {
    /// Whether no keys are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A key whose waiters are to be served in a unit of their own.
pub struct PendingServe {
    db: DbId,
    key: Box<[u8]>,
    /// The slot that the first waiter needs besides the slot of the key; `None` if the waiter needs no other
    /// slot, or if its needs are not known yet.
    needs: Option<SlotId>,
    /// Whether room must be made in memory before the waiter is served.
    needs_room: bool,
}

impl PendingServe {
    pub(crate) fn is_same_key(&self, other: &PendingServe) -> bool {
        (self.db, &self.key) == (other.db, &other.key)
    }

    /// The slots to lock for the unit: the slot of the key, and any slot that the waiter needs besides.
    pub fn slots(&self) -> Slots {
        std::iter::once(slot_of(&self.key)).chain(self.needs).collect()
    }

    /// Marks the key as ready in the unit, which must have locked the slots.
    pub fn resume(self, unit: &mut Unit<'_>) {
        unit.note_ready(self.db, &self.key);
    }
}

/// Whether a waiter can be served from the key.
fn is_ready(waiter: &Waiter, unit: &Unit<'_>, db: DbId, key: &[u8]) -> bool {
    match waiter.awaited.wants {
        Wants::Type(wanted) => unit.peek(db, key).is_some_and(|entry| entry.value_type() == wanted),
        Wants::Condition(is_met) => is_met(unit, db, key, waiter.args.as_args()),
    }
}

/// The waiters that were served or refused, with their replies.
type Replies = Vec<(Arc<Waiter>, Vec<u8>)>;

impl<'k> Surroundings<'_, 'k> {
    /// Serves the waiters of the keys that the unit has made ready, commits the unit as [`Unit::commit`]
    /// does, and answers the waiters. Keys that cannot be served in this unit are added to `later`. If users
    /// have changed, all ready keys are added. Otherwise, once `later` is not empty, all ready keys after the
    /// first are added, because the keys in `later` are served first.
    #[cold]
    pub fn serve_and_commit(
        &self,
        mut unit: Unit<'k>,
        appender: Option<&mut Appender>,
        flushing: Option<&Host>,
        later: &mut VecDeque<PendingServe>,
    ) -> (Lsn, bool) {
        let mut replies = Replies::new();
        let mut is_first = true;
        // There is no appender where records of the leader are applied. There, the users of a record are in
        // force before the waiters of the record's keys are served.
        let users_changed = appender.is_some() && !self.knows_users(&mut unit);
        while let Some((db, key)) = unit.take_ready() {
            if !users_changed && (is_first || later.is_empty()) {
                unit = self.serve_key(unit, db, key, appender.as_deref(), &mut replies, later);
            } else {
                later.push_back(PendingServe { db, key, needs: None, needs_room: false });
            }
            is_first = false;
        }
        let (seen, wrote) = unit.commit(appender, flushing);
        for (waiter, reply) in replies {
            if wrote && seen != Lsn::MAX {
                waiter.client.note_served(seen);
            }
            let durability = waiter.durability.map_or(self.durability, |wish| wish.min(self.durability));
            waiter.client.answer(reply.into(), gate(durability, wrote, seen));
        }
        (seen, wrote)
    }

    /// Whether the users in force are the ones that the data, with the changes of this unit, define.
    fn knows_users(&self, unit: &mut Unit<'_>) -> bool {
        // Mostly both sides are the same `Arc`, and then no setting is compared.
        let changes_none = unit.data_settings() == self.keyspace.data_settings();
        changes_none && self.host.users.is_current(&self.host.users.current(), self.keyspace)
    }

    /// Serves the waiters of a key, whose slot is locked, in order, and skips those for which the key is not
    /// ready. Ends at the first waiter that needs a unit of its own: the key is then put in front of `later`.
    fn serve_key(
        &self,
        mut unit: Unit<'k>,
        db: DbId,
        key: Box<[u8]>,
        appender: Option<&Appender>,
        replies: &mut Replies,
        later: &mut VecDeque<PendingServe>,
    ) -> Unit<'k> {
        let interests = unit.interests();
        let mut next_ticket = 0;
        while let Some(waiter) = interests.next_waiter(db, &key, next_ticket) {
            next_ticket = waiter.ticket + 1;
            // An absent key serves no waiter for a type, however many there are.
            if !unit.exists(db, &key) && !interests.awaits_condition(db, &key, waiter.ticket) {
                break;
            }
            // An ended waiter stays registered until its worker removes it; skipping it here avoids a unit
            // without a client to serve.
            if waiter.has_ended() || !is_ready(waiter.as_ref(), &unit, db, &key) {
                continue;
            }
            let needs = waiter.awaited.needs;
            let admitted = match refuse_waiter(&waiter, self.host, unit.now_ms()) {
                Some(denied) => Err(denied),
                None => self.rules.admit_waiter(waiter.row, appender, self.keyspace),
            };
            let (needs_room, refusal) = match admitted {
                Ok(is_admitted) => (!is_admitted, None),
                Err(error) => (false, Some(error)),
            };
            let needs_lock = needs.is_some_and(|slot| !unit.has_locked(slot));
            if refusal.is_none() && (needs_room || needs_lock || unit.record_bytes() > RECORD_BYTES_MAX) {
                later.push_front(PendingServe { db, key, needs, needs_room });
                break;
            }
            if waiter.end() {
                interests.leave(&waiter);
                let reply;
                (unit, reply) = match refusal {
                    Some(error) => {
                        waiter.count_error(&error, unit.stats());
                        waiter.note_end(0, self.host);
                        (unit, waiter.error(&error))
                    }
                    None => self.serve(unit, &waiter, &key),
                };
                replies.push((waiter, reply));
            }
        }
        unit
    }

    /// Serves one waiter: runs its [`Serve`](crate::callbacks::Serve) and returns the encoded reply.
    fn serve(&self, unit: Unit<'k>, waiter: &Waiter, key: &[u8]) -> (Unit<'k>, Vec<u8>) {
        let mut session = Session::new(waiter.client.clone(), true);
        (session.db, session.protocol) = (waiter.db, waiter.protocol);
        let mut bytes = Vec::new();
        let reply = ReplyWriter::new(&mut bytes, waiter.protocol);
        // The pop of a waiter is short: it can only reach a threshold that is so low that every command is
        // timed.
        let is_timed = self.host.observer.watch() == Watch::All;
        let started_us = is_timed.then(|| self.host.monotonic_us());
        let mut cx = Context {
            row: Some(waiter.row),
            in_transaction: true,
            // Other changes of the unit may be in memory already. As in a transaction, no change can wait
            // for room in the log any more.
            admitted_bytes: EVERYTHING_ADMITTED,
            ..Context::new(unit, *self, &mut session, reply)
        };
        let served = cx.attempt(|cx| (waiter.awaited.serve)(cx, key, waiter.args.as_args()));
        let succeeded = served.expect("everything is admitted");
        let unit = cx.unit;
        if !succeeded {
            waiter.count_failure(unit.stats());
        } else if waiter.row.flags.has(Flags::WRITE) {
            unit.stats().served();
        }
        let ran_us = started_us.map_or(0, |started_us| self.host.monotonic_us().saturating_sub(started_us));
        waiter.note_end(ran_us, self.host);
        if waiter.is_silent {
            bytes.clear();
        }
        (unit, bytes)
    }
}

impl Executor {
    /// Serves the waiters that could not be served in the unit that made their key ready, after the keys that
    /// are already queued.
    #[cold]
    pub(crate) fn serve_later(&mut self, later: VecDeque<PendingServe>, host: &Host) {
        self.add_pending_serves(later);
        self.serve_waiting(host);
    }

    pub(crate) fn add_pending_serves(&mut self, later: VecDeque<PendingServe>) {
        for next in later {
            if self.later.is_empty() || self.later.iter().all(|other| !other.is_same_key(&next)) {
                self.later.push_back(next);
            }
        }
    }

    /// Serves the queued keys, in order. Stops at a key that cannot be served at the moment: a long unit
    /// holds a slot that is needed, or the server is read-only.
    #[cold]
    pub(crate) fn serve_waiting(&mut self, host: &Host) {
        let durability = self.durability();
        let mut later = std::mem::take(&mut self.later);
        while let Some(next) = later.pop_front() {
            if self.rules.read_only {
                // No waiter is served here while the server is read-only: its leader, or its next
                // incarnation, decides about the data.
                later.push_front(next);
                break;
            }
            self.follow_users(host);
            let mut rules = self.rules;
            if next.needs_room {
                if let Err(CommandError::SlotTaken { .. }) = self.make_room(host) {
                    later.push_front(next);
                    break;
                }
                // Room was made as far as possible: a waiter that adds data and still finds none is refused.
                rules.limits.policy = EvictionPolicy::NoEviction;
            }
            let clock = self.next_clock();
            let Ok(locks) = Locks::slots(&self.keyspace, next.slots(), LockPolicy(host)) else {
                later.push_front(next);
                break;
            };
            let mut unit = Unit::new(&self.keyspace, locks, &mut self.scratch, UnitAccess::own(clock));
            next.resume(&mut unit);
            let (keyspace, bulk_bytes_max) = (&*self.keyspace, self.bulk_bytes_max);
            let surroundings = Surroundings { keyspace, host, durability, bulk_bytes_max, rules: &rules };
            let (seen, wrote) = surroundings.serve_and_commit(unit, self.appender.as_mut(), None, &mut later);
            self.wrote |= wrote;
            self.scratch.seal(BY_SERVER, notice_gates(durability, seen));
        }
        later.append(&mut self.later);
        self.later = later;
    }

    /// Serves the waiters that only read from a key that an applied record of the leader has filled, on the
    /// thread that applies the log. Other waiters get the error that a write gets on this server.
    pub(crate) fn serve_applied(&mut self, db: DbId, key: &[u8], host: &Host) {
        let (clock, durability, mut later) = (self.next_clock(), self.durability(), VecDeque::new());
        let rules = Rules { refusal: self.rules.refusal.or(Some(WriteRefusal::Replica)), ..self.rules };
        let locks = Locks::awaited(&self.keyspace, slot_of(key));
        let mut unit = Unit::new(&self.keyspace, locks, &mut self.scratch, UnitAccess::own(clock));
        unit.note_ready(db, key);
        let (keyspace, bulk_bytes_max) = (&*self.keyspace, self.bulk_bytes_max);
        let surroundings = Surroundings { keyspace, host, durability, bulk_bytes_max, rules: &rules };
        let (seen, wrote) = surroundings.serve_and_commit(unit, None, None, &mut later);
        debug_assert!(!wrote && later.is_empty(), "a read takes nothing, and needs one slot");
        self.scratch.seal(BY_SERVER, notice_gates(durability, seen));
    }
}
