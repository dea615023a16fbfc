//! A member that follows: joins the leader that its votes know, has them accept each batch before its log
//! takes it, and applies what is committed.
//!
//! This is the wiring of the server's threads "replica-link" and "replica-apply", on one thread.

use std::path::Path;

use consensus::Link;
use env::{Prng, SimDisk};
use keyspace::{AccessClock, Keyspace};
use lsn::Lsn;
use membership::{Votes, references};
use recovery::replay::Replayer;
use replication::{
    Backoff, Confirmed, Intake, Led, Promotion, Receiver, SILENCE_MS, TakeError,
    join::{JoinError, Joiner, Joining, Step, Verdict},
    promote,
};
use storage::{Chains, Chunk, CursorRead, Log, LogCursor, Mirror, batches_in};

use super::{options::GroupFault, standing::Standing};
use crate::cluster::{
    copying::{Copied, Copying},
    history::JudgedHistory,
    network::{ConnId, Message, Network, NodeId, Side},
    node::{Failure, flush},
};

/// The number of log bytes read per chunk to apply.
const APPLY_BYTES: usize = 64 << 10;

/// The connection to the leader.
enum Connection {
    Away { until_ms: u64 },
    Asking { conn: ConnId, since_ms: u64, joining: Box<Joining>, link: Option<Link> },
    Streaming { conn: ConnId, receiver: Box<Receiver>, link: Option<Link> },
    Copying(Box<Copying>),
}

/// The action that a step requires of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    /// Restart, with the log cut at this position.
    Cut(Lsn),
    /// Copy everything from this server.
    Copy(NodeId),
    /// Ask for a copy of everything from now on.
    CopyAnew,
    /// Restart with the copy.
    Copied,
    /// Restart.
    Restart,
}

/// A member that follows.
pub(super) struct Following {
    mirror: Mirror,
    replayer: Replayer,
    own: LogCursor,
    chunk: Option<Chunk>,
    connection: Connection,
    backoff: Backoff,
    /// The leader to follow, as the votes knew it when they last named one.
    pub(super) named: Option<(Option<Link>, NodeId)>,
    /// The position that is known to be committed.
    committed: Lsn,
    /// Whether all data here may be shown.
    is_up: bool,
    copies_anew: bool,
}

/// The surroundings that a step uses.
pub(super) struct Around<'a> {
    pub(super) number: NodeId,
    pub(super) log: &'a Log,
    pub(super) votes: &'a Votes,
    pub(super) standing: &'a mut Standing,
    pub(super) member_dir: &'a Path,
    pub(super) network: &'a mut Network,
    pub(super) disk: &'a SimDisk,
    pub(super) prng: &'a mut Prng,
    /// The time of this server.
    pub(super) now_ms: u64,
    /// The time of the network.
    pub(super) sent_ms: u64,
    pub(super) fault: Option<GroupFault>,
    /// Whether the server that a copy comes from still runs, and is reachable.
    pub(super) has_source: bool,
}

impl Following {
    pub(super) fn new(
        (log, mirror): (&Log, Mirror),
        replayer: (std::sync::Arc<Keyspace>, Chains),
        now_ms: u64,
        copies_anew: bool,
    ) -> Following {
        let end = log.durable_lsn();
        let (keyspace, chains) = replayer;
        Following {
            mirror,
            replayer: Replayer::new(keyspace, chains, end),
            own: log.cursor(end),
            chunk: None,
            connection: Connection::Away { until_ms: now_ms },
            backoff: Backoff::default(),
            named: None,
            committed: Lsn::ZERO,
            is_up: false,
            copies_anew,
        }
    }

    /// The mirror, which the server keeps while it leads.
    pub(super) fn into_mirror(self) -> Mirror {
        self.mirror
    }

    pub(super) fn applied(&self) -> Lsn {
        self.replayer.applied()
    }

    pub(super) fn committed(&self) -> Lsn {
        self.committed
    }

    pub(super) fn note_committed(&mut self, committed: Lsn) {
        self.committed = self.committed.max(committed);
    }

    /// The server that a copy comes from, and its incarnation.
    pub(super) fn copies_from(&self) -> Option<(NodeId, u64)> {
        if let Connection::Copying(copying) = &self.connection { Some(copying.leader) } else { None }
    }

    pub(super) fn copy(&mut self, copying: Copying) {
        self.connection = Connection::Copying(copying.into());
    }

    pub(super) fn copy_anew(&mut self) {
        self.copies_anew = true;
    }

