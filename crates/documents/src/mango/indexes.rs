//! `Indexes`: the JSON indexes of all databases, brought up to date on demand.
//!
//! Each definition has a file in the directory of indexes; the file is opened at its first use. Equal
//! definitions of a database share a file. Work is done in steps, so that the caller can yield, stop or
//! report progress in between; a step indexes at most [`STEP_DOCUMENTS`] documents. The module has no thread:
//! the caller does the work. `plan` chooses the index, `query` answers the query.
//!
//! Invariants
//! - After a step or a reply has found an index damaged, the next use replaces it by an empty one, which
//!   further steps fill from the documents.
//! - An index has only the winners of documents, and no deleted documents or design documents.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use env::{Disk, Entropy};
use lsn::Lsn;
use parking_lot::Mutex;
use tree::NodeCache;

use super::index_file::{
    IndexFile, IndexPlace, IndexSnapshot, db_of_file, file_name, last_lsn_of_file, remove_file,
};
use super::{IndexDefinition, Value, put_key};
use crate::names::DESIGN_PREFIX;
use crate::{AttachmentView, DbId, DocError, DocRev, DocumentView, Found, IdRange, Pick, Snapshot};

/// The maximum number of documents that are indexed per step.
pub const STEP_DOCUMENTS: usize = 1000;

/// The JSON indexes of all databases.
pub struct Indexes {
    disk: Arc<dyn Disk>,
    entropy: Arc<dyn Entropy>,
    cache: NodeCache,
    dir: PathBuf,
    open: Mutex<HashMap<IndexId, Arc<OpenIndex>>>,
}

/// A database, and the digest of a definition.
type IndexId = (DbId, [u8; 16]);

#[derive(Default)]
struct OpenIndex {
    /// `None` if the next use must open the file.
    file: Mutex<Option<IndexFile>>,
    /// The progress after a step that was not the last one of its update. It is shown until the
    /// [`IndexUpdate`] of that step is dropped.
    progress: Mutex<Option<(IndexProgress, Weak<()>)>>,
}

/// The handle of an update that brings an index up to date, step by step. When the handle is dropped, the
/// update counts as ended, complete or not.
#[derive(Default)]
pub struct IndexUpdate(Arc<()>);

/// An index that is being brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexProgress {
    /// Its database.
    pub db: DbId,
    /// The id of the design document that defines it.
    pub design: String,
    /// Its name within the design document.
    pub name: String,
    /// The update sequence up to which the database is indexed.
    pub seq: u64,
    /// The update sequence at which it will be up to date.
    pub update_seq: u64,
}

impl IndexProgress {
    /// The progress in percent, at most 100.
    pub fn percent(&self) -> u64 {
        self.seq.saturating_mul(100).checked_div(self.update_seq).unwrap_or(100).min(100)
    }
}

/// The outcome of a step of indexing.
pub enum Indexing {
    /// The index is up to date with the snapshot.
    Ready(IndexSnapshot),
    /// More steps are needed.
    Working(IndexProgress),
    /// Another caller has brought the index beyond this snapshot: a newer snapshot is needed.
    Behind,
}

impl Indexes {
    /// Opens the indexes in a directory. `databases` are all databases, each with the position of its last
    /// change. Removes the files of other databases, and files with changes after the last change of their
    /// database: the log has lost these changes in a crash, and later changes may get the same update
    /// sequences.
    pub fn open(
        disk: Arc<dyn Disk>,
        entropy: Arc<dyn Entropy>,
        cache: NodeCache,
        dir: PathBuf,
        databases: &[(DbId, Lsn)],
    ) -> Result<Indexes, DocError> {
        let failed = |error| DocError::Storage(format!("cannot open {}: {error}", dir.display()));
        disk.create_dir_all(&dir).map_err(failed)?;
        let listed = disk.list(&dir).map_err(failed)?;
        let indexes = Indexes { disk, entropy, cache, dir, open: Mutex::default() };
        let known: HashMap<u64, Lsn> = databases.iter().map(|(db, last_lsn)| (db.get(), *last_lsn)).collect();
        for name in &listed {
            let path = indexes.dir.join(name);
            let last_lsn = db_of_file(name).map(|db| known.get(&db));
            if last_lsn
                .is_some_and(|last_lsn| last_lsn.is_none_or(|last_lsn| indexes.is_beyond(&path, *last_lsn)))
            {
                remove_file(&*indexes.disk, &path)?;
            }
        }
        Ok(indexes)
    }

