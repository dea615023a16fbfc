//! `RevPath`: a revision and its known ancestors, newest first.

use smallvec::{SmallVec, smallvec};

use crate::{Rev, RevError, revision};

/// A revision and its known ancestors, as `_revisions` lists them. A path is never empty, and its numbers are
/// consecutive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevPath {
    newest: u32,
    /// The hashes of the revisions, newest first; there are at most `newest` of them. The two hashes of an
    /// ordinary edit need no allocation.
    hashes: SmallVec<[[u8; 16]; 2]>,
}

impl RevPath {
    /// The path whose newest revision has number `newest`. `None` if it is empty or has more than `newest`
    /// hashes.
    pub fn new(newest: u32, hashes: Vec<[u8; 16]>) -> Option<RevPath> {
        let fits = !hashes.is_empty() && u32::try_from(hashes.len()).is_ok_and(|count| count <= newest);
        fits.then_some(RevPath { newest, hashes: hashes.into() })
    }

    /// A path of one revision without known ancestors.
    pub fn of(rev: Rev) -> RevPath {
        RevPath { newest: rev.number(), hashes: smallvec![rev.hash()] }
    }

    /// The path of an edit of `parent`, or of a first revision if `parent` is `None`. `None` if numbers are
    /// exhausted.
    pub fn edit(parent: Option<Rev>, hash: [u8; 16]) -> Option<RevPath> {
        match parent {
            None => Some(RevPath { newest: 1, hashes: smallvec![hash] }),
            Some(parent) => {
                Some(RevPath { newest: parent.next(hash)?.number(), hashes: smallvec![hash, parent.hash()] })
            }
        }
    }

    /// Parses `_revisions`: the number of the newest revision, and the hashes as texts.
    pub fn parse<'a>(newest: u32, hashes: impl Iterator<Item = &'a str>) -> Result<RevPath, RevError> {
        let hashes =
            hashes.map(|text| revision::parse_hash(text).ok_or(RevError)).collect::<Result<_, _>>()?;
        RevPath::new(newest, hashes).ok_or(RevError)
    }

    /// The newest revision.
    pub fn newest(&self) -> Rev {
        self.rev(0)
    }

    /// Its parent, if known.
    pub fn parent(&self) -> Option<Rev> {
        (self.hashes.len() > 1).then(|| self.rev(1))
    }

    /// All revisions, newest first.
    pub fn revs(&self) -> impl ExactSizeIterator<Item = Rev> + DoubleEndedIterator + '_ {
        (0..self.hashes.len()).map(|back| self.rev(back))
    }

    /// The number of revisions, at least one.
    pub fn count(&self) -> usize {
        self.hashes.len()
    }

    /// Drops all but the newest `count` revisions; keeps at least one.
    pub fn truncate(&mut self, count: usize) {
        self.hashes.truncate(count.max(1));
    }

    fn rev(&self, back: usize) -> Rev {
        // `hashes` has at most `newest` entries, so this does not underflow.
        let number = self.newest - back as u32;
        Rev::new(number, self.hashes[back]).expect("a number above 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_at_revision_1() {
        assert_eq!(RevPath::new(0, vec![]), None);
        assert_eq!(RevPath::new(3, vec![]), None);
        assert_eq!(RevPath::new(1, vec![[1; 16], [2; 16]]), None);
        let path = RevPath::new(2, vec![[1; 16], [2; 16]]).expect("a path");
        assert_eq!(path.revs().map(Rev::number).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(path.parent(), Some(Rev::first([2; 16])));
    }

    #[test]
    fn an_edit_follows_its_parent() {
        let first = RevPath::edit(None, [1; 16]).expect("a path");
        assert_eq!((first.newest(), first.parent()), (Rev::first([1; 16]), None));
        let second = RevPath::edit(Some(first.newest()), [2; 16]).expect("a path");
        assert_eq!((second.newest().number(), second.parent()), (2, Some(first.newest())));
        assert_eq!(RevPath::edit(Rev::new(u32::MAX, [0; 16]), [1; 16]), None);
    }
}