    /// Processes its input and its timers.
    pub(super) fn step(&mut self, around: &mut Around<'_>) -> Result<Next, Failure> {
        let next = match &mut self.connection {
            Connection::Away { until_ms } => {
                if around.now_ms >= *until_ms {
                    self.ask(around)?;
                }
                Next::Stay
            }
            Connection::Asking { since_ms, .. } if around.now_ms >= *since_ms + SILENCE_MS => {
                self.leave(around.network, around.prng, (around.now_ms, around.sent_ms));
                Next::Stay
            }
            Connection::Asking { .. } => self.hear_answer(around)?,
            Connection::Streaming { .. } => self.stream(around)?,
            Connection::Copying(copying) => {
                match copying.step(around.disk, around.has_source, around.now_ms)? {
                    Copied::Piece => Next::Stay,
                    Copied::Whole => Next::Copied,
                    Copied::GivenUp => {
                        self.connection = Connection::Away { until_ms: around.now_ms };
                        Next::Stay
                    }
                }
            }
        };
        if next == Next::Stay {
            self.apply(around)?;
        }
        Ok(next)
    }

    /// Ends the connection, if there is one, and backs off.
    pub(super) fn leave(&mut self, network: &mut Network, prng: &mut Prng, (now_ms, sent_ms): (u64, u64)) {
        if let Connection::Asking { conn, .. } | Connection::Streaming { conn, .. } = self.connection {
            if let Connection::Streaming { receiver, .. } = &self.connection {
                let farewell = Message::Frames(receiver.farewell().to_vec());
                network.send(conn, Side::Leader, farewell, sent_ms);
            }
            network.close(conn, Side::Replica, sent_ms);
        }
        self.connection = Connection::Away { until_ms: now_ms + self.backoff.wait_ms(prng.next_u64()) };
    }

    /// The leader to follow, with its link in the votes; there is no link while this server is no member yet.
    /// `None` while no leader is known, or if the votes now know another leader than the one that they last
    /// named.
    fn to_follow(&self, around: &Around<'_>) -> Option<(NodeId, Option<Link>)> {
        around.standing.role().leader()?;
        let known = around.votes.link().ok()?;
        let (link, node) = self.named?;
        (link == known).then_some((node, link))
    }

    fn ask(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let Some((leader, link)) = self.to_follow(around) else { return Ok(()) };
        let end = self.mirror.position();
        around.log.make_durable(end)?;
        let joiner = Joiner {
            log_id: around.log.id(),
            replica: around.standing.replica_id(),
            port: 6379,
            seen_epoch: around.standing.role().remembered().seen_epoch,
            log_epoch: around.log.epoch(),
            end,
            copies_anew: self.copies_anew,
            process: None,
        };
        let (joining, step) = Joining::begin(joiner, &history(around))?;
        let Step::Ask(arguments) = step else { return Ok(()) };
        let conn = around.network.connect(around.number, leader);
        around.network.send(conn, Side::Leader, Message::Claim(arguments), around.sent_ms);
        self.connection = Connection::Asking { conn, since_ms: around.now_ms, joining: joining.into(), link };
        Ok(())
    }

    fn hear_answer(&mut self, around: &mut Around<'_>) -> Result<Next, Failure> {
        let Connection::Asking { conn, joining, link, .. } = &mut self.connection else {
            return Ok(Next::Stay);
        };
        let (conn, link) = (*conn, *link);
        let step = match around.network.receive(conn, Side::Replica, around.sent_ms) {
            None => return Ok(Next::Stay),
            Some(Message::Line(line)) => match joining.hear(&line, &history(around)) {
                Ok(step) => Some(step),
                Err(JoinError::Log(error)) => return Err(error.into()),
                Err(_) => None,
            },
            Some(_) => None,
        };
        let next = match step {
            Some(Step::Ask(words)) => {
                let marks = words.into_iter().skip(1).collect();
                around.network.send(conn, Side::Leader, Message::Marks(marks), around.sent_ms);
                return Ok(Next::Stay);
            }
            Some(Step::Settled(Verdict::Follow { epoch })) => {
                saw_epoch(around, epoch)?;
                if found_equal(around, link).is_err() {
                    Next::Stay
                } else {
                    self.backoff.reset();
                    self.confirm(around, Lsn::ZERO)?;
                    let receiver = Receiver::new(epoch, self.mirror.position(), around.now_ms).into();
                    self.connection = Connection::Streaming { conn, receiver, link };
                    return Ok(Next::Stay);
                }
            }
            Some(Step::Settled(Verdict::Cut(at))) => {
                let may_cut = around.votes.may_cut(link, at).is_ok();
                if may_cut || around.fault == Some(GroupFault::CutsCommitted) {
                    Next::Cut(at)
                } else if around.votes.committed() > at && around.votes.link() == Ok(link) {
                    let committed = around.votes.committed();
                    return Err(Failure::Breach(format!(
                        "the leader {link:?} has another log from {at} on, {committed} is committed"
                    )));
                } else {
                    Next::Stay
                }
            }
            Some(Step::Settled(Verdict::Copy { .. })) => match self.to_follow(around) {
                Some((leader, known)) if known == link => Next::Copy(leader),
                _ => Next::Stay,
            },
            Some(Step::Settled(Verdict::CopyAnew)) => Next::CopyAnew,
            None => Next::Stay,
        };
        self.leave(around.network, around.prng, (around.now_ms, around.sent_ms));
        Ok(next)
    }

