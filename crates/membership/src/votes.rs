//! The votes of this member: the machine of the crate `consensus`, with its file and its clock, but without
//! connections.
//!
//! Every thread that has an input waits for its turn, gives the input to the machine, and acts on the
//! outcome: it saves the ballot, sends the messages, and reports the committed position and the leadership.
//!
//! Invariants
//! - The ballot is on disk before a message leaves. If it cannot be saved, this member is silent until
//!   ballots can be saved again, and then restarts within the process, from its files.
//! - A look at the machine ([`Votes::look`]) never waits for the disk: the machine is locked only while it
//!   computes, and only the turn is held while a ballot is saved. So a look may find a term that is not on
//!   disk yet. No other member is told of such a term, and [`Votes::link`] waits for the turn.
//! - [`Votes::state`] is the content of the file on disk.
//! - From [`Votes::open`] to [`Votes::step_down`], [`Votes::may_answer`] is true only within the lease of
//!   this server. `step_down` is called only when no reply from before is left.
//! - At most [`TIMED_MAX`] batches are timed at once.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use consensus::{Ballot, Batch, ELECTION_US, Leadership, Link, Member, MemberId, Members, Message};
use env::{Clock, Disk};
use lsn::Lsn;
use parking_lot::{Mutex, RwLock};
use recovery::{group_state::GroupState, in_flight::InFlight};
use storage::Histogram;

/// The maximum number of batches whose commitment is timed at once; further batches are not timed.
const TIMED_MAX: usize = 1024;

/// The value of `Votes::leader_heard_us` while this member leads.
const ITSELF_US: u64 = u64::MAX;

/// Sends messages to other members, without waiting.
type Outgoing = Box<dyn Fn(&[Message]) + Send + Sync>;

/// The functions of the server that carry out decisions of the votes.
pub struct Reports {
    /// Sends messages to other members.
    pub send: Outgoing,
    /// The log is committed up to this position.
    pub committed: Box<dyn Fn(Lsn) + Send + Sync>,
    /// Another leadership is known.
    pub leadership: Box<dyn Fn(Leadership) + Send + Sync>,
    /// Replies that were withheld may leave.
    pub lease: Box<dyn Fn() + Send + Sync>,
    /// The member is to campaign once its members are known up to a later position.
    pub awaits_members: Box<dyn Fn() + Send + Sync>,
}

const _: () = assert!(consensus::TERM_MAX == storage::EPOCH_MAX as u64, "terms are epochs");

/// The votes of this member; see the module documentation.
pub struct Votes {
    is_witness: bool,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    writes: Arc<InFlight>,
    /// Held while the file is written.
    saving: Mutex<()>,
    /// The contents of the file; locked for a moment only.
    state: RwLock<Arc<GroupState>>,
    /// Held from an input to the end of its outcome.
    turn: Mutex<()>,
    /// `None` before [`Votes::begin`] and after [`Votes::stop`], which drops the reports because they hold
    /// other parts of the server. A thread that has locked it waits for nothing.
    member: Mutex<Option<(Member, Arc<Reports>)>>,
    /// The leader that this member follows, as a number; 0 for none.
    followed: AtomicU64,
    /// When that leader was last heard; [`ITSELF_US`] while this member leads.
    leader_heard_us: AtomicU64,
    committed: AtomicU64,
    /// The time up to which replies may leave; `u64::MAX` for no end.
    lease_until_us: AtomicU64,
    /// This server leads, or has led and not stepped down yet.
    is_open: AtomicBool,
    is_silent: AtomicBool,
    /// The disk here has stalled; see [`Votes::note_stall`].
    has_stalled: AtomicBool,
    /// The ballot in memory could not be saved.
    is_unsaved: AtomicBool,
    elections: AtomicU64,
    /// Microseconds without a known leader, and the time since which there is none; `None`: there is one.
    leaderless: Mutex<(u64, Option<u64>)>,
    /// The ends of a leader's batches that are durable here and not committed, and when they became durable.
    timed: Mutex<VecDeque<(Lsn, u64)>>,
    /// Microseconds from the time at which a batch became durable here to its commitment.
    quorum_us: Histogram,
}