    /// Removes all index files of a directory that is not open. Callers that replace the databases or set
    /// them back need this, because an index of another history may look like an index of these databases.
    pub fn remove_all(disk: &dyn Disk, dir: &Path) -> Result<(), DocError> {
        let names = match disk.list(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            names => {
                names.map_err(|error| DocError::Storage(format!("cannot list {}: {error}", dir.display())))?
            }
        };
        let mut files = names.iter().filter(|name| db_of_file(name).is_some());
        files.try_for_each(|name| remove_file(disk, &dir.join(name)))
    }

    /// The definitions in the design documents of a database.
    pub fn definitions(snapshot: &Snapshot) -> Result<Vec<IndexDefinition>, DocError> {
        let mut definitions = Vec::new();
        for info in snapshot.all_docs(designs(), crate::Direction::Ascending) {
            let info = info?;
            let Some((_, leaf)) = info.revs.winner() else { continue };
            let body = snapshot.body(leaf)?;
            definitions.extend(IndexDefinition::all_of(&info.id, &parse(&body)?));
        }
        Ok(definitions)
    }

    /// Does one step towards an index that is up to date with `snapshot`, which the log must have committed.
    /// The index counts as being updated until it is up to date, a step fails, or `update` is dropped.
    pub fn step(
        &self,
        update: &IndexUpdate,
        snapshot: &Snapshot,
        definition: &IndexDefinition,
    ) -> Result<Indexing, DocError> {
        self.with_file(snapshot, definition, |open, file| {
            // A full batch is written, or a pending copy continued, before further changes are collected.
            if file.is_busy() {
                file.go_on()?;
            } else if file.seq() > snapshot.update_seq() {
                return Ok(Indexing::Behind);
            } else if file.seq() < snapshot.update_seq() {
                collect(file, snapshot, definition)?;
            }
            if file.seq() == snapshot.update_seq() && !file.is_written() && !file.is_busy() {
                file.go_on()?;
            }
            if file.seq() == snapshot.update_seq() && file.is_written() {
                *open.progress.lock() = None;
                return Ok(Indexing::Ready(file.snapshot()));
            }
            let progress = IndexProgress {
                db: snapshot.db(),
                design: definition.design.clone(),
                name: definition.name.clone(),
                seq: file.seq(),
                update_seq: snapshot.update_seq().max(file.seq()),
            };
            *open.progress.lock() = Some((progress.clone(), Arc::downgrade(&update.0)));
            Ok(Indexing::Working(progress))
        })
    }

    /// The index without bringing it up to date.
    pub fn as_it_is(
        &self,
        snapshot: &Snapshot,
        definition: &IndexDefinition,
    ) -> Result<IndexSnapshot, DocError> {
        self.with_file(snapshot, definition, |_, file| Ok(file.snapshot()))
    }

    /// The progress of all indexes that are being brought up to date.
    pub fn progress(&self) -> Vec<IndexProgress> {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        let shown = |index: &Arc<OpenIndex>| {
            let progress = index.progress.lock();
            progress.as_ref().filter(|(_, update)| update.strong_count() > 0).map(|(shown, _)| shown.clone())
        };
        open.iter().filter_map(shown).collect()
    }

    /// Removes the index files of a database except those of these definitions; pass none when the database
    /// is deleted.
    pub fn retain(&self, db: DbId, definitions: &[IndexDefinition]) -> Result<(), DocError> {
        let kept: Vec<[u8; 16]> = definitions.iter().map(IndexDefinition::digest).collect();
        // Current readers of a removed file keep it open.
        self.open.lock().retain(|(of, definition), _| *of != db || kept.contains(definition));
        let names: Vec<String> = kept.iter().map(|definition| file_name(db, *definition)).collect();
        let listed = self.disk.list(&self.dir);
        let listed = listed
            .map_err(|error| DocError::Storage(format!("cannot list {}: {error}", self.dir.display())))?;
        for name in listed.iter().filter(|name| db_of_file(name) == Some(db.get())) {
            if !names.iter().any(|kept| name.starts_with(&**kept)) {
                remove_file(&*self.disk, &self.dir.join(name))?;
            }
        }
        Ok(())
    }

