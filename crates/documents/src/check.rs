//! `check`: reads all saved data and reports damage, for `sheaf check`.
//!
//! [`check`] reads every node, row, body and attachment in the file of every database, and compares the sums
//! and the feed with the documents. It writes and repairs nothing, and does not read the log.

use std::cell::RefCell;
use std::path::Path;

use env::Disk;
use tree::{NodeCache, Options, TreeError, TreeId, TreeSnapshot, Wanted};

use crate::catalog::{Catalog, Entry, tree_name};
use crate::doc_info::DocSums;
use crate::metadata::decode_metadata;
use crate::rows::{self, DOCUMENTS, FEED, TREES};
use crate::store_error::StoreError;

/// The counts of a check. Documents and blobs are counted only in files that were read from the start: see
/// [`check_behind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Databases with files.
    pub databases: u64,
    /// Documents, including deleted ones.
    pub documents: u64,
    /// Bodies and attachment chunks that were read.
    pub blobs: u64,
    /// Bytes of the files up to their vouched checkpoints.
    pub file_bytes: u64,
    /// Number of damaged places.
    pub damaged: u64,
}

/// Checks a directory of documents. `damage` is called with a description of each damaged place, including
/// the file; `progress` with the bytes of files checked so far, and the total.
///
/// # Errors
/// If the catalog cannot be read.
pub fn check(
    disk: &dyn Disk,
    dir: &Path,
    damage: impl FnMut(String),
    progress: impl FnMut(u64, u64),
) -> Result<CheckReport, StoreError> {
    check_behind(disk, dir, |_| 0, damage, progress)
}

/// Does the same as [`check`], but skips the parts of files that an earlier check has read. `checked` returns
/// the end of the checkpoint up to which a file was checked, or 0 if it was not. Of a file that was checked,
/// only the bytes after that end are verified, by their checksums; its documents and blobs are not counted.
///
/// # Errors
/// As [`check`].
pub fn check_behind(
    disk: &dyn Disk,
    dir: &Path,
    checked: impl Fn(&str) -> u64,
    mut damage: impl FnMut(String),
    mut progress: impl FnMut(u64, u64),
) -> Result<CheckReport, StoreError> {
    let mut report = CheckReport::default();
    let Some(catalog) = Catalog::read(disk, dir)? else { return Ok(report) };
    let end = |entry: &Entry| entry.vouched.map_or(0, |vouched| vouched.file_end);
    let all_bytes = catalog.databases.iter().map(end).sum();
    for entry in &catalog.databases {
        let mut told = |what: String| {
            report.damaged += 1;
            damage(what);
        };
        let name = entry.vouched.map(|vouched| tree_name(entry.db, vouched.generation));
        let from = name.as_deref().map_or(0, &checked);
        let found = match name.filter(|_| from > 0) {
            None => check_database(disk, dir, entry, &mut told),
            Some(name) => {
                if let Err(error) = tree::verify_appended(disk, &dir.join(name), from) {
                    told(error.to_string());
                }
                FileCounts::default()
            }
        };
        report.databases += u64::from(entry.vouched.is_some());
        report.documents += found.documents;
        report.blobs += found.blobs;
        report.file_bytes += end(entry);
        progress(report.file_bytes, all_bytes);
    }
    Ok(report)
}

#[derive(Default)]
struct FileCounts {
    documents: u64,
    blobs: u64,
    feed_rows: u64,
    sums: DocSums,
}

fn check_database(disk: &dyn Disk, dir: &Path, entry: &Entry, told: &mut dyn FnMut(String)) -> FileCounts {
    let mut found = FileCounts::default();
    let Some(vouched) = entry.vouched else { return found };
    let path = dir.join(tree_name(entry.db, vouched.generation));
    let options = Options::new(TREES, rows::measure, NodeCache::new(0));
    let wanted = Wanted { at_least: vouched.lsn, ..Wanted::default() };
    let tree = match TreeSnapshot::open(disk, &path, options, wanted) {
        Ok((tree, _)) => tree,
        Err(error) => {
            told(error.to_string());
            return found;
        }
    };
    // The two closures that `verify` calls for rows and for errors share this function.
    let told = RefCell::new(told);
    let wrong = |what: &str| told.borrow_mut()(format!("{}: {what}", path.display()));
    let walk = tree::verify(
        &tree,
        |id, key, value| {
            if !check_row(&tree, id, key, value, &mut found)? {
                wrong(&format!("a row of tree {} is invalid: {}", id.0, String::from_utf8_lossy(key)));
            }
            Ok(())
        },
        |error| told.borrow_mut()(error.to_string()),
    );
    match decode_metadata(tree.metadata(), tree.applied_lsn()) {
        Some(state) if state.db == entry.db => {
            if walk.damaged == 0 && (state.sums != found.sums || found.feed_rows != found.documents) {
                wrong("sums that are not those of the documents");
            }
        }
        _ => wrong("it is not the file of this database"),
    }
    found
}

/// Whether a row is well-formed and, if it is a document, the feed has its row. Reads all blobs that the row
/// refers to.
fn check_row(
    tree: &TreeSnapshot,
    id: TreeId,
    key: &[u8],
    value: &[u8],
    found: &mut FileCounts,
) -> Result<bool, TreeError> {
    if id == FEED {
        found.feed_rows += 1;
        return Ok(rows::decode_change(key, value).is_some());
    }
    if id != DOCUMENTS {
        let mut read = |pointer| {
            found.blobs += 1;
            tree.read_blob(pointer).map(|_| pointer)
        };
        return Ok(rows::moved_local(key, value, &mut read)?.is_some());
    }
    found.documents += 1;
    let Some(info) = rows::decode_document(key, value) else { return Ok(false) };
    found.sums = found.sums.exchanged(DocSums::default(), info.sums());
    for pointer in info.blobs().filter_map(|blob| blob.pointer()) {
        found.blobs += 1;
        tree.read_blob(pointer)?;
    }
    let in_feed = tree.get(FEED, &rows::feed_key(info.seq))?;
    Ok(in_feed.as_deref() == Some(&rows::encode_change(&info.change_row())))
}
