//! Iterators over a snapshot: the feed, and all documents by id.
//!
//! The iterators own the state that they walk over, and hold one page of rows, however long the walk is.
//! [`AllDocs`] leaves out deleted documents; for any other filter, the caller drops the unwanted rows.
//!
//! Invariants
//! - Each row is returned once, in order, regardless of the layer that holds it.

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use tree::TreeSnapshot;

use crate::DocError;
use crate::doc_info::{ChangeRow, DocInfo};
use crate::id::DocId;
use crate::layer::Layer;
use crate::rows::{self, DOCUMENTS, FEED};
use crate::state::{State, decoded};
use crate::store_error::StoreError;

/// The maximum number of rows in a page.
const PAGE_ROWS: usize = 128;

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The smallest first.
    Ascending,
    /// The largest first.
    Descending,
}

/// A range of ids, independent of the direction of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The lower bound.
    pub from: Bound<DocId>,
    /// The upper bound.
    pub to: Bound<DocId>,
}

impl IdRange {
    /// All ids.
    pub const ALL: IdRange = IdRange { from: Bound::Unbounded, to: Bound::Unbounded };

    fn as_bounds(&self) -> (Bound<&str>, Bound<&str>) {
        (as_str(&self.from), as_str(&self.to))
    }

    /// Whether the bounds contradict each other, so that the range has no ids.
    fn is_empty(&self) -> bool {
        match self.as_bounds() {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
                from >= to
            }
            _ => false,
        }
    }
}

fn as_str(bound: &Bound<DocId>) -> Bound<&str> {
    match bound {
        Bound::Included(id) => Bound::Included(id),
        Bound::Excluded(id) => Bound::Excluded(id),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// An iterator over the feed of a snapshot. See [`crate::Snapshot::changes`].
#[derive(Clone, Debug)]
pub struct Changes {
    state: Arc<State>,
    direction: Direction,
    /// The position of the walk. In ascending order, rows after this position remain; in descending order,
    /// rows up to and including it remain.
    position: u64,
    page: vec::IntoIter<ChangeRow>,
    is_over: bool,
}

impl Changes {
    pub(crate) fn new(state: Arc<State>, position: u64, direction: Direction) -> Changes {
        Changes { state, direction, position, page: Vec::new().into_iter(), is_over: false }
    }

    fn next_page(&mut self) -> Result<(), StoreError> {
        let mut page = Vec::new();
        match self.direction {
            Direction::Ascending => self.state.changes_behind(self.position, PAGE_ROWS, &mut page)?,
            Direction::Descending => self.state.changes_down_from(self.position, PAGE_ROWS, &mut page)?,
        }
        match (page.last(), self.direction) {
            (None, _) => self.is_over = true,
            (Some(last), Direction::Ascending) => self.position = last.seq,
            (Some(last), Direction::Descending) => match last.seq.checked_sub(1) {
                Some(position) => self.position = position,
                None => self.is_over = true,
            },
        }
        self.page = page.into_iter();
        Ok(())
    }
}

impl Iterator for Changes {
    type Item = Result<ChangeRow, DocError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.page.next() {
                return Some(Ok(row));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.next_page() {
                self.is_over = true;
                return Some(Err(error.into()));
            }
        }
    }
}

/// An iterator over the documents of a snapshot that are not deleted. See [`crate::Snapshot::all_docs`].
#[derive(Clone, Debug)]
pub struct AllDocs {
    state: Arc<State>,
    direction: Direction,
    range: IdRange,
    page: vec::IntoIter<Arc<DocInfo>>,
    is_over: bool,
}

impl AllDocs {
    pub(crate) fn new(state: Arc<State>, range: IdRange, direction: Direction) -> AllDocs {
        AllDocs { state, direction, range, page: Vec::new().into_iter(), is_over: false }
    }

    fn next_page(&mut self) -> Result<(), StoreError> {
        if self.range.is_empty() {
            self.is_over = true;
            return Ok(());
        }
        let mut page = Vec::new();
        let mut last = None;
        for row in self.state.documents(&self.range, self.direction) {
            let info = row?;
            last = Some(info.id.clone());
            if !info.is_deleted() {
                page.push(info);
            }
            if page.len() >= PAGE_ROWS {
                break;
            }
        }
        self.is_over = page.len() < PAGE_ROWS;
        if let Some(last) = last {
            let bound = match self.direction {
                Direction::Ascending => &mut self.range.from,
                Direction::Descending => &mut self.range.to,
            };
            *bound = Bound::Excluded(last);
        }
        self.page = page.into_iter();
        Ok(())
    }
}

impl Iterator for AllDocs {
    type Item = Result<Arc<DocInfo>, DocError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(info) = self.page.next() {
                return Some(Ok(info));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.next_page() {
                self.is_over = true;
                return Some(Err(error.into()));
            }
        }
    }
}

