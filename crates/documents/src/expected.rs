//! `Expected`: the documents that are edited next, prefetched together.
//!
//! A batch of documents is looked up in the order of ids, so that the file is read in one walk instead of one
//! walk from the root per edit. After a miss, the caller looks the document up.
//!
//! Invariants
//! - A hit equals the document in the current state. Therefore all remaining entries are dropped at an edit
//!   that is not in the announced order, and when a purge or an undo changes documents.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::doc_info::DocInfo;
use crate::id::DocId;
use crate::state::State;

/// Prefetched documents in the order of their edits.
#[derive(Default)]
pub(crate) struct Expected {
    next: VecDeque<(DocId, Looked)>,
}

/// The prefetched state of a document.
enum Looked {
    /// Looked up; `None` if it does not exist.
    Up(Option<Arc<DocInfo>>),
    /// The document was not looked up, because the batch has an earlier edit of it.
    Not,
}

impl Expected {
    /// Prefetches these documents. If a file cannot be read, the result is empty, and the later lookup
    /// reports the error.
    pub(crate) fn look_up<'i>(state: &State, ids: impl Iterator<Item = &'i DocId>) -> Expected {
        let ids: Vec<&DocId> = ids.collect();
        let mut places: Vec<usize> = (0..ids.len()).collect();
        places.sort_unstable_by_key(|&place| (ids[place], place));
        places.dedup_by_key(|place| ids[*place]);
        let sorted: Vec<&str> = places.iter().map(|&place| &**ids[place]).collect();
        let Ok(found) = state.look_up(&sorted) else { return Expected::default() };
        let mut next: VecDeque<_> = ids.into_iter().map(|id| (id.clone(), Looked::Not)).collect();
        for (place, found) in places.into_iter().zip(found) {
            next[place].1 = Looked::Up(found);
        }
        Expected { next }
    }

    /// Takes the entry of the document that is edited now: `Some(None)` if the document does not exist,
    /// `None` if it was not looked up. If the next entry is of another document, drops all entries and
    /// returns `None`.
    pub(crate) fn take(&mut self, id: &str) -> Option<Option<Arc<DocInfo>>> {
        match self.next.pop_front() {
            Some((next, looked)) if *next == *id => match looked {
                Looked::Up(found) => Some(found),
                Looked::Not => None,
            },
            _ => {
                self.forget();
                None
            }
        }
    }

    /// Drops all entries, so that the caller looks up the next documents one by one.
    pub(crate) fn forget(&mut self) {
        self.next.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::tests::kit::*;
    use crate::{EditRequest, Writer};

    /// An operation on one of a few documents.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put,
        Update,
        Purge,
    }

    #[derive(Clone, Debug)]
    struct Batch {
        steps: Vec<(usize, Step)>,
        /// Documents that are announced but not edited.
        others: Vec<usize>,
        is_saved: bool,
    }

    fn batch() -> impl Strategy<Value = Batch> {
        let step = prop_oneof![3 => Just(Step::Put), 3 => Just(Step::Update), 1 => Just(Step::Purge)];
        let steps = prop::collection::vec((0..5_usize, step), 0..8);
        let others = prop::collection::vec(0..5_usize, 0..3);
        (steps, others, any::<bool>()).prop_map(|(steps, others, is_saved)| Batch { steps, others, is_saved })
    }

    fn request(writer: &Writer, id: &str, step: Step, number: usize) -> EditRequest {
        let body = format!(r#"{{"n":{number}}}"#);
        let winner = writer.snapshot().open(id, crate::Pick::Winner).ok();
        match winner.filter(|_| matches!(step, Step::Update)) {
            Some(found) => update(id, found.rev(), &body),
            None => put(id, &body),
        }
    }

    /// Runs the batches, with or without announcing their edits. Returns all results and the final contents.
    fn outcome(batches: &[Batch], announced: bool) -> Vec<String> {
        let disk = env::SimDisk::new(Default::default());
        let kit = Kit::open(&disk, &[]).expect("empty");
        let db = kit.create("db").expect("new");
        let mut out = Vec::new();
        let mut number = 0;
        for Batch { steps, others, is_saved } in batches {
            kit.write(&db, |writer| {
                if announced {
                    let mut places: Vec<usize> =
                        steps.iter().map(|(place, _)| *place).chain(others.clone()).collect();
                    // The edits come in the announced order, or deviate from it early.
                    places.rotate_right(if *is_saved { others.len() } else { 0 });
                    let ids: Vec<crate::DocId> =
                        places.iter().map(|place| format!("doc{place}").into()).collect();
                    writer.look_up(ids.iter());
                }
                for (place, step) in steps {
                    let id = format!("doc{place}");
                    number += 1;
                    out.push(match step {
                        Step::Purge => {
                            let found = writer.snapshot().open(&id, crate::Pick::Winner);
                            let revs: Vec<_> = found.iter().map(|found| found.rev()).collect();
                            format!("{:?}", writer.purge(&id, &revs))
                        }
                        step => {
                            let request = request(writer, &id, *step, number);
                            format!("{:?}", writer.edit(request))
                        }
                    });
                }
            });
            if *is_saved {
                kit.save().expect("saved");
            }
        }
        out.extend(dump(&db.snapshot()));
        out
    }

    proptest! {
        #[test]
        fn looking_up_ahead_does_not_change_the_outcome(
            batches in prop::collection::vec(batch(), 1..6),
        ) {
            prop_assert_eq!(outcome(&batches, true), outcome(&batches, false));
        }
    }
}
