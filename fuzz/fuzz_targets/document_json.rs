//! Arbitrary bytes as a document: no panic, and an accepted document is rendered as JSON that is accepted
//! again, with the same content.

#![no_main]

use documents::{DocRev, DocumentView, Limits, NewDocument, Rev};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { document_bytes_max: 4096, attachment_bytes_max: 64 };
    let Ok(document) = NewDocument::parse(bytes, &limits) else { return };
    assert!(document.body.len() <= limits.document_bytes_max);
    let body: serde_json::Value = match serde_json::from_slice(&document.body) {
        Ok(body) => body,
        // serde_json has limits of its own.
        Err(error) => return assert!(error.to_string().contains("recursion") || error.to_string().contains("out of range")),
    };
    assert!(body.is_object());

    let id = document.id.clone().unwrap_or_else(|| "a".into());
    let rev = document.rev.unwrap_or(DocRev::Tree(Rev::first([7; 16])));
    let view = DocumentView {
        revisions: document.revisions.as_ref(),
        ..DocumentView::new(&id, rev, document.deleted, &document.body)
    };
    let mut shown = Vec::new();
    view.render(&mut shown);
    let again = NewDocument::parse(&shown, &limits).expect("a document that was shown");
    assert_eq!((again.id, again.rev), (Some(id), Some(rev)));
    assert_eq!((again.revisions, again.deleted, again.body), (document.revisions, document.deleted, document.body));
});
