//! Replaying the log into the keyspace, in parallel by slot.
//!
//! ```text
//! reader: read, verify, split by slot --(chunks of effects)--> applier 0: slots 0, W, 2W, ...
//!                                     --------------------->  applier 1: slots 1, W+1, ...
//! ```
//!
//! Invariants
//! - Effects of one slot are applied in log order: one applier owns the slot, its queue is in log order.
//! - A Move touches two slots, which may have two owners. The reader hands over what is queued, waits until every applier has
//!   done it, and applies the Move itself. Only large values are moved by such an effect, so this is rare; nobody else waits
//!   for anything but a queue, so it cannot deadlock.
//! - A global effect (FLUSHALL, ...) goes to every applier, at its place in each queue; each applies it to its own slots.
//! - Memory in flight is bounded: appliers x [`CHUNKS_QUEUED`] x [`CHUNK_BYTES`], plus one effect.

use std::{
    convert::Infallible,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

use env::{Clock, Disk, Entropy};
use keyspace::{AccessClock, Effect, Freed, Keyspace, Scope, SlotId, slot_of};
use lsn::Lsn;
use storage::{Log, LogOptions, Recovery};

use crate::progress::LoadProgress;

/// Effects are handed over in chunks of about this size.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that may wait per applier.
const CHUNKS_QUEUED: usize = 8;
/// Bytes before each effect in a chunk: its LSN and its length.
const PREFIX_BYTES: usize = 12;
/// Effects whose memory is fetched together.
const GROUP: usize = 32;

/// Why recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The log cannot be read or is damaged.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A record that is intact as bytes holds no effects this version knows.
    #[error(
        "the record at lsn {lsn} is intact but cannot be understood ({reason}): it was written by another version of sheaf"
    )]
    Effect {
        /// The record.
        lsn: Lsn,
        /// What is wrong with it.
        reason: keyspace::EffectError,
    },
    /// The OS refused a thread.
    #[error("cannot start a recovery thread: {0}")]
    Thread(std::io::Error),
}

/// Where and how to recover.
pub struct Source<'a> {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory of the log.
    pub dir: &'a Path,
    /// How the log is kept afterwards.
    pub options: LogOptions,
    /// The time; entries that have expired since are kept, invisible, until a logged delete.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for a new log's id.
    pub entropy: &'a dyn Entropy,
    /// Threads that apply; 0 applies on the calling thread, for simulations.
    pub appliers: usize,
}

/// Recovers the log into `keyspace`, which must be empty, and opens it for writing.
///
/// # Errors
/// See [`RecoverError`]. Nothing on disk was changed then, unless the last step failed.
pub fn recover(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Log, RecoverError> {
    let clock = source.clock.clone();
    Ok(load(source, keyspace, progress)?.finish(clock)?)
}

/// Recovers the log into `keyspace`, which must be empty, and leaves the directory as it is: [`Recovery::finish`] opens it
/// for writing.
///
/// # Errors
/// See [`RecoverError`].
pub fn load(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Recovery, RecoverError> {
    let Source { disk, dir, options, clock, entropy, appliers } = source;
    let mut recovery = Recovery::open(disk, dir, options, entropy)?;
    progress.begin(recovery.start(), recovery.end_estimate());
    let now = AccessClock { now_ms: clock.unix_ms(), ..AccessClock::default() };
    if appliers == 0 {
        replay_here(&mut recovery, keyspace, now, progress)?;
    } else {
        replay_in_parallel(&mut recovery, keyspace, now, appliers, progress)?;
    }
    Ok(recovery)
}

fn replay_here(
    recovery: &mut Recovery,
    keyspace: &Keyspace,
    now: AccessClock,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    let mut applier = Applier { keyspace, now, index: 0, count: 1, freed: Freed::new() };
    recovery.replay(
        |lsn, payload| {
            progress.count_record();
            let mut rest = payload;
            while let Some(effect) = decode(&mut rest, lsn)? {
                applier.apply(lsn, &effect);
            }
            Ok(())
        },
        |lsn| progress.reached(lsn),
    )
}

fn replay_in_parallel(
    recovery: &mut Recovery,
    keyspace: &Keyspace,
    now: AccessClock,
    appliers: usize,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    thread::scope(|scope| {
        let mut queues = Vec::new();
        for index in 0..appliers {
            let (sender, receiver) = sync_channel(CHUNKS_QUEUED);
            let applier = Applier { keyspace, now, index, count: appliers, freed: Freed::new() };
            let name = format!("apply-{index}");
            let spawned =
                thread::Builder::new().name(name).spawn_scoped(scope, move || applier.run(&receiver));
            spawned.map_err(RecoverError::Thread)?;
            queues.push(Queue { sender, chunk: Vec::with_capacity(CHUNK_BYTES) });
        }
        let mut splitter = Splitter { keyspace, now, queues };
        recovery.replay(
            |lsn, payload| {
                progress.count_record();
                splitter.split(lsn, payload)
            },
            |lsn| progress.reached(lsn),
        )?;
        splitter.queues.iter_mut().for_each(Queue::hand_over);
        Ok(())
    })
}

fn decode<'a>(rest: &mut &'a [u8], lsn: Lsn) -> Result<Option<Effect<'a>>, RecoverError> {
    Effect::decode_next(rest).map_err(|reason| RecoverError::Effect { lsn, reason })
}

