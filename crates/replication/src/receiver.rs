//! The replica's side of its connection to the leader: receives the log, acknowledges it, and detects a dead
//! leader.
//!
//! ```text
//! bytes of the leader --> next --> whole batches, for the log here     committed: the limit of application
//! flushed, applied, time --------> ack --> bytes for the leader
//! ```
//!
//! A [`Receiver`] does not hold the log: an [`Intake`] appends batches to the log, which verifies every
//! record, before the next batches are processed. If the log refuses a batch, the connection ends.
//!
//! Invariants
//! - Batches arrive without a gap, from the agreed position on, or not at all.
//! - A frame of a leader whose epoch is lower than the highest seen ends the connection; the farewell names
//!   the higher epoch.
//! - The distance is one more than the distance in the last heartbeat, at most [`DISTANCE_MAX`]. After a LOG
//!   frame, the distance is one.
//! - `committed` never goes back, and [`Receiver::applicable`] is neither above it nor above the durable end.
//! - An ack is due at once after a flush, within [`ACK_BUSY_MS`] after other progress, and within
//!   [`ACK_IDLE_MS`] without any. None is due once [`Receiver::take_in`] has failed.
//! - Nothing is acknowledged in an epoch that was not persisted.

use lsn::Lsn;

use crate::{
    Close, Inbox,
    epoch::{EPOCH_JUMP_MAX, is_too_far},
    frame::{DISTANCE_MAX, Frame, HEADER_BYTES},
    timing::{ACK_BUSY_MS, ACK_IDLE_MS, SILENCE_MS},
};

/// Whole batches of the leader's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogBytes<'b> {
    /// The position at which the first batch starts: the end of the log here.
    pub start: Lsn,
    /// The bytes of the batches, as on the leader's disk.
    pub bytes: &'b [u8],
    /// The highest epoch that these batches may name. A higher one is not believed, as in frames.
    pub epoch_max: u32,
    /// The highest commit position that the leader has sent.
    pub commit: Lsn,
}

/// The destination of received batches.
pub trait Intake {
    /// Why it refuses batches, or cannot append them.
    type Error;

    /// Decides whether these whole batches, which start at `start`, may be appended. `commit`: the leader's
    /// commit position. By default they may.
    ///
    /// # Errors
    /// Why they may not be appended now.
    fn accept(&mut self, start: Lsn, batches: &[u8], commit: Lsn) -> Result<(), Self::Error> {
        let _ = (start, batches, commit);
        Ok(())
    }

    /// Appends as many of these bytes as fit, and returns how many.
    ///
    /// # Errors
    /// If the log refuses them, or has failed.
    fn append(&mut self, batches: &[u8], epoch_max: u32) -> Result<usize, Self::Error>;

    /// Makes room by writing appended batches.
    ///
    /// # Errors
    /// If no room can be made.
    fn make_room(&mut self) -> Result<(), Self::Error>;

    /// Persists an epoch, before anything in it is acknowledged.
    ///
    /// # Errors
    /// If it cannot be persisted.
    fn saw_epoch(&mut self, epoch: u32) -> Result<(), Self::Error>;
}

/// Why [`Receiver::take_in`] failed.
#[derive(Debug)]
pub enum TakeError<E> {
    /// The connection must be closed. The caller sends [`Receiver::farewell`] before that.
    Close(Close),
    /// The error of the [`Intake`].
    Intake(E),
}

/// A commit position, and the leader's time when it was sent.
type CommitNotice = (Lsn, u64);

/// The state of a replica's connection to its leader.
pub struct Receiver {
    inbox: Inbox,
    /// The highest epoch seen, here or on the wire.
    epoch: u32,
    /// The start of the next batch.
    position: Lsn,
    committed: Lsn,
    heard_ms: u64,
    distance: Option<u8>,
    /// A commit position that was not applied yet at the last look; `None` if there was none.
    awaited: Option<CommitNotice>,
    /// The newest commit position that came after `awaited`.
    newest: Option<CommitNotice>,
    as_of_ms: u64,
    /// The positions and the time of the last ack.
    flushed_acked: Lsn,
    applied_acked: Lsn,
    acked_ms: u64,
    has_news: bool,
    /// [`Receiver::take_in`] has failed: the connection is to end, and nothing more is acknowledged.
    has_failed: bool,
}

