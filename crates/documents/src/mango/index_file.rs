//! `IndexFile`: the entries of one JSON index, in a tree file of its own.
//!
//! The file is derived data: it stores the update sequence up to which it has indexed its database, and
//! indexing continues from there. A file that is damaged or unreadable, or belongs to another index, is
//! rebuilt; if only the newest part of a file is damaged, indexing continues from an earlier checkpoint.
//! Either gets a line in the server's log. The durable log has no records of index files.
//!
//! ```text
//! tree 0, entries    key: index key of the document's values (see `key`), then the id of the document
//!                    value: length of that index key (number)
//! tree 1, documents  key: id of the document
//!                    value: index key of its values
//! metadata           format (1 byte), database (u64, little-endian), digest of the definition (16 bytes),
//!                    update sequence (number)
//! ```
//! Numbers are encoded as in `codec`. The applied LSN of the file is the position of the newest change of the
//! database that the entries can reflect; earlier versions wrote 0.
//!
//! Changes are collected in memory, up to about [`BATCH_BYTES`], and written in one checkpoint. When most of
//! a large file is not in use any more, its entries are copied to a new file, in steps.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Disk, Entropy, crashsafe};
use lsn::Lsn;
use tree::{
    Builder, Change, NodeCache, Op, Options, Sums, TreeError, TreeFile, TreeId, TreeSnapshot, Wanted,
};

use super::KeyRange;
use crate::codec::Input;
use crate::{DbId, DocError, Snapshot};

/// Bytes of ids and keys that are collected before they are written.
const BATCH_BYTES: usize = 8 << 20;
/// Files below this size are not copied.
const COPY_FROM_BYTES: u64 = 16 << 20;
/// The minimum ratio of the file size to the size of live nodes at which a file is copied.
const COPY_RATIO: u64 = 3;
/// The maximum number of entries copied per step.
const COPY_ENTRIES: usize = 10_000;

const FORMAT: u8 = 1;
const ENTRIES: TreeId = TreeId(0);
const DOCUMENTS: TreeId = TreeId(1);

/// The location of an index file, and the environment to create it.
#[derive(Clone)]
pub(super) struct IndexPlace {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) cache: NodeCache,
    pub(super) path: PathBuf,
    pub(super) db: DbId,
    pub(super) definition: [u8; 16],
}

/// An open index file with its pending changes.
pub(super) struct IndexFile {
    place: IndexPlace,
    file: TreeFile,
    /// The update sequence up to which changes are in the file or in `batch`.
    seq: u64,
    /// The position of the last change of the database in the snapshots that the entries come from.
    last_lsn: Lsn,
    /// Pending changes by document id: the key of the document's values, or `None` if it has no entry.
    batch: BTreeMap<String, Option<Vec<u8>>>,
    batch_bytes: usize,
    copying: Option<Copying>,
    damage: Damage,
}

/// Set when damage is found in the file, which must then be rebuilt.
#[derive(Clone, Default)]
struct Damage(Arc<AtomicBool>);

/// A compacted copy under construction, which replaces the file when it is complete.
struct Copying {
    builder: Builder,
    tree: TreeId,
    rest: tree::Range,
}

/// The entries as of a checkpoint of the file. Later writes do not change the snapshot.
#[derive(Clone)]
pub struct IndexSnapshot {
    tree: TreeSnapshot,
    damage: Damage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// The key of the entry, as stored in bookmarks.
    pub(crate) key: Vec<u8>,
    /// The id of the document.
    pub(crate) id: String,
}

