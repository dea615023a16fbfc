//! `RevTree`: all revisions of one document that are known: a forest whose leaves are what can be read and edited.
//!
//! What it is: merging of paths that come from edits and from replication, the winner, stemming, and the bytes of it all.
//! What it is not: what a leaf holds (`L`: its body, its attachments); whether an edit is a conflict: who edits asks for the leaf.
//!
//! ```text
//!   1-a --- 2-b --- 3-c           branch 0: 3-c 2-b 1-a   (the winner: it owns the ancestors that are shared)
//!       \-- 2-d                   branch 1: 2-d           joins branch 0 at 1-a
//! ```
//!
//! Invariants
//! - The winner: not deleted before deleted, then the larger number, then the larger hash. Branches are in this order.
//! - Merging the same paths in any order gives equal trees with equal bytes, and merging one twice changes nothing, because a
//!   revision has one parent: its name is made from it. Of forged paths that say otherwise the tree keeps the parent that it
//!   has, and nothing behind it. Stemming forgets: paths merged after it may be branches of their own.
//! - A branch joins one that stands before it: there are no cycles, whatever bytes were decoded.
//!
//! Bytes: number of branches, then for each: number of its oldest revision, how many revisions it owns, 0 or 1 + the branch it
//! joins, the hashes (16 bytes each) from the oldest to the newest, and the leaf as `L` writes it. Numbers as in `codec`.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use crate::codec::{Input, put_number};
use crate::{Rev, RevPath};

/// What a leaf of a [`RevTree`] holds.
pub trait Leaf: Sized {
    /// Whether the revision deletes the document.
    fn deleted(&self) -> bool;
    /// Appends the bytes that [`Leaf::decode`] reads.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads what was encoded; `None` for bytes that nothing was encoded to.
    fn decode(input: &mut Input<'_>) -> Option<Self>;
}

/// What merging a path did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// The revision was there; its leaf was not taken. Ancestors that were not known may be known now.
    Known,
    /// The revision follows what was a leaf.
    Extended,
    /// The revision is a leaf beside the others.
    Branched,
}

