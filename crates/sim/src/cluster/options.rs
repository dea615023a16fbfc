//! The options and the summary of a cluster run.

/// A deliberate defect, which the judge must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultInjection {
    /// Replicas acknowledge data that is not durable.
    AckBeforeFlush,
    /// Replicas apply uncommitted records.
    ApplyBeforeCommit,
    /// The operator promotes any replica instead of the one with the newest log.
    PromoteAny,
    /// Leaders and replicas treat logs of equal length as equal.
    JoinByPosition,
    /// A new leader commits the leftovers of earlier leaders before any record of its own.
    CommitLeftovers,
    /// Replicas show all data of their logs when they start.
    ShowLeftovers,
    /// A replica leads before it has applied its log.
    LeadBeforeApplying,
    /// A leader hands over to a replica that lacks a part of the log.
    HandOverEarly,
    /// A leader hands over to a replica that has everything on disk, but not in memory.
    HandOverUnapplied,
    /// Writes are taken before the settings given at the start are in the log.
    SettingsLate,
    /// A script of a replica's client may hold up the applier for ever.
    EndNoScript,
}

/// The options of a cluster run.
#[derive(Debug, Clone, Copy)]
pub struct ClusterOptions {
    /// The seed of all random choices, which decides the whole run.
    pub seed: u64,
    /// The number of servers, the first leader included.
    pub nodes: usize,
    /// The number of replicas that must have a write before it is acknowledged.
    pub acks: usize,
    /// The deliberate defect, if any.
    pub fault: Option<FaultInjection>,
}

/// The statistics of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterSummary {
    /// The number of acknowledged writes.
    pub acknowledged: usize,
    /// The number of committed bytes of log.
    pub committed_bytes: u64,
    /// The number of replaced leaders, those that handed over included.
    pub failovers: u64,
    /// The number of planned hand-overs.
    pub handovers: u64,
    /// The number of scripts that were ended because they kept a replica from applying the log.
    pub scripts_ended: u64,
    /// The number of log cuts.
    pub cuts: u64,
    /// The number of completed full copies.
    pub copies: u64,
    /// The number of starts of servers.
    pub starts: u64,
    /// The number of checks of the data that replicas show.
    pub checks: u64,
}