impl Votes {
    /// The votes of the member with this file in `dir`; they begin with [`Votes::begin`].
    pub fn new(
        state: GroupState,
        dir: PathBuf,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        writes: Arc<InFlight>,
    ) -> Votes {
        let since_us = clock.boot_us();
        Votes {
            is_witness: state.is_witness,
            dir,
            disk,
            clock,
            writes,
            saving: Mutex::default(),
            state: RwLock::new(Arc::new(state)),
            turn: Mutex::default(),
            member: Mutex::default(),
            followed: AtomicU64::new(0),
            leader_heard_us: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            lease_until_us: AtomicU64::new(u64::MAX),
            is_open: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            has_stalled: AtomicBool::new(false),
            is_unsaved: AtomicBool::new(false),
            elections: AtomicU64::new(0),
            leaderless: Mutex::new((0, Some(since_us))),
            timed: Mutex::default(),
            quorum_us: Histogram::default(),
        }
    }

    /// Whether this member keeps the log and no data.
    pub fn is_witness(&self) -> bool {
        self.is_witness
    }

    /// Saves the roster for a witness, which has no data and forgets the part of the log with the roster. An
    /// empty text means no roster.
    ///
    /// # Errors
    /// I/O errors.
    pub fn save_roster(&self, roster: &str) -> std::io::Result<()> {
        if self.state().roster == roster {
            return Ok(());
        }
        self.save(|state| state.roster = roster.into())
    }

    /// The clock of the votes: it also counts while the machine is suspended.
    pub fn now_us(&self) -> u64 {
        self.clock.boot_us()
    }

    /// The contents of the file.
    pub fn state(&self) -> Arc<GroupState> {
        self.state.read().clone()
    }

    /// Changes the file; the change is visible once it is durable.
    fn save(&self, change: impl FnOnce(&mut GroupState)) -> std::io::Result<()> {
        let _one_at_a_time = self.saving.lock();
        let mut changed = GroupState::clone(&self.state());
        change(&mut changed);
        self.writes.during(|| changed.store(&*self.disk, &self.dir))?;
        *self.state.write() = Arc::new(changed);
        Ok(())
    }

    /// The id of this member.
    ///
    /// # Panics
    /// If the file has no valid member id: such a file is refused when it is read.
    pub fn id(&self) -> MemberId {
        MemberId::parse(&self.state().member_id).expect("a file with another id is refused")
    }

    /// The ballot that is on disk; the machine has a newer one while the newer one is being saved.
    pub fn ballot(&self) -> Ballot {
        let state = self.state();
        Ballot { term: state.term, voted_for: MemberId::parse(&state.voted_for) }
    }

    /// The members that were last in force here, and a position up to which the log was known to be
    /// committed; `None` if none ever were.
    pub fn members_in_force(&self) -> Option<(Members, Lsn)> {
        let state = self.state();
        let ids = |texts: &[String]| texts.iter().filter_map(|text| MemberId::parse(text)).collect();
        let members = Members { voters: ids(&state.voters), learners: ids(&state.learners) };
        (!members.voters.is_empty()).then_some((members, Lsn::new(state.in_force_at)))
    }

    /// Saves the members that are to be in force; `at` is committed.
    ///
    /// # Errors
    /// I/O errors.
    pub fn save_members(&self, members: &Members, at: Lsn) -> std::io::Result<()> {
        let texts = |ids: &[MemberId]| ids.iter().map(ToString::to_string).collect();
        self.save(|state| {
            (state.voters, state.learners) = (texts(&members.voters), texts(&members.learners));
            state.in_force_at = at.get();
        })
    }

    /// Writes the file again as it is. After a ballot could not be saved, this shows whether ballots can be
    /// saved again. A server also calls this before it asks to join: the group may list the server before the
    /// answer arrives, and the server must then have kept its identity.
    ///
    /// # Errors
    /// I/O errors.
    pub fn store(&self) -> std::io::Result<()> {
        self.save(|_| {})
    }

    /// Saves that the group has removed this server.
    ///
    /// # Errors
    /// I/O errors.
    pub fn note_removal(&self) -> std::io::Result<()> {
        self.save(|state| state.is_removed = true)
    }

    /// Whether the group has removed this server.
    pub fn is_removed(&self) -> bool {
        self.state.read().is_removed
    }

    /// Saves the id of the group, which the group has told this server.
    ///
    /// # Errors
    /// I/O errors.
    pub fn joined(&self, group_id: &str) -> std::io::Result<()> {
        self.save(|state| state.group_id = group_id.into())
    }

    /// Begins to take part, with the machine of this start.
    pub fn begin(&self, member: Member, reports: Reports) {
        self.committed.store(member.committed().get(), SeqCst);
        *self.member.lock() = Some((member, Arc::new(reports)));
    }

