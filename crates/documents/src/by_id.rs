//! `ById`: the documents of a layer in the order of their ids.
//!
//! Copies of the map share its nodes, so a copy is cheap. An entry holds the first bytes of its id, so that
//! few comparisons need to read memory outside the node. A hidden document has an entry, too.
//!
//! Invariants
//! - Entries are in the order of whole ids. If two ids differ in their first [`PREFIX_BYTES`] bytes (padded
//!   with zeros), these bytes alone decide the order.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::OrdSet;

use crate::doc_info::DocInfo;
use crate::id::DocId;

const PREFIX_BYTES: usize = 16;

/// A map from ids to documents. Clones share nodes, so that cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct ById {
    entries: OrdSet<Entry>,
}

/// The entry of an id in a layer: its document, or `None` if it hides the document of the layers below.
pub(crate) type Known<'l> = Option<&'l Arc<DocInfo>>;

#[derive(Clone, Debug)]
struct Entry {
    prefix: Prefix,
    /// The document, which is hidden if it has no revisions. Inner nodes of the map keep copies of entries to
    /// compare ids; the documents in these copies may be older.
    info: Arc<DocInfo>,
}

/// The first bytes of an id, as two numbers that are ordered as the bytes are.
type Prefix = [u64; 2];

/// The key of a lookup: an id, with its first bytes as numbers.
struct Sought<'i> {
    prefix: Prefix,
    id: &'i str,
}

impl ById {
    /// The entry of this id, if the layer has one.
    pub(crate) fn get(&self, id: &str) -> Option<Known<'_>> {
        self.entries.get(&Sought::new(id)).map(Entry::known)
    }

    /// Inserts or replaces a document.
    pub(crate) fn put(&mut self, info: Arc<DocInfo>) {
        self.entries.insert(Entry { prefix: prefix_of(&info.id), info });
    }

    /// Hides the document with this id.
    pub(crate) fn hide(&mut self, id: DocId) {
        self.put(Arc::new(DocInfo { id, seq: 0, revs: Default::default() }));
    }

    /// All entries in the order of ids, including those that hide documents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DocId, Known<'_>)> {
        self.entries.iter().map(Entry::parts)
    }

    /// The entries of a range in order. The range must not be empty.
    pub(crate) fn range(
        &self,
        (from, to): (Bound<&str>, Bound<&str>),
    ) -> impl DoubleEndedIterator<Item = (&DocId, Known<'_>)> {
        self.entries.range((from.map(Sought::new), to.map(Sought::new))).map(Entry::parts)
    }

    /// All documents in the order of ids, without hidden ones.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &Arc<DocInfo>> {
        self.entries.iter().filter_map(Entry::known)
    }
}

impl Entry {
    fn known(&self) -> Known<'_> {
        (!self.info.revs.is_empty()).then_some(&self.info)
    }

    fn parts(&self) -> (&DocId, Known<'_>) {
        (&self.info.id, self.known())
    }
}

impl<'i> Sought<'i> {
    fn new(id: &'i str) -> Sought<'i> {
        Sought { prefix: prefix_of(id), id }
    }
}

#[inline]
fn prefix_of(id: &str) -> Prefix {
    let mut bytes = [0; PREFIX_BYTES];
    let there = id.len().min(PREFIX_BYTES);
    bytes[..there].copy_from_slice(&id.as_bytes()[..there]);
    let number = u128::from_be_bytes(bytes);
    [(number >> 64) as u64, number as u64]
}

#[inline]
fn compared(prefix: &Prefix, id: &str, entry: &Entry) -> Ordering {
    prefix.cmp(&entry.prefix).then_with(|| id.cmp(&entry.info.id))
}

impl Comparable<Entry> for Sought<'_> {
    fn compare(&self, entry: &Entry) -> Ordering {
        compared(&self.prefix, self.id, entry)
    }
}

impl Equivalent<Entry> for Sought<'_> {
    fn equivalent(&self, entry: &Entry) -> bool {
        self.compare(entry).is_eq()
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        compared(&self.prefix, &self.info.id, other)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::RevTree;
    use crate::tests::kit::{Kit, put};

    /// Ids with equal first bytes; some end within the first [`PREFIX_BYTES`] bytes, and some continue with
    /// zeros.
    fn ids() -> impl Strategy<Value = String> {
        let long = "[ab\u{0}]{0,2}".prop_map(|end| format!("0123456789abcde{end}"));
        prop_oneof!["[ab\u{0}]{0,4}", long, "[a-z]{1,3}"]
    }

    /// Revisions of some document; the contents do not matter here.
    fn some_revs() -> RevTree<crate::DocLeaf> {
        let (kit, db) = Kit::with_database();
        kit.edit(&db, put("a", "{}")).expect("new");
        db.snapshot().document("a").expect("readable").expect("there").revs.clone()
    }

    proptest! {
        #[test]
        fn the_index_is_a_map_in_the_order_of_ids(
            edits in prop::collection::vec((ids(), any::<bool>()), 0..60),
            from in ids(),
            to in ids(),
        ) {
            let revs = some_revs();
            let (mut by_id, mut model) = (ById::default(), BTreeMap::new());
            for (seq, (id, is_there)) in edits.iter().enumerate() {
                if *is_there {
                    let info = DocInfo { id: id.as_str().into(), seq: seq as u64, revs: revs.clone() };
                    by_id.put(Arc::new(info));
                } else {
                    by_id.hide(id.as_str().into());
                }
                model.insert(id.clone(), is_there.then_some(seq as u64));
            }
            let seq = |(id, known): (&DocId, Known<'_>)| (id.to_string(), known.map(|info| info.seq));
            let expected = |range: &mut dyn Iterator<Item = (&String, &Option<u64>)>| {
                range.map(|(id, seq)| (id.clone(), *seq)).collect::<Vec<_>>()
            };
            prop_assert_eq!(by_id.iter().map(seq).collect::<Vec<_>>(), expected(&mut model.iter()));
            for (id, _) in &edits {
                prop_assert_eq!(by_id.get(id).map(|known| known.map(|info| info.seq)), model.get(id).copied());
            }
            prop_assert_eq!(by_id.get(&from).is_some(), model.contains_key(&from));
            if from <= to {
                let bounds = (Bound::Included(&*from), Bound::Included(&*to));
                let mut range = model.range(from.clone()..=to.clone());
                prop_assert_eq!(by_id.range(bounds).map(seq).collect::<Vec<_>>(), expected(&mut range));
                let mut backward = model.range(from.clone()..=to.clone()).rev();
                prop_assert_eq!(by_id.range(bounds).rev().map(seq).collect::<Vec<_>>(), expected(&mut backward));
            }
        }
    }
}