impl Receiver {
    /// Continues at `start`, the end of the durable log here; `epoch` is the highest ever seen here.
    pub fn new(epoch: u32, start: Lsn, now_ms: u64) -> Receiver {
        Receiver {
            inbox: Inbox::default(),
            epoch,
            position: start,
            committed: Lsn::ZERO,
            heard_ms: now_ms,
            distance: None,
            awaited: None,
            newest: None,
            as_of_ms: 0,
            flushed_acked: Lsn::ZERO,
            applied_acked: Lsn::ZERO,
            acked_ms: now_ms,
            // The first ack is due soon even if nothing is flushed.
            has_news: true,
            has_failed: false,
        }
    }

    /// The buffer to which bytes of the leader are appended; then call [`Receiver::take_in`], or
    /// [`Receiver::next`] until it returns `None`.
    pub fn inbox(&mut self) -> &mut Vec<u8> {
        self.inbox.space()
    }

    /// The next whole batches for the log here, if any.
    ///
    /// # Errors
    /// If the connection must be closed. The caller sends [`Receiver::farewell`] before that.
    pub fn next(&mut self, now_ms: u64) -> Result<Option<LogBytes<'_>>, Close> {
        while let Some((frame, payload)) = self.inbox.next()? {
            let (epoch, own) = (frame.epoch(), self.epoch);
            if is_too_far(epoch, own) {
                return Err(Close::Epoch { epoch, own });
            }
            if epoch < own {
                return Err(Close::Fenced { epoch: own, own: epoch });
            }
            self.heard_ms = now_ms;
            match frame {
                Frame::Fenced { .. } => return Err(Close::Fenced { epoch, own }),
                Frame::Log { start: found, commit, sent_ms, .. }
                | Frame::Heartbeat { end: found, commit, sent_ms, .. } => {
                    let expected = self.position;
                    if found != expected {
                        return Err(Close::Gap { expected, found });
                    }
                    self.epoch = epoch;
                    self.note_commit(commit, sent_ms);
                    self.distance = Some(match frame {
                        Frame::Heartbeat { distance, .. } => distance.saturating_add(1).min(DISTANCE_MAX),
                        _ => 1,
                    });
                }
                Frame::Ack { .. } => return Err(Close::Direction),
            }
            if let Frame::Log { start, bytes, .. } = frame {
                self.position = start.advance(bytes.into());
                self.has_news = true;
                let (bytes, epoch_max) = (self.inbox.payload(payload), epoch.saturating_add(EPOCH_JUMP_MAX));
                return Ok(Some(LogBytes { start, bytes, epoch_max, commit: self.committed }));
            }
        }
        Ok(None)
    }

    /// Appends all whole batches received to the log here. If that fails, [`Receiver::ack`] returns nothing
    /// from then on.
    ///
    /// # Errors
    /// See [`TakeError`].
    pub fn take_in<I: Intake>(&mut self, now_ms: u64, intake: &mut I) -> Result<(), TakeError<I::Error>> {
        let taken = self.take_batches(now_ms, intake);
        self.has_failed |= taken.is_err();
        taken
    }

    fn take_batches<I: Intake>(&mut self, now_ms: u64, intake: &mut I) -> Result<(), TakeError<I::Error>> {
        loop {
            let known = self.epoch;
            let ended = match self.next(now_ms) {
                Ok(Some(LogBytes { start, bytes, epoch_max, commit })) => {
                    intake.accept(start, bytes, commit).map_err(TakeError::Intake)?;
                    let mut rest = bytes;
                    while !rest.is_empty() {
                        let taken = intake.append(rest, epoch_max).map_err(TakeError::Intake)?;
                        rest = &rest[taken..];
                        if !rest.is_empty() {
                            intake.make_room().map_err(TakeError::Intake)?;
                        }
                    }
                    None
                }
                Ok(None) => Some(Ok(())),
                Err(close) => Some(Err(TakeError::Close(close))),
            };
            // A heartbeat may raise the epoch too, and the farewell names it.
            if self.epoch > known {
                intake.saw_epoch(self.epoch).map_err(TakeError::Intake)?;
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// The highest epoch seen. It must be persisted before anything in it is acknowledged.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The end of the batches returned so far.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The position up to which records may be applied, given the durable end of the log here.
    pub fn applicable(&self, durable: Lsn) -> Lsn {
        self.committed.min(durable)
    }

    /// The number of steps from this replica to the server that leads: 1 if this replica follows that server
    /// directly, and after a LOG frame until the next heartbeat. [`DISTANCE_MAX`] if no server seems to lead;
    /// `None` before the first frame.
    pub fn distance(&self) -> Option<u8> {
        self.distance
    }

    /// The highest commit position that the leader has sent.
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// The ack to send now, if one is due.
    pub fn ack(&mut self, now_ms: u64, flushed: Lsn, applied: Lsn) -> Option<[u8; HEADER_BYTES]> {
        if self.has_failed {
            return None;
        }
        self.note_applied(applied);
        let has_flushed = flushed > self.flushed_acked;
        self.has_news |= applied > self.applied_acked;
        (has_flushed || now_ms >= self.ack_due_ms()).then(|| {
            (self.flushed_acked, self.applied_acked) = (flushed, applied);
            (self.acked_ms, self.has_news) = (now_ms, false);
            self.farewell()
        })
    }

    /// An ack that repeats the positions of the last ack. As the last message to a leader that is abandoned,
    /// it reports the highest epoch seen.
    pub fn farewell(&self) -> [u8; HEADER_BYTES] {
        let (flushed, applied) = (self.flushed_acked, self.applied_acked);
        Frame::Ack { epoch: self.epoch, flushed, applied, as_of_ms: self.as_of_ms }.encode()
    }

    /// Checks that the leader is alive.
    ///
    /// # Errors
    /// [`Close::Silent`] if no frame of the leader was received for [`SILENCE_MS`].
    pub fn check(&self, now_ms: u64) -> Result<(), Close> {
        if now_ms >= self.heard_ms + SILENCE_MS { Err(Close::Silent) } else { Ok(()) }
    }

    fn ack_due_ms(&self) -> u64 {
        self.acked_ms + if self.has_news { ACK_BUSY_MS } else { ACK_IDLE_MS }
    }

    fn note_commit(&mut self, commit: Lsn, sent_ms: u64) {
        self.committed = self.committed.max(commit);
        let told = Some((self.committed, sent_ms));
        if self.awaited.is_none() { self.awaited = told } else { self.newest = told }
    }

    fn note_applied(&mut self, applied: Lsn) {
        while let Some((commit, told_ms)) = self.awaited
            && commit <= applied
        {
            self.as_of_ms = told_ms;
            self.awaited = self.newest.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u32 = 5;

    fn receiver() -> Receiver {
        Receiver::new(EPOCH, Lsn::new(4096), 0)
    }

    fn send(receiver: &mut Receiver, frame: Frame) {
        receiver.inbox().extend_from_slice(&frame.encode());
        receiver.inbox().extend(std::iter::repeat_n(b'x', frame.payload_bytes()));
    }

    fn log(epoch: u32, start: u64, bytes: u32, commit: u64) -> Frame {
        Frame::Log { epoch, start: Lsn::new(start), bytes, commit: Lsn::new(commit), sent_ms: 77 }
    }

    fn heartbeat(epoch: u32, end: u64, commit: u64, sent_ms: u64) -> Frame {
        Frame::Heartbeat { epoch, end: Lsn::new(end), commit: Lsn::new(commit), sent_ms, distance: 0 }
    }

    fn decoded(ack: Option<[u8; HEADER_BYTES]>) -> Option<Frame> {
        Frame::decode(&ack?).expect("a sound frame")
    }

    /// A log that takes few bytes at a time, and records the calls of the receiver.
    #[derive(Default)]
    struct SmallLog {
        bytes: Vec<u8>,
        room: usize,
        epoch_max: Vec<u32>,
        epochs: Vec<u32>,
    }

    impl Intake for SmallLog {
        type Error = &'static str;

        fn append(&mut self, batches: &[u8], epoch_max: u32) -> Result<usize, &'static str> {
            assert!(!batches.is_empty());
            let taken = batches.len().min(self.room);
            self.bytes.extend_from_slice(&batches[..taken]);
            self.room -= taken;
            self.epoch_max.push(epoch_max);
            Ok(taken)
        }

        fn make_room(&mut self) -> Result<(), &'static str> {
            assert_eq!(self.room, 0, "room is made only where there is none");
            self.room = 1000;
            Ok(())
        }

        fn saw_epoch(&mut self, epoch: u32) -> Result<(), &'static str> {
            self.epochs.push(epoch);
            if epoch == 9 { Err("the disk is full") } else { Ok(()) }
        }
    }

    #[test]
    fn a_log_with_little_room_gets_every_byte_and_every_epoch() {
        let (mut receiver, mut log_here) = (receiver(), SmallLog { room: 4096, ..SmallLog::default() });
        send(&mut receiver, log(EPOCH, 4096, 4096, 0));
        receiver.take_in(1, &mut log_here).expect("taken in");
        assert_eq!((log_here.bytes.len(), log_here.epochs.len()), (4096, 0), "no new epoch");
        assert_eq!(log_here.epoch_max, [EPOCH + EPOCH_JUMP_MAX]);
        send(&mut receiver, log(EPOCH + 1, 8192, 4096, 0));
        send(&mut receiver, heartbeat(EPOCH + 2, 12288, 0, 0));
        receiver.take_in(2, &mut log_here).expect("taken in");
        assert_eq!(log_here.bytes, vec![b'x'; 8192]);
        assert_eq!(log_here.epochs, [EPOCH + 1, EPOCH + 2], "each epoch once");
        send(&mut receiver, heartbeat(9, 12288, 0, 0));
        assert!(matches!(receiver.take_in(3, &mut log_here), Err(TakeError::Intake("the disk is full"))));
        send(&mut receiver, heartbeat(1, 12288, 0, 0));
        assert!(matches!(receiver.take_in(3, &mut log_here), Err(TakeError::Close(Close::Fenced { .. }))));
    }

    #[test]
    fn nothing_is_acknowledged_in_an_epoch_that_could_not_be_saved() {
        let (mut receiver, mut log_here) = (receiver(), SmallLog { room: 4096, ..SmallLog::default() });
        send(&mut receiver, log(9, 4096, 4096, 0));
        assert!(matches!(receiver.take_in(1, &mut log_here), Err(TakeError::Intake(_))));
        let end = Lsn::new(8192);
        assert_eq!(receiver.ack(ACK_IDLE_MS, end, end), None, "the batch is on disk, its epoch is not");
    }

    #[test]
    fn an_epoch_is_saved_before_a_farewell_names_it() {
        let (mut receiver, mut log_here) = (receiver(), SmallLog::default());
        send(&mut receiver, heartbeat(EPOCH + 1, 4096, 0, 0));
        send(&mut receiver, heartbeat(EPOCH + 1, 8192, 0, 0));
        assert!(matches!(receiver.take_in(1, &mut log_here), Err(TakeError::Close(Close::Gap { .. }))));
        assert_eq!(decoded(Some(receiver.farewell())).map(|it| it.epoch()), Some(EPOCH + 1));
        assert_eq!(log_here.epochs, [EPOCH + 1]);
        let end = Lsn::new(4096);
        assert_eq!(receiver.ack(ACK_IDLE_MS, end, end), None, "the farewell was the last");
    }

    #[test]
    fn batches_come_in_order_with_the_commit_of_the_leader() {
        let mut receiver = receiver();
        send(&mut receiver, log(EPOCH, 4096, 8192, 8192));
        send(&mut receiver, heartbeat(EPOCH, 12288, 12288, 80));
        send(&mut receiver, log(EPOCH + 1, 12288, 4096, 8192));
        let first = receiver.next(1).expect("sound").expect("a batch");
        assert_eq!((first.start, first.bytes.len()), (Lsn::new(4096), 8192));
        assert_eq!(receiver.committed(), Lsn::new(8192));
        assert_eq!(receiver.next(1).expect("sound").expect("a batch").start, Lsn::new(12288));
        assert_eq!(receiver.next(1), Ok(None));
        assert_eq!(receiver.committed(), Lsn::new(12288), "it does not go back");
        assert_eq!((receiver.epoch(), receiver.position()), (EPOCH + 1, Lsn::new(16384)));
        assert_eq!(receiver.applicable(Lsn::new(4096)), Lsn::new(4096), "not before it is durable here");
        assert_eq!(receiver.applicable(Lsn::new(16384)), Lsn::new(12288), "not before it is committed");
    }

    #[test]
    fn an_unexpected_frame_ends_the_connection() {
        let gap = |found| Close::Gap { expected: Lsn::new(4096), found: Lsn::new(found) };
        let cases = [
            (log(EPOCH, 8192, 10, 0), gap(8192)),
            (log(EPOCH, 0, 4096, 0), gap(0)),
            (heartbeat(EPOCH, 8192, 0, 0), gap(8192)),
            (heartbeat(u32::MAX, 4096, 0, 0), Close::Epoch { epoch: u32::MAX, own: EPOCH }),
            (Frame::Fenced { epoch: u32::MAX }, Close::Epoch { epoch: u32::MAX, own: EPOCH }),
            (Frame::Fenced { epoch: 9 }, Close::Fenced { epoch: 9, own: EPOCH }),
            (log(EPOCH - 1, 4096, 10, 0), Close::Fenced { epoch: EPOCH, own: EPOCH - 1 }),
            (
                Frame::Ack { epoch: EPOCH, flushed: Lsn::ZERO, applied: Lsn::ZERO, as_of_ms: 0 },
                Close::Direction,
            ),
        ];
        for (frame, close) in cases {
            let mut receiver = receiver();
            send(&mut receiver, frame);
            assert_eq!(receiver.next(0), Err(close), "{frame:?}");
            assert_eq!((receiver.position(), receiver.epoch()), (Lsn::new(4096), EPOCH));
        }
    }

    #[test]
    fn a_leader_of_an_older_epoch_is_told_the_newer_one() {
        let mut receiver = receiver();
        send(&mut receiver, heartbeat(EPOCH - 1, 4096, 4096, 0));
        assert!(receiver.next(0).is_err());
        assert_eq!(receiver.committed(), Lsn::ZERO, "it was not listened to");
        assert_eq!(decoded(Some(receiver.farewell())).map(|it| it.epoch()), Some(EPOCH));
    }

    #[test]
    fn acks_come_after_flushes_and_when_their_time_has_come() {
        let mut receiver = receiver();
        let (start, end) = (Lsn::new(4096), Lsn::new(8192));
        let ack = |flushed, applied| Some(Frame::Ack { epoch: EPOCH, flushed, applied, as_of_ms: 0 });
        assert_eq!(decoded(receiver.ack(0, start, start)), ack(start, start), "where it stands");
        assert_eq!(receiver.ack(ACK_IDLE_MS - 1, start, start), None);
        assert_eq!(receiver.ack_due_ms(), ACK_IDLE_MS);
        assert_eq!(decoded(receiver.ack(ACK_IDLE_MS, start, start)), ack(start, start));
        send(&mut receiver, log(EPOCH, 4096, 4096, 4096));
        assert!(receiver.next(ACK_IDLE_MS + 10).expect("sound").is_some());
        assert_eq!(receiver.ack_due_ms(), ACK_IDLE_MS + ACK_BUSY_MS);
        assert_eq!(receiver.ack(ACK_IDLE_MS + 20, start, start), None);
        assert!(receiver.ack(ACK_IDLE_MS + 21, end, start).is_some(), "after a flush");
        assert_eq!(receiver.ack(ACK_IDLE_MS + 22, end, end), None, "that it was applied can wait");
        assert!(receiver.ack(ACK_IDLE_MS + 21 + ACK_BUSY_MS, end, end).is_some());
    }

    #[test]
    fn an_ack_says_how_old_a_read_is() {
        let mut receiver = receiver();
        let as_of = |receiver: &mut Receiver, now_ms, applied| {
            let Some(Frame::Ack { as_of_ms, .. }) =
                decoded(receiver.ack(now_ms, Lsn::new(now_ms * 4096), Lsn::new(applied)))
            else {
                panic!("an ack is due after every flush")
            };
            as_of_ms
        };
        send(&mut receiver, heartbeat(EPOCH, 4096, 8192, 10));
        send(&mut receiver, heartbeat(EPOCH, 4096, 12288, 20));
        send(&mut receiver, heartbeat(EPOCH, 4096, 16384, 30));
        assert_eq!(receiver.next(1), Ok(None));
        assert_eq!(as_of(&mut receiver, 2, 4096), 0);
        assert_eq!(as_of(&mut receiver, 3, 12288), 10);
        assert_eq!(as_of(&mut receiver, 4, 16384), 30);
        send(&mut receiver, heartbeat(EPOCH, 4096, 16384, 40));
        assert_eq!(receiver.next(4), Ok(None));
        assert_eq!(as_of(&mut receiver, 5, 16384), 40);
    }

    #[test]
    fn a_leader_that_says_nothing_is_dead() {
        let mut receiver = receiver();
        assert_eq!(receiver.check(SILENCE_MS - 1), Ok(()));
        assert_eq!(receiver.check(SILENCE_MS), Err(Close::Silent));
        send(&mut receiver, heartbeat(EPOCH, 4096, 0, 0));
        assert_eq!(receiver.next(SILENCE_MS - 1), Ok(None));
        assert_eq!(receiver.check(SILENCE_MS), Ok(()));
    }
    #[test]
    fn distances_in_a_ring_grow_until_nobody_leads() {
        let mut ring = [receiver(), receiver(), receiver()];
        assert_eq!(ring[0].distance(), None);
        let mut told = 0;
        let mut beat = |receiver: &mut Receiver, distance| {
            told += 1;
            let (end, commit) = (Lsn::new(4096), Lsn::ZERO);
            send(receiver, Frame::Heartbeat { epoch: EPOCH, end, commit, sent_ms: told, distance });
            assert_eq!(receiver.next(told), Ok(None));
            receiver.distance().expect("heard")
        };
        let mut distance = 0;
        for step in 1..=3 * DISTANCE_MAX {
            distance = beat(&mut ring[usize::from(step) % 3], distance);
            assert_eq!(distance, step.min(DISTANCE_MAX));
        }
        assert_eq!(beat(&mut ring[0], 0), 1, "it follows one that leads");
        let leaderless = beat(&mut ring[1], u8::MAX);
        assert_eq!(leaderless, DISTANCE_MAX);
        send(&mut ring[1], log(EPOCH, 4096, 10, 0));
        assert!(ring[1].next(9).expect("sound").is_some());
        assert_eq!(ring[1].distance(), Some(1), "somebody writes");
    }

    #[test]
    fn the_distance_is_no_part_of_the_time_that_an_ack_returns() {
        let mut receiver = receiver();
        let (end, commit) = (Lsn::new(4096), Lsn::new(4096));
        send(&mut receiver, Frame::Heartbeat { epoch: EPOCH, end, commit, sent_ms: 10, distance: 3 });
        assert_eq!(receiver.next(1), Ok(None));
        assert_eq!(receiver.distance(), Some(4));
        let ack = decoded(receiver.ack(2, Lsn::new(4096), Lsn::new(4096)));
        assert!(matches!(ack, Some(Frame::Ack { as_of_ms: 10, .. })), "{ack:?}");
    }
}