    /// Ends the part of this server in votes, before its log is closed. Waits for an input in progress.
    pub fn stop(&self) {
        self.is_silent.store(true, SeqCst);
        let _turn = self.turn.lock();
        let Some((member, _)) = self.member.lock().take() else { return };
        // The next start then need not read the log before the saved position. A start works without that,
        // too, so an error is ignored.
        let (state, settled_up_to) = (self.state(), member.settled_up_to().get());
        if !state.voters.is_empty() && state.in_force_at < settled_up_to {
            let _ = self.save(|state| state.in_force_at = settled_up_to);
        }
    }

    /// Looks at the machine, also while it is kept silent because its disk stalls or its ballot cannot be
    /// saved. `None` before [`Votes::begin`] and after [`Votes::stop`]. Does not wait for the disk.
    pub fn look<T>(&self, look: impl FnOnce(&Member) -> T) -> Option<T> {
        self.member.lock().as_ref().map(|(member, _)| look(member))
    }

    /// The leadership, as this member tells it to people and clients. A leader that was silent for two
    /// election timeouts is no longer named: by then a voter campaigns, but a learner or a removed member
    /// continues to follow the silent leader. This server does not name itself once another member may have
    /// been elected because the disk here stalls.
    pub fn leadership(&self) -> Leadership {
        let unknown = || Leadership::Unknown { term: self.state().term };
        match self.look(Member::leadership).unwrap_or_else(unknown) {
            Leadership::Follows { term, .. } if !self.hears_leader() => Leadership::Unknown { term },
            Leadership::Leads { term } if self.may_be_replaced() => Leadership::Unknown { term },
            leadership => leadership,
        }
    }

    /// Notes that another member was heard.
    pub fn note_heard(&self, from: MemberId) {
        if self.followed.load(SeqCst) == from.get() {
            self.leader_heard_us.store(self.now_us(), SeqCst);
        }
    }

    /// Whether this member leads, or has lately heard the leader that it follows. Takes no lock.
    #[inline]
    pub fn hears_leader(&self) -> bool {
        match self.leader_heard_us.load(SeqCst) {
            ITSELF_US => true,
            _ if self.followed.load(SeqCst) == 0 => false,
            heard_us => self.now_us().saturating_sub(heard_us) < 2 * ELECTION_US,
        }
    }

    /// Notes whether the disk here does not answer. A leader whose disk does not answer takes part in no
    /// votes, as if it were paused. It sends no heartbeats, so another member is elected. It takes no
    /// messages, because saving a ballot would wait for the disk. Returns the note before this one.
    pub fn note_stall(&self, has_stalled: bool) -> bool {
        self.has_stalled.swap(has_stalled, SeqCst)
    }

    /// Whether another member may have been elected because the disk here stalls. Takes no lock.
    #[inline]
    pub fn may_be_replaced(&self) -> bool {
        self.has_stalled.load(SeqCst) && !self.may_answer()
    }

    /// Gives the machine an input, and acts on the outcome. `None` if this member takes part in no votes, or
    /// its ballot cannot be saved. Waits for its turn, and for the disk if a ballot has to be saved.
    pub fn input<T>(&self, act: impl FnOnce(&mut Member, u64) -> T) -> Option<T> {
        let _turn = self.turn.lock();
        let mut member = self.member.lock();
        let is_silent = self.is_silent.load(SeqCst) || self.is_unsaved();
        let has_stalled = self.has_stalled.load(SeqCst);
        let takes_part = |member: &Member| !(is_silent || has_stalled && member.leads());
        let (machine, reports) = member.as_mut().filter(|(member, _)| takes_part(member))?;
        let now_us = self.now_us();
        let outcome = act(machine, now_us);
        let actions = machine.take_actions();
        let (lease_until_us, awaits_members) = (machine.lease_until_us(), machine.awaits_members());
        let reports = reports.clone();
        if let Some(leadership) = actions.leadership {
            self.note_followed(leadership, now_us);
        }
        // From here on the turn alone is held.
        drop(member);
        if let Some(ballot) = actions.ballot
            && let Err(error) = self.save(|state| {
                state.term = ballot.term;
                state.voted_for = ballot.voted_for.map_or(String::new(), |id| id.to_string());
            })
        {
            self.is_unsaved.store(true, SeqCst);
            tracing::error!(target: "group", %error, "cannot save this member's vote: it takes part in no votes until it can");
            // This member then neither leads nor follows, and refuses clients: another member may lead.
            (reports.leadership)(Leadership::Unknown { term: ballot.term });
            return None;
        }
        if !actions.messages.is_empty() {
            (reports.send)(&actions.messages);
        }
        if let Some(leadership) = actions.leadership {
            self.elections.fetch_add(u64::from(matches!(leadership, Leadership::Leads { .. })), Relaxed);
            self.note_leader(leadership);
        }
        self.renew_lease(lease_until_us, &reports, now_us);
        if awaits_members {
            (reports.awaits_members)();
        }
        if let Some(committed) = actions.committed {
            self.committed.store(committed.get(), SeqCst);
            let mut timed = self.timed.lock();
            while let Some((_, durable_us)) = timed.pop_front_if(|(end, _)| *end <= committed) {
                self.quorum_us.observe(now_us.saturating_sub(durable_us));
            }
            drop(timed);
            (reports.committed)(committed);
        }
        if let Some(leadership) = actions.leadership {
            (reports.leadership)(leadership);
        }
        Some(outcome)
    }