/// A row of a layer or of the tree: an id with its document, or with `None` if a layer removes the document.
type Row = (DocId, Option<Arc<DocInfo>>);
type Rows<'s> = Box<dyn Iterator<Item = Result<Row, StoreError>> + 's>;

impl State {
    /// Appends feed rows after `since` to the page, up to `rows`.
    fn changes_behind(&self, since: u64, rows: usize, page: &mut Vec<ChangeRow>) -> Result<(), StoreError> {
        let behind = (Bound::Excluded(since), Bound::Unbounded);
        if since < self.tree_seq() {
            let from = rows::feed_key(since);
            self.changes_of_tree(
                Bound::Excluded(&from),
                Bound::Unbounded,
                tree::Direction::Forward,
                rows,
                page,
            )?;
        }
        if let Some(frozen) = &self.frozen {
            let shown = frozen.by_seq.range(behind).filter(|(seq, _)| !self.fresh.hides(**seq));
            page.extend(shown.take(rows - page.len()).map(|(_, info)| info.change_row()));
        }
        let shown = self.fresh.by_seq.range(behind);
        page.extend(shown.take(rows - page.len()).map(|(_, info)| info.change_row()));
        Ok(())
    }

    /// The number of feed rows after `since`.
    pub(crate) fn changes_count(&self, since: u64) -> Result<u64, StoreError> {
        let mut count = match &self.tree {
            Some(tree) if since < self.tree_seq() => {
                let from = rows::feed_key(since);
                let [rows, ..] =
                    tree.sums_of_range(FEED, Bound::Excluded(from.as_slice()), Bound::Unbounded)?.0;
                rows
            }
            _ => 0,
        };
        let behind = (Bound::Excluded(since), Bound::Unbounded);
        // From the lowest layer up: a layer hides rows of the layers below it, which must be counted before
        // they are subtracted.
        for layer in self.layers().collect::<Vec<_>>().into_iter().rev() {
            count -= layer.hidden_seqs.range(behind).count() as u64;
            count += match since <= layer.base_seq {
                true => layer.by_seq.len(),
                false => layer.by_seq.range(behind).count(),
            } as u64;
        }
        Ok(count)
    }

    /// Appends feed rows from `from` on downwards to the page, up to `rows`.
    fn changes_down_from(&self, from: u64, rows: usize, page: &mut Vec<ChangeRow>) -> Result<(), StoreError> {
        let before = (Bound::Unbounded, Bound::Included(from));
        let shown = self.fresh.by_seq.range(before).rev();
        page.extend(shown.take(rows - page.len()).map(|(_, info)| info.change_row()));
        if let Some(frozen) = &self.frozen {
            let shown = frozen.by_seq.range(before).rev().filter(|(seq, _)| !self.fresh.hides(**seq));
            page.extend(shown.take(rows - page.len()).map(|(_, info)| info.change_row()));
        }
        let to = rows::feed_key(from);
        self.changes_of_tree(Bound::Unbounded, Bound::Included(&to), tree::Direction::Backward, rows, page)
    }

