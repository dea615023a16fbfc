//! Attachments: inline, kept, and uploaded in chunks.

use std::sync::Arc;

use bytes::Bytes;

use super::kit::*;
use crate::*;

fn bytes_of(snapshot: &Snapshot, found: &Found, name: &str, range: std::ops::Range<u64>) -> Vec<u8> {
    let attachment = found.leaf().attachment(name).expect("there");
    snapshot.attachment(attachment, range).flat_map(|part| part.expect("readable")).collect()
}

#[test]
fn a_revision_keeps_the_attachments_that_it_names() {
    let (kit, db) = Kit::with_database();
    let first =
        put("a", r#"{"_attachments":{"f":{"data":"aGVsbG8=","content_type":"text/plain"},"g":{"data":""}}}"#);
    let first = kit.edit(&db, first).expect("new");
    let keep = update("a", first, r#"{"_attachments":{"f":{"stub":true}}}"#);
    let second = kit.edit(&db, keep).expect("it has the attachment");
    let snapshot = db.snapshot();
    let found = snapshot.open("a", Pick::Rev(second)).expect("there");
    let kept = found.leaf().attachment("f").expect("kept");
    assert_eq!((kept.revpos, &*kept.content_type, kept.length), (1, "text/plain", 5));
    assert_eq!(bytes_of(&snapshot, &found, "f", 1..3), b"el");
    assert_eq!(snapshot.info().sums.attachment_bytes, 5);
    assert!(found.leaf().attachment("g").is_none());
    let told = kit.edit(&db, update("a", second, r#"{"_attachments":{"g":{"stub":true}}}"#));
    assert_eq!(told, Err(DocError::MissingStub("Invalid attachment stub in a for g".to_owned())));
    let told = kit.edit(&db, put("b", r#"{"_attachments":{"f":{"stub":true}}}"#)).expect_err("new");
    assert_eq!(told.error(), "missing_stub");
}

#[test]
fn a_replicated_revision_keeps_attachments_of_its_nearest_leaf() {
    let (kit, db) = Kit::with_database();
    let first =
        format!(r#"{{"_rev":"1-{}","_attachments":{{"f":{{"data":"aGVsbG8=","revpos":1}}}}}}"#, hex(1));
    kit.edit(&db, replicated("a", &first)).expect("new");
    let third = |name| {
        let path = format!(r#""_revisions":{{"start":3,"ids":["{}","{}","{}"]}}"#, hex(name), hex(2), hex(1));
        format!(r#"{{{path},"_attachments":{{"f":{{"stub":true,"revpos":1}}}}}}"#)
    };
    kit.edit(&db, replicated("a", &third(3))).expect("an ancestor has it");
    let snapshot = db.snapshot();
    let found = snapshot.open("a", Pick::Winner).expect("there");
    assert_eq!((found.rev(), bytes_of(&snapshot, &found, "f", 0..9)), (rev(3, 3), b"hello".to_vec()));
    let told = kit.edit(&db, replicated("a", &third(4))).expect_err("no ancestor is a leaf any more");
    assert_eq!(told.error(), "missing_stub");
}

#[test]
fn a_large_attachment_comes_in_chunks() {
    let (kit, db) = Kit::with_database();
    let bytes: Vec<u8> = (0..CHUNK_BYTES * 2 + 1000).map(|at| (at / 7) as u8).collect();
    let sent = || {
        let upload = kit.write(&db, Writer::begin_upload).expect("begun");
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let chunk = Bytes::copy_from_slice(chunk);
            kit.write(&db, |writer| writer.put_chunk(upload, chunk)).expect("taken");
        }
        upload
    };
    let upload = sent();
    assert!(
        kit.write(&db, |writer| writer.put_chunk(upload, Bytes::from_static(b"x"))).is_err(),
        "it is at its end"
    );
    let attachment = |upload, length| AttachmentRequest {
        name: "f".into(),
        source: AttachmentSource::Upload {
            content_type: "a/b".into(),
            upload,
            length,
            digest: Digest::of(&bytes),
            revpos: None,
        },
    };
    let edit = |id: &str, upload, length| EditRequest {
        attachments: vec![attachment(upload, length)],
        ..put(id, "{}")
    };
    assert!(kit.edit(&db, edit("a", upload, 7)).is_err(), "not all of it");
    let upload = sent();
    kit.edit(&db, edit("a", upload, bytes.len() as u64)).expect("new");
    assert!(kit.edit(&db, edit("b", upload, bytes.len() as u64)).is_err(), "it was used");
    for db in [db, kit.replica().documents.database("db").expect("there")] {
        let snapshot = db.snapshot();
        let found = snapshot.open("a", Pick::Winner).expect("there");
        assert_eq!(bytes_of(&snapshot, &found, "f", 0..u64::MAX), bytes);
        let within = CHUNK_BYTES as u64 - 3..2 * CHUNK_BYTES as u64 + 5;
        assert_eq!(
            bytes_of(&snapshot, &found, "f", within.clone()),
            bytes[within.start as usize..within.end as usize]
        );
    }
}

#[test]
fn an_edit_that_changes_nothing_or_fails_leaves_no_upload() {
    let (kit, db) = Kit::with_database();
    let with_upload = |edit: EditRequest, upload| {
        let source = AttachmentSource::Upload {
            content_type: "a/b".into(),
            upload,
            length: 1,
            digest: Digest::of(b"x"),
            revpos: None,
        };
        EditRequest { attachments: vec![AttachmentRequest { name: "f".into(), source }], ..edit }
    };
    let copied = || replicated("a", &format!(r#"{{"_rev":"1-{}"}}"#, hex(1)));
    let never = || update("a", rev(1, 9), "{}");
    for (edit, is_done) in [(copied(), true), (copied(), true), (never(), false)] {
        let upload = kit.write(&db, Writer::begin_upload).expect("begun");
        kit.write(&db, |writer| writer.put_chunk(upload, Bytes::from_static(b"x"))).expect("taken");
        assert_eq!(kit.edit(&db, with_upload(edit, upload)).is_ok(), is_done);
        assert!(kit.write(&db, |writer| writer.put_chunk(upload, Bytes::new())).is_err(), "it has ended");
    }
    let snapshot = db.snapshot();
    let found = snapshot.open("a", Pick::Winner).expect("there");
    assert_eq!(bytes_of(&snapshot, &found, "f", 0..9), b"x", "the first edit has kept its own");
    kit.replica();
}

#[test]
fn unfinished_uploads_are_removed() {
    let (kit, db) = Kit::with_database();
    let upload = kit.write(&db, Writer::begin_upload).expect("begun");
    kit.write(&db, |writer| writer.put_chunk(upload, Bytes::from_static(b"x"))).expect("taken");
    // When the replica takes over, it does not know the client of the unfinished upload.
    let next = kit.replica();
    let taken_over = next.documents.database("db").expect("there");
    let put =
        |kit: &Kit, db, upload| kit.write(db, |writer| writer.put_chunk(upload, Bytes::from_static(b"y")));
    let second = next.write(&taken_over, Writer::begin_upload).expect("begun");
    assert_ne!(upload, second);
    assert!(put(&next, &taken_over, upload).is_err() && put(&next, &taken_over, second).is_ok());
    kit.write(&db, |writer| writer.discard_upload(upload)).expect("gone");
    assert!(put(&kit, &db, upload).is_err());
    for _ in 0..UPLOADS_MAX {
        kit.write(&db, Writer::begin_upload).expect("begun");
    }
    assert_eq!(kit.write(&db, Writer::begin_upload), Err(DocError::TooLarge));
}

/// The number of these uploads that still take bytes.
fn lasting(db: &Arc<Database>, uploads: &[UploadId]) -> usize {
    let goes_on = |upload: &&UploadId| {
        let mut writer = db.lock().expect("there");
        // The writer is dropped without a commit, so the chunk is not stored.
        writer.put_chunk(**upload, Bytes::from_static(b"y")).is_ok()
    };
    uploads.iter().filter(goes_on).count()
}

#[test]
fn uploads_that_end_without_a_commit_are_removed_with_the_next_one() {
    let (kit, db) = Kit::with_database();
    let begun = || kit.write(&db, Writer::begin_upload).expect("begun");
    let uploads = [begun(), begun(), begun()];
    let [edited, discarded, _] = uploads;
    let source = AttachmentSource::Upload {
        content_type: "a/b".into(),
        upload: edited,
        length: 0,
        digest: Digest::of(b""),
        revpos: None,
    };
    let attachments = vec![AttachmentRequest { name: "f".into(), source }];
    let mut writer = db.lock().expect("there");
    writer.edit(EditRequest { attachments, ..put("a", "{}") }).expect("accepted");
    writer.discard_upload(discarded).expect("accepted");
    // The writer is dropped without a commit, as if a file could not be read.
    drop(writer);
    assert_eq!(lasting(&db, &uploads), 3);
    begun();
    assert_eq!(lasting(&db, &uploads), 1, "the third one goes on");
}

#[test]
fn uploads_of_earlier_runs_are_removed_although_the_first_change_was_not_committed() {
    let (kit, db) = Kit::with_database();
    let old = kit.write(&db, Writer::begin_upload).expect("begun");
    let next = kit.replica();
    let db = next.documents.database("db").expect("there");
    let mut writer = db.lock().expect("there");
    writer.begin_upload().expect("begun");
    drop(writer);
    assert_eq!(lasting(&db, &[old]), 1);
    next.write(&db, Writer::begin_upload).expect("begun");
    assert_eq!(lasting(&db, &[old]), 0);
}

#[test]
fn uploads_of_other_reigns_are_removed_when_this_server_leads_again() {
    let (kit, db) = Kit::with_database();
    let begun = || kit.write(&db, Writer::begin_upload).expect("begun");
    let old = [begun(), begun()];
    assert_eq!(lasting(&db, &old), 2);
    kit.documents.end_reign();
    begun();
    assert_eq!(lasting(&db, &old), 0);
}