    fn note_followed(&self, leadership: Leadership, now_us: u64) {
        let (followed, heard_us) = match leadership {
            Leadership::Leads { .. } => (0, ITSELF_US),
            Leadership::Follows { leader, .. } => (leader.get(), now_us),
            Leadership::Unknown { .. } => (0, 0),
        };
        self.followed.store(followed, SeqCst);
        self.leader_heard_us.store(heard_us, SeqCst);
    }

    /// Notes that these batches, the next ones of the log here, are durable. So the disk here answers again,
    /// and a leader that was silent because its disk stalled takes part again: the machine must not miss any
    /// of these batches.
    pub fn durable(&self, batches: &[Batch]) {
        self.has_stalled.store(false, SeqCst);
        self.input(|member, now_us| {
            let mut timed = self.timed.lock();
            if member.leads() {
                let room = TIMED_MAX - timed.len();
                timed.extend(batches.iter().take(room).map(|batch| (batch.end, now_us)));
            } else {
                timed.clear();
            }
            drop(timed);
            member.durable(batches, now_us);
        });
    }

    /// Adds up the time without a leader. [`Leadership::Unknown`] also stands for a leader that is no longer
    /// heard.
    pub fn note_leader(&self, leadership: Leadership) {
        let now_us = self.now_us();
        let mut leaderless = self.leaderless.lock();
        let (total_us, since_us) = &mut *leaderless;
        match leadership {
            Leadership::Unknown { .. } => _ = since_us.get_or_insert(now_us),
            _ => *total_us += since_us.take().map_or(0, |since_us| now_us.saturating_sub(since_us)),
        }
    }

    /// Microseconds in which this member has known no leader since its start.
    pub fn leaderless_us(&self) -> u64 {
        let (total_us, since_us) = *self.leaderless.lock();
        total_us + since_us.map_or(0, |since_us| self.now_us().saturating_sub(since_us))
    }

    /// The distribution of the microseconds from the time at which a batch became durable on this leader to
    /// its commitment.
    pub fn quorum_us(&self) -> &Histogram {
        &self.quorum_us
    }

    /// Microseconds for which the oldest timed batch, which is durable on this leader, has waited for a
    /// majority; 0 if no timed batch waits.
    pub fn majority_awaited_us(&self) -> u64 {
        let oldest = self.timed.lock().front().map(|(_, durable_us)| *durable_us);
        oldest.map_or(0, |durable_us| self.now_us().saturating_sub(durable_us))
    }

    /// See [`Member::uncommitted_batches`]; 0 without a machine.
    pub fn uncommitted_batches(&self) -> u64 {
        self.look(|member| member.uncommitted_batches()).unwrap_or(0)
    }

    /// Whether the ballot in memory could not be saved, so that this member takes part in no votes.
    pub fn is_unsaved(&self) -> bool {
        self.is_unsaved.load(SeqCst)
    }

    fn renew_lease(&self, until_us: u64, reports: &Reports, now_us: u64) {
        if !self.is_open.load(SeqCst) {
            return;
        }
        let before_us = self.lease_until_us.swap(until_us, SeqCst);
        if before_us <= now_us && until_us > now_us {
            (reports.lease)();
        }
    }

    /// Whether a reply may leave now. A reply of a server that leads, or has led and not stepped down yet,
    /// may leave only while no other member can have been elected.
    pub fn may_answer(&self) -> bool {
        match self.lease_until_us.load(SeqCst) {
            u64::MAX => true,
            until_us => self.now_us() < until_us,
        }
    }

