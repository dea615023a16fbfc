//! `Found`: one leaf revision of a document, with access to its content, ancestors and conflicts.

use std::sync::Arc;

use crate::doc_info::{DocInfo, DocLeaf};
use crate::rev_path::RevPath;
use crate::revision::Rev;
use crate::view::RevStatus;

/// A leaf revision of a document.
#[derive(Clone, Debug)]
pub struct Found {
    info: Arc<DocInfo>,
    rev: Rev,
    /// Its index among the leaves.
    place: usize,
}

impl Found {
    /// The leaf `rev` of the document; `None` if it is not a leaf.
    pub fn new(info: Arc<DocInfo>, rev: Rev) -> Option<Found> {
        let place = info.revs.leaves().position(|(leaf, _)| leaf == rev)?;
        Some(Found { info, rev, place })
    }

    /// The document.
    pub fn info(&self) -> &Arc<DocInfo> {
        &self.info
    }

    /// The revision.
    pub fn rev(&self) -> Rev {
        self.rev
    }

    /// The content of the revision.
    pub fn leaf(&self) -> &DocLeaf {
        // `new` has found this index, and a `DocInfo` is immutable.
        self.info.revs.leaves().nth(self.place).expect("a leaf").1
    }

    /// The revision and its ancestors, newest first.
    pub fn path(&self) -> RevPath {
        self.info.revs.path_of(self.rev).unwrap_or_else(|| RevPath::of(self.rev))
    }

    /// The revision and its ancestors, newest first, each with its status.
    pub fn revs_info(&self) -> Vec<(Rev, RevStatus)> {
        let status = |rev| match self.info.revs.leaf(rev) {
            Some(leaf) if leaf.deleted => RevStatus::Deleted,
            Some(_) => RevStatus::Available,
            None => RevStatus::Missing,
        };
        self.path().revs().map(|rev| (rev, status(rev))).collect()
    }

    /// The other leaves that are not deleted.
    pub fn conflicts(&self) -> Vec<Rev> {
        self.others(false)
    }

    /// The other leaves that are deleted.
    pub fn deleted_conflicts(&self) -> Vec<Rev> {
        self.others(true)
    }

    /// The number (the N of `N-hash`) of the newest revision on this leaf's path that is in `known`; 0 if no
    /// revision of the path is. A client with the revisions in `known` has the attachments up to that
    /// revision.
    pub fn known_number(&self, known: &[Rev]) -> u32 {
        self.path().revs().find(|rev| known.contains(rev)).map_or(0, Rev::number)
    }

    fn others(&self, deleted: bool) -> Vec<Rev> {
        let others =
            self.info.revs.leaves().filter(|(rev, leaf)| *rev != self.rev && leaf.deleted == deleted);
        others.map(|(rev, _)| rev).collect()
    }
}
