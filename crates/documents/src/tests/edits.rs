//! The rules for edits, and their results.

use bytes::Bytes;

use super::kit::*;
use crate::*;

#[test]
fn an_edit_follows_the_leaf_that_it_names() {
    let (kit, db) = Kit::with_database();
    let first = kit.edit(&db, put("a", r#"{"n":1}"#)).expect("new");
    assert_eq!(first.number(), 1);
    assert_eq!(kit.edit(&db, put("a", r#"{"n":2}"#)), Err(DocError::Conflict), "it is there");
    let second = kit.edit(&db, update("a", first, r#"{"n":2}"#)).expect("based on the leaf");
    assert_eq!(second.number(), 2);
    assert_eq!(kit.edit(&db, update("a", first, r#"{"n":3}"#)), Err(DocError::Conflict), "no leaf any more");
    assert_eq!(kit.edit(&db, update("b", first, "{}")), Err(DocError::Conflict), "no such document");
    let found = db.snapshot().open("a", Pick::Winner).expect("there");
    assert_eq!((found.rev(), found.path().revs().collect::<Vec<_>>()), (second, vec![second, first]));
    assert_eq!(db.snapshot().body(found.leaf()).expect("readable"), r#"{"n":2}"#);
    assert_eq!(db.snapshot().open("a", Pick::Rev(first)).err(), Some(DocError::Missing), "it was replaced");
    assert_eq!(db.snapshot().open("a", Pick::Latest(first)).expect("there").rev(), second);
    let same = Kit::with_database();
    assert_eq!(
        same.0.edit(&same.1, put("a", r#"{ "n" : 1 }"#)),
        Ok(first),
        "the same edit has the same name"
    );
}

#[test]
fn a_deleted_document_is_written_again_after_its_last_revision() {
    let (kit, db) = Kit::with_database();
    let first = kit.edit(&db, put("a", "{}")).expect("new");
    let end = kit.edit(&db, delete("a", first)).expect("a leaf");
    assert_eq!(db.snapshot().open("a", Pick::Winner).err(), Some(DocError::Deleted));
    assert!(db.snapshot().open("a", Pick::Rev(end)).expect("a leaf").leaf().deleted);
    assert_eq!(db.snapshot().info().sums.deleted, 1);
    let without_rev = EditRequest { deleted: true, ..put("a", "{}") };
    assert_eq!(kit.edit(&db, without_rev), Err(DocError::Conflict));
    let third = kit.edit(&db, put("a", r#"{"again":true}"#)).expect("it is free");
    assert_eq!((third.number(), db.snapshot().open("a", Pick::Winner).expect("there").rev()), (3, third));
    let sums = db.snapshot().info().sums;
    assert_eq!((sums.documents, sums.deleted, sums.body_bytes), (1, 0, 14));
}

#[test]
fn edits_of_one_round_see_each_other_and_fail_alone() {
    let (kit, db) = Kit::with_database();
    let results = kit.write(&db, |writer| {
        writer.prepare(vec![put("a", "{}"), put("a", r#"{"n":1}"#), put("b", "{}"), put("c", "{}")])
    });
    let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, false]);
    kit.write(&db, |writer| {
        let rev = writer.edit(put("d", "{}")).expect("new");
        let rev = writer.edit(update("d", rev, r#"{"n":2}"#)).expect("it sees the one before");
        let within = writer.snapshot().open("d", Pick::Winner).expect("there");
        assert_eq!(within.rev(), rev);
        assert_eq!(
            db.snapshot().open("d", Pick::Winner).err(),
            Some(DocError::Missing),
            "nobody else sees it"
        );
    });
    assert_eq!((db.snapshot().update_seq(), kit.log.lock().expect("whole").len()), (5, 3));
    // The feed has each document once, at its last edit.
    let rows: Vec<ChangeRow> =
        db.snapshot().changes(0, Direction::Ascending).map(|row| row.expect("a row")).collect();
    let seqs: Vec<(&str, u64)> = rows.iter().map(|row| (&*row.id, row.seq)).collect();
    assert_eq!(seqs, [("a", 1), ("b", 2), ("c", 3), ("d", 5)]);
}

#[test]
fn a_writer_without_a_commit_changes_nothing() {
    let (_kit, db) = Kit::with_database();
    let before = db.snapshot();
    let mut writer = db.lock().expect("there");
    writer.edit(put("a", "{}")).expect("new");
    drop(writer);
    assert_eq!(dump(&db.snapshot()), dump(&before));
    assert!(db.lock().expect("free again").change().expect("readable").is_none());
}

#[test]
fn replicated_revisions_become_leaves_in_any_order() {
    let (kit, db) = Kit::with_database();
    let three =
        format!(r#"{{"_revisions":{{"start":3,"ids":["{}","{}","{}"]}},"n":3}}"#, hex(3), hex(2), hex(1));
    let other =
        format!(r#"{{"_revisions":{{"start":2,"ids":["{}","{}"]}},"_deleted":true}}"#, hex(9), hex(1));
    let middle = format!(r#"{{"_revisions":{{"start":2,"ids":["{}","{}"]}},"n":2}}"#, hex(2), hex(1));
    for json in [&three, &other, &middle, &three] {
        kit.edit(&db, replicated("a", json)).expect("never a conflict");
    }
    let snapshot = db.snapshot();
    assert_eq!(snapshot.update_seq(), 2, "what was known is no change");
    let found = snapshot.open("a", Pick::Winner).expect("there");
    assert_eq!(
        (found.rev(), found.conflicts(), found.deleted_conflicts()),
        (rev(3, 3), vec![], vec![rev(2, 9)])
    );
    let states: Vec<_> = found.revs_info().into_iter().map(|(rev, status)| (rev.number(), status)).collect();
    assert_eq!(states, [(3, RevStatus::Available), (2, RevStatus::Missing), (1, RevStatus::Missing)]);
    assert_eq!(found.known_number(&[rev(1, 1), rev(2, 2), rev(7, 7)]), 2);
    let asked = [rev(1, 1), rev(2, 9), rev(4, 4)];
    let told = snapshot.open_revs("a", &asked, true).expect("readable");
    let told: Vec<Result<Rev, Rev>> = told.into_iter().map(|found| found.map(|found| found.rev())).collect();
    assert_eq!(told, [Ok(rev(3, 3)), Ok(rev(2, 9)), Err(rev(4, 4))]);
    assert_eq!(
        snapshot.open_revs("a", &asked[..1], false).expect("readable")[0].as_ref().err(),
        Some(&rev(1, 1))
    );
    assert_eq!(snapshot.open_all("a").expect("readable").len(), 2);
    let diff = snapshot.revs_diff("a", &asked).expect("readable").expect("something is missing");
    assert_eq!((diff.missing, diff.possible_ancestors), (vec![rev(4, 4)], vec![rev(3, 3), rev(2, 9)]));
    assert_eq!(snapshot.revs_diff("a", &asked[..2]).expect("readable"), None);
    assert_eq!(snapshot.revs_diff("z", &asked).expect("readable").expect("all").missing, asked);
}

#[test]
fn local_documents_have_a_count_and_are_in_no_feed() {
    let (kit, db) = Kit::with_database();
    let body = Bytes::from_static(b"{}");
    let put = |rev| kit.write(&db, |writer| writer.put_local("x", rev, body.clone()));
    assert_eq!((put(None), put(Some(1)), put(Some(1))), (Ok(1), Ok(2), Ok(2)), "no conflicts");
    assert_eq!((put(Some(7)), put(None), put(Some(0))), (Ok(8), Ok(1), Ok(1)), "the last write wins");
    assert_eq!((put(Some(u64::MAX)), put(Some(41))), (Ok(u64::MAX), Ok(42)));
    assert_eq!(db.snapshot().local("x").expect("readable").expect("there").rev, 42);
    assert_eq!((db.snapshot().update_seq(), kit.notices.lock().expect("whole").len()), (0, 1));
    let remove = || kit.write(&db, |writer| writer.remove_local("x"));
    assert_eq!(remove(), Ok(()));
    assert!(db.snapshot().local("x").expect("readable").is_none());
    assert_eq!((remove(), put(Some(0))), (Ok(()), Ok(1)));
}

#[test]
fn old_revisions_are_forgotten_and_leaves_purged() {
    let (kit, db) = Kit::with_database();
    kit.write(&db, |writer| writer.set_revs_limit(2)).expect("a limit");
    assert!(kit.write(&db, |writer| writer.set_revs_limit(0)).is_err());
    let mut last = kit.edit(&db, put("a", "{}")).expect("new");
    for _ in 0..4 {
        last = kit.edit(&db, update("a", last, "{}")).expect("a leaf");
    }
    assert_eq!(db.snapshot().open("a", Pick::Winner).expect("there").path().count(), 2);
    kit.edit(&db, replicated("a", &format!(r#"{{"_rev":"9-{}"}}"#, hex(9)))).expect("a conflict");
    let purge = |revs: &[Rev]| kit.write(&db, |writer| writer.purge("a", revs)).expect("readable");
    assert_eq!(purge(&[rev(4, 4)]), [], "no leaf");
    assert_eq!(purge(&[rev(9, 9)]), [rev(9, 9)]);
    assert_eq!(db.snapshot().open("a", Pick::Winner).expect("there").rev(), last);
    assert_eq!(purge(&[last]), [last]);
    let snapshot = db.snapshot();
    assert_eq!(
        (snapshot.open("a", Pick::Winner).err(), snapshot.info().purge_seq),
        (Some(DocError::Missing), 2)
    );
    assert_eq!(
        (snapshot.changes(0, Direction::Ascending).count(), snapshot.info().sums),
        (0, DocSums::default())
    );
    assert_eq!(kit.edit(&db, put("a", "{}")).expect("new again").number(), 1);
}

#[test]
fn a_document_with_too_many_conflicts_takes_no_more() {
    let (kit, db) = Kit::with_database();
    let name = |n: u32| format!("{n:032x}");
    let conflict = |n: u32| {
        let ids: Vec<String> = (0..1000).map(|back| format!("\"{}\"", name(n * 1000 + back))).collect();
        format!(r#"{{"_revisions":{{"start":1000,"ids":[{}]}}}}"#, ids.join(","))
    };
    let told = (0..200).find_map(|n| kit.edit(&db, replicated("a", &conflict(n))).err());
    assert_eq!(told, Some(DocError::DocumentTooLarge("a".to_owned())));
    assert!(db.snapshot().open_all("a").expect("readable").len() > 40);
}
