//! The options and the figures of a simulated group.

/// A deliberate defect of a server, which the judges must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupFault {
    /// Messages leave before the ballot is saved: a crash in between loses it.
    SendsBeforeItHasSaved,
    /// A start ignores the ballot in the file.
    IgnoresItsBallot,
    /// A follower's log takes batches that its votes have not accepted.
    TakesWhatIsNotAccepted,
    /// A follower reports batches as durable when its votes have accepted them.
    ReportsBeforeItIsDurable,
    /// A leader answers writes that are on its own disk, and not yet on the disks of a majority.
    AnswersBeforeCommit,
    /// A leader's replies leave without a lease.
    AnswersWithoutLease,
    /// A follower that has to cut its log cuts more than it has to, even committed batches.
    CutsCommitted,
    /// A follower shows records that no leader has committed.
    ShowsUncommitted,
    /// A member that starts shows all of its log at once.
    ShowsLeftovers,
    /// A leader takes writes before it has applied all of its log.
    LeadsBeforeApplying,
    /// A deposed leader keeps its memory, even if not all of it is committed.
    KeepsItsMemory,
    /// Logs of equal lengths count as equal.
    JoinsByPosition,
    /// A voter acknowledges batches that it has not synced, as with `durability none`.
    AcknowledgesWithoutSync,
    /// A member continues with an older copy of its disk, and with the id that is on the copy.
    GoesBackToAnOlderDisk,
}

/// The options of a run.
#[derive(Debug, Clone, Copy)]
pub struct GroupOptions {
    /// The seed of all random choices, which decides the whole run.
    pub seed: u64,
    /// The length of the run, in simulated milliseconds. The last quarter has no faults.
    pub run_ms: u64,
    /// The deliberate defect, if any.
    pub fault: Option<GroupFault>,
}

/// The figures of a run, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupFigures {
    /// Writes that clients were told are committed.
    pub acknowledged: u64,
    /// Replies of reads at leaders, each judged.
    pub reads_at_leaders: u64,
    /// Looks at the data of followers, each judged.
    pub reads_at_followers: u64,
    /// Elections whose winner has begun its promotion.
    pub elections: u64,
    /// Starts of servers, also within the process.
    pub starts: u64,
    /// Crashes of processes and machines.
    pub crashes: u64,
    /// Power failures, of all servers at once.
    pub power_failures: u64,
    /// Crashes in the middle of saving a ballot.
    pub crashes_in_saves: u64,
    /// Crashes in the middle of writing a batch.
    pub crashes_in_batches: u64,
    /// Ballots that could not be saved, while the server went on.
    pub failed_saves: u64,
    /// Cuts of logs that differed from the leader's log.
    pub cuts: u64,
    /// Full copies that members have completed.
    pub copies: u64,
    /// Changes of the roster that were recorded in the log.
    pub changes: u64,
    /// Transfers of the lead that were begun.
    pub transfers: u64,
    /// Removed members that the operator has had join anew, with an empty disk.
    pub lost_disks: u64,
    /// Disks that were lost, of members.
    pub lost_members: u64,
    /// Deposed leaders that kept their memory.
    pub kept_memories: u64,
}

impl GroupFigures {
    /// Adds the figures of another run.
    pub fn add(&mut self, other: &GroupFigures) {
        self.acknowledged += other.acknowledged;
        self.reads_at_leaders += other.reads_at_leaders;
        self.reads_at_followers += other.reads_at_followers;
        self.elections += other.elections;
        self.starts += other.starts;
        self.crashes += other.crashes;
        self.power_failures += other.power_failures;
        self.crashes_in_saves += other.crashes_in_saves;
        self.crashes_in_batches += other.crashes_in_batches;
        self.failed_saves += other.failed_saves;
        self.cuts += other.cuts;
        self.copies += other.copies;
        self.changes += other.changes;
        self.transfers += other.transfers;
        self.lost_disks += other.lost_disks;
        self.lost_members += other.lost_members;
        self.kept_memories += other.kept_memories;
    }
}
