//! How a cluster is set up, and what came of it.

/// What is broken on purpose, to see it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultInjection {
    /// Replicas acknowledge what is not on their disks.
    AckBeforeFlush,
    /// Replicas apply what is not committed.
    ApplyBeforeCommit,
    /// The operator promotes any replica, not the one that has most.
    PromoteAny,
    /// Leaders and replicas take logs that are as long for the same.
    JoinByPosition,
    /// A leader commits what earlier ones have left before anything of its own.
    CommitLeftovers,
    /// Replicas show what they find in their logs when they start.
    ShowLeftovers,
    /// A replica leads before it has applied its log.
    LeadBeforeApplying,
}

/// How a cluster is set up.
#[derive(Debug, Clone, Copy)]
pub struct ClusterOptions {
    /// Chooses everything.
    pub seed: u64,
    /// Servers.
    pub nodes: usize,
    /// Replicas that must have a write before it is acknowledged.
    pub acks: usize,
    /// What is broken on purpose.
    pub fault: Option<FaultInjection>,
}

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterSummary {
    /// Writes that were acknowledged.
    pub acknowledged: usize,
    /// Bytes of log that were committed.
    pub committed_bytes: u64,
    /// Leaders that were replaced.
    pub failovers: u64,
    /// Logs that were cut.
    pub cuts: u64,
    /// Full copies that were completed.
    pub copies: u64,
    /// Starts of servers.
    pub starts: u64,
    /// How often what a replica shows was looked at.
    pub checks: u64,
}
