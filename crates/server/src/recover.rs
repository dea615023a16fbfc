//! Replaying the log into the keyspace, in parallel by slot.
//!
//! ```text
//! reader: read, verify, split by slot --(chunks of effects)--> applier 0: slots 0, W, 2W, ...
//!                                     --------------------->  applier 1: slots 1, W+1, ...
//! ```
//!
//! Invariants
//! - Effects of one slot are applied in log order: one applier owns the slot, its queue is in log order.
//! - A global effect (FLUSHALL, ...) goes to every applier, at its place in each queue; each applies it to its own slots.
//! - Memory in flight is bounded: appliers x [`CHUNKS_QUEUED`] x [`CHUNK_BYTES`], plus one effect.

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
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
    let Source { disk, dir, options, clock, entropy, appliers } = source;
    let mut recovery = Recovery::open(disk, dir, options, entropy)?;
    progress.begin(recovery.start(), recovery.end_estimate());
    let now = AccessClock { now_ms: clock.unix_ms(), ..AccessClock::default() };
    if appliers == 0 {
        replay_here(&mut recovery, keyspace, now, progress)?;
    } else {
        replay_in_parallel(&mut recovery, keyspace, now, appliers, progress)?;
    }
    Ok(recovery.finish(clock)?)
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
        recovery.replay(
            |lsn, payload| {
                progress.count_record();
                split(lsn, payload, &mut queues)
            },
            |lsn| progress.reached(lsn),
        )?;
        queues.into_iter().for_each(Queue::finish);
        Ok(())
    })
}

fn decode<'a>(rest: &mut &'a [u8], lsn: Lsn) -> Result<Option<Effect<'a>>, RecoverError> {
    Effect::decode_next(rest).map_err(|reason| RecoverError::Effect { lsn, reason })
}

/// Hands each effect of a record to the applier of its slot.
fn split(lsn: Lsn, payload: &[u8], queues: &mut [Queue]) -> Result<(), RecoverError> {
    let mut rest = payload;
    loop {
        let before = rest;
        let Some(effect) = decode(&mut rest, lsn)? else { return Ok(()) };
        let bytes = &before[..before.len() - rest.len()];
        match effect.scope() {
            Scope::Slot(key) => {
                let owner = slot_of(key).index() % queues.len();
                queues[owner].push(lsn, bytes);
            }
            Scope::Global => queues.iter_mut().for_each(|queue| queue.push(lsn, bytes)),
        }
    }
}

/// The way to one applier.
struct Queue {
    sender: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
}

impl Queue {
    fn push(&mut self, lsn: Lsn, effect: &[u8]) {
        if !self.chunk.is_empty() && self.chunk.len() + PREFIX_BYTES + effect.len() > CHUNK_BYTES {
            let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
            self.sender.send(full).expect("appliers live until their queue ends");
        }
        self.chunk.extend_from_slice(&lsn.get().to_le_bytes());
        self.chunk.extend_from_slice(&(effect.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(effect);
    }

    fn finish(self) {
        self.sender.send(self.chunk).expect("appliers live until their queue ends");
    }
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
    fn run(mut self, queue: &Receiver<Vec<u8>>) {
        for chunk in queue {
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                rest = self.apply_group(rest);
            }
            self.freed = Freed::new();
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
            Scope::Global => &mut SlotId::all().skip(self.index).step_by(self.count),
        };
        for slot in slots {
            let mut slot = self.keyspace.lock(slot);
            slot.apply(effect, self.now, &mut self.freed);
            slot.set_last_lsn(lsn);
        }
    }
}
