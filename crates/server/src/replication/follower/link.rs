//! The thread "replica-link": connects to the leader, and takes its batches into the log here.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use consensus::Link;
use engine::replication::{Address, LinkState};
use env::thread::run_nice;
use keyspace::{Effect, Item};
use lsn::Lsn;
use recovery::replay::decode;
use replication::{
    ACK_BUSY_MS, Backoff, Intake, LogHistory, Receiver, TakeError,
    frame::DISTANCE_MAX,
    join::{JoinError, Joiner, Joining, Step, Verdict},
};
use storage::{Flush, Log, Mirror, Prepare, Record};

use super::{
    super::{
        JOINING_NICE, Node, full_copy,
        line::{Introduction, ask, connect, reason_of},
    },
    FollowingParts,
    following::Following,
};
use crate::{log_threads::LogThreads, repeated::Repeated};

/// The most bytes in one read from the leader.
const READ_BYTES: usize = 256 << 10;
/// The longest wait in a read, so that acknowledgements and deadlines are checked in time.
const READ_TIMEOUT: Duration = Duration::from_millis(ACK_BUSY_MS);

/// How an attempt to follow ended.
enum LinkEnd {
    /// There is no leader to follow at the moment; the link waits until it is woken.
    Idle,
    /// The attempt failed for this reason; try again.
    Retry(String),
    /// The server has to restart in-process.
    Restart,
}

/// The state of the link thread.
pub(super) struct LinkParts {
    node: Arc<Node>,
    following: Arc<Following>,
    log: Log,
    threads: LogThreads,
    mirror: Mirror,
    /// The leader and the term of the connection, in a group.
    link: Option<Link>,
    /// The total size of the batches for which the disk had no room at the last attempt.
    refused_bytes: u64,
}

impl LinkParts {
    /// The link of a server whose log ends at the position of `mirror`.
    pub(super) fn new(
        node: Arc<Node>,
        following: Arc<Following>,
        parts: &FollowingParts,
        mirror: Mirror,
    ) -> LinkParts {
        LinkParts {
            node,
            following,
            log: parts.log.clone(),
            threads: parts.threads.clone(),
            mirror,
            link: None,
            refused_bytes: 0,
        }
    }

    /// Follows until it is stopped or a restart is needed. Returns the mirror: whoever holds the mirror may
    /// append to the log.
    pub(super) fn run(mut self) -> Mirror {
        let mut backoff = Backoff::default();
        let (mut logged, mut logged_of) = (Repeated::default(), None);
        while !self.following.is_stopping() {
            // The count of wakes is read before the leader's address, so that a later change of the address
            // ends the pause after this attempt at once.
            let woken = self.following.begin_attempt(self.node.now_ms());
            let ended = self.attempt(&mut backoff);
            self.following.end_attempt(self.node.now_ms());
            match ended {
                _ if self.following.is_stopping() => break,
                Ok(LinkEnd::Retry(reason)) | Err(reason) => {
                    let wait = Duration::from_millis(backoff.wait_ms(self.node.random_u64()));
                    // If the leader or its term has changed, a reason that was logged before is logged again.
                    let of = self.node.to_follow();
                    if logged_of != of {
                        (logged, logged_of) = (Repeated::default(), of);
                    }
                    if let Some(unlogged) = logged.note(&reason, self.node.now_ms()) {
                        tracing::warn!(
                            target: "replication", reason, unlogged, "cannot follow the leader; trying again"
                        );
                    }
                    self.following.pause(woken, Some(wait));
                }
                Ok(LinkEnd::Idle) => {
                    backoff.reset();
                    self.following.pause(woken, None);
                }
                Ok(LinkEnd::Restart) => {
                    self.node.request_restart();
                    self.following.end_receiving();
                }
            }
        }
        self.mirror
    }

    /// Connects to the leader, and follows it until the connection ends.
    fn attempt(&mut self, backoff: &mut Backoff) -> Result<LinkEnd, String> {
        let Some((leader, link)) = self.node.to_follow() else { return Ok(LinkEnd::Idle) };
        // The connection is made only when the disk has room for the first batches that the leader will send.
        if !self.mirror.make_room_for(self.refused_bytes) {
            return Err(no_room(&self.log));
        }
        self.refused_bytes = 0;
        self.link = link;
        let own = self.node.introduction();
        let Some((socket, verdict)) = self.join(&leader, &own)? else { return self.attempt(backoff) };
        let end = self.mirror.position();
        match verdict {
            Verdict::Follow { epoch } => {
                self.node.saw_epoch(&self.log, epoch)?;
                self.node.found_equal(self.link)?;
                tracing::info!(target: "replication", %leader, from = end.get(), epoch, "following");
                backoff.reset();
                self.confirm(Lsn::ZERO)?;
                let reason = self.receive(socket, epoch);
                *self.following.session() = None;
                Ok(LinkEnd::Retry(reason))
            }
            Verdict::Cut(at) => {
                if let Some(votes) = self.node.votes() {
                    votes.may_cut(self.link, at)?;
                }
                tracing::warn!(
                    target: "replication", at = at.get(), end = end.get(),
                    "this log has diverged from the leader's: its tail is cut and kept in a file"
                );
                self.node.ask_for_cut(at);
                Ok(LinkEnd::Restart)
            }
            Verdict::CopyAnew => {
                tracing::warn!(
                    target: "replication", "this log has nothing in common with the part of the leader's log that is kept"
                );
                self.node.copy_anew();
                Ok(LinkEnd::Retry("everything must be copied".into()))
            }
            Verdict::Copy { http_port } => {
                drop(socket);
                self.copy(&leader, http_port, &own, backoff)
            }
        }
    }

