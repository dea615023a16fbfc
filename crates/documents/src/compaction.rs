//! Compaction: copies the live data of a database to a new file while the database is read and written.
//!
//! ```text
//! build from a snapshot, front to back -> catch up with checkpoints made meanwhile, until little is missing
//!   -> block checkpoints: the rest; rename; the database switches to the new file -> the next catalog has it
//! ```
//!
//! A compaction runs in steps, so that the caller can yield or stop between them; if it is dropped before its
//! last step, it has no effect. A step of the build ends at a limit of rows or bytes; a step after the build
//! copies all that the last checkpoint has and the new file lacks. A compaction has no thread, and does not
//! decide when to run: see [`Database::wants_compaction`].
//!
//! Invariants
//! - The old file stays until the catalog names the new one. Until then, recovery after a crash uses the old
//!   file, so the log after its checkpoint is kept.
//! - Snapshots that were taken before the switch keep the old file open.
//! - The places of blobs change for the tree and for the fresh layer at the same time. The new places of the
//!   fresh layer's blobs are found in rows: for each of these blobs, the old tree has a row with it, and the
//!   new tree has the same row with the blobs in the same order.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::crashsafe;
use tree::{Builder, Direction, Pointer, Range, TreeError, TreeFile, TreeId, TreeSnapshot};

use crate::blob::Blob;
use crate::database::Database;
use crate::database_file::{DatabaseFile, Rows, Shelf, modify};
use crate::doc_info::DocInfo;
use crate::documents::Documents;
use crate::metadata::decode_metadata;
use crate::rows::{self, DOCUMENTS, FEED, LOCAL};
use crate::state::{State, decoded};
use crate::store_error::StoreError;
use crate::unnamed::Unnamed;

/// [`Database::wants_compaction`] is false for files up to this size.
pub const COMPACTION_FILE_BYTES_MIN: u64 = 16 << 20;
/// A step of the build, and one write while catching up, ends once it has written this many bytes or rows.
const STEP_BYTES: usize = 1 << 20;
const STEP_ROWS: usize = 1024;
/// Before checkpoints are blocked, the new file is brought up to date until at most this many edits are
/// missing.
const LAST_DOCUMENTS_MAX: u64 = 1000;

/// A compaction in progress.
pub struct Compaction {
    database: Arc<Database>,
    shelf: Shelf,
    unnamed: Arc<Unnamed>,
    /// Path of the new file under construction.
    path: PathBuf,
    /// The state of the old file from which the new file is built; later, the state with which it has caught
    /// up.
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
    CatchingUp { file: TreeFile },
    Over,
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
            Stage::CatchingUp { file } => self.catch_up_or_end(file),
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
                        Ok(Stage::CatchingUp { file })
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