    fn with_file<T>(
        &self,
        snapshot: &Snapshot,
        definition: &IndexDefinition,
        work: impl FnOnce(&OpenIndex, &mut IndexFile) -> Result<T, DocError>,
    ) -> Result<T, DocError> {
        let id = (snapshot.db(), definition.digest());
        let open = self.open.lock().entry(id).or_default().clone();
        let mut slot = open.file.lock();
        let mut file = match slot.take() {
            Some(file) if file.is_damaged() => {
                self.place(id).tell_made_anew("its content is not as it was written");
                self.make_anew(id)?
            }
            Some(file) => file,
            None => self.open_file(id, snapshot)?,
        };
        let done = work(&open, &mut file);
        // After an error the file is opened again, because its state is unknown. A damaged file is kept, so
        // that the next call rebuilds it.
        if done.is_ok() || file.is_damaged() {
            *slot = Some(file);
        }
        if done.is_err() {
            *open.progress.lock() = None;
        }
        done
    }

    /// Whether an index has changes after this position of its database. A file that cannot be read is made
    /// anew at its first use.
    fn is_beyond(&self, path: &Path, last_lsn: Lsn) -> bool {
        let is_beyond =
            last_lsn_of_file(&*self.disk, path, &self.cache).is_some_and(|newest| newest > last_lsn);
        if is_beyond {
            tracing::warn!(
                target: "documents", path = %path.display(),
                "an index for queries has changes that its database has lost: it is made anew"
            );
        }
        is_beyond
    }

    fn place(&self, (db, definition): IndexId) -> IndexPlace {
        IndexPlace {
            disk: self.disk.clone(),
            entropy: self.entropy.clone(),
            cache: self.cache.clone(),
            path: self.dir.join(file_name(db, definition)),
            db,
            definition,
        }
    }

    fn make_anew(&self, id: IndexId) -> Result<IndexFile, DocError> {
        let place = self.place(id);
        remove_file(&*self.disk, &place.path)?;
        IndexFile::open(place)
    }

    fn open_file(&self, id: IndexId, snapshot: &Snapshot) -> Result<IndexFile, DocError> {
        let file = IndexFile::open(self.place(id))?;
        // If the index is ahead of the snapshot, the database may have been set back, and the index may have
        // entries of a lost history.
        if file.seq() <= snapshot.update_seq() { Ok(file) } else { self.make_anew(id) }
    }
}

/// Puts the next documents of the feed into the index, up to [`STEP_DOCUMENTS`] or a full batch.
fn collect(file: &mut IndexFile, snapshot: &Snapshot, definition: &IndexDefinition) -> Result<(), DocError> {
    file.reads(snapshot);
    let mut rows = snapshot.changes(file.seq(), crate::Direction::Ascending);
    for _ in 0..STEP_DOCUMENTS {
        let Some(row) = rows.next().transpose()? else {
            file.has_seen(snapshot.update_seq());
            return Ok(());
        };
        if row.id.starts_with(DESIGN_PREFIX) {
            file.has_seen(row.seq);
            continue;
        }
        let key = match snapshot.open(&row.id, Pick::Winner) {
            Ok(found) => key_of(&parse(&rendered(snapshot, &found, false)?)?, definition),
            Err(DocError::Missing | DocError::Deleted) => None,
            Err(error) => return Err(error),
        };
        file.put(row.seq, &row.id, key);
        if file.is_busy() {
            break;
        }
    }
    Ok(())
}

fn key_of(document: &Value<'_>, definition: &IndexDefinition) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    definition.values_of(document)?.into_iter().for_each(|value| put_key(&mut key, value));
    Some(key)
}

/// A document as queries see and return it.
pub(super) fn rendered(snapshot: &Snapshot, found: &Found, conflicts: bool) -> Result<Vec<u8>, DocError> {
    let leaf = found.leaf();
    let body = snapshot.body(leaf)?;
    let attachments: Vec<_> = leaf.attachments.iter().map(AttachmentView::stub).collect();
    let others = if conflicts { found.conflicts() } else { Vec::new() };
    let view = DocumentView {
        attachments: &attachments,
        conflicts: &others,
        ..DocumentView::new(&found.info().id, DocRev::Tree(found.rev()), leaf.deleted, &body)
    };
    let mut out = Vec::new();
    view.render(&mut out);
    Ok(out)
}

/// Parses JSON that the database has stored.
pub(super) fn parse(text: &[u8]) -> Result<Value<'_>, DocError> {
    let text = std::str::from_utf8(text).ok().and_then(|text| Value::parse_stored(text).ok());
    text.ok_or_else(|| DocError::Storage("a document that was stored is no JSON".into()))
}

/// The range of ids of design documents.
fn designs() -> IdRange {
    let end = DESIGN_PREFIX.replace('/', "0");
    IdRange {
        from: std::ops::Bound::Included(DESIGN_PREFIX.into()),
        to: std::ops::Bound::Excluded(end.into()),
    }
}

#[cfg(test)]
mod tests;