    /// Appends feed rows of the file that no layer hides, until the page has `rows`.
    fn changes_of_tree(
        &self,
        from: Bound<&[u8; 8]>,
        to: Bound<&[u8; 8]>,
        direction: tree::Direction,
        rows: usize,
        page: &mut Vec<ChangeRow>,
    ) -> Result<(), StoreError> {
        let Some(tree) = &self.tree else { return Ok(()) };
        let mut range = tree.range(FEED, from.map(|key| &key[..]), to.map(|key| &key[..]), direction);
        while page.len() < rows {
            let Some((key, value)) = range.next_entry()? else { return Ok(()) };
            let row = decoded(tree, rows::decode_change(key, value))?;
            if !self.layers().any(|layer| layer.hides(row.seq)) {
                page.push(row);
            }
        }
        Ok(())
    }

    /// The update sequence of the file.
    fn tree_seq(&self) -> u64 {
        self.frozen.as_ref().map_or(self.fresh.base_seq, |frozen| frozen.base_seq)
    }

    /// The documents of a range, including deleted ones.
    fn documents<'s>(
        &'s self,
        range: &'s IdRange,
        direction: Direction,
    ) -> impl Iterator<Item = Result<Arc<DocInfo>, StoreError>> + 's {
        let in_layers = self.layers().map(|layer| rows_of(layer, range, direction));
        let on_disk = self.tree.as_ref().map(|tree| rows_of_tree(tree, range, direction));
        let sources = in_layers.chain(on_disk).collect();
        Merged::new(sources, direction).filter_map(|row| row.map(|(_, info)| info).transpose())
    }
}

fn rows_of_tree<'s>(tree: &'s TreeSnapshot, range: &IdRange, direction: Direction) -> Rows<'s> {
    let (from, to) = range.as_bounds();
    let direction = match direction {
        Direction::Ascending => tree::Direction::Forward,
        Direction::Descending => tree::Direction::Backward,
    };
    let mut rows = tree.range(DOCUMENTS, from.map(str::as_bytes), to.map(str::as_bytes), direction);
    let mut next = move || {
        let Some((key, value)) = rows.next_entry()? else { return Ok(None) };
        let info = decoded(tree, rows::decode_document(key, value))?;
        Ok(Some((info.id.clone(), Some(Arc::new(info)))))
    };
    Box::new(std::iter::from_fn(move || next().transpose()))
}

fn rows_of<'s>(layer: &'s Layer, range: &'s IdRange, direction: Direction) -> Rows<'s> {
    let rows = layer.by_id.range(range.as_bounds());
    match direction {
        Direction::Ascending => Box::new(rows.map(|(id, info)| Ok((id.clone(), info.cloned())))),
        Direction::Descending => Box::new(rows.rev().map(|(id, info)| Ok((id.clone(), info.cloned())))),
    }
}

/// Merges the rows of several sources. If several sources have a row with the same key, it returns the row of
/// the first of these sources.
struct Merged<'s> {
    sources: Vec<Peekable<Rows<'s>>>,
    direction: Direction,
}

impl<'s> Merged<'s> {
    fn new(sources: Vec<Rows<'s>>, direction: Direction) -> Merged<'s> {
        Merged { sources: sources.into_iter().map(Iterator::peekable).collect(), direction }
    }

    /// The next key, or the first error of a source.
    fn next_key(&mut self) -> Option<Result<DocId, StoreError>> {
        let mut next: Option<DocId> = None;
        for source in &mut self.sources {
            match source.peek() {
                None => {}
                Some(Err(error)) => return Some(Err(error.clone())),
                Some(Ok((id, _))) => {
                    let comes_first = next.as_ref().is_none_or(|next| match self.direction {
                        Direction::Ascending => id < next,
                        Direction::Descending => id > next,
                    });
                    if comes_first {
                        next = Some(id.clone());
                    }
                }
            }
        }
        next.map(Ok)
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Row, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = match self.next_key()? {
            Ok(key) => key,
            Err(error) => {
                self.sources.clear();
                return Some(Err(error));
            }
        };
        let mut found = None;
        for source in &mut self.sources {
            let row = source.next_if(|row| row.as_ref().is_ok_and(|(id, _)| *id == key));
            found = found.or(row);
        }
        found
    }
}
