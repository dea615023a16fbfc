//! The reason why no write can be acknowledged now, if any: one answer for `/_up`, INFO, metrics and the
//! server's log.
//!
//! It is for display only, and asks the [`Availability`] and the [`Log`] of the server.

use engine::replication::{Availability, WriteRefusal};
use storage::{Admission, Log};

/// Logs a line when a reason to take no writes begins or ends, for the reasons that no other code logs.
#[derive(Debug, Default)]
pub(crate) struct Reporter(Option<ReadOnly>);

impl Reporter {
    /// Compares the present reason with the last one. Called once a second.
    pub(crate) fn look(&mut self, log: Option<&Log>, server: &dyn Availability) {
        let is_untold = |reason: &ReadOnly| {
            use ReadOnly::{Deposed, DiskStalled, Ring, SettingsOwed, TooFewAcks, TooFewReplicas};
            matches!(reason, Deposed | DiskStalled | Ring | SettingsOwed | TooFewAcks | TooFewReplicas)
        };
        let now = ReadOnly::of(log, server).filter(is_untold);
        if now == self.0 {
            return;
        }
        match now {
            Some(reason) => {
                tracing::warn!(target: "server", why = reason.name(), "no write can be acknowledged: {}", reason.reason(log))
            }
            None => {
                tracing::info!(target: "server", "writes can be acknowledged again")
            }
        }
        self.0 = now;
    }
}

/// A state in which the server acknowledges no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOnly {
    /// The server follows a leader. This is not a fault.
    Replica,
    /// The server follows a leader and shows nothing: it does not know which of its data are committed, is
    /// far behind, or has copied nothing yet.
    ShowsNothing,
    /// The server follows others that follow each other, or that form too long a chain: no server leads.
    Ring,
    /// The server recovers its data.
    Loading,
    /// The server has given up the lead: another server leads, or may lead.
    Deposed,
    /// The server hands over the lead.
    HandingOver,
    /// Settings given at the start are not in the log yet.
    SettingsOwed,
    /// The server is a witness of its group: it has no data, so it takes no writes and no reads.
    Witness,
    /// The group has removed this server, which takes no writes and no reads.
    Removed,
    /// The server asks to join a group, which has not accepted it yet.
    Joining,
    /// The server belongs to a group, and a majority of the members is not reachable or has not elected a
    /// leader yet. Or the server leads its group, and no majority takes its log.
    NoMajority,
    /// Fewer replicas than `min-replicas-to-write` were heard within `min-replicas-max-lag`.
    TooFewReplicas,
    /// Fewer replicas are connected than `ack-replicas`, or replies have waited for replicas longer than
    /// `ack-timeout`.
    TooFewAcks,
    /// The next segment of the log cannot be created, usually because the disk is full.
    DiskFull,
    /// Damaged data was left out at the start, and the operator has not confirmed that yet.
    Unconfirmed,
    /// The disk has not answered for seconds.
    DiskStalled,
    /// A write or a sync of the log has failed: the server is about to stop.
    LogFailed,
}

impl ReadOnly {
    /// All reasons, for metrics.
    pub(crate) const ALL: [ReadOnly; 17] = [
        ReadOnly::Replica,
        ReadOnly::ShowsNothing,
        ReadOnly::Ring,
        ReadOnly::Loading,
        ReadOnly::Deposed,
        ReadOnly::HandingOver,
        ReadOnly::SettingsOwed,
        ReadOnly::Witness,
        ReadOnly::Removed,
        ReadOnly::Joining,
        ReadOnly::NoMajority,
        ReadOnly::TooFewReplicas,
        ReadOnly::TooFewAcks,
        ReadOnly::DiskFull,
        ReadOnly::Unconfirmed,
        ReadOnly::DiskStalled,
        ReadOnly::LogFailed,
    ];

