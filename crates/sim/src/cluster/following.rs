//! A replica: joins its leader, mirrors the leader's log, and applies committed records.
//!
//! ```text
//! Away --claim--> Asking --RESUME--> Streaming: LOG -> Mirror -> flush -> ACK; Replayer up to commit
//!   ^               |  '--PROBE--> marks --> the log is cut, and the process restarts
//!   '-- closed -----'  '--FULL---> full copy
//! ```
//!
//! Invariants
//! - A replica claims its durable end, and only when its log has nothing beyond that.
//! - At its start a replica has applied its whole log. If the replica cannot know that all of the log is
//!   committed, it shows nothing until its leader confirms that.
//! - While a script of a client holds slots, nothing is applied; [`Stall`] decides when the script is ended.

use std::{fmt, sync::Arc};

use env::{Clock, Prng, SimClock};
use keyspace::{AccessClock, Keyspace};
use lsn::Lsn;
use recovery::replay::Replayer;
use replication::{
    Backoff, Confirmed, Intake, Led, PROMOTION_STALL_MS, Promotion, Receiver, ReplicaId, SILENCE_MS,
    STALL_MS, Stall, TakeError,
    join::{JoinError, Joiner, Joining, Step, Verdict},
    promote,
};
use storage::{Chains, Chunk, CursorRead, Log, LogCursor, Mirror};

use super::{
    FaultInjection,
    history::JudgedHistory,
    member::Member,
    network::{ConnId, Message, Network, NodeId, Side},
    node::{Failure, flush},
};

/// The number of log bytes read per chunk to apply.
const APPLY_BYTES: usize = 64 << 10;

/// The connection to the leader.
enum Link {
    Away { until_ms: u64 },
    Asking { conn: ConnId, since_ms: u64, joining: Joining },
    Streaming { conn: ConnId, receiver: Box<Receiver> },
}

/// The action that a step of a replica requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// No action.
    Stay,
    /// Cut its log at this position.
    Cut(Lsn),
    /// Copy everything from the leader.
    Copy,
}

/// A server in the role of a replica.
pub(super) struct Following {
    pub(super) log: Log,
    pub(super) mirror: Mirror,
    pub(super) keyspace: Arc<Keyspace>,
    replayer: Replayer,
    own: LogCursor,
    chunk: Option<Chunk>,
    link: Link,
    backoff: Backoff,
    /// The highest commit position that a leader has told this server; at the start, the end of its log.
    committed: Lsn,
    /// Whether a script of a client holds slots that the applier needs. It holds them until it is ended.
    is_held_up: bool,
    stall: Stall,
}

/// The surroundings that a step of a replica uses.
pub(super) struct Around<'a> {
    pub(super) id: ReplicaId,
    pub(super) number: NodeId,
    /// The server that this replica follows, if any.
    pub(super) leader: Option<NodeId>,
    pub(super) network: &'a mut Network,
    pub(super) member: &'a mut Member,
    pub(super) clock: &'a SimClock,
    pub(super) prng: &'a mut Prng,
    pub(super) fault: Option<FaultInjection>,
    pub(super) scripts_ended: &'a mut u64,
}

impl Around<'_> {
    fn now_ms(&self) -> u64 {
        self.clock.monotonic_us() / 1000
    }
}

impl Following {
    pub(super) fn new(
        log: Log,
        mirror: Mirror,
        keyspace: Arc<Keyspace>,
        chains: Chains,
        now_ms: u64,
    ) -> Following {
        let end = log.durable_lsn();
        let (replayer, own) = (Replayer::new(keyspace.clone(), chains, end), log.cursor(end));
        Following {
            log,
            mirror,
            keyspace,
            replayer,
            own,
            chunk: None,
            link: Link::Away { until_ms: now_ms },
            backoff: Backoff::default(),
            committed: end,
            is_held_up: false,
            stall: Stall::default(),
        }
    }

    /// The position up to which the log is applied to memory.
    pub(super) fn applied(&self) -> Lsn {
        self.replayer.applied()
    }

    /// A client's script that never ends takes slots that the applier will need.
    pub(super) fn begin_endless_script(&mut self) {
        self.is_held_up = true;
    }

    /// Whether the applier waits for a script to release its slots.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// Ends the script if the script has held up the applier for too long; returns whether it was ended. With
    /// `is_draining`, as in a promotion, the whole received log is to be applied, not only the committed
    /// part.
    pub(super) fn end_script(
        &mut self,
        now_ms: u64,
        is_draining: bool,
        fault: Option<FaultInjection>,
    ) -> bool {
        let durable = self.log.durable_lsn();
        let applicable = if is_draining { self.mirror.position() } else { self.committed.min(durable) };
        let patience_ms = if is_draining { PROMOTION_STALL_MS } else { STALL_MS };
        let has_stalled = self.stall.look(now_ms, self.applied(), applicable, patience_ms);
        let ends = has_stalled && self.is_held_up && fault != Some(FaultInjection::EndNoScript);
        self.is_held_up &= !ends;
        ends
    }

