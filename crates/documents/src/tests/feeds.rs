//! Any history of edits, against what a map says; and replicas against the one that decided.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::kit::*;
use crate::*;

/// A step of a history. Documents are few, so that steps meet.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Conflict(u8, u8, bool),
    Purge(u8),
    Local(u8),
    Round(Vec<(u8, u8)>),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0u8..12;
    prop_oneof![
        6 => (id.clone(), any::<u8>()).prop_map(|(id, n)| Step::Put(id, n)),
        2 => id.clone().prop_map(Step::Delete),
        2 => (id.clone(), any::<u8>(), any::<bool>()).prop_map(|(id, n, deleted)| Step::Conflict(id, n, deleted)),
        1 => id.clone().prop_map(Step::Purge),
        1 => id.clone().prop_map(Step::Local),
        1 => proptest::collection::vec((id, any::<u8>()), 1..8).prop_map(Step::Round),
    ]
}

fn name(id: u8) -> String {
    format!("doc{id:02}")
}

fn run(kit: &Kit, db: &std::sync::Arc<Database>, step: &Step) {
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
        Step::Round(edits) => {
            let edits = edits.iter().map(|(id, n)| edit(*id, *n)).collect();
            kit.write(db, |writer| writer.prepare(edits));
        }
    }
}

/// What the sums must be, counted anew.
fn recount(snapshot: &Snapshot) -> DocSums {
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

proptest! {
    #[test]
    fn feeds_and_sums_are_those_of_the_documents(steps in proptest::collection::vec(step(), 1..60)) {
        let (kit, db) = Kit::with_database();
        let mut held = Vec::new();
        for step in &steps {
            let before = db.snapshot();
            run(&kit, &db, step);
            let snapshot = db.snapshot();
            prop_assert_eq!(recount(&snapshot), snapshot.info().sums);
            // Who reads the feed from where it was sees each document that has changed since, once, and its last revision.
            let behind: Vec<ChangeRow> =
                snapshot.changes(before.update_seq(), Direction::Ascending).map(|row| row.expect("readable")).collect();
            let by_id: BTreeMap<&str, &ChangeRow> = behind.iter().map(|row| (&*row.id, row)).collect();
            prop_assert_eq!(by_id.len(), behind.len());
            for row in behind.iter() {
                prop_assert!(row.seq > before.update_seq() && row.seq <= snapshot.update_seq());
            }
            held.push((dump(&before), before));
        }
        // Snapshots stay as they were.
        for (dumped, snapshot) in &held {
            prop_assert_eq!(&dump(snapshot), dumped);
        }
        let replica = kit.replica();
        let other = replica.documents.database("db").expect("there");
        prop_assert_eq!(dump(&other.snapshot()), dump(&db.snapshot()));
        prop_assert_eq!(other.snapshot().last_lsn(), db.snapshot().last_lsn());
    }

    #[test]
    fn all_docs_are_walked_from_bound_to_bound(
        ids in proptest::collection::btree_set("[a-e]{1,4}", 0..400), from in "[a-e]{0,3}", to in "[a-e]{0,3}",
    ) {
        let (kit, db) = Kit::with_database();
        kit.write(&db, |writer| {
            for (index, id) in ids.iter().enumerate() {
                let rev = writer.edit(put(id, "{}")).expect("new");
                if index % 5 == 0 {
                    writer.edit(delete(id, rev)).expect("there");
                }
            }
        });
        use std::ops::Bound::{Excluded, Included};
        let range = IdRange { from: Included(from.as_str().into()), to: Excluded(to.as_str().into()) };
        let live = ids.iter().enumerate().filter(|(index, _)| index % 5 != 0).map(|(_, id)| id.clone());
        let mut expected: Vec<String> = live.filter(|id| *id >= from && *id < to).collect();
        let walk = |direction| {
            let infos = db.snapshot().all_docs(range.clone(), direction);
            infos.map(|info| info.expect("readable").id.to_string()).collect::<Vec<_>>()
        };
        prop_assert_eq!(&walk(Direction::Ascending), &expected);
        expected.reverse();
        prop_assert_eq!(&walk(Direction::Descending), &expected);
    }
}
