//! The votes of this member: the machine of the crate `consensus`, with its file and its clock, but without
//! connections.
//!
//! Every thread that has an input takes the lock, gives the input to the machine, and acts on the outcome: it
//! saves the ballot, sends the messages, and reports the committed position and the leadership.
//!
//! Invariants
//! - The ballot is on disk before a message leaves. If it cannot be saved, this member is silent until it
//!   can, and then restarts within the process, from what is on disk.
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

use consensus::{Ballot, Batch, Leadership, Link, Member, MemberId, Members, Message};
use env::{Clock, Disk};
use lsn::Lsn;
use parking_lot::Mutex;
use recovery::group_state::GroupState;
use storage::Histogram;

/// The maximum number of batches whose commitment is timed at once; further batches are not timed.
const TIMED_MAX: usize = 1024;

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
    state: Mutex<GroupState>,
    /// `None` before [`Votes::begin`] and after [`Votes::stop`], which drops the reports because they hold
    /// other parts of the server.
    member: Mutex<Option<(Member, Reports)>>,
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
    pub fn new(state: GroupState, dir: PathBuf, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Votes {
        let since_us = clock.boot_us();
        Votes {
            is_witness: state.is_witness,
            dir,
            disk,
            clock,
            state: Mutex::new(state),
            member: Mutex::default(),
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

    /// Saves the roster for a witness, which has no data and forgets the part of the log with the roster;
    /// empty for none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn save_roster(&self, roster: &str) -> std::io::Result<()> {
        let mut state = self.state.lock();
        if state.roster == roster {
            return Ok(());
        }
        state.roster = roster.into();
        state.store(&*self.disk, &self.dir)
    }

    /// The clock of the votes: it also counts while the machine is suspended.
    pub fn now_us(&self) -> u64 {
        self.clock.boot_us()
    }

    /// The contents of the file.
    pub fn state(&self) -> GroupState {
        self.state.lock().clone()
    }

    /// The id of this member.
    ///
    /// # Panics
    /// If the file has no valid member id: such a file is refused when it is read.
    pub fn id(&self) -> MemberId {
        MemberId::parse(&self.state.lock().member_id).expect("a file with another id is refused")
    }

    /// The ballot, which is saved unless [`Votes::is_unsaved`].
    pub fn ballot(&self) -> Ballot {
        let state = self.state.lock();
        Ballot { term: state.term, voted_for: MemberId::parse(&state.voted_for) }
    }

    /// The members that were last in force here, and a position up to which the log was known to be
    /// committed; `None` if none ever were.
    pub fn members_in_force(&self) -> Option<(Members, Lsn)> {
        let state = self.state.lock();
        let ids = |texts: &[String]| texts.iter().filter_map(|text| MemberId::parse(text)).collect();
        let members = Members { voters: ids(&state.voters), learners: ids(&state.learners) };
        (!members.voters.is_empty()).then_some((members, Lsn::new(state.in_force_at)))
    }

    /// Saves the members that are to be in force; `at` is committed.
    ///
    /// # Errors
    /// I/O errors.
    pub fn save_members(&self, members: &Members, at: Lsn) -> std::io::Result<()> {
        let mut state = self.state.lock();
        let texts = |ids: &[MemberId]| ids.iter().map(ToString::to_string).collect();
        (state.voters, state.learners) = (texts(&members.voters), texts(&members.learners));
        state.in_force_at = at.get();
        state.store(&*self.disk, &self.dir)
    }

    /// Saves the state in memory, of which a part may not be on disk: a ballot that could not be saved, or
    /// the identity of a server that is about to ask to join. Such a server saves it before it asks, because
    /// the group may list the server before the answer arrives.
    ///
    /// # Errors
    /// I/O errors.
    pub fn store(&self) -> std::io::Result<()> {
        self.state.lock().store(&*self.disk, &self.dir)
    }

    /// Saves that the group has removed this server.
    ///
    /// # Errors
    /// I/O errors.
    pub fn note_removal(&self) -> std::io::Result<()> {
        let mut state = self.state.lock();
        state.is_removed = true;
        state.store(&*self.disk, &self.dir)
    }

    /// Whether the group has removed this server.
    pub fn is_removed(&self) -> bool {
        self.state.lock().is_removed
    }

    /// Saves the id of the group, which the group has told this server.
    ///
    /// # Errors
    /// I/O errors.
    pub fn joined(&self, group_id: &str) -> std::io::Result<()> {
        let mut state = self.state.lock();
        state.group_id = group_id.into();
        state.store(&*self.disk, &self.dir)
    }

    /// Begins to take part, with the machine of this start.
    pub fn begin(&self, member: Member, reports: Reports) {
        self.committed.store(member.committed().get(), SeqCst);
        *self.member.lock() = Some((member, reports));
    }

    /// Ends the part of this server in votes, before its log is closed.
    pub fn stop(&self) {
        self.is_silent.store(true, SeqCst);
        let Some((member, _)) = self.member.lock().take() else { return };
        // The next start then need not read the log before the saved position. A start works without that,
        // too, so an error is ignored.
        let mut state = self.state.lock();
        let settled_up_to = member.settled_up_to().get();
        if !state.voters.is_empty() && state.in_force_at < settled_up_to {
            state.in_force_at = settled_up_to;
            let _ = state.store(&*self.disk, &self.dir);
        }
    }

    /// Looks at the machine; `None` before [`Votes::begin`] and after [`Votes::stop`]. A machine that is kept
    /// silent, because its disk stalls or its ballot cannot be saved, is there.
    pub fn look<T>(&self, look: impl FnOnce(&Member) -> T) -> Option<T> {
        self.member.lock().as_ref().map(|(member, _)| look(member))
    }

    /// Notes whether the disk here does not answer. A leader then takes part in no votes, as if it were
    /// paused: it sends no heartbeats, so another member is elected, and it takes no message for which it
    /// would have to save a ballot, which would wait for the disk. Returns what was noted before.
    pub fn note_stall(&self, has_stalled: bool) -> bool {
        self.has_stalled.swap(has_stalled, SeqCst)
    }

    /// Gives the machine an input, and acts on the outcome. `None` if this member takes part in no votes, or
    /// its ballot cannot be saved.
    pub fn input<T>(&self, act: impl FnOnce(&mut Member, u64) -> T) -> Option<T> {
        let mut member = self.member.lock();
        let is_silent = self.is_silent.load(SeqCst) || self.is_unsaved();
        let has_stalled = self.has_stalled.load(SeqCst);
        let takes_part = |member: &Member| !(is_silent || has_stalled && member.leads());
        let (member, reports) = member.as_mut().filter(|(member, _)| takes_part(member))?;
        let now_us = self.now_us();
        let outcome = act(member, now_us);
        let actions = member.take_actions();
        if let Some(ballot) = actions.ballot
            && let Err(error) = self.save(ballot)
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
        self.renew_lease(member, reports, now_us);
        if member.awaits_members() {
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

    /// Notes that these batches, the next ones of the log here, are durable. So the disk here answers, and a
    /// leader that was silent for its sake takes part again: none of the batches may be missed.
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

    /// Microseconds for which the oldest batch that is durable on this leader has waited for a majority; 0 if
    /// none waits.
    pub fn majority_awaited_us(&self) -> u64 {
        let oldest = self.timed.lock().front().map(|(_, durable_us)| *durable_us);
        oldest.map_or(0, |durable_us| self.now_us().saturating_sub(durable_us))
    }

    /// The number of batches of the log here that are not known to be committed.
    pub fn uncommitted_batches(&self) -> u64 {
        self.look(|member| member.uncommitted_batches()).unwrap_or(0)
    }

    /// Whether the ballot in memory could not be saved, so that this member takes part in no votes.
    pub fn is_unsaved(&self) -> bool {
        self.is_unsaved.load(SeqCst)
    }

    fn save(&self, ballot: Ballot) -> std::io::Result<()> {
        let mut state = self.state.lock();
        state.term = ballot.term;
        state.voted_for = ballot.voted_for.map_or(String::new(), |id| id.to_string());
        state.store(&*self.disk, &self.dir)
    }

    fn renew_lease(&self, member: &Member, reports: &Reports, now_us: u64) {
        if !self.is_open.load(SeqCst) {
            return;
        }
        let until_us = member.lease_until_us();
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
    /// majority has its log, for which a member may have to copy everything first: so this is true before
    /// [`Votes::may_answer`] is.
    pub fn may_be_copied(&self) -> bool {
        self.may_answer() || self.member.lock().as_ref().is_some_and(|(member, _)| member.is_heard())
    }

    /// Makes this server the leader in `term`. It takes writes when `open` has returned, and replies leave
    /// only within its lease. Returns false, and does nothing, if the server does not lead in that term.
    pub fn open(&self, term: u64, open: impl FnOnce()) -> bool {
        let member = self.member.lock();
        let Some((member, _)) =
            member.as_ref().filter(|(it, _)| it.leadership() == (Leadership::Leads { term }))
        else {
            return false;
        };
        self.is_open.store(true, SeqCst);
        self.lease_until_us.store(member.lease_until_us(), SeqCst);
        open();
        true
    }

    /// Ends the leadership of this server, which keeps its memory: replies leave as those of a follower. To
    /// be called only when no reply that was made while the server led is unsent any more. Returns false, and
    /// does nothing, if the server was elected again, or takes part in no votes.
    pub fn step_down(&self) -> bool {
        let member = self.member.lock();
        let follows = member.as_ref().is_some_and(|(member, _)| !member.leads());
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

    /// The connection to the leader on which a follower may receive the log; `None`: this server takes part
    /// in no votes, as long as it is no member yet and copies the log, or because it stops.
    ///
    /// # Errors
    /// If this member follows nobody, or its vote cannot be saved.
    pub fn link(&self) -> Result<Option<Link>, String> {
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
    /// part in no votes; or if the connection was made before this server became a member.
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