/// The reader's side: hands each effect of a record to the applier of its slot.
struct Splitter<'k> {
    keyspace: &'k Keyspace,
    now: AccessClock,
    queues: Vec<Queue>,
}

impl Splitter<'_> {
    fn split(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), RecoverError> {
        let mut rest = payload;
        loop {
            let before = rest;
            let Some(effect) = decode(&mut rest, lsn)? else { return Ok(()) };
            let bytes = &before[..before.len() - rest.len()];
            match effect.scope() {
                Scope::Slot(key) => {
                    let owner = slot_of(key).index() % self.queues.len();
                    self.queues[owner].push(lsn, bytes);
                }
                Scope::Two(from, to) => {
                    self.wait_for_appliers();
                    apply_to_two(self.keyspace, lsn, &effect, [from, to], self.now, &mut Freed::new());
                }
                Scope::Global => self.queues.iter_mut().for_each(|queue| queue.push(lsn, bytes)),
            }
        }
    }

    /// Returns when all that was handed to the appliers has been applied.
    fn wait_for_appliers(&mut self) {
        let (mark, all_reached) = channel();
        for queue in &mut self.queues {
            queue.hand_over();
            queue.send(Work::Mark(mark.clone()));
        }
        drop(mark);
        // Nothing is ever sent: it ends when the last applier has dropped its mark.
        let Err(_) = all_reached.recv();
    }
}

/// What an applier is handed.
enum Work {
    /// Effects, each with its prefix.
    Chunk(Vec<u8>),
    /// To be dropped: all before it has been applied.
    Mark(Sender<Infallible>),
}

/// The way to one applier.
struct Queue {
    sender: SyncSender<Work>,
    chunk: Vec<u8>,
}

impl Queue {
    fn push(&mut self, lsn: Lsn, effect: &[u8]) {
        if self.chunk.len() + PREFIX_BYTES + effect.len() > CHUNK_BYTES {
            self.hand_over();
        }
        self.chunk.extend_from_slice(&lsn.get().to_le_bytes());
        self.chunk.extend_from_slice(&(effect.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(effect);
    }

    /// Sends what was pushed and not sent yet.
    fn hand_over(&mut self) {
        if !self.chunk.is_empty() {
            let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
            self.send(Work::Chunk(chunk));
        }
    }

    fn send(&self, work: Work) {
        self.sender.send(work).expect("appliers live until their queue ends");
    }
}

/// Applies a Move under the locks of the slots of both keys.
fn apply_to_two(
    keyspace: &Keyspace,
    lsn: Lsn,
    effect: &Effect<'_>,
    keys: [&[u8]; 2],
    now: AccessClock,
    freed: &mut Freed,
) {
    let mut slots = keyspace.lock_many(keys.map(slot_of));
    slots.apply(effect, now, freed);
    slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
}

/// Applies the effects of its slots.
struct Applier<'k> {
    keyspace: &'k Keyspace,
    now: AccessClock,
    index: usize,
    count: usize,
    freed: Freed,
}

impl Applier<'_> {
    fn run(mut self, queue: &Receiver<Work>) {
        for work in queue {
            match work {
                Work::Chunk(chunk) => {
                    let mut rest = chunk.as_slice();
                    while !rest.is_empty() {
                        rest = self.apply_group(rest);
                    }
                    self.freed = Freed::new();
                }
                Work::Mark(mark) => drop(mark),
            }
        }
    }