    fn stream(&mut self, around: &mut Around<'_>) -> Result<Next, Failure> {
        let Connection::Streaming { conn, receiver, link } = &mut self.connection else {
            return Ok(Next::Stay);
        };
        let (conn, link) = (*conn, *link);
        let (mut has_ended, mut lacks_accepted) = (receiver.check(around.now_ms).is_err(), false);
        while !has_ended {
            match around.network.receive(conn, Side::Replica, around.sent_ms) {
                None => break,
                Some(Message::Frames(bytes)) => receiver.inbox().extend_from_slice(&bytes),
                Some(_) => has_ended = true,
            }
            let mut intake = LogIntake {
                mirror: &mut self.mirror,
                log: around.log,
                votes: around.votes,
                standing: around.standing,
                member_dir: around.member_dir,
                link,
                accepted: Lsn::ZERO,
                fault: around.fault,
            };
            let taken = receiver.take_in(around.now_ms, &mut intake);
            lacks_accepted |= intake.mirror.position() < intake.accepted;
            match taken {
                Ok(()) => {}
                Err(TakeError::Close(_) | TakeError::Intake(IntakeError::Refused)) => has_ended = true,
                Err(TakeError::Intake(IntakeError::Failed(failure))) => return Err(failure),
            }
        }
        if lacks_accepted {
            // The votes have accepted batches that the log has not taken. After a restart, the votes begin
            // with the content of the log.
            return Ok(Next::Restart);
        }
        if has_ended {
            self.leave(around.network, around.prng, (around.now_ms, around.sent_ms));
            return Ok(Next::Stay);
        }
        let committed = receiver.committed();
        self.committed = self.committed.max(committed);
        let applied = self.replayer.applied();
        if let Some(ack) = receiver.ack(around.now_ms, around.log.shippable_lsn(), applied) {
            around.network.send(conn, Side::Leader, Message::Frames(ack.to_vec()), around.sent_ms);
        }
        self.confirm(around, committed)?;
        Ok(Next::Stay)
    }

    /// Lets clients see the data of this member, once the leader has committed all of it.
    fn confirm(&mut self, around: &mut Around<'_>, committed: Lsn) -> Result<(), Failure> {
        let confirmed = around.standing.change(around.member_dir, |role| role.confirm(committed))?;
        self.is_up |= confirmed != Confirmed::NotYet;
        if self.is_up {
            around.log.set_acked(self.committed.max(self.replayer.applied()));
        }
        Ok(())
    }

    fn apply(&mut self, around: &Around<'_>) -> Result<(), Failure> {
        let until = match around.fault {
            Some(GroupFault::ShowsUncommitted) => Lsn::MAX,
            _ => self.committed,
        };
        self.apply_up_to(until)
    }