    fn catch_up_or_end(&mut self, mut file: TreeFile) -> Result<Step, StoreError> {
        let saved = saved_tree(&self.database)?;
        if seq_of(&saved)? - seq_of(&self.base)? > LAST_DOCUMENTS_MAX {
            catch_up(&mut file, &self.base, &saved)?;
            self.base = saved;
            self.stage = Stage::CatchingUp { file };
            return Ok(Step::More);
        }
        let database = self.database.clone();
        // Checkpoints are blocked from here on.
        let mut held = database.file.lock();
        if database.gate().is_deleted {
            return Ok(Step::Done);
        }
        if held.has_frozen() {
            // Rows of the frozen layer refer to blobs in the old file, until the next checkpoint writes these
            // rows.
            self.stage = Stage::CatchingUp { file };
            return Ok(Step::Blocked);
        }
        let saved = saved_tree(&database)?;
        catch_up(&mut file, &self.base, &saved)?;
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

fn metadata_of(tree: &TreeSnapshot) -> Result<State, StoreError> {
    decoded(tree, decode_metadata(tree.metadata(), tree.applied_lsn()))
}

fn seq_of(tree: &TreeSnapshot) -> Result<u64, StoreError> {
    Ok(metadata_of(tree)?.update_seq)
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

/// Brings `file`, which has the state of `base`, to the state of `saved`.
fn catch_up(file: &mut TreeFile, base: &TreeSnapshot, saved: &TreeSnapshot) -> Result<(), StoreError> {
    let mut since = seq_of(base)?;
    loop {
        let has_more = copy_changes(file, base, saved, &mut since)?;
        if !has_more {
            break;
        }
    }
    let new = file.snapshot().clone();
    let mut checkpoint = file.begin()?;
    if metadata_of(base)?.purge_seq != metadata_of(saved)?.purge_seq {
        let (mut documents, mut feed) = (Rows::new(), Rows::new());
        let mut ids = all(&new, DOCUMENTS);
        while let Some((key, value)) = ids.next_entry()? {
            if saved.get(DOCUMENTS, key)?.is_none() {
                let purged = decoded(&new, rows::decode_document(key, value))?;
                feed.push((rows::feed_key(purged.seq).to_vec(), None));
                documents.push((key.to_vec(), None));
            }
        }
        modify(&mut checkpoint, DOCUMENTS, &documents)?;
        modify(&mut checkpoint, FEED, &feed)?;
    }
    let mut local = Rows::new();
    let mut there = all(base, LOCAL);
    while let Some((key, _)) = there.next_entry()? {
        if saved.get(LOCAL, key)?.is_none() {
            local.push((key.to_vec(), None));
        }
    }
    let mut there = all(saved, LOCAL);
    while let Some((key, value)) = there.next_entry()? {
        if base.get(LOCAL, key)?.as_deref() != Some(value) {
            let mut put = |pointer| checkpoint.put_blob(&saved.read_blob(pointer)?);
            local.push((key.to_vec(), Some(decoded(saved, rows::moved_local(key, value, &mut put)?)?)));
        }
    }
    modify(&mut checkpoint, LOCAL, &local)?;
    checkpoint.finish(saved.metadata(), saved.applied_lsn())?;
    Ok(())
}

fn all(tree: &TreeSnapshot, id: TreeId) -> Range {
    tree.range(id, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
}

/// Copies the next documents that changed in `saved` after `since`, and advances `since`. Returns `false` if
/// there was none.
fn copy_changes(
    file: &mut TreeFile,
    base: &TreeSnapshot,
    saved: &TreeSnapshot,
    since: &mut u64,
) -> Result<bool, StoreError> {
    let new = file.snapshot().clone();
    let mut checkpoint = file.begin()?;
    let (mut documents, mut feed) = (Rows::new(), Rows::new());
    let from = rows::feed_key(*since);
    let mut changes = saved.range(FEED, Bound::Excluded(&from), Bound::Unbounded, Direction::Forward);
    while documents.len() < STEP_ROWS && checkpoint.appended_bytes() < STEP_BYTES as u64 {
        let Some((key, value)) = changes.next_entry()? else { break };
        let row = decoded(saved, rows::decode_change(key, value))?;
        let info = decoded(saved, row_of(saved, &row.id)?)?;
        let mut moved = Moved::new();
        places(base, &new, &row.id, &mut moved)?;
        let mut put = |pointer| checkpoint.put_blob(&saved.read_blob(pointer)?);
        let info = moved_document(&info, &mut moved, &mut put)?;
        if let Some(before) = row_of(&new, &row.id)? {
            feed.push((rows::feed_key(before.seq).to_vec(), None));
        }
        documents.push((row.id.as_bytes().to_vec(), Some(rows::encode_document(&info))));
        feed.push((key.to_vec(), Some(value.to_vec())));
        *since = row.seq;
    }
    if documents.is_empty() {
        return Ok(false);
    }
    modify(&mut checkpoint, DOCUMENTS, &documents)?;
    modify(&mut checkpoint, FEED, &feed)?;
    checkpoint.finish_in_between()?;
    Ok(true)
}

/// Switches the database to the new file, which has the same rows as the old one. The caller must hold the
/// lock of the file.
fn exchange(database: &Database, old: &TreeSnapshot, new: &TreeSnapshot) -> Result<(), StoreError> {
    let mut moved = Moved::new();
    let mut local = all(old, LOCAL);
    while let Some((key, value)) = local.next_entry()? {
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
