//! `IndexFile`: the entries of one JSON index, in a tree file of its own.
//!
//! What it is: derived data. It says up to which update sequence it has seen its database, and is brought up to date from
//! there; a file that is damaged, cannot be read, or is of something else, is made anew, with a line in the log.
//! What it is not: protected by the log. A file is only ever brought up to what the log has committed, so it is never ahead of
//! its database after a crash.
//!
//! Tree 0, the entries: the key of the values (`key`) followed by the id; the value is how long the former is, a number as in
//! `codec`. Tree 1, what each document has there: its id; the value is the key of its values. The metadata: format (1 byte),
//! database (u64, little endian), digest of the definition (16 bytes), update sequence (a number).
//!
//! What changed is collected in memory, up to [`BATCH_BYTES`], and written in one checkpoint. When most of the file is of the past
//! its entries are copied into a new one, by steps.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Disk, Entropy, crashsafe};
use lsn::Lsn;
use tree::{Builder, Change, NodeCache, Op, Options, Sums, TreeError, TreeFile, TreeId, Wanted};

use super::KeyRange;
use crate::codec::{Input, put_number};
use crate::{DbId, DocError};

/// How many bytes of ids and keys are collected before they are written.
const BATCH_BYTES: usize = 8 << 20;
/// Files below this size are not copied.
const COPY_FROM_BYTES: u64 = 16 << 20;
/// How many times larger than its live nodes a file becomes before it is copied.
const COPY_RATIO: u64 = 3;
/// How many entries are copied in one step.
const COPY_ENTRIES: usize = 10_000;

const FORMAT: u8 = 1;
const ENTRIES: TreeId = TreeId(0);
const DOCUMENTS: TreeId = TreeId(1);

/// Where index files are, and what they are made with.
#[derive(Clone)]
pub(super) struct IndexPlace {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) cache: NodeCache,
    pub(super) path: PathBuf,
    pub(super) db: DbId,
    pub(super) definition: [u8; 16],
}

/// See the module documentation.
pub(super) struct IndexFile {
    place: IndexPlace,
    file: TreeFile,
    /// Up to where `batch` has seen the database; up to where the file has, if that is empty.
    seq: u64,
    /// What is to be written: the key of a document's values, or that it has none.
    batch: BTreeMap<String, Option<Vec<u8>>>,
    batch_bytes: usize,
    copying: Option<Copying>,
    damage: Damage,
}

/// Whether somebody has found damage in a file: it is to be made anew.
#[derive(Clone, Default)]
struct Damage(Arc<AtomicBool>);

/// A file that takes the place of this one when all entries are in it.
struct Copying {
    builder: Builder,
    tree: TreeId,
    rest: tree::Range,
}

/// The entries as they were when the file was last written. It stays valid.
#[derive(Clone)]
pub struct IndexSnapshot {
    tree: tree::Snapshot,
    damage: Damage,
}

/// An entry: its key and the document that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// The key, which a bookmark can name.
    pub(crate) key: Vec<u8>,
    /// The id of the document.
    pub(crate) id: String,
}