    fn apply_up_to(&mut self, until: Lsn) -> Result<(), Failure> {
        while self.replayer.applied() < until {
            let chunk = match self.chunk.take() {
                Some(chunk) => chunk,
                None => match self.own.read(APPLY_BYTES)? {
                    CursorRead::Chunk(chunk) => chunk,
                    CursorRead::UpToDate => return Ok(()),
                    CursorRead::Forgotten(start) => {
                        return Err(Failure::Breach(format!("its own log begins at lsn {start}")));
                    }
                },
            };
            let applied = self.replayer.apply(&chunk, until, AccessClock::default(), &mut ());
            let applied = applied.map_err(|error| Failure::Breach(error.to_string()))?;
            drop(self.replayer.take_freed());
            if applied < chunk.end {
                self.chunk = Some(chunk);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Promotes this member, and begins the epoch of this term.
    pub(super) fn promote(&mut self, term: u64, around: &mut Around<'_>) -> Result<(), Failure> {
        self.leave(around.network, around.prng, (around.now_ms, around.sent_ms));
        let epoch = u32::try_from(term).map_err(|_| Failure::Breach("no epoch is left".into()))?;
        let led = promote(&mut Promoting { following: self, around, epoch })?;
        assert_eq!(led, Led::Now, "no epoch fences a member");
        Ok(())
    }
}

fn history<'l>(around: &Around<'l>) -> JudgedHistory<'l> {
    JudgedHistory::of(around.log, around.fault == Some(GroupFault::JoinsByPosition))
}

/// Reports to the votes that the log here is the beginning of the leader's log.
fn found_equal(around: &Around<'_>, link: Option<Link>) -> Result<(), String> {
    around.votes.accept(link, &[], Lsn::ZERO)
}

/// Makes an epoch durable before anything is acknowledged in it.
fn saw_epoch(around: &mut Around<'_>, epoch: u32) -> Result<(), Failure> {
    around.log.note_epoch(epoch)?;
    around.standing.change(around.member_dir, |role| ((), role.saw_epoch(epoch)))
}

/// The log of a member, to which the batches of its leader are appended.
struct LogIntake<'l> {
    mirror: &'l mut Mirror,
    log: &'l Log,
    votes: &'l Votes,
    standing: &'l mut Standing,
    member_dir: &'l Path,
    link: Option<Link>,
    /// The end of the batches that the votes have accepted.
    accepted: Lsn,
    fault: Option<GroupFault>,
}

/// The reason why a log accepts no more batches.
enum IntakeError {
    /// The votes do not accept the batches, the log does not continue, or the disk is full: the connection
    /// ends.
    Refused,
    Failed(Failure),
}

impl Intake for LogIntake<'_> {
    type Error = IntakeError;

    fn accept(&mut self, start: Lsn, bytes: &[u8], commit: Lsn) -> Result<(), IntakeError> {
        let batches = references(&batches_in(start, bytes));
        if batches.is_empty() {
            return Err(IntakeError::Refused);
        }
        let accepted = self.votes.accept(self.link, &batches, commit);
        if accepted.is_err() && self.fault != Some(GroupFault::TakesWhatIsNotAccepted) {
            return Err(IntakeError::Refused);
        }
        if self.link.is_some() && accepted.is_ok() {
            self.accepted = start.advance(bytes.len() as u64);
            if self.fault == Some(GroupFault::ReportsBeforeItIsDurable) {
                self.votes.durable(&batches);
            }
        }
        Ok(())
    }

    fn append(&mut self, batches: &[u8], epoch_max: u32) -> Result<usize, IntakeError> {
        self.mirror.append(batches, epoch_max).map_err(|error| match Failure::from(error) {
            // Batches that do not continue this log, or do not fit its ring: not a failure of this member.
            Failure::Breach(_) => IntakeError::Refused,
            failure => IntakeError::Failed(failure),
        })
    }

    fn make_room(&mut self) -> Result<(), IntakeError> {
        let before = self.log.written_lsn();
        flush(self.log).map_err(IntakeError::Failed)?;
        if self.log.written_lsn() == before { Err(IntakeError::Refused) } else { Ok(()) }
    }

    fn saw_epoch(&mut self, epoch: u32) -> Result<(), IntakeError> {
        let noted = self.log.note_epoch(epoch).map_err(Failure::from);
        let kept =
            noted.and_then(|()| self.standing.change(self.member_dir, |role| ((), role.saw_epoch(epoch))));
        kept.map_err(IntakeError::Failed)
    }
}

/// The steps of a promotion, on one thread.
struct Promoting<'f, 'a, 'w> {
    following: &'f mut Following,
    around: &'a mut Around<'w>,
    epoch: u32,
}

impl Promotion for Promoting<'_, '_, '_> {
    type Error = Failure;

    fn end_link(&mut self) -> Result<Option<Lsn>, Failure> {
        Ok(Some(self.following.mirror.position()))
    }

    fn make_durable(&mut self, end: Lsn) -> Result<(), Failure> {
        Ok(self.around.log.make_durable(end)?)
    }

    fn apply_all(&mut self, end: Lsn) -> Result<(), Failure> {
        if self.around.fault == Some(GroupFault::LeadsBeforeApplying) {
            return Ok(());
        }
        self.following.apply_up_to(end)
    }

    fn begin_epoch(&mut self) -> Result<(), Failure> {
        Ok(self.following.mirror.promote_in(self.epoch)?)
    }

    fn stop_following(&mut self) -> Result<u32, Failure> {
        self.around.standing.change(self.around.member_dir, |role| (role.lead(), true))
    }

    fn outbid(&mut self, epoch: u32) -> Result<(), Failure> {
        Ok(self.around.log.outbid_epoch(epoch)?)
    }
}
