//! `Expected`: the documents that are edited next, looked up together.
//!
//! What it is: one walk through layers and file for a batch, in the order of ids, where one look per edit would begin at the roots each
//! time. What it is not: needed. Who finds nothing here looks for itself.
//!
//! Invariants
//! - What it says is what the state has. So edits take what they find in the order in which they were announced; where they come in
//!   another order, or documents are changed otherwise, it forgets all that is left.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::doc_info::DocInfo;
use crate::id::DocId;
use crate::state::State;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Expected {
    next: VecDeque<(DocId, Looked)>,
}

/// What is known of a document before it is edited.
enum Looked {
    /// It is this, if it is there.
    Up(Option<Arc<DocInfo>>),
    /// It is edited before.
    Not,
}

impl Expected {
    /// Looks these documents up. If a file cannot be read, nothing is known: whoever looks again is told.
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

    /// What is known of a document that is edited now.
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

    /// Knows nothing from now on.
    pub(crate) fn forget(&mut self) {
        self.next.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::tests::kit::*;
    use crate::{EditRequest, Writer};

    /// What is done to one of a few documents.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put,
        Update,
        Purge,
    }

    #[derive(Clone, Debug)]
    struct Batch {
        steps: Vec<(usize, Step)>,
        /// What is announced and does not come.
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

    /// Does batches of steps, which are announced or not. All that came of it.
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
                    // All comes in this order, or it soon turns out that it does not.
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
        fn what_was_looked_up_before_is_what_would_be_found(
            batches in prop::collection::vec(batch(), 1..6),
        ) {
            prop_assert_eq!(outcome(&batches, true), outcome(&batches, false));
        }
    }
}