/// The revisions of one document. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevTree<L> {
    branches: SmallVec<[Branch<L>; 1]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Branch<L> {
    /// Number of the oldest revision that it owns.
    first: u32,
    /// What it owns, from the oldest to its leaf.
    hashes: SmallVec<[[u8; 16]; 2]>,
    /// The branch that owns the parent of the oldest.
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
    /// How many revisions are known.
    pub fn count(&self) -> usize {
        self.branches.iter().map(|branch| branch.hashes.len()).sum()
    }

    /// Whether nothing was ever merged.
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// The revision that a reader gets who asks for none.
    pub fn winner(&self) -> Option<(Rev, &L)> {
        self.leaves().next()
    }

    /// All leaves, the winner first.
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = (Rev, &L)> {
        self.branches.iter().map(|branch| (branch.newest(), &branch.leaf))
    }

    /// All leaves to be changed in place. Whether they are deleted must stay as it is.
    pub fn leaves_mut(&mut self) -> impl Iterator<Item = (Rev, &mut L)> {
        self.branches.iter_mut().map(|branch| (branch.newest(), &mut branch.leaf))
    }

    /// What the leaf holds, if the revision is one.
    pub fn leaf(&self, rev: Rev) -> Option<&L> {
        self.leaves().find(|(leaf, _)| *leaf == rev).map(|(_, leaf)| leaf)
    }

    /// Whether the revision is known, as a leaf or as an ancestor of one.
    pub fn contains(&self, rev: Rev) -> bool {
        self.owner(rev).is_some()
    }

    /// The revision and its ancestors, if it is known.
    pub fn path_of(&self, rev: Rev) -> Option<RevPath> {
        let hashes = self.ancestors(rev).map(Rev::hash).collect();
        RevPath::new(rev.number(), hashes)
    }

    /// The leaves that descend from the revision, itself included, the best first.
    pub fn leaves_of(&self, rev: Rev) -> Vec<(Rev, &L)> {
        self.leaves().filter(|(leaf, _)| self.ancestors(*leaf).any(|ancestor| ancestor == rev)).collect()
    }

    /// Those of `revs` that are not known.
    pub fn missing(&self, revs: &[Rev]) -> Vec<Rev> {
        revs.iter().copied().filter(|rev| !self.contains(*rev)).collect()
    }

    /// The leaves that revisions which are missing may descend from: all with a smaller number than one of them.
    pub fn possible_ancestors(&self, missing: &[Rev]) -> Vec<Rev> {
        let Some(number) = missing.iter().map(|rev| rev.number()).max() else { return Vec::new() };
        self.leaves().map(|(rev, _)| rev).filter(|rev| rev.number() < number).collect()
    }

    /// Merges a path. `leaf` is taken if its newest revision is new.
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

    /// Forgets all but the newest `limit` (at least one) revisions of each leaf's path. Says whether there were others.
    pub fn stem(&mut self, limit: u32) -> bool {
        let limit = limit.max(1) as usize;
        if self.branches.iter().all(|branch| self.depth(branch) <= limit) {
            return false;
        }
        if let [branch] = &mut self.branches[..] {
            let surplus = branch.hashes.len() - limit;
            branch.hashes.drain(..surplus);
            branch.first += surplus as u32;
            return true;
        }
        let mut parents = HashMap::new();
        for (leaf, _) in self.leaves() {
            parents.extend(self.ancestors(leaf).zip(self.ancestors(leaf).skip(1)).take(limit - 1));
        }
        self.rebuild(|rev| parents.get(&rev).copied(), |_| true, None);
        true
    }

    /// Removes leaves, with those of their ancestors that no other leaf has. Gives those that were leaves.
    pub fn purge(&mut self, revs: &[Rev]) -> Vec<Rev> {
        let purged: Vec<Rev> = self.leaves().map(|(rev, _)| rev).filter(|rev| revs.contains(rev)).collect();
        if !purged.is_empty() {
            let parents = self.parents();
            self.rebuild(|rev| parents.get(&rev).copied().flatten(), |rev| !purged.contains(&rev), None);
        }
        purged
    }

    /// Appends the bytes; see the module documentation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.branches.len() as u64);
        for branch in &self.branches {
            put_number(out, branch.first.into());
            put_number(out, branch.hashes.len() as u64);
            put_number(out, branch.joins.map_or(0, |joins| u64::from(joins) + 1));
            branch.hashes.iter().for_each(|hash| out.extend_from_slice(hash));
            branch.leaf.encode(out);
        }
    }

    /// Reads what was encoded; `None` for bytes that no tree was encoded to.
    pub fn decode(input: &mut Input<'_>) -> Option<Self> {
        // A branch has at least three numbers and a hash.
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

    /// The branch that owns the revision.
    fn owner(&self, rev: Rev) -> Option<&Branch<L>> {
        self.branches.iter().find(|branch| branch.owns(rev))
    }

    /// The revision, if it is known, its parent, and so on.
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

    /// How many revisions the path of the branch's leaf has.
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

    /// Merges whatever the shape.
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

    /// Makes the branches anew, from those leaves that `keep` tells, a new one, and what is their parent.
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
                // An ancestor of another leaf: only bytes that were tampered with have such leaves.
                continue;
            }
            hashes.reverse();
            self.branches.push(Branch { first, hashes, joins, leaf });
        }
    }
}

/// By what branches are ordered, the best last.
fn rank<L: Leaf>(branch: &Branch<L>) -> (bool, Rev) {
    (!branch.leaf.deleted(), branch.newest())
}

fn decode_branch<L: Leaf>(input: &mut Input<'_>) -> Option<Branch<L>> {
    let first = input.number_u32()?;
    // The hashes follow the number of the branch that is joined, so that they fit into what is left of the input.
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
