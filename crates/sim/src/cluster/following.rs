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
//! - At its start a replica has applied its whole log without knowing which part is committed: it shows
//!   nothing until its leader confirms that all of it is.

use std::{fmt, sync::Arc};

use env::{Clock, Prng, SimClock};
use keyspace::{AccessClock, Keyspace};
use lsn::Lsn;
use replication::{
    Backoff, Receiver, ReplicaId, SILENCE_MS,
    epoch::EPOCH_JUMP_MAX,
    join::{Answer, Claim, History, Mark, PROTOCOL_VERSION, Probe, Probed, format_marks},
};
use server::replay::Replayer;
use storage::{Chains, Chunk, Followed, Log, LogFollower, Mirror};

use super::{
    Treason,
    history::LogHistory,
    network::{ConnId, Message, Network, NodeId, Side},
    node::{Failure, flush},
};

/// The number of log bytes read per chunk to apply.
const APPLY_BYTES: usize = 64 << 10;

/// The connection to the leader.
enum Link {
    Away { until_ms: u64 },
    Asking { conn: ConnId, since_ms: u64, probe: Option<Probe> },
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
    own: LogFollower,
    chunk: Option<Chunk>,
    /// Received bytes that are not in the log yet.
    backlog: Vec<u8>,
    link: Link,
    backoff: Backoff,
    /// The highest epoch seen; it is on disk.
    epoch: u32,
    /// Whether everything applied is known to be committed.
    is_confirmed: bool,
}

