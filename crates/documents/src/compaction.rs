//! Compaction: copies the live data of a database to a new file while the database is read and written.
//!
//! ```text
//! build from a snapshot, front to back -> catch up with checkpoints made meanwhile, until little is missing
//!   -> block checkpoints: the rest; rename; the database switches to the new file -> the next catalog has it
//! ```
//!
//! A compaction runs in steps, so that the caller can yield or stop between them. A compaction that is
//! dropped before its last step has no effect. A step ends at a limit of rows or bytes. The last step has no
//! such limit: it blocks checkpoints and copies everything that the new file still lacks, so it begins only
//! when little is missing. A compaction has no thread, and does not decide when to run: see
//! [`Database::wants_compaction`].
//!
//! Invariants
//! - The old file stays until the catalog names the new one. Until then, recovery after a crash uses the old
//!   file, so the log after its checkpoint is kept.
//! - Snapshots that were taken before the switch keep the old file open.
//! - The pointers of blobs change for the tree and for the fresh layer at the same time. The new pointers for
//!   the fresh layer are found in rows. For each blob of the layer that is in the old file, the old tree has
//!   a row with this blob, and the new tree has the same row with the same blobs in the same order.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::crashsafe;
use tree::{
    Builder, Changed, Difference, Direction, Pointer, Range, TreeError, TreeFile, TreeId, TreeSnapshot,
};

use crate::blob::Blob;
use crate::database::Database;
use crate::database_file::{DatabaseFile, Rows, Shelf, modify};
use crate::doc_info::DocInfo;
use crate::documents::Documents;
use crate::rows::{self, DOCUMENTS, FEED, LOCAL};
use crate::state::{State, decoded};
use crate::store_error::StoreError;
use crate::unnamed::Unnamed;

/// [`Database::wants_compaction`] is false for files up to this size.
pub const COMPACTION_FILE_BYTES_MIN: u64 = 16 << 20;
/// A step other than the last ends once it has written this many bytes, or [`STEP_ROWS`] rows.
const STEP_BYTES: usize = if cfg!(test) { 32 << 10 } else { 1 << 20 };
const STEP_ROWS: usize = 1024;
/// The last step, which blocks checkpoints, begins only if checkpoints have appended at most this many bytes
/// to the old file (documents, their bodies, nodes of trees) since the state that the new file has.
const LAST_BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };

/// A compaction in progress.
pub struct Compaction {
    database: Arc<Database>,
    shelf: Shelf,
    unnamed: Arc<Unnamed>,
    /// Path of the new file under construction.
    path: PathBuf,
    /// While the new file is built: the state of the old file that is copied. After that: the state of the
    /// old file with which the new file has caught up.
    base: TreeSnapshot,
    stage: Stage,
    rows_copied: u64,
    rows_expected: u64,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More steps are needed.
    More,
    /// More steps are needed, after the next checkpoint of the database.
    Blocked,
    /// No step is left: the database uses its new file, unless it was deleted or an earlier step failed.
    Done,
}

enum Stage {
    Building { builder: Box<Builder>, tree: TreeId, rows: Box<Range> },
    CatchingUp { file: TreeFile, round: Option<Box<Round>> },
    Over,
}

/// The copying of all changes from the state of the new file, `Compaction::base`, to a later one.
struct Round {
    saved: TreeSnapshot,
    tree: TreeId,
    changes: Difference,
}

/// The pointers of blobs in the new file, by their pointers in the old file.
type Moved = HashMap<Pointer, Pointer>;

impl Database {
    /// Whether the database's file is large, less than half in use, and not being compacted.
    pub fn wants_compaction(&self) -> bool {
        let (file_bytes, active_bytes) = self.state().file_bytes();
        file_bytes > COMPACTION_FILE_BYTES_MIN && active_bytes < file_bytes / 2 && !self.is_compacting()
    }
}

