//! `RevTree`: all known revisions of one document: a forest whose leaves can be read and edited.
//!
//! The tree merges paths from edits and from replication, determines the winner, stems branches (drops old
//! ancestors), and has an encoding. The content of a leaf (`L`: body, attachments) is opaque to the tree. The
//! tree does not detect edit conflicts: the writer checks that the parent is a leaf.
//!
//! ```text
//!   1-a --- 2-b --- 3-c           branch 0: 3-c 2-b 1-a   (the winner: it owns the shared ancestors)
//!       \-- 2-d                   branch 1: 2-d           joins branch 0 at 1-a
//! ```
//!
//! Invariants
//! - Branches are ordered, the winner first: not deleted before deleted, then the larger number, then the
//!   larger hash.
//! - Merging the same paths in any order gives equal trees with equal bytes, and merging a path twice changes
//!   nothing, because the hash of a revision determines its parent. If a forged path gives a known revision
//!   another parent, the tree keeps the known parent and ignores the rest of the path. Stemming loses
//!   information: paths that are merged afterwards may become separate branches.
//! - A branch joins only an earlier branch, even after decoding arbitrary bytes, so there are no cycles.
//!
//! ```text
//! number   count of branches, and for each branch:
//!   number   the N of its oldest revision
//!   number   count of the revisions that it owns
//!   number   0, or 1 + the index of the branch that it joins
//!   hashes   16 bytes each, from the oldest revision to the newest
//!   leaf     as encoded by `L`
//! ```
//! Numbers are encoded as in `codec`.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use crate::codec::Input;
use crate::{Rev, RevPath};

/// The content of a leaf of a [`RevTree`].
pub trait Leaf: Sized {
    /// Whether the revision deletes the document.
    fn deleted(&self) -> bool;
    /// Appends the bytes that [`Leaf::decode`] reads.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads the output of [`Leaf::encode`]; `None` for malformed bytes.
    fn decode(input: &mut Input<'_>) -> Option<Self>;
}

/// The result of merging a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// The revision was already known, so the given leaf was dropped. Ancestors of the revision may have
    /// become known.
    Known,
    /// The revision descends from a former leaf.
    Extended,
    /// The revision is a further leaf, or the first one.
    Branched,
}

/// The revisions of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevTree<L> {
    branches: SmallVec<[Branch<L>; 1]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Branch<L> {
    /// The number of the oldest revision that it owns.
    first: u32,
    /// The revisions that it owns, from the oldest to its leaf.
    hashes: SmallVec<[[u8; 16]; 2]>,
    /// The branch that owns the parent of the oldest revision.
    joins: Option<u32>,
    leaf: L,
}

impl<L> Default for RevTree<L> {
    fn default() -> Self {
        RevTree { branches: SmallVec::new() }
    }
}

impl<L> Branch<L> {
    fn newest(&self) -> Rev {
        self.get(self.first + (self.hashes.len() as u32 - 1)).expect("a branch owns its leaf")
    }

    /// The revision with this number, if the branch owns it.
    fn get(&self, number: u32) -> Option<Rev> {
        let index = number.checked_sub(self.first)?;
        Rev::new(number, *self.hashes.get(usize::try_from(index).ok()?)?)
    }

    fn owns(&self, rev: Rev) -> bool {
        self.get(rev.number()) == Some(rev)
    }
}

impl<L: Leaf> RevTree<L> {
    /// The number of known revisions.
    pub fn count(&self) -> usize {
        self.branches.iter().map(|branch| branch.hashes.len()).sum()
    }

    /// Whether the tree has no revisions.
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// The revision that a reader gets by default; `None` if the tree is empty.
    pub fn winner(&self) -> Option<(Rev, &L)> {
        self.leaves().next()
    }

    /// All leaves, the winner first.
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = (Rev, &L)> {
        self.branches.iter().map(|branch| (branch.newest(), &branch.leaf))
    }

    /// All leaves for changes in place. Whether a leaf is deleted must not change.
    pub fn leaves_mut(&mut self) -> impl Iterator<Item = (Rev, &mut L)> {
        self.branches.iter_mut().map(|branch| (branch.newest(), &mut branch.leaf))
    }

    /// The content of the leaf `rev`; `None` if it is not a leaf.
    pub fn leaf(&self, rev: Rev) -> Option<&L> {
        self.leaves().find(|(leaf, _)| *leaf == rev).map(|(_, leaf)| leaf)
    }

    /// Whether the revision is known, as a leaf or as an ancestor.
    pub fn contains(&self, rev: Rev) -> bool {
        self.owner(rev).is_some()
    }

    /// The revision and its known ancestors; `None` if it is unknown.
    pub fn path_of(&self, rev: Rev) -> Option<RevPath> {
        let hashes = self.ancestors(rev).map(Rev::hash).collect();
        RevPath::new(rev.number(), hashes)
    }

