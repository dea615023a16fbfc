//! Random histories of client operations on a few documents.

use std::sync::Arc;

use proptest::prelude::*;

use super::kit::*;
use crate::*;

pub(crate) const DOCUMENTS: u8 = 12;

/// A step of a history. The documents are few, so that steps interact.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Put(u8, u8),
    Delete(u8),
    Conflict(u8, u8, bool),
    Purge(u8),
    Local(u8),
    Batch(Vec<(u8, u8)>),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let id = 0..DOCUMENTS;
    prop_oneof![
        6 => (id.clone(), any::<u8>()).prop_map(|(id, n)| Step::Put(id, n)),
        2 => id.clone().prop_map(Step::Delete),
        2 => (id.clone(), any::<u8>(), any::<bool>()).prop_map(|(id, n, deleted)| Step::Conflict(id, n, deleted)),
        1 => id.clone().prop_map(Step::Purge),
        1 => id.clone().prop_map(Step::Local),
        1 => proptest::collection::vec((id, any::<u8>()), 1..8).prop_map(Step::Batch),
    ]
}

/// The id of the document with this number.
pub(crate) fn name(id: u8) -> String {
    format!("doc{id:02}")
}

pub(crate) fn run(kit: &Kit, db: &Arc<Database>, step: &Step) {
    let winner = |id: &str| db.snapshot().open(id, Pick::Winner).ok().map(|found| found.rev());
    let edit = |id: u8, n: u8| {
        let body = format!(r#"{{"n":{n}}}"#);
        EditRequest { history: History::Parent(winner(&name(id))), ..put(&name(id), &body) }
    };
    match step {
        Step::Put(id, n) => drop(kit.edit(db, edit(*id, *n)).expect("based on the winner")),
        Step::Delete(id) => {
            if let Some(rev) = winner(&name(*id)) {
                kit.edit(db, delete(&name(*id), rev)).expect("based on the winner");
            }
        }
        Step::Conflict(id, n, deleted) => {
            let text = format!(r#"{{"_rev":"2-{}","_deleted":{deleted},"other":{n}}}"#, hex(*n));
            kit.edit(db, replicated(&name(*id), &text)).expect("never a conflict");
        }
        Step::Purge(id) => {
            if let Some(rev) = winner(&name(*id)) {
                assert_eq!(kit.write(db, |writer| writer.purge(&name(*id), &[rev])), Ok(vec![rev]));
            }
        }
        Step::Local(id) => {
            let rev = db.snapshot().local(&name(*id)).expect("readable").map(|local| local.rev);
            kit.write(db, |writer| writer.put_local(&name(*id), rev, "{}".into())).expect("the right rev");
        }
        Step::Batch(edits) => {
            let edits = edits.iter().map(|(id, n)| edit(*id, *n)).collect();
            kit.write(db, |writer| writer.prepare(edits));
        }
    }
}

/// The expected sums, counted from the feed (without attachments).
pub(crate) fn recount(snapshot: &Snapshot) -> DocSums {
    let mut sums = DocSums::default();
    for row in snapshot.changes(0, Direction::Ascending) {
        let row = row.expect("readable");
        let info = snapshot.document(&row.id).expect("readable").expect("in the feed");
        sums.documents += u64::from(!row.deleted);
        sums.deleted += u64::from(row.deleted);
        sums.body_bytes += info.revs.leaves().map(|(_, leaf)| leaf.body_bytes() as u64).sum::<u64>();
    }
    sums
}