impl Documents {
    /// Begins to compact a database. `None` if it has no file, or is already being compacted.
    ///
    /// # Errors
    /// I/O errors.
    pub fn begin_compaction(&self, database: &Arc<Database>) -> Result<Option<Compaction>, StoreError> {
        let (Some(store), Some(base)) = (self.store(), database.state().tree.clone()) else {
            return Ok(None);
        };
        if database.compacting.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        let (shelf, unnamed) = (store.shelf().clone(), store.unnamed().clone());
        let generation = database.file.lock().last_generation.wrapping_add(1);
        let path = crashsafe::tmp_path(&shelf.path_of(database.id(), generation));
        let [documents, deleted, ..] = base.sums(DOCUMENTS).0;
        let mut compaction = Compaction {
            database: database.clone(),
            shelf,
            unnamed,
            path,
            stage: Stage::Over,
            rows_copied: 0,
            rows_expected: documents + deleted + base.sums(FEED).0[0],
            base,
        };
        compaction.stage = compaction.build()?;
        Ok(Some(compaction))
    }
}

impl Compaction {
    /// The progress of the compaction, 0 to 100.
    pub fn percent(&self) -> u8 {
        match self.stage {
            Stage::Building { .. } => (self.rows_copied * 99 / self.rows_expected.max(1)).min(98) as u8,
            Stage::CatchingUp { .. } => 99,
            Stage::Over => 100,
        }
    }

    /// Whether the new file lacks only changes that were made since the compaction began. The sooner these
    /// are copied, the fewer new ones are made meanwhile.
    pub fn is_catching_up(&self) -> bool {
        matches!(self.stage, Stage::CatchingUp { .. })
    }

    /// Performs one step.
    ///
    /// # Errors
    /// I/O errors and damage of the old file: the database keeps using the old file.
    pub fn step(&mut self) -> Result<Step, StoreError> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => Ok(Step::Done),
            Stage::Building { builder, tree, rows } => {
                self.stage = self.copy_rows(builder, tree, rows)?;
                Ok(Step::More)
            }
            Stage::CatchingUp { file, round } => self.catch_up_or_end(file, round),
        }
    }

    fn build(&self) -> Result<Stage, StoreError> {
        let (disk, entropy) = (&*self.shelf.disk, &*self.shelf.entropy);
        let builder = Box::new(Builder::create(disk, &self.path, self.shelf.options(), entropy)?);
        Ok(Stage::Building { builder, tree: DOCUMENTS, rows: self.all_rows(DOCUMENTS) })
    }

    fn all_rows(&self, tree: TreeId) -> Box<Range> {
        Box::new(all(&self.base, tree))
    }

    fn copy_rows(
        &mut self,
        mut builder: Box<Builder>,
        tree: TreeId,
        mut rows: Box<Range>,
    ) -> Result<Stage, StoreError> {
        let end_bytes = builder.file_bytes() + STEP_BYTES as u64;
        for _ in 0..STEP_ROWS {
            if builder.file_bytes() >= end_bytes {
                break;
            }
            let Some((key, value)) = rows.next_entry()? else {
                return match tree {
                    DOCUMENTS => Ok(Stage::Building { builder, tree: FEED, rows: self.all_rows(FEED) }),
                    FEED => Ok(Stage::Building { builder, tree: LOCAL, rows: self.all_rows(LOCAL) }),
                    _ => {
                        let file = builder.finish(self.base.metadata(), self.base.applied_lsn())?;
                        Ok(Stage::CatchingUp { file, round: None })
                    }
                };
            };
            let mut put = |pointer| builder.put_blob(&self.base.read_blob(pointer)?);
            match tree {
                DOCUMENTS => {
                    let info = decoded(&self.base, rows::decode_document(key, value))?;
                    let moved = moved_document(&info, &mut Moved::new(), &mut put)?;
                    builder.append(tree, key, &rows::encode_document(&moved))?;
                }
                FEED => builder.append(tree, key, value)?,
                _ => {
                    let moved = decoded(&self.base, rows::moved_local(key, value, &mut put)?)?;
                    builder.append(tree, key, &moved)?;
                }
            }
            self.rows_copied += 1;
        }
        Ok(Stage::Building { builder, tree, rows })
    }

    fn catch_up_or_end(&mut self, mut file: TreeFile, round: Option<Box<Round>>) -> Result<Step, StoreError> {
        if let Some(mut round) = round {
            let has_ended = round.go_on(&mut file, &self.base)?;
            if has_ended {
                self.base = round.saved;
                return self.catch_up_later(file, None);
            }
            return self.catch_up_later(file, Some(round));
        }
        let database = self.database.clone();
        let saved = saved_tree(&database)?;
        if self.is_far_behind(&saved) {
            let round = self.round(saved);
            return self.catch_up_later(file, Some(Box::new(round)));
        }
        // Checkpoints are blocked from here on.
        let mut held = database.file.lock();
        if database.gate().is_deleted {
            return Ok(Step::Done);
        }
        if held.has_frozen() {
            // Rows of the frozen layer refer to blobs in the old file, until the next checkpoint writes these
            // rows.
            self.stage = Stage::CatchingUp { file, round: None };
            return Ok(Step::Blocked);
        }
        let saved = saved_tree(&database)?;
        let mut last = self.round(saved.clone());
        if self.is_far_behind(&saved) {
            // A checkpoint has ended between the first look and the lock, and has saved too much for this
            // step.
            return self.catch_up_later(file, Some(Box::new(last)));
        }
        while !last.go_on(&mut file, &self.base)? {}
        let generation = held.last_generation.wrapping_add(1);
        // If the step fails from here on, a file of this generation may exist.
        held.last_generation = generation;
        let path = self.shelf.path_of(database.id(), generation);
        let placed = file.put_in_place(&*self.shelf.disk, &path);
        self.unnamed.add((database.id(), generation));
        let file = placed?;
        exchange(&database, &saved, file.snapshot())?;
        *held = DatabaseFile::new(file, generation);
        self.base = saved;
        Ok(Step::Done)
    }

    fn catch_up_later(&mut self, file: TreeFile, round: Option<Box<Round>>) -> Result<Step, StoreError> {
        self.stage = Stage::CatchingUp { file, round };
        Ok(Step::More)
    }

    /// Whether the new file lacks more bytes of `saved` than the last step may copy: see [`LAST_BYTES_MAX`].
    fn is_far_behind(&self, saved: &TreeSnapshot) -> bool {
        saved.file_end() - self.base.file_end() > LAST_BYTES_MAX
    }

    fn round(&self, saved: TreeSnapshot) -> Round {
        let (tree, changes) = (DOCUMENTS, saved.changes_since(&self.base, DOCUMENTS));
        Round { saved, tree, changes }
    }
}

