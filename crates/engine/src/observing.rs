//! Observation of the commands by the executor: it times and traces commands, samples keys, shows requests to
//! monitors, and publishes invalidations. The instruments themselves are in [`observe`](crate::observe) and
//! [`tracking`](crate::tracking).

use lsn::Lsn;
use prng::Prng;
use wire::Args;

use crate::{
    Call, CommandError, Executor, Flags, Host, Keys, Outcome, Row, Session, Wait,
    clients::append_line,
    observe::{LatencyEvent, TracedCommand, WAITING_MAX, Watch, error_code},
    row::ResolvedCommand,
    shown_args::shown_args,
    stats::TIMED_EVERY,
};

/// Bytes of monitor lines that are gathered before they are sent.
const SHOWN_BYTES_MAX: usize = 64 << 10;

impl Executor {
    /// Ends a round: serves waiters that were left over, and publishes the gathered monitor lines and
    /// invalidations.
    #[inline]
    pub fn end_round(&mut self, host: &Host) {
        if !self.later.is_empty() {
            self.serve_waiting(host);
        }
        if !self.shown.is_empty() {
            host.clients.monitors().publish(&self.shown);
            self.shown = Vec::new();
        }
        if !self.scratch.invalidations.is_empty() {
            let invalidations = std::mem::take(&mut self.scratch.invalidations);
            invalidations.publish(self.interests().tracking(), &host.clients);
        }
    }

    /// Shows a command that has run to the monitors. Commands of administrators are not shown, as in Redis.
    #[cold]
    pub fn show(&mut self, row: &'static Row, args: Args<'_>, session: &Session, host: &Host) {
        if !row.flags.has(Flags::ADMIN) {
            let args = shown_args(row, args);
            append_line(&mut self.shown, self.clock.now_ms, session.db.get(), session.client.peer(), args);
            if self.shown.len() > SHOWN_BYTES_MAX {
                self.end_round(host);
            }
        }
    }

    /// Runs a command and records its duration.
    #[inline(never)]
    pub(crate) fn run_timed(
        &mut self,
        found: ResolvedCommand,
        call: Call<'_>,
        session: &mut Session,
        host: &Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let ResolvedCommand { row, index, .. } = found;
        if self.until_sample == 0 {
            // Samples are taken at random distances, so that no pattern in the commands of clients can evade
            // sampling.
            let random = self.next_clock().random;
            self.until_sample = 1 + (random >> 8) % (2 * TIMED_EVERY as u32 - 1);
            if random >> 31 == 0 {
                self.sample_key(row, call.args, session);
            }
        }
        let stands_for = if self.watch.includes(row) { 1 } else { TIMED_EVERY };
        let (started_us, before) = (host.monotonic_us(), out.len());
        let outcome = self.run(found, call, session, host, out);
        let Outcome::Done { gate } = outcome else { return outcome };
        let ended_us = host.monotonic_us();
        let usec = ended_us.saturating_sub(started_us);
        if host.observer.traces.chooses(stands_for, || self.next_clock().random) {
            let command = TracedCommand {
                row,
                args: call.args.len(),
                db: session.db,
                began_us: started_us,
                ran_us: ended_us,
                gate,
                error: error_code(&out[before..]),
                is_blocked: session.wait.is_some(),
            };
            self.trace(command, host);
        }
        self.stats().timed(index as usize, usec, stands_for);
        // The round may have begun long ago: an entry is dated by the end of the command, as in Redis.
        let (observer, ended_ms) = (&host.observer, || host.clock.unix_ms());
        match &session.wait {
            Some(Wait::Key(wait)) => wait.began_after(usec),
            // The commands of a transaction were measured one by one.
            _ if matches!(row.keys, Keys::Queued) && self.watch == Watch::All => {}
            _ => observer.slow_log.ran(usec, row, call.args, &session.client, ended_ms),
        }
        if observer.latency.is_on() {
            let event =
                if row.flags.has(Flags::FAST) { LatencyEvent::FastCommand } else { LatencyEvent::Command };
            observer.latency.took(event, usec, ended_ms());
        }
        outcome
    }

    /// Passes a traced command on when its reply may leave.
    #[cold]
    fn trace(&mut self, command: TracedCommand, host: &Host) {
        let Some(sink) = host.observer.traces.sink() else { return };
        if command.gate <= self.committed_lsn() {
            sink.ran(&command, command.ran_us);
        } else if self.traced.len() < WAITING_MAX {
            self.traced.push(command);
        } else {
            sink.overflowed();
        }
    }

    /// Passes on the traced commands whose replies may leave by now. Cheap if there are none.
    #[inline]
    pub fn end_traced(&mut self, host: &Host) {
        if !self.traced.is_empty() {
            self.end_traced_up_to(self.committed_lsn(), None, host);
        }
    }

    /// Passes on the traced commands that wait for positions up to `up_to`: their replies have become this
    /// error.
    pub fn fail_traced(&mut self, up_to: Lsn, error: &CommandError, host: &Host) {
        if !self.traced.is_empty() {
            let mut reply = b"-".to_vec();
            error.render(&mut reply);
            self.end_traced_up_to(up_to, error_code(&reply), host);
        }
    }

    fn end_traced_up_to(&mut self, up_to: Lsn, error: Option<String>, host: &Host) {
        let Some(sink) = host.observer.traces.sink() else { return };
        let released_us = host.monotonic_us();
        for mut command in self.traced.extract_if(.., |command| command.gate <= up_to) {
            command.error = error.clone().or(command.error);
            sink.ran(&command, released_us);
        }
    }

    /// Takes the traced commands that wait for the log, for another executor.
    pub fn take_traced(&mut self) -> Vec<TracedCommand> {
        std::mem::take(&mut self.traced)
    }

    /// Passes on the traced commands that another executor has run.
    pub fn adopt_traced(&mut self, traced: Vec<TracedCommand>, host: &Host) {
        traced.into_iter().for_each(|command| self.trace(command, host));
    }

    /// Counts, for HOTKEYS, one of the keys of a command, or of the queued commands if the command is EXEC.
    /// Each key is chosen with the same probability.
    fn sample_key(&mut self, row: &'static Row, args: Args<'_>, session: &Session) {
        let (mut chosen, mut uses) = (None, 0);
        let mut random = Prng::new(self.next_clock().random.into());
        let queued = session.transaction.iter().filter(|_| matches!(row.keys, Keys::Queued));
        let queued = queued.flat_map(|transaction| transaction.commands());
        let inner = queued.map(|queued| (queued.found.row, queued.args.as_args()));
        for (row, args) in std::iter::once((row, args)).chain(inner) {
            row.keys.for_each(args, |index| {
                uses += 1;
                if random.index(uses) == 0 {
                    chosen = args.get(index);
                }
            });
        }
        if let Some(key) = chosen {
            let (hash, now_ms) = (self.keyspace.hash(key), self.clock.now_ms);
            self.stats().key_sampled(session.db, hash, key, uses as u64, now_ms);
        }
    }
}