impl IndexFile {
    /// Opens the file, or makes a new one that has seen nothing.
    pub(super) fn open(place: IndexPlace) -> Result<IndexFile, DocError> {
        let opened = TreeFile::open(&*place.disk, &place.path, place.options(), Wanted::default());
        let (file, seq) = match opened.map(|file| (place.seq_of(file.snapshot()), file)) {
            Ok((Some(seq), file)) => {
                if let Some(lost) = file.passed_over() {
                    place.tell_made_anew(&format!(
                        "its newest part at offset {}: {}",
                        lost.offset, lost.reason
                    ));
                }
                (file, seq)
            }
            // Whatever is wrong with it: all of it can be made again.
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
            file,
            seq,
            batch: BTreeMap::new(),
            batch_bytes: 0,
            copying: None,
            damage: Damage::default(),
        })
    }

    /// Up to which update sequence it has seen the database.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether there is something to be done before it takes changes: see [`IndexFile::go_on`].
    pub(super) fn is_busy(&self) -> bool {
        self.copying.is_some() || self.batch_bytes >= BATCH_BYTES
    }

    /// A document has these values now, or none that are indexed. `seq`: the update sequence that says so.
    pub(super) fn put(&mut self, seq: u64, id: &str, key: Option<Vec<u8>>) {
        self.batch_bytes += id.len() + key.as_ref().map_or(0, Vec::len) + 64;
        self.batch.insert(id.to_owned(), key);
        self.seq = seq;
    }

    /// All up to here has been put.
    pub(super) fn has_seen(&mut self, seq: u64) {
        self.seq = self.seq.max(seq);
    }

    /// One step of what is to be done.
    pub(super) fn go_on(&mut self) -> Result<(), DocError> {
        let done = match self.copying.take() {
            Some(copying) => self.copy(copying),
            None => self.write(),
        };
        done.map_err(|error| self.damage.noted(error))
    }

    /// The entries. Nothing may be left to be written.
    pub(super) fn snapshot(&self) -> IndexSnapshot {
        IndexSnapshot { tree: self.file.snapshot().clone(), damage: self.damage.clone() }
    }

    /// Whether damage was found in the file.
    pub(super) fn is_damaged(&self) -> bool {
        self.damage.0.load(Ordering::Relaxed)
    }

    /// Whether all that was put is in the file.
    pub(super) fn is_written(&self) -> bool {
        self.batch.is_empty()
    }

    /// Writes the batch.
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
            put_number(&mut length, key.as_ref().map_or(0, Vec::len) as u64);
            added.extend(key.as_ref().map(|key| (entry_key(key, id), length)));
            let change = key.as_ref().map_or(Change::Remove, |key| Change::Insert(key));
            documents.push(Op { key: id.as_bytes(), change });
        }
        let removals = removed.iter().map(|key| Op { key, change: Change::Remove });
        let additions = added.iter().map(|(key, length)| Op { key, change: Change::Insert(length) });
        // An entry that one document loses another cannot gain: the id is in it.
        let mut entries: Vec<Op<'_>> = removals.chain(additions).collect();
        let metadata = self.place.metadata(self.seq);
        let mut checkpoint = self.file.begin()?;
        checkpoint.modify(ENTRIES, &mut entries)?;
        checkpoint.modify(DOCUMENTS, &mut documents)?;
        checkpoint.finish(&metadata, Lsn::ZERO)?;
        self.begin_copy()
    }

    /// Begins to copy the file if most of it is of the past.
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
                    let metadata = self.file.snapshot().metadata().to_vec();
                    let copied = copying.builder.finish(&metadata, Lsn::ZERO)?;
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
    /// The entries in a range of keys.
    pub(crate) fn entries(&self, keys: &KeyRange, descending: bool) -> IndexEntries {
        let to = keys.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let direction = if descending { tree::Direction::Backward } else { tree::Direction::Forward };
        let range = self.tree.range(ENTRIES, Bound::Included(&keys.from), to, direction);
        IndexEntries { range, damage: self.damage.clone() }
    }
}

/// Entries in order. See [`IndexSnapshot::entries`].
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
    /// Tells the operator that the file is about to be made again from the documents.
    pub(super) fn tell_made_anew(&self, reason: &str) {
        let path = self.path.display();
        tracing::warn!(target: "documents", %path, reason, "an index for queries is damaged: it is made again");
    }

    fn options(&self) -> Options {
        Options::new(2, |_, _, _| Sums::default(), self.cache.clone())
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
        put_number(&mut bytes, seq);
        bytes
    }

    /// Up to where a file has seen the database, if it is the one that should be here.
    fn seq_of(&self, snapshot: &tree::Snapshot) -> Option<u64> {
        let mut input = Input::new(snapshot.metadata());
        let (format, db, definition) = (input.byte()?, input.array()?, input.array::<16>()?);
        let seq = input.number().filter(|_| input.is_empty())?;
        let same =
            format == FORMAT && u64::from_le_bytes(db) == self.db.get() && definition == self.definition;
        same.then_some(seq)
    }
}

fn entry_key(key: &[u8], id: &str) -> Vec<u8> {
    [key, id.as_bytes()].concat()
}

fn whole(snapshot: &tree::Snapshot, tree: TreeId) -> tree::Range {
    snapshot.range(tree, Bound::Unbounded, Bound::Unbounded, tree::Direction::Forward)
}

impl Damage {
    /// What the reader is told. A file that has lost its end, or that the disk cannot read, is damaged; one that cannot be written is
    /// not.
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

/// The name of the file of an index.
pub(super) fn file_name(db: DbId, definition: [u8; 16]) -> String {
    let digest: String = definition.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{:016x}-{digest}{FILE_SUFFIX}", db.get())
}

/// The database that a file is an index of, if it is one. What was being written when the server stopped is one too.
pub(super) fn db_of_file(name: &str) -> Option<u64> {
    let (db, _) = name.strip_suffix(".tmp").unwrap_or(name).strip_suffix(FILE_SUFFIX)?.split_once('-')?;
    u64::from_str_radix(db, 16).ok()
}

const FILE_SUFFIX: &str = ".index";

/// Removes a file that may be there.
pub(super) fn remove_file(disk: &dyn Disk, path: &Path) -> Result<(), DocError> {
    match disk.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DocError::Storage(format!("cannot remove {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}
