//! Recovery: a snapshot, the newest unless told otherwise, is loaded, then the log behind it is replayed into the keyspace, in parallel by slot.
//!
//! ```text
//! load-0..n: runs of the snapshot's chunks (see `load`)                  then
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
//! - Of a record only what its slot was captured without is applied. A Move whose key was captured before it and whose new
//!   key after it only removes what was moved; the other way round a value would be lost, so the server does not write that.
//! - Memory in flight is bounded: appliers x [`CHUNKS_QUEUED`] x [`CHUNK_BYTES`], plus one effect.

mod error;

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
use keyspace::{AccessClock, Effect, Freed, Item, Keyspace, Scope, SlotId, slot_of};
use lsn::Lsn;
use storage::{Log, LogOptions, Recovery, snapshot};

pub use self::error::{RecoverError, WayOut};
use crate::{
    load::{Loaded, is_whole_log, load_base},
    progress::LoadProgress,
    salvage::salvage,
};

/// Effects are handed over in chunks of about this size.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that may wait per applier.
const CHUNKS_QUEUED: usize = 8;
/// Bytes before each effect in a chunk: its LSN and its length.
const PREFIX_BYTES: usize = 12;
/// Effects whose memory is fetched together.
const GROUP: usize = 32;

/// What a recovery starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The newest snapshot. Damage is refused.
    #[default]
    Newest,
    /// The snapshot that begins here, or the log itself if it begins here and holds everything: newer snapshots are damaged,
    /// and are set aside. Other damage is refused.
    From(Lsn),
    /// Whatever is left, in a server that takes no writes until the operator has accepted what is lost: see `salvage`. Not
    /// for [`load`].
    Force,
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
    /// What to start from.
    pub mode: Mode,
}