    /// The present reason; faults of the log and of the disk come first. `log` is `None` while the server
    /// loads.
    pub(crate) fn of(log: Option<&Log>, server: &dyn Availability) -> Option<ReadOnly> {
        let Some(log) = log else { return Some(ReadOnly::Loading) };
        match log.admit(0) {
            Admission::Poisoned => return Some(ReadOnly::LogFailed),
            Admission::Frozen => return Some(ReadOnly::Unconfirmed),
            Admission::NoRoom => return Some(ReadOnly::DiskFull),
            Admission::Stalled => return Some(ReadOnly::DiskStalled),
            Admission::Go | Admission::Wait if server.awaits_disk() => return Some(ReadOnly::DiskStalled),
            Admission::Go | Admission::Wait => {}
        }
        let refusal = server.refuses_writes();
        // A witness, a removed server, and one that has not joined yet report what they are, whatever the
        // state of their group.
        match refusal {
            Some(WriteRefusal::Joining) => return Some(ReadOnly::Joining),
            Some(WriteRefusal::Witness) => return Some(ReadOnly::Witness),
            Some(WriteRefusal::Removed) => return Some(ReadOnly::Removed),
            _ if server.lacks_majority() => return Some(ReadOnly::NoMajority),
            _ => {}
        }
        Some(match refusal {
            None => return server.lacks_acks().then_some(ReadOnly::TooFewAcks),
            Some(WriteRefusal::Replica) if server.is_in_ring() => ReadOnly::Ring,
            Some(WriteRefusal::Replica) if server.shows_nothing() => ReadOnly::ShowsNothing,
            Some(WriteRefusal::Replica) => ReadOnly::Replica,
            Some(WriteRefusal::Deposed) => ReadOnly::Deposed,
            Some(WriteRefusal::HandingOver) => ReadOnly::HandingOver,
            Some(WriteRefusal::Witness) => ReadOnly::Witness,
            Some(WriteRefusal::Removed) => ReadOnly::Removed,
            Some(WriteRefusal::Joining) => ReadOnly::Joining,
            Some(WriteRefusal::NoLeader | WriteRefusal::NotCommitted) => ReadOnly::NoMajority,
            Some(WriteRefusal::SettingsOwed) => ReadOnly::SettingsOwed,
            Some(WriteRefusal::TooFewReplicas) => ReadOnly::TooFewReplicas,
        })
    }

