//! Arbitrary document changes in a record, as decoded by recovery: a change that decodes encodes to the same
//! bytes; applying one is refused, or leaves a database whose feed, documents and sums are consistent.

#![no_main]

use std::sync::Arc;

use documents::change::{UpdateEncoder, check_round_trip};
use documents::{Direction, DocSums, Documents, IdRange};
use libfuzzer_sys::fuzz_target;
use lsn::Lsn;

fuzz_target!(|input: &[u8]| {
    check_round_trip(input);
    let documents = Documents::in_memory(Arc::new(|_| ()));
    let mut lsn = Lsn::new(1);
    documents.apply(&documents::change::encode_create("db"), lsn).expect("a change");
    let database = documents.database("db").expect("created");
    for operations in input.split(|byte| *byte == 0xff) {
        lsn = lsn.advance(8);
        let mut change = UpdateEncoder::new(database.id(), database.snapshot().update_seq()).finish();
        change.extend_from_slice(operations);
        check_round_trip(&change);
        // Refused or not, it must not panic.
        let _ = documents.apply(&change, lsn);
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
});