impl IndexFile {
    /// Opens the file, or creates an empty one.
    pub(super) fn open(place: IndexPlace) -> Result<IndexFile, DocError> {
        let opened = TreeFile::open(&*place.disk, &place.path, place.options(), Wanted::default());
        let (file, seq) = match opened.map(|file| (place.seq_of(file.snapshot()), file)) {
            Ok((Some(seq), file)) => {
                if let Some(lost) = file.passed_over() {
                    let (path, offset, reason) = (place.path.display(), lost.offset, &lost.reason);
                    tracing::warn!(
                        target: "documents", %path, offset, reason,
                        "the newest part of an index for queries is damaged: it goes on from an earlier state"
                    );
                }
                (file, seq)
            }
            // The index is derived data: after any error it is rebuilt.
            other => {
                match other {
                    Err(TreeError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                    Err(error) => place.tell_made_anew(&error.to_string()),
                    Ok(_) => place.tell_made_anew("it is the index of something else"),
                }
                (place.create().map_err(|error| Damage::default().noted(error))?, 0)
            }
        };
        Ok(IndexFile {
            place,
            seq,
            last_lsn: file.snapshot().applied_lsn(),
            file,
            batch: BTreeMap::new(),
            batch_bytes: 0,
            copying: None,
            damage: Damage::default(),
        })
    }

    /// The update sequence up to which the database is indexed.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether [`IndexFile::go_on`] must be called before further changes are put.
    pub(super) fn is_busy(&self) -> bool {
        self.copying.is_some() || self.batch_bytes >= BATCH_BYTES
    }

    /// Notes that further changes come from this snapshot.
    pub(super) fn reads(&mut self, snapshot: &Snapshot) {
        self.last_lsn = self.last_lsn.max(snapshot.last_lsn());
    }

    /// Sets the key of a document's values, or `None` if it is not in the index. `seq` is the update sequence
    /// of the change.
    pub(super) fn put(&mut self, seq: u64, id: &str, key: Option<Vec<u8>>) {
        self.batch_bytes += id.len() + key.as_ref().map_or(0, Vec::len) + 64;
        self.batch.insert(id.to_owned(), key);
        self.seq = seq;
    }

    /// Notes that all changes up to `seq` have been put, or need no entry.
    pub(super) fn has_seen(&mut self, seq: u64) {
        self.seq = self.seq.max(seq);
    }

    /// Does one step of the pending work: writes the batch, or continues a copy.
    pub(super) fn go_on(&mut self) -> Result<(), DocError> {
        let done = match self.copying.take() {
            Some(copying) => self.copy(copying),
            None => self.write(),
        };
        done.map_err(|error| self.damage.noted(error))
    }

    /// A snapshot of the file; it does not have the pending changes.
    pub(super) fn snapshot(&self) -> IndexSnapshot {
        IndexSnapshot { tree: self.file.snapshot().clone(), damage: self.damage.clone() }
    }

    /// Whether damage was found in the file.
    pub(super) fn is_damaged(&self) -> bool {
        self.damage.0.load(Ordering::Relaxed)
    }

    /// Whether the file has all changes that were put.
    pub(super) fn is_written(&self) -> bool {
        self.batch.is_empty()
    }

    /// Writes the pending changes.
    fn write(&mut self) -> Result<(), TreeError> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let ids: Vec<&str> = batch.keys().map(String::as_str).collect();
        let before = self.file.snapshot().get_many(DOCUMENTS, &ids)?;
        let mut removed = Vec::new();
        let mut added = Vec::new();
        let mut documents = Vec::new();
        for ((id, key), old) in batch.iter().zip(&before) {
            if key == old {
                continue;
            }
            removed.extend(old.as_ref().map(|old| entry_key(old, id)));
            let mut length = Vec::new();
            varint::put(&mut length, key.as_ref().map_or(0, Vec::len) as u64);
            added.extend(key.as_ref().map(|key| (entry_key(key, id), length)));
            let change = key.as_ref().map_or(Change::Remove, |key| Change::Insert(key));
            documents.push(Op { key: id.as_bytes(), change });
        }
        let removals = removed.iter().map(|key| Op { key, change: Change::Remove });
        let additions = added.iter().map(|(key, length)| Op { key, change: Change::Insert(length) });
        // Keys contain the id, so no removal affects the entry of another document.
        let mut entries: Vec<Op<'_>> = removals.chain(additions).collect();
        let metadata = self.place.metadata(self.seq);
        let mut checkpoint = self.file.begin()?;
        checkpoint.modify(ENTRIES, &mut entries)?;
        checkpoint.modify(DOCUMENTS, &mut documents)?;
        checkpoint.finish(&metadata, self.last_lsn)?;
        self.begin_copy()
    }

    /// Begins to copy the file if it is large and most of it is not in use any more.
    fn begin_copy(&mut self) -> Result<(), TreeError> {
        let snapshot = self.file.snapshot();
        let live = snapshot.node_bytes(ENTRIES) + snapshot.node_bytes(DOCUMENTS);
        let file = snapshot.file_end();
        if file < COPY_FROM_BYTES || file / COPY_RATIO < live {
            return Ok(());
        }
        let IndexPlace { disk, path, entropy, .. } = &self.place;
        let builder = Builder::create(&**disk, &crashsafe::tmp_path(path), self.place.options(), &**entropy)?;
        self.copying = Some(Copying { builder, tree: ENTRIES, rest: whole(snapshot, ENTRIES) });
        Ok(())
    }

    fn copy(&mut self, mut copying: Copying) -> Result<(), TreeError> {
        for _ in 0..COPY_ENTRIES {
            match (copying.rest.next_entry()?, copying.tree) {
                (Some((key, value)), tree) => copying.builder.append(tree, key, value)?,
                (None, ENTRIES) => {
                    copying.tree = DOCUMENTS;
                    copying.rest = whole(self.file.snapshot(), DOCUMENTS);
                }
                (None, _) => {
                    let (metadata, last_lsn) =
                        (self.file.snapshot().metadata(), self.file.snapshot().applied_lsn());
                    let copied = copying.builder.finish(metadata, last_lsn)?;
                    self.file = copied.put_in_place(&*self.place.disk, &self.place.path)?;
                    return Ok(());
                }
            }
        }
        self.copying = Some(copying);
        Ok(())
    }
}

