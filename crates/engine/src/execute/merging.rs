//! Transaction merging: consecutive commands of one client, all on one key, run as one unit.
//!
//! A run of pipelined commands takes one lock of the slot, one log record and one gate, where each command
//! would otherwise take its own.
//! This is not a transaction that a client can see. Each command succeeds or fails alone, as if it were not
//! merged. Other clients see only states that can also occur if the commands run one by one without a pause.
//! The run is one record, so a power cut leaves all of it or none: a stronger guarantee than clients are
//! given.
//!
//! A run ends before a command that does more than read or change its only key, or that needs more room in
//! the log than its arguments say. It also ends before a command that is refused, timed or shown to monitors.
//! A run ends after a command that blocks, makes a key ready for a waiter, or postpones parts of its reply.

use std::collections::VecDeque;

use wire::ReplyWriter;

use super::{Call, Executor};
use crate::{
    Context, Flags, Host, Keys, ReplyMode, Row, Session, Unit,
    context::Surroundings,
    row::ResolvedCommand,
    unit::{LockPolicy, Locks},
};

/// A run ends when its replies or its record exceed this size: other clients need the slot, too.
const MERGED_BYTES_MAX: usize = 64 << 10;

/// The result of a run of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// How many commands have run, from the first on. With 0 nothing has happened: the first one is to be
    /// executed alone.
    pub count: usize,
    /// The gate of all their replies, as in [`Outcome::Done`](super::Outcome::Done).
    pub gate: lsn::Lsn,
}

impl Executor {
    /// Executes as many of these commands, from the first on, as can be one unit, and appends their replies
    /// to `out`. The commands must be consecutive commands of one client that [share their
    /// key](super::Resolved::shares_key).
    pub fn execute_merged<'b>(
        &mut self,
        calls: impl Iterator<Item = Call<'b>> + Clone,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Merged {
        let mergeable = self.count_mergeable(calls.clone(), session, host);
        let none = Merged { count: 0, gate: lsn::Lsn::ZERO };
        let Some(Call { args, resolved }) = calls.clone().next().filter(|_| mergeable > 1) else {
            return none;
        };
        let Some(hash) = resolved.hash else { return none };

        let (durability, clock, now_ms) = (self.durability(), self.next_clock(), self.clock.now_ms);
        let access = session.access(clock);
        // If a long unit holds the slot, the first command is executed alone, and waits or gets the error.
        let Ok(locks) = Locks::one(&self.keyspace, args.at(1), Some(hash), LockPolicy(host)) else {
            return none;
        };
        let (keyspace, bulk_bytes_max, rules) = (&*self.keyspace, self.bulk_bytes_max, &self.rules);
        let surroundings = Surroundings { keyspace, host, durability, bulk_bytes_max, rules };
        let (mut count, mut later) = (0, VecDeque::new());
        let position = {
            let session = &mut *session;
            let reply_bytes_max = out.len() + MERGED_BYTES_MAX;
            let reply = ReplyWriter::new(out, session.protocol);
            let unit = Unit::new(keyspace, locks, &mut self.scratch, access);
            let mut cx = Context {
                scripting: Some(&mut self.scripting),
                ..Context::new(unit, surroundings, session, reply)
            };
            for Call { args, resolved } in calls.take(mergeable) {
                let Some(ResolvedCommand { row, index, .. }) = resolved.found else { break };
                cx.unit.turn_to(args.at(1), hash);
                let noted = cx.unit.events().noted();
                let Ok(succeeded) = cx.handle(row, args) else {
                    cx.unit.events().forget_from(noted);
                    break;
                };
                cx.session.client.runs(index.into(), now_ms);
                cx.unit.stats().called(index.into(), !succeeded);
                count += 1;
                if cx.unit.has_ready()
                    || cx.unit.record_bytes() > MERGED_BYTES_MAX
                    || cx.reply.position() > reply_bytes_max
                    || cx.session.wait.is_some()
                    || !cx.deferred_reply.is_empty()
                {
                    break;
                }
            }
            let position = if cx.unit.has_ready() {
                surroundings.serve_and_commit(cx.unit, self.appender.as_mut(), None, &mut later)
            } else {
                cx.unit.commit(self.appender.as_mut(), None)
            };
            if !cx.deferred_reply.is_empty() {
                cx.deferred_reply.write(&mut cx.reply);
            }
            position
        };
        self.until_sample -= count as u32;
        let gate = self.end_unit(position, later, session, host, durability);
        Merged { count, gate: gate.max(self.user_gate(session)) }
    }

    /// How many of these commands, from the first on, are ordinary and may run now. The checks come before
    /// the slot is locked, because some of them lock slots themselves (eviction).
    fn count_mergeable<'b>(
        &mut self,
        calls: impl Iterator<Item = Call<'b>>,
        session: &mut Session,
        host: &Host,
    ) -> usize {
        let is_special = session.reply_mode != ReplyMode::On || session.tells_lsn;
        if session.transaction.is_some() || is_special || self.monitored {
            return 0;
        }
        // The sampled command runs alone.
        let calls = calls.take(self.until_sample.saturating_sub(1) as usize);
        let may_run = |call: &Call<'b>| {
            call.resolved.found.is_some_and(|found| {
                is_ordinary(found.row)
                    && !self.watch.includes(found.row)
                    && self.check(found, call.args, session, host) == Ok(true)
            })
        };
        calls.take_while(may_run).count()
    }
}

/// Whether a command reads or changes its only key and does nothing else.
#[inline]
fn is_ordinary(row: &Row) -> bool {
    matches!(row.keys, Keys::First)
        && (row.flags.has(Flags::WRITE) || row.flags.has(Flags::READONLY))
        && !row.flags.has(Flags::READS_ALL)
}