    /// The leaves that descend from the revision, including the revision if it is a leaf, the best first.
    pub fn leaves_of(&self, rev: Rev) -> Vec<(Rev, &L)> {
        self.leaves().filter(|(leaf, _)| self.ancestors(*leaf).any(|ancestor| ancestor == rev)).collect()
    }

    /// The unknown ones of `revs`.
    pub fn missing(&self, revs: &[Rev]) -> Vec<Rev> {
        revs.iter().copied().filter(|rev| !self.contains(*rev)).collect()
    }

    /// The leaves from which the missing revisions may descend: all leaves whose number is smaller than the
    /// largest number of a missing revision.
    pub fn possible_ancestors(&self, missing: &[Rev]) -> Vec<Rev> {
        let Some(number) = missing.iter().map(|rev| rev.number()).max() else { return Vec::new() };
        self.leaves().map(|(rev, _)| rev).filter(|rev| rev.number() < number).collect()
    }

    /// Merges a path. `leaf` is used if the newest revision of the path is new.
    pub fn merge(&mut self, path: &RevPath, leaf: L) -> Merged {
        if self.is_empty() {
            self.branches.push(Branch {
                first: path.newest().number() - (path.count() as u32 - 1),
                hashes: path.revs().rev().map(Rev::hash).collect(),
                joins: None,
                leaf,
            });
            return Merged::Branched;
        }
        if self.ancestors(path.newest()).take(path.count()).count() == path.count() {
            return Merged::Known;
        }
        let oldest_known = path.revs().next_back().is_some_and(|oldest| self.contains(oldest));
        match &mut self.branches[..] {
            [branch] if oldest_known => match path.revs().position(|rev| rev == branch.newest()) {
                Some(count) => {
                    branch.hashes.extend(path.revs().take(count).map(Rev::hash).rev());
                    branch.leaf = leaf;
                    Merged::Extended
                }
                None => self.merge_slowly(path, leaf),
            },
            _ => self.merge_slowly(path, leaf),
        }
    }

    /// Drops the revisions that are not among the newest `limit` (at least one) of any leaf's path.
    pub fn stem(&mut self, limit: u32) {
        let limit = limit.max(1) as usize;
        if self.branches.iter().all(|branch| self.depth(branch) <= limit) {
            return;
        }
        if let [branch] = &mut self.branches[..] {
            let surplus = branch.hashes.len() - limit;
            branch.hashes.drain(..surplus);
            branch.first += surplus as u32;
            return;
        }
        let mut parents = HashMap::new();
        for (leaf, _) in self.leaves() {
            parents.extend(self.ancestors(leaf).zip(self.ancestors(leaf).skip(1)).take(limit - 1));
        }
        self.rebuild(|rev| parents.get(&rev).copied(), |_| true, None);
    }

    /// Removes leaves, with the ancestors that no other leaf has. Returns the removed leaves; revisions that
    /// are not leaves are ignored.
    pub fn purge(&mut self, revs: &[Rev]) -> Vec<Rev> {
        let purged: Vec<Rev> = self.leaves().map(|(rev, _)| rev).filter(|rev| revs.contains(rev)).collect();
        if !purged.is_empty() {
            let parents = self.parents();
            self.rebuild(|rev| parents.get(&rev).copied().flatten(), |rev| !purged.contains(&rev), None);
        }
        purged
    }