    /// Processes its input and its timers.
    pub(super) fn step(&mut self, around: &mut Around<'_>) -> Result<Next, Failure> {
        let now_ms = around.now_ms();
        let next = match &mut self.link {
            Link::Away { until_ms } => {
                if now_ms >= *until_ms
                    && let Some(leader) = around.leader
                    && self.mirror.position() == self.log.durable_lsn()
                {
                    self.ask(leader, around)?;
                }
                Next::Stay
            }
            Link::Asking { since_ms, .. } if now_ms >= *since_ms + SILENCE_MS => {
                self.leave(around);
                Next::Stay
            }
            Link::Asking { .. } => self.hear_answer(around)?,
            Link::Streaming { .. } => {
                self.stream(around)?;
                Next::Stay
            }
        };
        *around.scripts_ended += u64::from(self.end_script(now_ms, false, around.fault));
        self.apply(around)?;
        Ok(next)
    }

    /// Ends the connection, if there is one, and backs off.
    pub(super) fn leave(&mut self, around: &mut Around<'_>) {
        let now_ms = around.now_ms();
        if let Link::Asking { conn, .. } | Link::Streaming { conn, .. } = self.link {
            if let Link::Streaming { receiver, .. } = &self.link {
                let farewell = Message::Frames(receiver.farewell().to_vec());
                around.network.send(conn, Side::Leader, farewell, now_ms);
            }
            around.network.close(conn, Side::Replica, now_ms);
            self.link = Link::Away { until_ms: now_ms + self.backoff.wait_ms(around.prng.next_u64()) };
        }
    }

    /// Makes this replica a leader, in an epoch above `epoch`.
    pub(super) fn promote(
        &mut self,
        epoch: u32,
        member: &mut Member,
        fault: Option<FaultInjection>,
    ) -> Result<(), Failure> {
        self.log.note_epoch(epoch)?;
        let led = promote(&mut Promoting { following: self, member, fault })?;
        assert_eq!(led, Led::Now, "a replica was not fenced");
        member.change(|role| (role.open(), false))
    }

    fn ask(&mut self, leader: NodeId, around: &mut Around<'_>) -> Result<(), Failure> {
        let joiner = Joiner {
            log_id: self.log.id(),
            replica: around.id,
            process: None,
            port: 6379,
            seen_epoch: around.member.role().remembered().seen_epoch,
            log_epoch: self.log.epoch(),
            end: self.log.durable_lsn(),
            copies_anew: false,
        };
        let (joining, step) = Joining::begin(joiner, &JudgedHistory::new(&self.log, around.fault))?;
        let Step::Ask(arguments) = step else { return Ok(()) };
        let (conn, since_ms) = (around.network.connect(around.number, leader), around.now_ms());
        around.network.send(conn, Side::Leader, Message::Claim(arguments), since_ms);
        self.link = Link::Asking { conn, since_ms, joining };
        Ok(())
    }

    fn hear_answer(&mut self, around: &mut Around<'_>) -> Result<Next, Failure> {
        let now_ms = around.now_ms();
        let Link::Asking { conn, joining, .. } = &mut self.link else { return Ok(Next::Stay) };
        let conn = *conn;
        let step = match around.network.receive(conn, Side::Replica, now_ms) {
            None => return Ok(Next::Stay),
            Some(Message::Line(line)) => {
                match joining.hear(&line, &JudgedHistory::new(&self.log, around.fault)) {
                    Ok(step) => Some(step),
                    Err(JoinError::Log(error)) => return Err(error.into()),
                    Err(_) => None,
                }
            }
            Some(_) => None,
        };
        let next = match step {
            Some(Step::Ask(words)) => {
                let marks = words.into_iter().skip(1).collect();
                around.network.send(conn, Side::Leader, Message::Marks(marks), now_ms);
                return Ok(Next::Stay);
            }
            Some(Step::Settled(Verdict::Follow { epoch })) => {
                self.saw_epoch(epoch, around.member)?;
                self.backoff.reset();
                let receiver = Receiver::new(epoch, self.mirror.position(), now_ms).into();
                self.link = Link::Streaming { conn, receiver };
                return Ok(Next::Stay);
            }
            Some(Step::Settled(Verdict::Cut(at))) => Next::Cut(at),
            Some(Step::Settled(Verdict::Copy { .. } | Verdict::CopyAnew)) => Next::Copy,
            None => Next::Stay,
        };
        self.leave(around);
        Ok(next)
    }