    /// Connects to the leader, and agrees with the leader on how this log can follow. `None` means: try again
    /// at once, because now everything must be copied.
    fn join(&self, leader: &Address, own: &Introduction) -> Result<Option<(TcpStream, Verdict)>, String> {
        let text = |error: storage::Error| error.to_string();
        let mut socket = connect(leader, own, |socket| self.following.begins(socket))?;
        // REPLICAOF may have named another leader before other threads could break this socket.
        if self.following.is_stopping() || self.node.leader_address().as_ref() != Some(leader) {
            return Err(format!("{leader} is no longer the leader to follow"));
        }
        let end = self.mirror.position();
        self.log.make_durable(end).map_err(text)?;
        let (seen_epoch, replica) = self.node.claim();
        let joiner = Joiner {
            log_id: self.log.id(),
            replica,
            process: Some(self.node.process),
            port: self.node.redis_port(),
            seen_epoch,
            log_epoch: self.log.epoch(),
            end,
            copies_anew: self.node.copies_anew(),
        };
        let history = LogHistory(&self.log);
        let (mut joining, mut step) = Joining::begin(joiner, &history).map_err(text)?;
        let mut asked = 0;
        loop {
            let arguments = match step {
                Step::Ask(arguments) => arguments,
                Step::Settled(verdict) => return Ok(Some((socket, verdict))),
            };
            if asked == 1 {
                // The leader has closed the connection on which it found that the logs differ, so a new one
                // is made.
                socket = connect(leader, own, |socket| self.following.begins(socket))?;
            }
            let words: Vec<String> = ["REPLICATE".to_string()].into_iter().chain(arguments).collect();
            let line = ask(&mut socket, &words)?;
            step = match joining.hear(&line, &history) {
                Ok(step) => step,
                // Without data here, the reason for a refusal does not matter: the log is discarded, and
                // everything is copied.
                Err(JoinError::Refused(_))
                    if asked == 0
                        && !self.node.copies_anew()
                        && !self.log.holds_records(holds_data).map_err(text)? =>
                {
                    self.node.copy_anew();
                    return Ok(None);
                }
                // The error comes from reading the log of this server.
                Err(JoinError::Log(error)) => return Err(error.to_string()),
                Err(error) => return Err(format!("{leader} {error}")),
            };
            asked += 1;
        }
    }

    /// Copies everything from the leader, for the next incarnation.
    fn copy(
        &self,
        leader: &Address,
        http_port: u16,
        own: &Introduction,
        backoff: &mut Backoff,
    ) -> Result<LinkEnd, String> {
        self.following.set_link(LinkState::Copying, self.node.now_ms());
        tracing::info!(target: "replication", %leader, "copying everything from the leader");
        let before = self.node.copied_bytes();
        let (node, following) = (&*self.node, &*self.following);
        let fetch = || full_copy::fetch(node, following, leader, http_port, own);
        let fetched = run_nice("full-copy", JOINING_NICE, fetch).map_err(|error| error.to_string())?;
        // If the copy has progressed, the connection has worked.
        if self.node.copied_bytes() > before {
            backoff.reset();
        }
        fetched.map(|()| LinkEnd::Restart)
    }

