//! The replay of a whole log into a keyspace without other users, in parallel by slot.
//!
//! ```text
//! reader: read, verify, split by slot --(chunks of effects)--> applier 0: slots 0, W, 2W, ...
//!                                     --------------------->  applier 1: slots 1, W+1, ...
//! ```
//!
//! Invariants
//! - Effects of one slot are applied in log order: one applier owns the slot, and its queue is in log order.
//! - A Move touches two slots, possibly of two owners. The reader hands over the queued effects, waits until
//!   every applier has applied them, and applies the Move itself. Only large values are moved by this effect,
//!   so it is rare. No other thread waits for anything but a queue, so there is no deadlock.
//! - A global effect (FLUSHALL, ...) goes to every applier, at its place in each queue; each applies it to
//!   its own slots.
//! - Of a record, only effects not included in the captured state of their slots are applied. A Move
//!   becomes a removal of the source if the source was captured before it, and the destination after it. In
//!   the opposite case the value would be lost; the server prevents that case (see [`Keyspace::may_move`],
//!   and for a replica [`LockedSlots::capture_before_moves`](keyspace::LockedSlots::capture_before_moves)).
//! - An effect that meets a value of another type fails the replay. The applier that meets it applies nothing
//!   more, but empties its queue, so that the reader never waits for it in vain.
//! - Memory in flight is bounded. An applier has at most [`CHUNKS_QUEUED`] queued chunks, and one that it
//!   applies. These chunks of all appliers together have at most [`BYTES_IN_FLIGHT_MAX`] bytes, or are one
//!   larger effect. In addition, each queue has a chunk that is being filled, below [`CHUNK_BYTES`]; at most
//!   one of these is larger, and waits for room.

use std::{
    convert::Infallible,
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

use documents::Documents;
use keyspace::{AccessClock, Effect, Freed, Item, Keyspace, Scope, SlotId, slot_of};
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};
use storage::Recovery;

use super::{Group, decode, require_type};
use crate::{error::RecoverError, load::Loaded, progress::LoadProgress};

/// The approximate size of the chunks in which effects are handed over.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum number of queued chunks per applier.
const CHUNKS_QUEUED: usize = 8;
/// Maximum bytes of all chunks that are handed over and not applied yet: chunks of large values are few.
const BYTES_IN_FLIGHT_MAX: usize = 128 << 20;
/// Bytes before each effect in a chunk: its LSN and its length.
const PREFIX_BYTES: usize = 12;

/// The memory into which a replay applies records, with the state loaded from a snapshot.
#[derive(Clone, Copy)]
pub(crate) struct Target<'k> {
    pub(crate) keyspace: &'k Keyspace,
    /// `None`: document changes are skipped.
    pub(crate) documents: Option<&'k Documents>,
    pub(crate) now: AccessClock,
    pub(crate) loaded: &'k Loaded,
}

impl Target<'_> {
    /// Changes document databases on the reader's thread: such changes are few compared with effects on keys,
    /// and must stay in order.
    fn apply_documents(&self, lsn: Lsn, change: &[u8]) -> Result<(), RecoverError> {
        self.documents.map_or(Ok(()), |documents| apply_documents(documents, lsn, change))
    }
}

fn apply_documents(documents: &Documents, lsn: Lsn, change: &[u8]) -> Result<(), RecoverError> {
    documents.apply(change, lsn).map_err(|reason| RecoverError::Documents { lsn, reason })
}

/// Decodes the records to be replayed, and changes document databases in memory.
pub(crate) fn rehearse_replay(
    recovery: &mut Recovery,
    documents: &Documents,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    recovery.replay(
        |lsn, payload| {
            let mut rest = payload;
            while let Some(item) = decode(&mut rest, lsn)? {
                if let Item::Documents(change) = item {
                    apply_documents(documents, lsn, change)?;
                }
            }
            Ok(())
        },
        |lsn| progress.reached(lsn),
    )
}

/// Replays on the calling thread.
pub(crate) fn replay_here(
    recovery: &mut Recovery,
    target: Target<'_>,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    let mut applier = Applier { target, index: 0, count: 1, freed: Freed::new() };
    recovery.replay(
        |lsn, payload| {
            progress.count_record();
            let mut rest = payload;
            while let Some(item) = decode(&mut rest, lsn)? {
                match item {
                    Item::Effect(effect) => {
                        if let Some(effect) = target.loaded.left_of(effect, lsn)? {
                            applier.apply(lsn, &effect)?;
                        }
                    }
                    Item::Documents(change) => target.apply_documents(lsn, change)?,
                    Item::Message(_) => {}
                }
            }
            Ok(())
        },
        |lsn| progress.reached(lsn),
    )
}