    /// Appends the encoding; see the module documentation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.branches.len() as u64);
        for branch in &self.branches {
            varint::put(out, branch.first.into());
            varint::put(out, branch.hashes.len() as u64);
            varint::put(out, branch.joins.map_or(0, |joins| u64::from(joins) + 1));
            branch.hashes.iter().for_each(|hash| out.extend_from_slice(hash));
            branch.leaf.encode(out);
        }
    }

    /// Reads the output of [`RevTree::encode`]; `None` for malformed bytes.
    pub fn decode(input: &mut Input<'_>) -> Option<Self> {
        // A branch takes at least three one-byte numbers and a hash.
        let count = input.count(19)?;
        let mut tree = RevTree { branches: SmallVec::with_capacity(count) };
        for _ in 0..count {
            let branch = decode_branch(input)?;
            let in_order = tree.branches.last().is_none_or(|last| rank(last) > rank(&branch));
            let joined = branch.joins.is_none_or(|joins| {
                tree.branches.get(joins as usize).is_some_and(|base| base.get(branch.first - 1).is_some())
            });
            if !in_order || !joined {
                return None;
            }
            tree.branches.push(branch);
        }
        Some(tree)
    }

    /// The branch that owns the revision; `None` if the tree does not know it.
    fn owner(&self, rev: Rev) -> Option<&Branch<L>> {
        self.branches.iter().find(|branch| branch.owns(rev))
    }

    /// The revision, its parent, and so on; empty if the revision is unknown.
    fn ancestors(&self, rev: Rev) -> impl Iterator<Item = Rev> + '_ {
        let mut at = self.owner(rev).map(|branch| (branch, rev.number()));
        std::iter::from_fn(move || {
            let (branch, number) = at?;
            let rev = branch.get(number)?;
            at = if number > branch.first {
                Some((branch, number - 1))
            } else {
                branch.joins.and_then(|joins| Some((self.branches.get(joins as usize)?, number - 1)))
            };
            Some(rev)
        })
    }

    /// The length of the path of the branch's leaf.
    fn depth(&self, branch: &Branch<L>) -> usize {
        let joined = |branch: &Branch<L>| self.branches.get(branch.joins? as usize);
        let oldest = std::iter::successors(Some(branch), |branch| joined(branch)).last();
        (branch.newest().number() - oldest.map_or(branch.first, |oldest| oldest.first)) as usize + 1
    }

    /// The parent of every revision.
    fn parents(&self) -> BTreeMap<Rev, Option<Rev>> {
        let mut parents = BTreeMap::new();
        for branch in &self.branches {
            let joined = branch.joins.and_then(|joins| self.branches.get(joins as usize));
            let mut parent = joined.and_then(|base| base.get(branch.first - 1));
            for (number, hash) in (branch.first..).zip(&branch.hashes) {
                let rev = Rev::new(number, *hash).expect("a number above 0");
                parents.insert(rev, parent);
                parent = Some(rev);
            }
        }
        parents
    }

    /// Merges a path into a tree of any shape.
    fn merge_slowly(&mut self, path: &RevPath, leaf: L) -> Merged {
        let mut parents = self.parents();
        let known = parents.contains_key(&path.newest());
        let mut overtaken = Vec::new();
        for (rev, parent) in path.revs().zip(path.revs().skip(1)) {
            let entry = parents.entry(rev).or_insert(None);
            match *entry {
                Some(other) if other != parent => break,
                Some(_) => {}
                None => {
                    *entry = Some(parent);
                    overtaken.push(parent);
                }
            }
        }
        let leaves = self.branches.len();
        let new = (!known).then(|| (path.newest(), leaf));
        self.rebuild(|rev| parents.get(&rev).copied().flatten(), |rev| !overtaken.contains(&rev), new);
        match known {
            true => Merged::Known,
            false if self.branches.len() > leaves => Merged::Branched,
            false => Merged::Extended,
        }
    }

    /// Rebuilds the branches from the leaves that `keep` accepts, a new leaf, and the parent of each
    /// revision.
    fn rebuild(
        &mut self,
        parent_of: impl Fn(Rev) -> Option<Rev>,
        keep: impl Fn(Rev) -> bool,
        new: Option<(Rev, L)>,
    ) {
        let old = self.branches.drain(..).map(|branch| (branch.newest(), branch.leaf));
        let mut leaves: Vec<(Rev, L)> = old.filter(|(rev, _)| keep(*rev)).chain(new).collect();
        leaves.sort_unstable_by_key(|(rev, leaf)| std::cmp::Reverse((!leaf.deleted(), *rev)));
        let mut owners: HashMap<Rev, u32> = HashMap::new();
        for (rev, leaf) in leaves {
            let index = self.branches.len() as u32;
            let mut hashes: SmallVec<[[u8; 16]; 2]> = SmallVec::new();
            let (mut first, mut at) = (rev.number(), Some(rev));
            let mut joins = None;
            while let Some(rev) = at {
                joins = owners.get(&rev).copied();
                if joins.is_some() {
                    break;
                }
                owners.insert(rev, index);
                hashes.push(rev.hash());
                first = rev.number();
                at = parent_of(rev);
            }
            if hashes.is_empty() {
                // This leaf is an ancestor of another leaf, which occurs only in forged bytes.
                continue;
            }
            hashes.reverse();
            self.branches.push(Branch { first, hashes, joins, leaf });
        }
    }
}

/// The order of branches; the best is the largest.
fn rank<L: Leaf>(branch: &Branch<L>) -> (bool, Rev) {
    (!branch.leaf.deleted(), branch.newest())
}

fn decode_branch<L: Leaf>(input: &mut Input<'_>) -> Option<Branch<L>> {
    let first = input.number_u32()?;
    // The check is not exact, because the number of the joined branch lies between the count and the hashes.
    // But the memory for the hashes is bounded by the size of the input.
    let count = input.count(16)?;
    let joins = input.number_u32()?.checked_sub(1);
    let last = first.checked_add(u32::try_from(count).ok()?.checked_sub(1)?)?;
    if first == 0 || last == 0 || (first == 1 && joins.is_some()) {
        return None;
    }
    let hashes = (0..count).map(|_| input.array()).collect::<Option<_>>()?;
    Some(Branch { first, hashes, joins, leaf: L::decode(input)? })
}

#[cfg(test)]
mod tests;