    /// Applies up to a group of effects, after fetching the memory of all; returns what is left.
    fn apply_group<'c>(&mut self, mut rest: &'c [u8]) -> &'c [u8] {
        let mut group: [Option<(Lsn, Effect<'c>, keyspace::KeyHash)>; GROUP] = [const { None }; GROUP];
        let mut count = 0;
        while count < GROUP && !rest.is_empty() {
            let (prefix, after) = rest.split_at(PREFIX_BYTES);
            let (lsn, len) = prefix.split_at(8);
            let lsn = Lsn::new(u64::from_le_bytes(lsn.try_into().expect("eight bytes")));
            let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
            let (mut bytes, after) = after.split_at(len);
            rest = after;
            let effect =
                Effect::decode_next(&mut bytes).ok().flatten().expect("the reader has decoded it before");
            let Some(key) = effect.key() else {
                // In order: what came before it first.
                self.apply_all(&group[..count]);
                self.apply(lsn, &effect);
                return rest;
            };
            let hash = self.keyspace.hash(key);
            self.keyspace.prefetch_slot(&hash);
            group[count] = Some((lsn, effect, hash));
            count += 1;
        }
        self.apply_all(&group[..count]);
        rest
    }

    fn apply_all(&mut self, group: &[Option<(Lsn, Effect<'_>, keyspace::KeyHash)>]) {
        let keyed = || group.iter().flatten().filter_map(|(_, effect, hash)| Some((effect.db()?, hash)));
        keyed().for_each(|(db, hash)| self.keyspace.prefetch_bucket(db, hash));
        keyed().for_each(|(db, hash)| self.keyspace.prefetch_entry(db, hash));
        for (lsn, effect, hash) in group.iter().flatten() {
            let mut slot = self.keyspace.lock(hash.slot());
            slot.apply_hashed(effect, hash, self.now, &mut self.freed);
            slot.set_last_lsn(*lsn);
        }
    }

    fn apply(&mut self, lsn: Lsn, effect: &Effect<'_>) {
        let slots: &mut dyn Iterator<Item = SlotId> = match effect.scope() {
            Scope::Slot(key) => &mut std::iter::once(slot_of(key)),
            Scope::Two(from, to) => {
                return apply_to_two(self.keyspace, lsn, effect, [from, to], self.now, &mut self.freed);
            }
            Scope::Global => &mut SlotId::all().skip(self.index).step_by(self.count),
        };
        for slot in slots {
            let mut slot = self.keyspace.lock(slot);
            slot.apply(effect, self.now, &mut self.freed);
            slot.set_last_lsn(lsn);
        }
    }
}

#[cfg(test)]
mod tests {
    use env::{SimClock, SimDisk, SimEntropy, sim::SimDiskOptions};
    use keyspace::{DbId, Items, ListEnd, Options, Value};

    use super::*;

    const DIR: &str = "/data";

    fn recovered(disk: Arc<SimDisk>, appliers: usize) -> (Keyspace, Log) {
        let (segment_bytes, ring_bytes, unwritten_bytes_max) = (8 << 20, 2 << 20, 256 << 10);
        let source = Source {
            disk,
            dir: Path::new(DIR),
            options: LogOptions { segment_bytes, ring_bytes, unwritten_bytes_max, ..LogOptions::default() },
            clock: Arc::new(SimClock::new(0)),
            entropy: &SimEntropy::new(1),
            appliers,
        };
        let keyspace = Keyspace::new(Options { hash_seed: appliers as u64 });
        let progress = LoadProgress::new(Arc::new(SimClock::new(0)));
        let log = recover(source, &keyspace, &progress).expect("a sound log");
        (keyspace, log)
    }

    /// Calls `visit` with effects on a few keys of many slots, many of them moves: what is at a key depends on the order
    /// of all effects before, whichever slots they were on.
    fn history(count: u64, mut visit: impl FnMut(&Effect<'_>)) {
        let (db, filling) = (DbId::ZERO, [b'f'; 700]);
        for step in 0..count {
            let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let key = format!("key-{}", mixed % 41).into_bytes();
            let to_key = format!("key-{}", mixed / 41 % 41).into_bytes();
            let number = step.to_be_bytes();
            let items = [&number[..], &filling];
            visit(&match mixed / 2000 % 12 {
                0..2 => Effect::Move { db, key: &key, to_db: db, to_key: &to_key },
                2 => Effect::Put { db, key: &key, value: Value::String(&number), expire_at_ms: Some(step) },
                3 => Effect::Delete { db, key: &key },
                4 if step % 50 == 0 => Effect::FlushAll,
                _ => Effect::ListPush { db, key: &key, end: ListEnd::Tail, items: Items::Slices(&items) },
            });
        }
    }

    #[test]
    fn moves_keep_their_place_in_the_order_however_many_apply() {
        const EFFECTS: u64 = 8_000;
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..SimDiskOptions::default() });
        let (expected, log) = recovered(disk.clone(), 0);
        let (mut appender, mut record, mut in_record) = (log.appender(), Vec::new(), 0);
        let now = AccessClock::default();
        history(EFFECTS, |effect| {
            match effect.scope() {
                Scope::Slot(key) => expected.lock(slot_of(key)).apply(effect, now, &mut Freed::new()),
                Scope::Two(from, to) => {
                    expected.lock_many([from, to].map(slot_of)).apply(effect, now, &mut Freed::new())
                }
                Scope::Global => expected.lock_all().apply(effect, now, &mut Freed::new()),
            };
            effect.encode_into(&mut record);
            in_record += 1;
            // Several effects to a record, so that moves also come in the middle of one.
            if in_record == 16 {
                appender.reserve(&record).expect("a sound disk").publish();
                record.clear();
                in_record = 0;
                log.flush_all().expect("a sound disk");
                log.prepare_segment().expect("a sound disk");
            }
        });
        assert!(record.is_empty() && expected.len(DbId::ZERO) > 5, "the history is to leave something");
        log.flush_all().expect("a sound disk");
        for appliers in [0, 1, 2, 5] {
            let (keyspace, _log) = recovered(disk.clone_state(), appliers);
            assert!(keyspace.digest() == expected.digest(), "{appliers} appliers");
        }
    }
}