/// The surroundings that a step of a replica uses.
pub(super) struct Around<'a> {
    pub(super) id: ReplicaId,
    pub(super) number: NodeId,
    /// The server that it follows, if any.
    pub(super) leader: Option<NodeId>,
    pub(super) network: &'a mut Network,
    pub(super) clock: &'a SimClock,
    pub(super) prng: &'a mut Prng,
    pub(super) treason: Option<Treason>,
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
        let (replayer, own) = (Replayer::new(keyspace.clone(), chains, end), log.follow(end));
        let epoch = log.epoch();
        let (chunk, backlog, link) = (None, Vec::new(), Link::Away { until_ms: now_ms });
        let (backoff, is_confirmed) = (Backoff::default(), false);
        Following { log, mirror, keyspace, replayer, own, chunk, backlog, link, backoff, epoch, is_confirmed }
    }

    /// The position whose state clients may see; `None` if they may see nothing.
    pub(super) fn shown(&self) -> Option<Lsn> {
        self.is_confirmed.then(|| self.replayer.applied())
    }

    /// The position up to which the log is applied to memory.
    pub(super) fn applied(&self) -> Lsn {
        self.replayer.applied()
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
        self.backlog.clear();
    }

    /// Promotes it to leader, in an epoch above `epoch`; applies its whole log.
    pub(super) fn promote(&mut self, epoch: u32) -> Result<u32, Failure> {
        self.log.note_epoch(epoch)?;
        let promoted = self.mirror.promote()?;
        self.apply_up_to(Lsn::MAX)?;
        Ok(promoted)
    }

    fn ask(&mut self, leader: NodeId, around: &mut Around<'_>) -> Result<(), Failure> {
        let end = self.log.durable_lsn();
        let chain =
            LogHistory::new(&self.log, around.treason).batch_ending_at(end)?.map_or(0, |batch| batch.chain);
        let claim = Claim {
            version: PROTOCOL_VERSION,
            log_id: self.log.id(),
            epoch: self.epoch,
            mark: Mark { end, chain },
            port: 6379,
            replica: around.id,
        };
        let (conn, since_ms) = (around.network.connect(around.number, leader), around.now_ms());
        around.network.send(conn, Side::Leader, Message::Claim(claim.arguments().to_vec()), since_ms);
        self.link = Link::Asking { conn, since_ms, probe: None };
        Ok(())
    }

    fn hear_answer(&mut self, around: &mut Around<'_>) -> Result<Next, Failure> {
        let now_ms = around.now_ms();
        let Link::Asking { conn, probe, .. } = &mut self.link else { return Ok(Next::Stay) };
        let conn = *conn;
        let common = match around.network.receive(conn, Side::Replica, now_ms) {
            None => return Ok(Next::Stay),
            Some(Message::Common(common)) => common,
            Some(Message::Line(line)) => match Answer::parse(line.as_bytes()) {
                Some(Answer::Resume { end, epoch })
                    if end == self.mirror.position() && epoch >= self.epoch =>
                {
                    self.note_epoch(epoch)?;
                    let receiver = Receiver::new(epoch, end, now_ms).into();
                    self.backoff.reset();
                    self.link = Link::Streaming { conn, receiver };
                    return Ok(Next::Stay);
                }
                Some(Answer::Probe) => {
                    *probe = Some(Probe::new(self.log.durable_lsn()));
                    None
                }
                Some(Answer::Full { .. }) => {
                    self.leave(around);
                    return Ok(Next::Copy);
                }
                _ => {
                    self.leave(around);
                    return Ok(Next::Stay);
                }
            },
            Some(_) => {
                self.leave(around);
                return Ok(Next::Stay);
            }
        };
        let Some(probe) = probe else {
            self.leave(around);
            return Ok(Next::Stay);
        };
        match probe.next(common, &LogHistory::new(&self.log, around.treason))? {
            Probed::Ask(marks) => {
                let marks = Message::Marks(format_marks(&marks));
                around.network.send(conn, Side::Leader, marks, now_ms);
                Ok(Next::Stay)
            }
            Probed::Common(at) => {
                self.leave(around);
                Ok(Next::Cut(at))
            }
            Probed::Nothing => {
                self.leave(around);
                Ok(Next::Copy)
            }
        }
    }

    fn stream(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let now_ms = around.now_ms();
        self.take_backlog()?;
        let Link::Streaming { conn, receiver } = &mut self.link else { return Ok(()) };
        let conn = *conn;
        let mut has_ended = receiver.check(now_ms).is_err();
        while self.backlog.is_empty() && !has_ended {
            match around.network.receive(conn, Side::Replica, now_ms) {
                None => break,
                Some(Message::Frames(bytes)) => receiver.inbox().extend_from_slice(&bytes),
                Some(_) => has_ended = true,
            }
            loop {
                match receiver.next(now_ms) {
                    Ok(Some(batches)) => self.backlog.extend_from_slice(batches.bytes),
                    Ok(None) => break,
                    Err(_) => {
                        has_ended = true;
                        break;
                    }
                }
            }
        }
        let epoch = receiver.epoch();
        self.note_epoch(epoch)?;
        self.take_backlog()?;
        if has_ended {
            self.leave(around);
            return Ok(());
        }
        let Link::Streaming { receiver, .. } = &mut self.link else { return Ok(()) };
        let flushed = match around.treason {
            Some(Treason::AckBeforeFlush) => self.mirror.position(),
            _ => self.log.durable_lsn(),
        };
        if let Some(ack) = receiver.ack(now_ms, flushed, self.replayer.applied()) {
            around.network.send(conn, Side::Leader, Message::Frames(ack.to_vec()), now_ms);
        }
        Ok(())
    }

    /// Appends received bytes to the log, as far as it has room.
    fn take_backlog(&mut self) -> Result<(), Failure> {
        while !self.backlog.is_empty() {
            let taken = self.mirror.append(&self.backlog, self.epoch.saturating_add(EPOCH_JUMP_MAX))?;
            self.backlog.drain(..taken);
            if taken == 0 {
                let before = self.log.written_lsn();
                flush(&self.log)?;
                if self.log.written_lsn() == before {
                    break;
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let Link::Streaming { receiver, .. } = &self.link else { return Ok(()) };
        let durable = self.log.durable_lsn();
        let until = match around.treason {
            Some(Treason::ApplyBeforeCommit) => durable,
            _ => receiver.applicable(durable),
        };
        self.is_confirmed |= receiver.committed() >= self.replayer.applied();
        self.apply_up_to(until)
    }

    fn apply_up_to(&mut self, until: Lsn) -> Result<(), Failure> {
        while self.replayer.applied() < until {
            let chunk = match self.chunk.take() {
                Some(chunk) => chunk,
                None => match self.own.read(APPLY_BYTES)? {
                    Followed::Chunk(chunk) => chunk,
                    Followed::UpToDate => return Ok(()),
                    Followed::Forgotten(start) => {
                        return Err(Failure::Breach(format!("its own log begins at lsn {start}")));
                    }
                },
            };
            let replayed = self.replayer.apply(&chunk, until, AccessClock::default(), |_| {});
            let applied = replayed.map_err(|error| Failure::Breach(error.to_string()))?.applied;
            drop(self.replayer.take_freed());
            if applied < chunk.end {
                self.chunk = Some(chunk);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Persists a new epoch before anything is acknowledged in it.
    fn note_epoch(&mut self, epoch: u32) -> Result<(), Failure> {
        if epoch > self.epoch {
            self.log.note_epoch(epoch)?;
            self.epoch = epoch;
        }
        Ok(())
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
        write!(f, "replica, epoch {}, log {start}..{end}, applied {applied}, {link}", self.epoch)
    }
}
