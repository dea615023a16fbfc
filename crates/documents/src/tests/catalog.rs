//! Creation and deletion of databases.

use lsn::Lsn;

use super::kit::*;
use crate::*;

#[test]
fn a_name_leads_to_one_database_at_a_time() {
    let (kit, db) = Kit::with_database();
    assert_eq!(kit.create("db").err(), Some(DocError::DatabaseExists));
    assert!(matches!(kit.create("DB"), Err(DocError::IllegalDatabaseName(_))));
    kit.edit(&db, put("a", "{}")).expect("new");
    kit.delete("db").expect("there");
    assert_eq!(kit.delete("db"), Err(DocError::NoDatabase));
    assert_eq!(db.lock().err(), Some(DocError::NoDatabase), "it takes no more changes");
    assert!(db.snapshot().open("a", Pick::Winner).is_ok(), "who still reads it can");
    let again = kit.create("db").expect("the name is free");
    assert!(again.id() != db.id() && kit.documents.by_id(db.id()).is_none());
    assert_eq!(again.snapshot().info().sums, DocSums::default());
    kit.create("a").expect("created");
    let names: Vec<_> = kit.documents.all().iter().map(|db| db.name().to_string()).collect();
    assert_eq!(names, ["a", "db"]);
    let told: Vec<Notice> = kit.notices.lock().expect("whole").drain(..).collect();
    assert!(
        matches!(&told[..2], [Notice::Created { .. }, Notice::Updated { update_seq: 1, .. }]),
        "{told:?}"
    );
    assert!(matches!(&told[2..4], [Notice::Deleted { .. }, Notice::Created { .. }]), "{told:?}");
}

#[test]
fn a_change_of_the_security_object_is_told_here_and_on_a_replica() {
    let (leader, db) = Kit::with_database();
    for security in ["{}", "{}", "[]"] {
        leader.write(&db, |writer| writer.set_security(security.into())).expect("an object");
    }
    let replica = Kit::new();
    for (lsn, change) in leader.log.lock().expect("whole").iter() {
        replica.documents.apply(change, *lsn).expect("it fits");
    }
    for kit in [leader, replica] {
        let told: Vec<Notice> = kit.notices.lock().expect("whole").drain(..).collect();
        assert!(
            matches!(&told[..], [Notice::Created { .. }, Notice::Secured { .. }, Notice::Secured { .. }]),
            "{told:?}"
        );
    }
}

#[test]
fn a_record_that_does_not_fit_is_damage() {
    let (kit, db) = Kit::with_database();
    kit.edit(&db, put("a", "{}")).expect("new");
    let (lsn, change) = kit.log.lock().expect("whole").last().cloned().expect("a record");
    let again = kit.documents.apply(&change, lsn.advance(8));
    assert!(matches!(again, Err(StoreError::Misfit { .. })), "{again:?}");
    assert!(Kit::new().documents.apply(&change, lsn).is_err(), "no such database");
    assert!(matches!(kit.documents.apply(b"?", Lsn::new(1)), Err(StoreError::Change(ChangeError))));
}
