//! Ranges of a rank tree: iteration by rank, from either end.
//!
//! What it is: the rest of one leaf at each end, and the ranks between these leaves. The next leaf is found
//! from the root, once per leaf. This search costs less than links between leaves would cost at every change.

use std::{ops, slice};

use super::{Item, Member, RankTree};

/// The items with ranks in a range, from either end.
pub(crate) struct Range<'t, M> {
    tree: &'t RankTree<M>,
    front: slice::Iter<'t, Item<M>>,
    /// The ranks between the leaves of the two ends.
    between: ops::Range<usize>,
    back: slice::Iter<'t, Item<M>>,
}

impl<'t, M: Member> Range<'t, M> {
    pub(super) fn new(tree: &'t RankTree<M>, ranks: ops::Range<usize>) -> Self {
        let between = ranks.start..ranks.end.min(tree.len);
        Range { tree, front: [].iter(), between, back: [].iter() }
    }
}

impl<'t, M: Member> Iterator for Range<'t, M> {
    type Item = (f64, &'t M);

    fn next(&mut self) -> Option<(f64, &'t M)> {
        if self.front.as_slice().is_empty() && !self.between.is_empty() {
            let (leaf, index) = self.tree.leaf_of(self.between.start);
            let end = leaf.len().min(index + self.between.len());
            self.front = leaf[index..end].iter();
            self.between.start += self.front.len();
        }
        let item = self.front.next().or_else(|| self.back.next())?;
        Some((item.score, &item.member))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.front.len() + self.between.len() + self.back.len();
        (len, Some(len))
    }
}

impl<'t, M: Member> DoubleEndedIterator for Range<'t, M> {
    fn next_back(&mut self) -> Option<(f64, &'t M)> {
        if self.back.as_slice().is_empty() && !self.between.is_empty() {
            let (leaf, index) = self.tree.leaf_of(self.between.end - 1);
            let end = index + 1;
            self.back = leaf[end.saturating_sub(self.between.len())..end].iter();
            self.between.end -= self.back.len();
        }
        let item = self.back.next_back().or_else(|| self.front.next_back())?;
        Some((item.score, &item.member))
    }
}

impl<M: Member> ExactSizeIterator for Range<'_, M> {}
