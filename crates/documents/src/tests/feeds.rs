//! Random histories of edits compared with a model, and replicas with their leader.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::history::{recount, run, step};
use super::kit::*;
use crate::*;

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
            for since in 0..=snapshot.update_seq() + 1 {
                let rows = snapshot.changes(since, Direction::Ascending).count() as u64;
                prop_assert_eq!(snapshot.pending(since), Ok(rows), "behind {}", since);
            }
            // Reading the feed from the previous position returns each document that changed since, once.
            let behind: Vec<ChangeRow> =
                snapshot.changes(before.update_seq(), Direction::Ascending).map(|row| row.expect("readable")).collect();
            let by_id: BTreeMap<&str, &ChangeRow> = behind.iter().map(|row| (&*row.id, row)).collect();
            prop_assert_eq!(by_id.len(), behind.len());
            for row in behind.iter() {
                prop_assert!(row.seq > before.update_seq() && row.seq <= snapshot.update_seq());
            }
            held.push((dump(&before), before));
        }
        // Snapshots never change.
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