    /// The name of the reason in metrics and in `/_up`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReadOnly::Replica => "replica",
            ReadOnly::ShowsNothing => "shows_nothing",
            ReadOnly::Ring => "ring",
            ReadOnly::Loading => "loading",
            ReadOnly::Deposed => "deposed",
            ReadOnly::HandingOver => "handing_over",
            ReadOnly::SettingsOwed => "settings_owed",
            ReadOnly::Witness => "witness",
            ReadOnly::Removed => "removed",
            ReadOnly::Joining => "joining",
            ReadOnly::NoMajority => "no_majority",
            ReadOnly::TooFewReplicas => "too_few_replicas",
            ReadOnly::TooFewAcks => "too_few_acks",
            ReadOnly::DiskFull => "disk_full",
            ReadOnly::Unconfirmed => "unconfirmed",
            ReadOnly::DiskStalled => "disk_stalled",
            ReadOnly::LogFailed => "log_failed",
        }
    }

    /// The reason as a sentence.
    pub(crate) fn reason(self, log: Option<&Log>) -> String {
        match self {
            ReadOnly::Replica => "This server is a replica and takes no writes.".into(),
            ReadOnly::ShowsNothing => {
                "This server is a replica and shows nothing: what of its data is committed is not known, or it is far behind, or it \
                 has copied nothing yet. INFO replication shows the link, and the log what keeps it from its leader."
                    .into()
            }
            ReadOnly::Ring => {
                "The servers that this one follows follow each other in a ring, or in a chain of more than 15: nobody leads. REPLICAOF \
                 NO ONE has the one lead that has the newest data."
                    .into()
            }
            ReadOnly::Loading => "This server is loading its data.".into(),
            ReadOnly::Deposed => {
                "This server has given up the lead: another server leads, or is being told to. If this one does not follow it by \
                 itself, REPLICAOF host port has it follow, and REPLICAOF NO ONE lead."
                    .into()
            }
            ReadOnly::HandingOver => "This server is handing over the lead to a replica.".into(),
            ReadOnly::SettingsOwed => "The settings that were given at the start are being written to the log.".into(),
            ReadOnly::Witness => "This server is a witness of its group and has no data.".into(),
            ReadOnly::Removed => "This server was removed from its group. Ask a member of the group.".into(),
            ReadOnly::Joining => {
                "This server is not in its group yet: it asks to be added, and its log says what keeps it out.".into()
            }
            ReadOnly::NoMajority => {
                "A majority of the group's members must be reachable, and take the log of its leader.".into()
            }
            ReadOnly::TooFewReplicas => {
                "Fewer replicas are connected than min-replicas-to-write asks for.".into()
            }
            ReadOnly::TooFewAcks => {
                "Fewer replicas are connected, or acknowledge writes, than ack-replicas asks for, so no write is acknowledged.".into()
            }
            ReadOnly::DiskFull => {
                let reason = log.map(|log| log.no_room_reason()).unwrap_or_default();
                format!("The disk is full, so nothing can be written: {reason}")
            }
            ReadOnly::Unconfirmed => {
                "Damaged data was left out at the start: CONFIG SET force-recovery confirmed accepts that."
                    .into()
            }
            ReadOnly::DiskStalled => "The disk takes too long to write the log, the role of this server, or its settings.".into(),
            ReadOnly::LogFailed => {
                let reason = log.and_then(|log| log.poison_reason()).unwrap_or_default();
                format!("The log could not be written: {reason}")
            }
        }
    }

    /// Whether a full, slow or failing disk is the cause.
    pub(crate) fn is_failed_write(self) -> bool {
        matches!(self, ReadOnly::DiskFull | ReadOnly::DiskStalled | ReadOnly::LogFailed)
    }

    /// Whether clients should avoid this server because of a fault. Every state but [`ReadOnly::Replica`] is
    /// a fault.
    pub(crate) fn is_fault(self) -> bool {
        self != ReadOnly::Replica
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path, sync::Arc};

    use env::{SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
    use storage::{LogOptions, Recovery};

    use super::*;

    /// A server in any state.
    #[derive(Debug, Clone, Copy)]
    struct State {
        refusal: Option<WriteRefusal>,
        lacks_majority: bool,
        lacks_acks: bool,
        shows_nothing: bool,
        is_in_ring: bool,
        awaits_disk: bool,
    }

    impl Availability for State {
        fn is_read_only(&self) -> bool {
            use WriteRefusal::{Deposed, HandingOver, Joining, NoLeader, Removed, Replica, Witness};
            let refusals = [Replica, Deposed, HandingOver, Witness, Removed, Joining, NoLeader];
            self.refusal.is_some_and(|refusal| refusals.contains(&refusal))
        }

        fn refuses_writes(&self) -> Option<WriteRefusal> {
            self.refusal
        }

        fn lacks_majority(&self) -> bool {
            self.lacks_majority
        }

        fn lacks_acks(&self) -> bool {
            self.lacks_acks
        }

        fn awaits_disk(&self) -> bool {
            self.awaits_disk
        }

        fn shows_nothing(&self) -> bool {
            self.shows_nothing
        }

        fn is_in_ring(&self) -> bool {
            self.is_in_ring
        }

        fn is_stale(&self) -> bool {
            false
        }
    }

    fn states() -> impl Iterator<Item = State> {
        let refusals = std::iter::once(None).chain(WriteRefusal::ALL.map(Some));
        refusals.flat_map(|refusal| {
            [false, true].into_iter().flat_map(move |lacks_majority| {
                let some = [None, Some("lacks_acks"), Some("shows_nothing"), Some("is_in_ring")];
                some.map(|some| State {
                    refusal,
                    lacks_majority,
                    lacks_acks: some == Some("lacks_acks"),
                    shows_nothing: some == Some("shows_nothing"),
                    is_in_ring: some == Some("is_in_ring"),
                    awaits_disk: false,
                })
            })
        })
    }

    fn new_log() -> Log {
        let disk = SimDisk::new(SimDiskOptions::default());
        let options = LogOptions { segment_bytes: 256 << 10, ..LogOptions::default() }.fitting();
        let recovery = Recovery::open(disk, Path::new("/data"), options, &SimEntropy::new(1));
        let mut recovery = recovery.expect("a sound disk");
        while recovery.next_batch().expect("a sound disk").is_some() {}
        recovery.finish(Arc::new(SimClock::new(0))).expect("a sound disk")
    }

    #[test]
    fn exactly_the_states_without_acknowledgements_have_a_reason() {
        let log = new_log();
        let mut reasons = BTreeSet::new();
        for state in states() {
            let reason = ReadOnly::of(Some(&log), &state);
            let is_acknowledged = state.refusal.is_none() && !state.lacks_majority && !state.lacks_acks;
            assert_eq!(reason.is_none(), is_acknowledged, "{state:?}: {reason:?}");
            let Some(reason) = reason else { continue };
            reasons.insert(reason.name());
            assert!(!reason.reason(Some(&log)).is_empty() && ReadOnly::ALL.contains(&reason));
            // The only server without a fault that takes no writes is a replica that hears its leader and has
            // data to show.
            assert_eq!(
                !reason.is_fault(),
                state.refusal == Some(WriteRefusal::Replica)
                    && !(state.lacks_majority || state.shows_nothing || state.is_in_ring)
            );
            assert!(!reason.is_failed_write(), "the log is sound");
        }
        let of_log = ["loading", "disk_full", "unconfirmed", "disk_stalled", "log_failed"];
        let all: BTreeSet<_> = ReadOnly::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(reasons.into_iter().chain(of_log).collect::<BTreeSet<_>>(), all, "each of them occurs");
    }

    #[test]
    fn a_change_of_the_role_that_waits_for_the_disk_is_a_fault_of_the_disk() {
        let log = new_log();
        for state in states() {
            let reason = ReadOnly::of(Some(&log), &State { awaits_disk: true, ..state });
            assert_eq!(reason, Some(ReadOnly::DiskStalled));
        }
    }

    #[test]
    fn a_server_without_its_log_is_loading_whatever_its_role() {
        for state in states() {
            let reason = ReadOnly::of(None, &state).expect("no write is taken");
            assert_eq!(
                (reason.name(), reason.is_fault(), reason.is_failed_write()),
                ("loading", true, false)
            );
        }
    }

    #[test]
    fn each_error_of_a_write_is_that_of_one_reason() {
        let log = new_log();
        let mut errors = BTreeSet::new();
        for refusal in WriteRefusal::ALL {
            let state = State {
                refusal: Some(refusal),
                lacks_majority: false,
                lacks_acks: false,
                shows_nothing: false,
                is_in_ring: false,
                awaits_disk: false,
            };
            assert!(errors.insert(refusal.error()), "{refusal:?}: two states with one error");
            let is_about_replicas = refusal.error().starts_with("NOREPLICAS");
            let reason = ReadOnly::of(Some(&log), &state).expect("no write is taken");
            assert_eq!(is_about_replicas, reason == ReadOnly::TooFewReplicas);
            assert_eq!(refusal.error().starts_with("TRYAGAIN"), reason == ReadOnly::SettingsOwed);
            let is_removed = refusal.error().contains("removed from its group");
            assert_eq!(is_removed, reason == ReadOnly::Removed);
        }
    }
}