    fn stream(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let now_ms = around.now_ms();
        let Link::Streaming { conn, receiver } = &mut self.link else { return Ok(()) };
        let conn = *conn;
        let mut has_ended = receiver.check(now_ms).is_err();
        while !has_ended {
            match around.network.receive(conn, Side::Replica, now_ms) {
                None => break,
                Some(Message::Frames(bytes)) => receiver.inbox().extend_from_slice(&bytes),
                Some(_) => has_ended = true,
            }
            let mut intake =
                LogIntake { mirror: &mut self.mirror, log: &self.log, member: &mut *around.member };
            match receiver.take_in(now_ms, &mut intake) {
                Ok(()) => {}
                Err(TakeError::Close(_) | TakeError::Intake(IntakeError::NoRoom)) => has_ended = true,
                Err(TakeError::Intake(IntakeError::Failed(failure))) => return Err(failure),
            }
        }
        if has_ended {
            self.leave(around);
            return Ok(());
        }
        let flushed = match around.fault {
            Some(FaultInjection::AckBeforeFlush) => self.mirror.position(),
            _ => self.log.durable_lsn(),
        };
        if let Some(ack) = receiver.ack(now_ms, flushed, self.replayer.applied()) {
            around.network.send(conn, Side::Leader, Message::Frames(ack.to_vec()), now_ms);
        }
        let committed = receiver.committed();
        self.committed = self.committed.max(committed);
        around.member.change(|role| role.confirm(committed)).map(|_: Confirmed| ())
    }

    fn apply(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let Link::Streaming { receiver, .. } = &self.link else { return Ok(()) };
        let durable = self.log.durable_lsn();
        let until = match around.fault {
            Some(FaultInjection::ApplyBeforeCommit) => durable,
            _ => receiver.applicable(durable),
        };
        self.apply_up_to(until)
    }

    fn apply_up_to(&mut self, until: Lsn) -> Result<(), Failure> {
        while self.replayer.applied() < until && !self.is_held_up {
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

    fn saw_epoch(&mut self, epoch: u32, member: &mut Member) -> Result<(), Failure> {
        saw_epoch(&self.log, epoch, member)
    }
}

/// Makes an epoch durable before anything is acknowledged in it.
fn saw_epoch(log: &Log, epoch: u32, member: &mut Member) -> Result<(), Failure> {
    log.note_epoch(epoch)?;
    member.change(|role| ((), role.saw_epoch(epoch)))
}

/// The log of a replica, to which the batches of its leader are appended.
struct LogIntake<'l> {
    mirror: &'l mut Mirror,
    log: &'l Log,
    member: &'l mut Member,
}

/// The reason why a log accepts no more batches.
enum IntakeError {
    /// The disk is full, for now.
    NoRoom,
    Failed(Failure),
}

impl Intake for LogIntake<'_> {
    type Error = IntakeError;

    fn append(&mut self, batches: &[u8], epoch_max: u32) -> Result<usize, IntakeError> {
        self.mirror.append(batches, epoch_max).map_err(|error| IntakeError::Failed(error.into()))
    }

    fn make_room(&mut self) -> Result<(), IntakeError> {
        let before = self.log.written_lsn();
        flush(self.log).map_err(IntakeError::Failed)?;
        if self.log.written_lsn() == before { Err(IntakeError::NoRoom) } else { Ok(()) }
    }

    fn saw_epoch(&mut self, epoch: u32) -> Result<(), IntakeError> {
        saw_epoch(self.log, epoch, self.member).map_err(IntakeError::Failed)
    }
}

/// The steps of a promotion, on one thread.
struct Promoting<'f> {
    following: &'f mut Following,
    member: &'f mut Member,
    fault: Option<FaultInjection>,
}

impl Promotion for Promoting<'_> {
    type Error = Failure;

    fn end_link(&mut self) -> Result<Option<Lsn>, Failure> {
        Ok(Some(self.following.mirror.position()))
    }

    fn make_durable(&mut self, end: Lsn) -> Result<(), Failure> {
        Ok(self.following.log.make_durable(end)?)
    }

    fn apply_all(&mut self, end: Lsn) -> Result<(), Failure> {
        if self.fault == Some(FaultInjection::LeadBeforeApplying) {
            return Ok(());
        }
        self.following.apply_up_to(end)?;
        match self.following.is_held_up && self.following.applied() < end {
            true => Err(Failure::Breach("a promotion waits for a script without an end".into())),
            false => Ok(()),
        }
    }

    fn begin_epoch(&mut self) -> Result<(), Failure> {
        self.following.mirror.promote()?;
        Ok(())
    }

    fn stop_following(&mut self) -> Result<u32, Failure> {
        self.member.change(|role| (role.lead(), true))
    }

    fn outbid(&mut self, epoch: u32) -> Result<(), Failure> {
        Ok(self.following.log.outbid_epoch(epoch)?)
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = match &self.link {
            Link::Away { until_ms } => format!("away until {until_ms} ms"),
            Link::Asking { conn, .. } => format!("asks over {conn}"),
            Link::Streaming { conn, receiver } => format!("streams over {conn} from {}", receiver.position()),
        };
        let (start, end, applied) = (self.log.start_lsn(), self.mirror.position(), self.applied());
        write!(f, "replica, epoch {}, log {start}..{end}, applied {applied}, {link}", self.log.epoch())
    }
}