    /// Whether members may copy the data of this server to follow it. A new leader commits nothing before a
    /// majority has its log, for which a member may have to copy everything first: so this becomes true
    /// earlier than [`Votes::may_answer`].
    pub fn may_be_copied(&self) -> bool {
        self.may_answer() || self.member.lock().as_ref().is_some_and(|(member, _)| member.is_heard())
    }

    /// Makes this server the leader in `term`. It takes writes when `open` has returned, and replies leave
    /// only within its lease. Returns false, and does nothing, if the server does not lead in that term.
    pub fn open(&self, term: u64, open: impl FnOnce()) -> bool {
        let _turn = self.turn.lock();
        let leads = |member: &Member| member.leadership() == (Leadership::Leads { term });
        let lease_until_us = self.look(|member| leads(member).then(|| member.lease_until_us())).flatten();
        let Some(lease_until_us) = lease_until_us else { return false };
        self.is_open.store(true, SeqCst);
        self.lease_until_us.store(lease_until_us, SeqCst);
        open();
        true
    }

    /// Ends the leadership of this server, which keeps its memory: replies leave as those of a follower. To
    /// be called only when all replies of the time in which the server led have been sent or dropped. Returns
    /// false, and does nothing, if the server was elected again, or takes part in no votes.
    pub fn step_down(&self) -> bool {
        let _turn = self.turn.lock();
        let follows = self.look(Member::leads) == Some(false);
        if follows {
            self.is_open.store(false, SeqCst);
            self.lease_until_us.store(u64::MAX, SeqCst);
        }
        follows
    }

    /// The committed position, as far as this member knows.
    pub fn committed(&self) -> Lsn {
        Lsn::new(self.committed.load(SeqCst))
    }

    /// The connection to the leader on which a follower may receive the log; `None` if this server takes part
    /// in no votes: it copies the log and is no member yet, or it stops. Waits for an input in progress.
    ///
    /// # Errors
    /// If this member follows nobody, or its vote cannot be saved.
    pub fn link(&self) -> Result<Option<Link>, String> {
        let _turn = self.turn.lock();
        if self.is_unsaved() {
            return Err("this member's vote cannot be saved".into());
        }
        match self.look(Member::leadership) {
            None => Ok(None),
            Some(Leadership::Follows { term, leader }) => Ok(Some(Link { leader, term })),
            Some(_) => Err("the group has no leader that this member knows".into()),
        }
    }

    /// Accepts batches from the leader, before the log takes them.
    ///
    /// # Errors
    /// If the sender does not lead any more, the batches do not continue the log here, or this member takes
    /// part in no votes. Also if the connection was made before this server became a member.
    pub fn accept(
        &self,
        link: Option<Link>,
        batches: &[consensus::Batch],
        commit: Lsn,
    ) -> Result<(), String> {
        let Some(link) = link else {
            let is_member = self.look(|_| ()).is_some();
            return if is_member { Err("the votes know nothing of this connection".into()) } else { Ok(()) };
        };
        let accepted = self.input(|member, now_us| member.accept(link, batches, commit, now_us));
        accepted.ok_or("this member takes part in no votes")?.map_err(|refused| refused.to_string())
    }

    /// Whether the log here may be cut at `at`, because the leader of this connection has another log from
    /// there on.
    ///
    /// # Errors
    /// If this member does not follow that leader in that term any more, or committed batches would be cut;
    /// and as [`Votes::link`].
    pub fn may_cut(&self, link: Option<Link>, at: Lsn) -> Result<(), String> {
        let Some(link) = link else { return Ok(()) };
        if self.link()? != Some(link) {
            return Err("another leader is known by now".into());
        }
        let committed = self.committed();
        if at < committed {
            return Err(format!(
                "the leader has another log from lsn {at} on, but all before lsn {committed} is committed"
            ));
        }
        Ok(())
    }

    /// The number of elections that this server has won since its start.
    pub fn elections(&self) -> u64 {
        self.elections.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        path::Path,
        sync::mpsc::{Receiver, Sender, channel},
        thread,
        time::Duration,
    };

    use consensus::{ELECTION_TICKS, Start, TICK_US};
    use env::{Access, File, SimClock, SimDisk, sim::SimDiskOptions};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A disk that does not answer: each new file is reported, and waits until it is permitted.
    struct StalledDisk {
        disk: Arc<SimDisk>,
        reached: Sender<()>,
        permitted: Mutex<Receiver<()>>,
    }

    impl Disk for StalledDisk {
        fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
            self.disk.create_dir_all(dir)
        }

        fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
            let _ = self.reached.send(());
            self.permitted.lock().recv().map_err(io::Error::other)?;
            self.disk.create_new(path)
        }

        fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
            self.disk.open(path, access)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.disk.rename(from, to)
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            self.disk.remove(path)
        }

        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            self.disk.list(dir)
        }

        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            self.disk.sync_dir(dir)
        }

        fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
            self.disk.free_bytes(dir)
        }
    }

    fn id(number: u64) -> MemberId {
        MemberId::new(number).expect("not 0")
    }

    fn state() -> GroupState {
        GroupState {
            name: "shop".into(),
            group_id: "00".into(),
            member_id: id(1).to_string(),
            founded: true,
            join: String::new(),
            term: 0,
            voted_for: String::new(),
            voters: vec![id(1).to_string()],
            learners: Vec::new(),
            in_force_at: 0,
            is_removed: false,
            is_witness: false,
            roster: String::new(),
        }
    }

    /// The only voter of its group, on a disk that does not answer.
    struct Stalled {
        votes: Arc<Votes>,
        clock: Arc<SimClock>,
        /// Gets one report for each new file on the disk; the file waits for one of the `permits`.
        reports: Receiver<()>,
        permits: Sender<()>,
        /// How many leaderships were reported.
        told: Arc<AtomicU64>,
    }

    fn stalled_votes() -> Stalled {
        let (reached, reports) = channel();
        let (permits, permitted) = channel();
        let disk = SimDisk::new(SimDiskOptions::default());
        disk.create_dir_all(Path::new("/data")).expect("a sound disk");
        let disk = Arc::new(StalledDisk { disk, reached, permitted: Mutex::new(permitted) });
        let clock = Arc::new(SimClock::new(0));
        let writes = Arc::new(InFlight::new(clock.clone()));
        let votes = Votes::new(state(), "/data".into(), disk, clock.clone(), writes);
        let member = Member::start(Start {
            id: id(1),
            is_witness: false,
            members: Members { voters: vec![id(1)], learners: Vec::new() },
            configured_up_to: Lsn::MAX,
            ballot: Ballot::default(),
            committed: None,
            batches: &[],
            now_us: votes.now_us(),
            seed: 1,
        });
        let told = Arc::new(AtomicU64::new(0));
        let counted = told.clone();
        votes.begin(
            member,
            Reports {
                send: Box::new(|_| {}),
                committed: Box::new(|_| {}),
                leadership: Box::new(move |_| _ = counted.fetch_add(1, SeqCst)),
                lease: Box::new(|| {}),
                awaits_members: Box::new(|| {}),
            },
        );
        Stalled { votes: Arc::new(votes), clock, reports, permits, told }
    }

    #[test]
    fn a_look_does_not_wait_for_a_ballot_that_is_being_saved() {
        let Stalled { votes, clock, reports, permits, told } = stalled_votes();
        let voting = votes.clone();
        let campaign = thread::spawn(move || {
            for _ in 0..3 * ELECTION_TICKS {
                clock.advance_us(TICK_US);
                voting.input(Member::tick);
            }
        });
        reports.recv_timeout(PATIENCE).expect("a ballot is saved");
        let (looking, (looked, has_looked)) = (votes.clone(), channel());
        thread::spawn(move || {
            let seen = (looking.look(Member::term), looking.leadership(), looking.is_removed());
            let _ = looked.send((seen, looking.state().term));
        });
        let (seen, saved_term) = has_looked.recv_timeout(PATIENCE).expect("nobody waits for the disk");
        assert_eq!(seen, (Some(1), Leadership::Leads { term: 1 }, false));
        assert_eq!((saved_term, votes.ballot().term), (0, 0), "it is not on disk");
        assert_eq!(told.load(SeqCst), 0, "nothing is reported before that");
        permits.send(()).expect("awaited");
        campaign.join().expect("it ends");
        assert_eq!(votes.ballot(), Ballot { term: 1, voted_for: Some(id(1)) });
        assert_eq!(told.load(SeqCst), 1);
    }

    #[test]
    fn members_that_are_not_on_disk_are_not_in_force() {
        let Stalled { votes, permits, .. } = stalled_votes();
        let two = Members { voters: vec![id(1), id(2)], learners: Vec::new() };
        drop(permits);
        assert!(votes.save_members(&two, Lsn::new(4096)).is_err(), "the disk has failed");
        let one = Members { voters: vec![id(1)], learners: Vec::new() };
        assert_eq!(votes.members_in_force(), Some((one, Lsn::ZERO)));
    }
}