/// Recovers snapshot and log into `keyspace`, which must be empty, and opens the log for writing.
///
/// # Errors
/// See [`RecoverError`]. Nothing on disk was changed then, unless the last step failed.
pub fn recover(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Log, RecoverError> {
    if source.mode == Mode::Force {
        return recover_by_force(source, keyspace, progress);
    }
    let (clock, disk, dir, mode) = (source.clock.clone(), source.disk.clone(), source.dir, source.mode);
    let recovery = load(source, keyspace, progress)?;
    if let Mode::From(base) = mode {
        let newer = snapshot::list_begins(&*disk, dir)?.into_iter();
        let newer = newer.filter(|&begin| begin > base || begin == base && is_whole_log(&recovery, base));
        set_aside(&*disk, dir, newer)?;
    }
    Ok(recovery.finish(clock)?)
}

/// Leaves out what is damaged; without damage, recovers as always.
fn recover_by_force(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Log, RecoverError> {
    let (clock, entropy, disk, dir) = (source.clock.clone(), source.entropy, source.disk.clone(), source.dir);
    let (recovery, losses) = salvage(source, keyspace, progress)?;
    if losses.is_empty() {
        tracing::info!(target: "server", "nothing is damaged: --force-recovery has done nothing");
        return Ok(recovery.finish(clock)?);
    }
    let report = losses.write(&*disk, dir).map_err(RecoverError::Report)?;
    tracing::warn!(
        target: "server", places = losses.places(), report = %report.display(),
        "what is damaged was left out, and the server is read-only. Read the report; to accept the loss: CONFIG SET \
         force-recovery confirmed"
    );
    Ok(recovery.freeze(clock, entropy)?)
}

/// Sees to it that the next start does not meet the snapshots that this one was told to pass over.
fn set_aside(disk: &dyn Disk, dir: &Path, begins: impl Iterator<Item = Lsn>) -> Result<(), RecoverError> {
    for begin_lsn in begins {
        let kept = snapshot::set_aside(disk, dir, begin_lsn)?;
        tracing::warn!(
            target: "server", %begin_lsn, kept = %kept.display(),
            "a snapshot was passed over and set aside; nothing was lost. Remove its files when nobody wants to look at them"
        );
    }
    Ok(())
}

/// Recovers snapshot and log into `keyspace`, which must be empty, and leaves the directory as it is: [`Recovery::finish`]
/// opens the log for writing.
///
/// # Errors
/// See [`RecoverError`].
pub fn load(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Recovery, RecoverError> {
    let Source { disk, dir, options, clock, entropy, appliers, mode } = source;
    let mut recovery = Recovery::open(disk.clone(), dir, options, entropy)?;
    load_opened(&mut recovery, (&*disk, dir), mode, clock.unix_ms(), appliers, keyspace, progress)?;
    Ok(recovery)
}

/// Recovers snapshot and log, which was opened in `dir` and not read yet, into `keyspace`, which must be empty.
///
/// # Errors
/// See [`RecoverError`].
pub(crate) fn load_opened(
    recovery: &mut Recovery,
    (disk, dir): (&dyn Disk, &Path),
    mode: Mode,
    now_ms: u64,
    appliers: usize,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    let now = AccessClock { now_ms, ..AccessClock::default() };
    let loaded = &load_base(recovery, (disk, dir), mode, keyspace, now, appliers, progress)?;
    let target = Target { keyspace, now, loaded };
    if appliers == 0 {
        replay_here(recovery, target, progress)
    } else {
        replay_in_parallel(recovery, target, appliers, progress)
    }
}

/// Where the log is replayed to.
#[derive(Clone, Copy)]
struct Target<'k> {
    keyspace: &'k Keyspace,
    now: AccessClock,
    loaded: &'k Loaded,
}

fn replay_here(
    recovery: &mut Recovery,
    target: Target<'_>,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    let mut applier = Applier { target, index: 0, count: 1, freed: Freed::new() };
    recovery.replay(
        |lsn, payload| {
            progress.count_record();
            let mut rest = payload;
            while let Some(effect) = decode(&mut rest, lsn)? {
                if let Some(effect) = target.loaded.left_of(effect, lsn)? {
                    applier.apply(lsn, &effect);
                }
            }
            Ok(())
        },
        |lsn| progress.reached(lsn),
    )
}

fn replay_in_parallel(
    recovery: &mut Recovery,
    target: Target<'_>,
    appliers: usize,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    thread::scope(|scope| {
        let mut queues = Vec::new();
        for index in 0..appliers {
            let (sender, receiver) = sync_channel(CHUNKS_QUEUED);
            let applier = Applier { target, index, count: appliers, freed: Freed::new() };
            let name = format!("apply-{index}");
            let spawned =
                thread::Builder::new().name(name).spawn_scoped(scope, move || applier.run(&receiver));
            spawned.map_err(RecoverError::Thread)?;
            queues.push(Queue { sender, chunk: Vec::with_capacity(CHUNK_BYTES) });
        }
        let mut splitter = Splitter { target, queues };
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

pub(crate) fn decode<'a>(rest: &mut &'a [u8], lsn: Lsn) -> Result<Option<Effect<'a>>, RecoverError> {
    Effect::decode_next(rest).map_err(|reason| RecoverError::Effect { lsn, reason })
}

/// The reader's side: hands each effect of a record to the applier of its slot.
struct Splitter<'k> {
    target: Target<'k>,
    queues: Vec<Queue>,
}

impl Splitter<'_> {
    fn split(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), RecoverError> {
        let mut rest = payload;
        loop {
            let before = rest;
            let item = Item::decode_next(&mut rest).map_err(|reason| RecoverError::Effect { lsn, reason })?;
            let Some(item) = item else { return Ok(()) };
            let Item::Effect(effect) = item else { continue };
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
fn apply_to_two(target: Target<'_>, lsn: Lsn, effect: &Effect<'_>, keys: [&[u8]; 2], freed: &mut Freed) {
    let mut slots = target.keyspace.lock_many(keys.map(slot_of));
    slots.apply(effect, target.now, freed);
    slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
}

/// Applies the effects of its slots.
struct Applier<'k> {
    target: Target<'k>,
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
        let (keyspace, mut count) = (self.target.keyspace, 0);
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
            let hash = keyspace.hash(key);
            keyspace.prefetch_slot(&hash);
            group[count] = Some((lsn, effect, hash));
            count += 1;
        }
        self.apply_all(&group[..count]);
        rest
    }

    fn apply_all(&mut self, group: &[Option<(Lsn, Effect<'_>, keyspace::KeyHash)>]) {
        let Target { keyspace, now, .. } = self.target;
        let keyed = || group.iter().flatten().filter_map(|(_, effect, hash)| Some((effect.db()?, hash)));
        keyed().for_each(|(db, hash)| keyspace.prefetch_bucket(db, hash));
        keyed().for_each(|(db, hash)| keyspace.prefetch_entry(db, hash));
        for (lsn, effect, hash) in group.iter().flatten() {
            let mut slot = keyspace.lock(hash.slot());
            slot.apply_hashed(effect, hash, now, &mut self.freed);
            slot.set_last_lsn(*lsn);
        }
    }

    fn apply(&mut self, lsn: Lsn, effect: &Effect<'_>) {
        let slots: &mut dyn Iterator<Item = SlotId> = match effect.scope() {
            Scope::Slot(key) => &mut std::iter::once(slot_of(key)),
            Scope::Two(from, to) => {
                return apply_to_two(self.target, lsn, effect, [from, to], &mut self.freed);
            }
            Scope::Global => {
                let own = SlotId::all().skip(self.index).step_by(self.count);
                &mut own.filter(|&slot| !self.target.loaded.has(slot, lsn))
            }
        };
        for slot in slots {
            let mut slot = self.target.keyspace.lock(slot);
            slot.apply(effect, self.target.now, &mut self.freed);
            slot.set_last_lsn(lsn);
        }
    }
}

#[cfg(test)]
mod tests;
