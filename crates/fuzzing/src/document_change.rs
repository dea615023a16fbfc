//! Arbitrary document changes in a record, as decoded by recovery: a change that decodes encodes to the same
//! bytes; applying one is refused, or leaves a database whose feed, documents and sums are consistent.
//!
//! Input: the whole input as one change; and the input as the operations of several changes, with 0xff
//! between them.

use std::sync::Arc;

use bytes::Bytes;
use documents::change::{
    Edit, EditAttachment, Operation, Source, UpdateEncoder, check_round_trip, encode_create, encode_delete,
};
use documents::{DbId, Digest, Direction, DocSums, Documents, IdRange, Rev, RevPath, UploadId};
use lsn::Lsn;

use crate::{Outcome, Seed};

const SEPARATOR: u8 = 0xff;

/// Decodes and applies changes. Accepts a change, and operations that are all applied.
///
/// # Panics
/// If a change has two encodings, or the database becomes inconsistent.
pub fn document_change(input: &[u8]) -> Outcome {
    let is_change = check_round_trip(input);
    let documents = Documents::in_memory(Arc::new(|_| ()));
    let mut lsn = Lsn::new(1);
    documents.apply(&encode_create("db"), lsn).expect("a change");
    let database = documents.database("db").expect("created");
    let mut are_applied = !input.is_empty();
    for operations in input.split(|byte| *byte == SEPARATOR) {
        lsn = lsn.advance(8);
        let mut change = UpdateEncoder::new(database.id(), database.snapshot().update_seq()).finish();
        change.extend_from_slice(operations);
        check_round_trip(&change);
        // Refused or not, it must not panic.
        are_applied &= documents.apply(&change, lsn).is_ok() && !operations.is_empty();
    }
    let snapshot = database.snapshot();
    let mut sums = DocSums::default();
    for row in snapshot.changes(0, Direction::Ascending) {
        let row = row.expect("in memory");
        let info = snapshot.document(&row.id).expect("in memory").expect("in the feed");
        assert_eq!(info.change_row(), row);
        sums.documents += u64::from(!row.deleted);
        sums.deleted += u64::from(row.deleted);
        for (_, leaf) in info.revs.leaves() {
            snapshot.body(leaf).expect("in memory");
            sums.body_bytes += leaf.body_bytes() as u64;
            sums.attachment_bytes += leaf.attachments.iter().map(|attachment| attachment.length).sum::<u64>();
        }
    }
    assert_eq!(snapshot.info().sums, sums);
    assert_eq!(snapshot.all_docs(IdRange::ALL, Direction::Descending).count() as u64, sums.documents);
    Outcome::accepted_if(is_change || are_applied)
}

/// A revision whose hash is this byte, and its parent if there is one.
fn path(number: u32, hash: u8) -> RevPath {
    let hashes = (0..number.min(2) as u8).map(|back| [hash - back; 16]).collect();
    RevPath::new(number, hashes).expect("a path")
}

fn edit(id: &str, number: u32, hash: u8) -> Edit {
    let body = Bytes::from_static(br#"{"name":"value"}"#);
    Edit { id: id.into(), deleted: false, path: path(number, hash), body, attachments: Vec::new() }
}

fn attachment(name: &str, length: u64, source: Source) -> EditAttachment {
    let content_type = "text/plain".into();
    EditAttachment { name: name.into(), content_type, revpos: 1, digest: Digest([5; 16]), length, source }
}

/// Operations of one change, without the bytes that precede the operations.
fn operations(operations: &[Operation]) -> Vec<u8> {
    let db = DbId::new(Lsn::new(1));
    let mut encoder = UpdateEncoder::new(db, 0);
    operations.iter().for_each(|operation| encoder.push(operation));
    encoder.finish().split_off(UpdateEncoder::new(db, 0).finish().len())
}

pub(crate) fn seeds() -> Vec<Seed> {
    let text = Bytes::from_static(b"hello");
    let inline = vec![attachment("a.txt", 5, Source::Inline(text.clone()))];
    let kept = vec![attachment("a.txt", 5, Source::Kept(1))];
    let uploaded = vec![attachment("b", 10, Source::Upload(UploadId(1)))];
    let chunk = |upload, bytes: &Bytes| Operation::Chunk { upload: UploadId(upload), bytes: bytes.clone() };
    let with = |edit: Edit, attachments| Operation::Edit(Edit { attachments, ..edit });
    let deleted = Edit { deleted: true, ..edit("a", 2, 2) };
    let first = Rev::first([1; 16]);
    let edits = [Operation::Edit(edit("a", 1, 1)), Operation::Edit(edit("b", 1, 9))];
    let conflict = [Operation::Edit(edit("a", 1, 1)), Operation::Edit(edit("a", 2, 7))];
    let local = |rev| Operation::PutLocal { id: "checkpoint".into(), rev, body: text.clone() };
    let others = [
        local(1),
        local(2),
        Operation::RemoveLocal { id: "checkpoint".into() },
        Operation::SetSecurity(Bytes::from_static(br#"{"admins":{}}"#)),
        Operation::SetRevsLimit(2),
    ];
    let mut update = UpdateEncoder::new(DbId::new(Lsn::new(9)), 300);
    edits.iter().for_each(|operation| update.push(operation));
    let changes = |changes: &[&[Operation]]| {
        let changes: Vec<Vec<u8>> = changes.iter().map(|change| operations(change)).collect();
        changes.join(&SEPARATOR)
    };
    let purge = Operation::Purge { id: "a".into(), revs: vec![first] };
    vec![
        ("create", encode_create("a-database")),
        ("delete", encode_delete(DbId::new(Lsn::new(9)))),
        ("update", update.finish()),
        ("edits", operations(&edits)),
        ("conflict", operations(&conflict)),
        ("edit-and-deletion", changes(&[&edits, &[Operation::Edit(deleted)]])),
        ("purge", changes(&[&edits, &[purge]])),
        ("attachments", changes(&[&[with(edit("a", 1, 1), inline)], &[with(edit("a", 2, 2), kept)]])),
        ("upload", changes(&[&[chunk(1, &text), chunk(1, &text)], &[with(edit("a", 1, 1), uploaded)]])),
        (
            "discarded-upload",
            operations(&[chunk(3, &text), Operation::Discard { from: UploadId(3), to: UploadId(4) }]),
        ),
        ("local-documents-and-settings", operations(&others)),
        (
            "refused-unknown-upload",
            operations(&[with(edit("a", 1, 1), vec![attachment("b", 1, Source::Upload(UploadId(1)))])]),
        ),
        ("refused-cut", operations(&edits)[..20].to_vec()),
    ]
}