/// Replays on `appliers` additional threads.
pub(crate) fn replay_in_parallel(
    recovery: &mut Recovery,
    target: Target<'_>,
    appliers: usize,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    thread::scope(|scope| {
        let (mut queues, mut running) = (Vec::new(), Vec::new());
        let in_flight = InFlight::new(BYTES_IN_FLIGHT_MAX);
        for index in 0..appliers {
            let (sender, receiver) = sync_channel(CHUNKS_QUEUED);
            let applier = Applier { target, index, count: appliers, freed: Freed::new() };
            let name = format!("apply-{index}");
            let spawned =
                thread::Builder::new().name(name).spawn_scoped(scope, move || applier.run(&receiver));
            running.push(spawned.map_err(RecoverError::Thread)?);
            queues.push(Queue {
                sender,
                chunk: Vec::with_capacity(CHUNK_BYTES),
                in_flight: in_flight.clone(),
            });
        }
        let mut splitter = Splitter { target, queues };
        recovery.replay(
            |lsn, payload| {
                progress.count_record();
                splitter.split(lsn, payload)
            },
            |lsn| progress.reached(lsn),
        )?;
        splitter.queues.iter_mut().for_each(Queue::send_chunk);
        // The end of the queues ends the appliers.
        drop(splitter);
        running.into_iter().try_for_each(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// The reader's side: queues each effect of a record for the applier of its slot.
struct Splitter<'k> {
    target: Target<'k>,
    queues: Vec<Queue>,
}

impl Splitter<'_> {
    fn split(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), RecoverError> {
        let mut rest = payload;
        loop {
            let before = rest;
            let effect = match decode(&mut rest, lsn)? {
                Some(Item::Effect(effect)) => effect,
                Some(Item::Documents(change)) => {
                    self.target.apply_documents(lsn, change)?;
                    continue;
                }
                Some(Item::Message(_)) => continue,
                None => return Ok(()),
            };
            let bytes = &before[..before.len() - rest.len()];
            let is_move = matches!(effect, Effect::Move { .. });
            let Some(effect) = self.target.loaded.left_of(effect, lsn)? else { continue };
            match effect.scope() {
                Scope::Slot(key) => {
                    let owner = slot_of(key).index() % self.queues.len();
                    if is_move {
                        let mut removal = Vec::new();
                        effect.encode_into(&mut removal);
                        self.queues[owner].push(lsn, &removal);
                    } else {
                        self.queues[owner].push(lsn, bytes);
                    }
                }
                Scope::Two(from, to) => {
                    self.wait_for_appliers();
                    apply_to_two(self.target, lsn, &effect, [from, to], &mut Freed::new());
                }
                Scope::Global => self.queues.iter_mut().for_each(|queue| queue.push(lsn, bytes)),
            }
        }
    }

    /// Returns when the appliers have applied everything handed over, or have failed.
    fn wait_for_appliers(&mut self) {
        let (mark, all_reached) = channel();
        for queue in &mut self.queues {
            queue.send_chunk();
            queue.send(Work::Mark(mark.clone()));
        }
        drop(mark);
        // Nothing is ever sent: this returns when the last applier has dropped its mark.
        let Err(_) = all_reached.recv();
    }
}

/// A message to an applier.
enum Work {
    /// Effects, each with its prefix.
    Chunk(Vec<u8>, Room),
    /// A mark, which the applier drops once everything queued before the mark is applied, or an error was
    /// met.
    Mark(Sender<Infallible>),
}

/// The bytes that are handed over to appliers and not applied yet.
struct InFlight {
    bytes_max: usize,
    bytes: Mutex<usize>,
    given_back: Condvar,
}

/// Room for the bytes of a chunk, which is given back when this is dropped.
struct Room {
    in_flight: Arc<InFlight>,
    bytes: usize,
}

impl InFlight {
    fn new(bytes_max: usize) -> Arc<InFlight> {
        Arc::new(InFlight { bytes_max, bytes: Mutex::default(), given_back: Condvar::new() })
    }

    /// Waits until there is room for so many bytes, or nothing is in flight.
    fn take(self: &Arc<Self>, bytes: usize) -> Room {
        let mut used = self.bytes.lock();
        while *used > 0 && *used + bytes > self.bytes_max {
            self.given_back.wait(&mut used);
        }
        *used += bytes;
        Room { in_flight: self.clone(), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.in_flight.bytes.lock() -= self.bytes;
        self.in_flight.given_back.notify_all();
    }
}

/// The queue of one applier, with the chunk being filled.
struct Queue {
    sender: SyncSender<Work>,
    chunk: Vec<u8>,
    in_flight: Arc<InFlight>,
}

impl Queue {
    fn push(&mut self, lsn: Lsn, effect: &[u8]) {
        if self.chunk.len() + PREFIX_BYTES + effect.len() > CHUNK_BYTES {
            self.send_chunk();
        }
        self.chunk.extend_from_slice(&lsn.get().to_le_bytes());
        self.chunk.extend_from_slice(&(effect.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(effect);
        if self.chunk.len() >= CHUNK_BYTES {
            self.send_chunk();
        }
    }

    /// Sends the chunk being filled.
    fn send_chunk(&mut self) {
        if !self.chunk.is_empty() {
            let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
            let room = self.in_flight.take(chunk.len());
            self.send(Work::Chunk(chunk, room));
        }
    }

    fn send(&self, work: Work) {
        self.sender.send(work).expect("appliers live until their queue ends");
    }
}

/// Applies a Move under the locks of the slots of both keys.
fn apply_to_two(target: Target<'_>, lsn: Lsn, effect: &Effect<'_>, keys: [&[u8]; 2], freed: &mut Freed) {
    let mut slots = target.keyspace.lock_many(keys.map(slot_of));
    slots.apply(effect, target.now, freed);
    slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
}

/// Applies the effects of the slots that it owns.
struct Applier<'k> {
    target: Target<'k>,
    index: usize,
    count: usize,
    freed: Freed,
}

impl Applier<'_> {
    /// Applies until the queue ends. After an error it only empties the queue.
    fn run(mut self, queue: &Receiver<Work>) -> Result<(), RecoverError> {
        let mut outcome = Ok(());
        for work in queue {
            match work {
                Work::Chunk(chunk, _room) if outcome.is_ok() => {
                    outcome = self.apply_chunk(&chunk);
                    self.freed = Freed::new();
                }
                Work::Chunk(..) => {}
                Work::Mark(mark) => drop(mark),
            }
        }
        outcome
    }

    fn apply_chunk(&mut self, mut rest: &[u8]) -> Result<(), RecoverError> {
        while !rest.is_empty() {
            rest = self.apply_group(rest)?;
        }
        Ok(())
    }

    /// Applies the next effects, as many as a group takes; returns the rest of the chunk.
    fn apply_group<'c>(&mut self, mut rest: &'c [u8]) -> Result<&'c [u8], RecoverError> {
        let Target { keyspace, now, .. } = self.target;
        let mut group: Group<'c> = Group::new();
        let mut unkeyed = None;
        while !group.is_full() && unkeyed.is_none() && !rest.is_empty() {
            let (prefix, after) = rest.split_at(PREFIX_BYTES);
            let (lsn, len) = prefix.split_at(8);
            let lsn = Lsn::new(u64::from_le_bytes(lsn.try_into().expect("eight bytes")));
            let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
            let (mut bytes, after) = after.split_at(len);
            rest = after;
            let effect =
                Effect::decode_next(&mut bytes).ok().flatten().expect("the reader has decoded it before");
            match effect.key() {
                Some(key) => group.push(keyspace, lsn, effect, key),
                None => unkeyed = Some((lsn, effect)),
            }
        }
        // In order: first the effects before the one without a key.
        group.apply(keyspace, now, &mut self.freed, &mut ())?;
        if let Some((lsn, effect)) = unkeyed {
            self.apply(lsn, &effect)?;
        }
        Ok(rest)
    }

    fn apply(&mut self, lsn: Lsn, effect: &Effect<'_>) -> Result<(), RecoverError> {
        let slots: &mut dyn Iterator<Item = SlotId> = match effect.scope() {
            Scope::Slot(key) => &mut std::iter::once(slot_of(key)),
            Scope::Two(from, to) => {
                apply_to_two(self.target, lsn, effect, [from, to], &mut self.freed);
                return Ok(());
            }
            Scope::Global => {
                let own = SlotId::all().skip(self.index).step_by(self.count);
                &mut own.filter(|&slot| !self.target.loaded.has(slot, lsn))
            }
        };
        for slot in slots {
            let mut slot = self.target.keyspace.lock(slot);
            require_type(slot.apply(effect, self.target.now, &mut self.freed), lsn)?;
            slot.set_last_lsn(lsn);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_effects_wait_for_those_before_them() {
        const EFFECTS: usize = 6;
        let (sender, receiver) = sync_channel(CHUNKS_QUEUED);
        // Room for two of the effects.
        let in_flight = InFlight::new(250 << 10);
        let mut queue = Queue { sender, chunk: Vec::new(), in_flight: in_flight.clone() };
        let reader = thread::spawn(move || {
            (0..EFFECTS).for_each(|_| queue.push(Lsn::ZERO, &[7; 100 << 10]));
            assert!(queue.chunk.is_empty(), "a chunk that is full is sent");
        });
        let mut received = Vec::new();
        for _ in 0..EFFECTS {
            let Ok(Work::Chunk(chunk, room)) = receiver.recv() else { panic!("a chunk") };
            assert!(*in_flight.bytes.lock() <= in_flight.bytes_max);
            received.push((chunk, room));
            if received.len() == 2 {
                // No third chunk is sent before room is given back.
                assert!(receiver.try_recv().is_err());
                received.clear();
            }
        }
        reader.join().expect("everything was sent");
    }

    #[test]
    fn an_effect_larger_than_all_room_goes_alone() {
        let in_flight = InFlight::new(10);
        drop(in_flight.take(1_000));
        assert_eq!(*in_flight.bytes.lock(), 0);
    }
}
