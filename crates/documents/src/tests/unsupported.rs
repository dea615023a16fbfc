//! Documents that would be stored but not honoured are rejected for every kind of edit.

use super::kit::*;
use crate::*;

fn is_refused(told: Result<Rev, DocError>) -> bool {
    matches!(&told, Err(error) if (error.status(), error.error()) == (501, "not_implemented"))
}

#[test]
fn users_and_replications_are_not_stored_and_can_be_removed() {
    let kit = Kit::new();
    for name in ["_users", "_replicator", "team/_users"] {
        let Ok(db) = kit.create(name) else {
            assert!(name.contains('/'), "no database has this name: {name}");
            continue;
        };
        let document = r#"{"name":"bob","password":"secret"}"#;
        assert!(is_refused(kit.edit(&db, put("org.couchdb.user:bob", document))), "{name}");
        assert!(is_refused(kit.edit(&db, replicated("org.couchdb.user:bob", &with_rev(document)))), "{name}");
        let deleted = r#"{"_deleted":true,"password":"secret"}"#;
        assert!(is_refused(kit.edit(&db, put("org.couchdb.user:bob", deleted))), "{name}");
        // Documents stored by an earlier version can be removed like this, but users only by `edit_user`.
        let removal = format!(r#"{{"_rev":"2-{}","_deleted":true}}"#, hex(2));
        let removed = kit.edit(&db, replicated("org.couchdb.user:bob", &removal));
        assert_eq!(is_refused(removed), name == USERS_DATABASE, "{name}");
        kit.edit(&db, put("_design/index", r#"{"language":"query","views":{}}"#)).expect("as anywhere");
        assert_eq!(db.snapshot().info().sums.documents, 1, "{name}");
    }
}

#[test]
fn a_user_that_passed_the_rules_is_stored_and_its_change_is_noted() {
    let kit = Kit::new();
    let db = kit.create(USERS_DATABASE).expect("a legal name");
    let mut writer = db.lock().expect("it is there");
    writer.note_changes();
    writer.edit_user(put("org.couchdb.user:bob", r#"{"name":"bob"}"#)).expect("it is stored");
    assert!(writer.edit(put("org.couchdb.user:eve", r#"{"name":"eve"}"#)).is_err());
    let changed = |writer: &Writer| {
        writer.changed().map(|(id, was_gone)| (id.to_string(), was_gone)).collect::<Vec<_>>()
    };
    assert_eq!(changed(&writer), [("org.couchdb.user:bob".to_owned(), false)]);
    writer.undo();
    assert_eq!(changed(&writer), []);
    // In one change, the user is deleted and created again.
    let rev = writer.edit_user(put("org.couchdb.user:bob", r#"{"name":"bob"}"#)).expect("it is stored");
    writer.edit_user(delete("org.couchdb.user:bob", rev)).expect("it is deleted");
    writer.edit_user(put("org.couchdb.user:bob", r#"{"name":"bob"}"#)).expect("it is stored");
    assert_eq!(changed(&writer), [("org.couchdb.user:bob".to_owned(), true)]);
}

#[test]
fn a_validation_that_would_not_be_run_is_refused() {
    let (kit, db) = Kit::with_database();
    let validation = r#"{"views":{},"validate_doc_update":"function () {}"}"#;
    assert!(is_refused(kit.edit(&db, put("_design/a", validation))));
    assert!(is_refused(kit.edit(&db, replicated("_design/a", &with_rev(validation)))));
    kit.edit(&db, put("a", validation)).expect("a document like any other");
    let harmless = r#"{"views":{"validate_doc_update":{"map":"function () {}"}}}"#;
    kit.edit(&db, put("_design/a", harmless)).expect("a view of that name");
}

fn with_rev(json: &str) -> String {
    format!(r#"{{"_rev":"1-{}",{}"#, hex(1), &json[1..])
}