impl Round {
    /// Copies the next changes to `file`, up to the limits of a step. Returns whether these were the last:
    /// then the file has the state `saved`.
    fn go_on(&mut self, file: &mut TreeFile, base: &TreeSnapshot) -> Result<bool, StoreError> {
        let new = file.snapshot().clone();
        let mut checkpoint = file.begin()?;
        let (mut rows, mut count, mut row_bytes) = ([Rows::new(), Rows::new(), Rows::new()], 0, 0);
        let has_ended = loop {
            if count >= STEP_ROWS || checkpoint.appended_bytes() + row_bytes >= STEP_BYTES as u64 {
                break false;
            }
            let Some((key, value)) = self.next_change(base)? else { break true };
            let mut put = |pointer| checkpoint.put_blob(&self.saved.read_blob(pointer)?);
            let moved = match value {
                None => None,
                Some(row) if self.tree == DOCUMENTS => {
                    let info = decoded(&self.saved, rows::decode_document(&key, &row))?;
                    let mut moved = Moved::new();
                    places(base, &new, &info.id, &mut moved)?;
                    Some(rows::encode_document(&moved_document(&info, &mut moved, &mut put)?))
                }
                Some(row) if self.tree == LOCAL => {
                    Some(decoded(&self.saved, rows::moved_local(&key, &row, &mut put)?)?)
                }
                Some(row) => Some(row),
            };
            count += 1;
            row_bytes += (key.len() + moved.as_ref().map_or(0, Vec::len)) as u64;
            rows[usize::from(self.tree.0)].push((key, moved));
        };
        for (tree, rows) in [DOCUMENTS, FEED, LOCAL].into_iter().zip(&rows) {
            modify(&mut checkpoint, tree, rows)?;
        }
        match has_ended {
            true => checkpoint.finish(self.saved.metadata(), self.saved.applied_lsn())?,
            false => checkpoint.finish_in_between()?,
        };
        Ok(has_ended)
    }

