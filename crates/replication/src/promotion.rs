//! The promotion of a replica, or of a fenced leader: the order of its steps.
//!
//! ```text
//! end the link -> make the log durable -> apply all of it -> begin an epoch -> persist
//!     -> (fenced: outbid) -> lead
//! ```
//!
//! The server and the simulation share this order; they implement the steps, with their threads and files.
//!
//! Invariants
//! - Nothing more is received, and everything received is applied, before the epoch begins.
//! - The epoch, and the end of following, are on disk before a client may write.
//! - A fenced leader leads only after a restart, in an epoch above the one that fenced it: its memory may
//!   hold lost records.

use lsn::Lsn;

/// When a promotion takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Led {
    /// The server may be opened for writes.
    Now,
    /// The server was fenced: it leads after a restart.
    AfterRestart,
}

/// The steps of a promotion, in the order in which [`promote`] takes them.
pub trait Promotion {
    /// Why a step has failed: the server does not lead.
    type Error;

    /// Ends the link to the leader. Returns the end of the received log; `None` if there was no link, as with
    /// a fenced leader.
    ///
    /// # Errors
    /// If the link cannot be ended, or this server must not lead now.
    fn end_link(&mut self) -> Result<Option<Lsn>, Self::Error>;

    /// Makes the log durable up to `end`.
    ///
    /// # Errors
    /// If the log cannot be made durable.
    fn make_durable(&mut self, end: Lsn) -> Result<(), Self::Error>;

    /// Applies the log up to `end`, committed or not.
    ///
    /// # Errors
    /// If a part of the log cannot be applied.
    fn apply_all(&mut self, end: Lsn) -> Result<(), Self::Error>;

    /// Begins an epoch above every epoch seen, durably.
    ///
    /// # Errors
    /// If no such epoch can begin.
    fn begin_epoch(&mut self) -> Result<(), Self::Error>;

    /// Stops following, durably. Returns the epoch that has fenced this server, or 0.
    ///
    /// # Errors
    /// If this cannot be persisted.
    fn stop_following(&mut self) -> Result<u32, Self::Error>;

    /// Makes the next start lead in an epoch above `epoch`, durably.
    ///
    /// # Errors
    /// If this cannot be persisted.
    fn outbid(&mut self, epoch: u32) -> Result<(), Self::Error>;
}

/// Makes a server the leader, by the steps of [`Promotion`] in order.
///
/// # Errors
/// The error of the first failed step. The server does not lead then.
pub fn promote<P: Promotion>(server: &mut P) -> Result<Led, P::Error> {
    if let Some(end) = server.end_link()? {
        server.make_durable(end)?;
        server.apply_all(end)?;
        server.begin_epoch()?;
    }
    match server.stop_following()? {
        0 => Ok(Led::Now),
        fenced_by => {
            server.outbid(fenced_by)?;
            Ok(Led::AfterRestart)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that records its steps; the step of this name fails.
    struct Recorder {
        received: Option<Lsn>,
        fenced_by: u32,
        fails: &'static str,
        steps: Vec<String>,
    }

    impl Recorder {
        fn new(received: Option<Lsn>, fenced_by: u32) -> Recorder {
            Recorder { received, fenced_by, fails: "", steps: Vec::new() }
        }

        fn step(&mut self, name: &str, argument: u64) -> Result<(), String> {
            self.steps.push(format!("{name} {argument}"));
            if name == self.fails { Err(name.into()) } else { Ok(()) }
        }
    }

    impl Promotion for Recorder {
        type Error = String;

        fn end_link(&mut self) -> Result<Option<Lsn>, String> {
            self.step("end", 0).map(|()| self.received)
        }

        fn make_durable(&mut self, end: Lsn) -> Result<(), String> {
            self.step("sync", end.get())
        }

        fn apply_all(&mut self, end: Lsn) -> Result<(), String> {
            self.step("apply", end.get())
        }

        fn begin_epoch(&mut self) -> Result<(), String> {
            self.step("begin", 0)
        }

        fn stop_following(&mut self) -> Result<u32, String> {
            self.step("stop", 0).map(|()| self.fenced_by)
        }

        fn outbid(&mut self, epoch: u32) -> Result<(), String> {
            self.step("outbid", epoch.into())
        }
    }

    #[test]
    fn a_replica_leads_when_it_has_synced_and_applied_everything_in_a_new_epoch() {
        let mut replica = Recorder::new(Some(Lsn::new(9)), 0);
        assert_eq!(promote(&mut replica), Ok(Led::Now));
        assert_eq!(replica.steps, ["end 0", "sync 9", "apply 9", "begin 0", "stop 0"]);
    }

    #[test]
    fn a_fenced_leader_leads_after_a_restart_above_the_epoch_that_fenced_it() {
        let mut leader = Recorder::new(None, 7);
        assert_eq!(promote(&mut leader), Ok(Led::AfterRestart));
        assert_eq!(leader.steps, ["end 0", "stop 0", "outbid 7"]);
    }

    #[test]
    fn nothing_is_done_after_a_step_that_fails() {
        for (number, fails) in ["end", "sync", "apply", "begin", "stop", "outbid"].into_iter().enumerate() {
            let mut server = Recorder { fails, ..Recorder::new(Some(Lsn::new(9)), 7) };
            assert_eq!(promote(&mut server), Err(fails.to_owned()));
            assert_eq!(server.steps.len(), number + 1);
        }
    }
}