    /// Receives frames until the connection ends; returns the reason.
    fn receive(&mut self, mut socket: TcpStream, epoch: u32) -> String {
        let prepared = socket.set_read_timeout(Some(READ_TIMEOUT)).and_then(|()| socket.try_clone());
        let for_acks = match prepared {
            Ok(for_acks) => for_acks,
            Err(error) => return error.to_string(),
        };
        let receiver = Receiver::new(epoch, self.mirror.position(), self.node.now_ms());
        *self.following.session() = Some((receiver, for_acks));
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let read = match socket.read(&mut bytes) {
                Ok(0) => return "the leader has closed the connection".into(),
                Ok(read) => read,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    0
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return error.to_string(),
            };
            if self.following.is_stopping() {
                return "stopping".into();
            }
            if let Err(reason) = self.take_in(&bytes[..read]) {
                return reason;
            }
        }
    }

    /// Appends received batches to the log, and sends an acknowledgement if one is due.
    fn take_in(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut session = self.following.session();
        let Some((receiver, socket)) = &mut *session else { return Err("the connection has ended".into()) };
        let now_ms = self.node.now_ms();
        receiver.inbox().extend_from_slice(bytes);
        let mut intake = LinkIntake {
            mirror: &mut self.mirror,
            log: &self.log,
            node: &self.node,
            link: self.link,
            accepted: Lsn::ZERO,
            refused_bytes: &mut self.refused_bytes,
        };
        let taken = receiver.take_in(now_ms, &mut intake);
        if intake.lacks_accepted() {
            // The votes count on batches that the log here lacks. A restart corrects that: afterwards, the
            // votes begin with the batches that the log has.
            self.node.request_restart();
        }
        match taken {
            Ok(()) => {}
            Err(TakeError::Close(close)) => {
                let _ = socket.write_all(&receiver.farewell());
                return Err(close.to_string());
            }
            Err(TakeError::Intake(reason)) => return Err(reason),
        }
        if !bytes.is_empty() {
            self.following.note_heard(now_ms, receiver.distance());
        }
        self.threads.wake_if_needed();
        let committed = receiver.committed();
        self.following.note_committed(committed);
        self.confirm(committed)?;
        receiver.check(now_ms).map_err(|close| close.to_string())?;
        self.following.send_ack(receiver, socket, &self.log, now_ms).map_err(|error| reason_of(&error))
    }

    /// Marks the link as up once all data here may be shown; if nobody leads, marks it as without a leader.
    /// From then on, records that the leader has not committed stay hidden: their changes of keys are not
    /// applied, and their messages are not read, because messages come from the committed log.
    fn confirm(&self, committed: Lsn) -> Result<(), String> {
        let link = match self.following.distance() {
            ..DISTANCE_MAX => LinkState::Connected,
            _ => LinkState::Leaderless,
        };
        if self.following.link() != link {
            if !self.node.confirm(committed)? {
                return Ok(());
            }
            self.following.set_link(link, self.node.now_ms());
        }
        self.following.show_committed(&self.log);
        Ok(())
    }
}

/// The local log, which receives the leader's batches.
struct LinkIntake<'l> {
    mirror: &'l mut Mirror,
    log: &'l Log,
    node: &'l Node,
    link: Option<Link>,
    /// The end of the batches that the votes have accepted.
    accepted: Lsn,
    /// The total size of the batches for which the disk has no room.
    refused_bytes: &'l mut u64,
}

impl LinkIntake<'_> {
    fn lacks_accepted(&self) -> bool {
        self.mirror.position() < self.accepted
    }
}

impl Intake for LinkIntake<'_> {
    type Error = String;

    fn accept(&mut self, start: Lsn, batches: &[u8], commit: Lsn) -> Result<(), String> {
        let bytes = batches.len() as u64;
        // The log must be able to take accepted batches, because the votes count on them. So room is made
        // before the votes accept.
        if !self.mirror.make_room_for(bytes) {
            *self.refused_bytes = bytes;
            return Err(no_room(self.log));
        }
        self.node.accept(self.link, start, batches, commit)?;
        if self.link.is_some() {
            self.accepted = start.advance(bytes);
        }
        Ok(())
    }

    fn append(&mut self, batches: &[u8], epoch_max: u32) -> Result<usize, String> {
        self.mirror.append(batches, epoch_max).map_err(|error| error.to_string())
    }

    fn make_room(&mut self) -> Result<(), String> {
        let text = |error: storage::Error| error.to_string();
        if self.log.flush().map_err(text)? == Flush::NeedSegment
            && self.log.prepare_segment().map_err(text)? == Prepare::NoRoom
        {
            return Err(no_room(self.log));
        }
        Ok(())
    }

    fn saw_epoch(&mut self, epoch: u32) -> Result<(), String> {
        self.node.saw_epoch(self.log, epoch)
    }
}

fn no_room(log: &Log) -> String {
    format!("the disk has no room for the log: {}", log.no_room_reason())
}

/// Whether a record holds anything but settings of the data, or cannot be decoded.
pub(crate) fn holds_data(record: &Record<'_>) -> bool {
    let mut rest = record.payload;
    loop {
        match decode(&mut rest, record.lsn) {
            Ok(None) => return false,
            Ok(Some(Item::Effect(Effect::Setting { .. }))) => {}
            _ => return true,
        }
    }
}