    /// The next change, in this tree or in one of the trees after it.
    fn next_change(&mut self, base: &TreeSnapshot) -> Result<Option<Changed>, StoreError> {
        loop {
            if let Some(change) = self.changes.next().transpose()? {
                return Ok(Some(change));
            }
            self.tree = match self.tree {
                DOCUMENTS => FEED,
                FEED => LOCAL,
                _ => return Ok(None),
            };
            self.changes = self.saved.changes_since(base, self.tree);
        }
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        // The file of an abandoned compaction is removed. If that fails, it is removed when the directory is
        // opened.
        let _ = self.shelf.disk.remove(&self.path);
        self.database.compacting.store(false, Ordering::Release);
    }
}

fn saved_tree(database: &Database) -> Result<TreeSnapshot, StoreError> {
    let state = database.state();
    state.tree.clone().ok_or_else(|| state.misfit("a file has disappeared"))
}

/// Replaces the saved blobs of a document by those in `moved`. A blob that is not in `moved` is copied by
/// `put`, and then added to `moved`.
fn moved_document(
    info: &DocInfo,
    moved: &mut Moved,
    put: &mut impl FnMut(Pointer) -> Result<Pointer, TreeError>,
) -> Result<DocInfo, TreeError> {
    info.with_blobs(&mut |blob| {
        let Some(old) = blob.pointer() else { return Ok(blob.clone()) };
        let new = match moved.get(&old) {
            Some(new) => *new,
            None => put(old)?,
        };
        moved.insert(old, new);
        Ok(Blob::Saved(new))
    })
}

/// Adds the pointers of a document's blobs in `old` and `new` to `moved`. Both trees must have the same row
/// of the document; if one of them has none, nothing is added.
fn places(old: &TreeSnapshot, new: &TreeSnapshot, id: &str, moved: &mut Moved) -> Result<(), StoreError> {
    if let (Some(old), Some(new)) = (row_of(old, id)?, row_of(new, id)?) {
        let pairs = old.blobs().zip(new.blobs());
        moved.extend(pairs.filter_map(|(old, new)| Some((old.pointer()?, new.pointer()?))));
    }
    Ok(())
}

fn row_of(tree: &TreeSnapshot, id: &str) -> Result<Option<DocInfo>, StoreError> {
    let Some(row) = tree.get(DOCUMENTS, id.as_bytes())? else { return Ok(None) };
    decoded(tree, rows::decode_document(id.as_bytes(), &row)).map(Some)
}

fn all(tree: &TreeSnapshot, id: TreeId) -> Range {
    tree.range(id, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
}

/// Switches the database to the new file, which has the same rows as the old one. The caller must hold the
/// lock of the file.
fn exchange(database: &Database, old: &TreeSnapshot, new: &TreeSnapshot) -> Result<(), StoreError> {
    let mut moved = Moved::new();
    let mut chunks = old.range(LOCAL, rows::FROM_FIRST_CHUNK, Bound::Unbounded, Direction::Forward);
    while let Some((key, value)) = chunks.next_entry()? {
        let there = new.get(LOCAL, key)?;
        let places =
            rows::chunk_of_row(key, value).zip(there.and_then(|there| rows::chunk_of_row(key, &there)));
        moved.extend(places);
    }
    // Most lookups are done before the gate blocks writers.
    let fresh = database.state().fresh.by_id.clone();
    for info in fresh.documents().filter(|info| has_saved(info)) {
        places(old, new, &info.id, &mut moved)?;
    }
    let gate = database.gate();
    let mut next = State::clone(&database.state());
    next.tree = Some(new.clone());
    let from_file: Vec<Arc<DocInfo>> =
        next.fresh.by_id.documents().filter(|info| has_saved(info)).cloned().collect();
    for info in from_file {
        if info.blobs().any(|blob| blob.pointer().is_some_and(|old| !moved.contains_key(&old))) {
            places(old, new, &info.id, &mut moved)?;
        }
        let exchanged = info.with_blobs(&mut |blob| match blob.pointer() {
            None => Ok(blob.clone()),
            Some(old) => moved
                .get(&old)
                .copied()
                .map(Blob::Saved)
                .ok_or_else(|| next.misfit("a blob that did not move")),
        })?;
        next.fresh.replace_document(Arc::new(exchanged));
    }
    database.publish(next);
    drop(gate);
    Ok(())
}

fn has_saved(info: &DocInfo) -> bool {
    info.blobs().any(|blob| blob.pointer().is_some())
}