impl IndexSnapshot {
    pub(crate) fn entries(&self, keys: &KeyRange, descending: bool) -> IndexEntries {
        let to = keys.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let direction = if descending { tree::Direction::Backward } else { tree::Direction::Forward };
        let range = self.tree.range(ENTRIES, Bound::Included(&keys.from), to, direction);
        IndexEntries { range, damage: self.damage.clone() }
    }
}

/// An iterator over entries in order. See [`IndexSnapshot::entries`].
pub(crate) struct IndexEntries {
    range: tree::Range,
    damage: Damage,
}

impl Iterator for IndexEntries {
    type Item = Result<IndexEntry, DocError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_entry().map_err(|error| self.damage.noted(error)).transpose()?;
        Some(entry.and_then(|(key, value)| {
            let length = Input::new(value).number().and_then(|length| usize::try_from(length).ok());
            let id = length.and_then(|length| std::str::from_utf8(key.get(length..)?).ok());
            let id = id.ok_or_else(|| self.damage.found("an index has an entry of no document".into()))?;
            Ok(IndexEntry { key: key.to_vec(), id: id.to_owned() })
        }))
    }
}

impl IndexPlace {
    /// Logs a warning for the operator that the file is rebuilt from the documents.
    pub(super) fn tell_made_anew(&self, reason: &str) {
        let path = self.path.display();
        tracing::warn!(target: "documents", %path, reason, "an index for queries is damaged: it is made again");
    }

    fn options(&self) -> Options {
        options(&self.cache)
    }

    fn create(&self) -> Result<TreeFile, TreeError> {
        TreeFile::create(
            &*self.disk,
            &self.path,
            self.options(),
            &*self.entropy,
            &self.metadata(0),
            Lsn::ZERO,
        )
    }

    fn metadata(&self, seq: u64) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.db.get().to_le_bytes());
        bytes.extend_from_slice(&self.definition);
        varint::put(&mut bytes, seq);
        bytes
    }

    /// The update sequence in the metadata of a file; `None` if the metadata is malformed, or that of another
    /// index.
    fn seq_of(&self, snapshot: &TreeSnapshot) -> Option<u64> {
        let mut input = Input::new(snapshot.metadata());
        let (format, db, definition) = (input.byte()?, input.array()?, input.array::<16>()?);
        let seq = input.number().filter(|_| input.is_empty())?;
        let same =
            format == FORMAT && u64::from_le_bytes(db) == self.db.get() && definition == self.definition;
        same.then_some(seq)
    }
}

fn options(cache: &NodeCache) -> Options {
    Options::new(2, |_, _, _| Sums::default(), cache.clone())
}

fn entry_key(key: &[u8], id: &str) -> Vec<u8> {
    [key, id.as_bytes()].concat()
}

fn whole(snapshot: &TreeSnapshot, tree: TreeId) -> tree::Range {
    snapshot.range(tree, Bound::Unbounded, Bound::Unbounded, tree::Direction::Forward)
}

impl Damage {
    /// Notes damage; returns the error for the caller. A truncated or unreadable file counts as damaged; a
    /// file that cannot be opened or written does not.
    fn noted(&self, error: TreeError) -> DocError {
        match error {
            TreeError::Io { operation, .. } if operation != "read" => DocError::Storage(error.to_string()),
            error => self.found(error.to_string()),
        }
    }

    fn found(&self, reason: String) -> DocError {
        self.0.store(true, Ordering::Relaxed);
        DocError::Storage(reason)
    }
}

pub(super) fn file_name(db: DbId, definition: [u8; 16]) -> String {
    format!("{:016x}-{}{FILE_SUFFIX}", db.get(), hex::encode(definition))
}

/// The database id in the name of an index file, also of an unfinished copy; `None` for other names.
pub(super) fn db_of_file(name: &str) -> Option<u64> {
    let (db, _) = name.strip_suffix(".tmp").unwrap_or(name).strip_suffix(FILE_SUFFIX)?.split_once('-')?;
    u64::from_str_radix(db, 16).ok()
}

const FILE_SUFFIX: &str = ".index";

/// The position of the newest change of the database that a file can reflect; `None` if the file cannot be
/// read.
pub(super) fn last_lsn_of_file(disk: &dyn Disk, path: &Path, cache: &NodeCache) -> Option<Lsn> {
    let opened = TreeSnapshot::open(disk, path, options(cache), Wanted::default());
    opened.ok().map(|(snapshot, _)| snapshot.applied_lsn())
}

/// Removes a file, if it exists.
pub(super) fn remove_file(disk: &dyn Disk, path: &Path) -> Result<(), DocError> {
    match disk.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DocError::Storage(format!("cannot remove {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}
