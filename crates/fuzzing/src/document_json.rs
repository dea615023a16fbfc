//! Arbitrary bytes as a document: no panic, and an accepted document, without its attachments, is rendered as
//! JSON that is accepted again, with the same content.

use documents::{DocRev, DocumentView, Limits, NewDocument, Rev};

use crate::{Outcome, Seed};

/// Parses a document, renders it and parses it again. Accepts a document.
///
/// # Panics
/// If the document changes on the way.
pub fn document_json(bytes: &[u8]) -> Outcome {
    let limits = Limits { document_bytes_max: 4096, attachment_bytes_max: 64 };
    let Ok(document) = NewDocument::parse(bytes, &limits) else { return Outcome::Refused };
    assert!(document.body.len() <= limits.document_bytes_max);
    let body: serde_json::Value = match serde_json::from_slice(&document.body) {
        Ok(body) => body,
        // serde_json has limits of its own.
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("recursion") || error.contains("out of range"), "{error}");
            return Outcome::Accepted;
        }
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
    let (before, after) = ((document.revisions, document.deleted), (again.revisions, again.deleted));
    assert_eq!((after, again.body), (before, document.body));
    Outcome::Accepted
}

pub(crate) fn seeds() -> Vec<Seed> {
    let text = |text: &str| text.as_bytes().to_vec();
    let hash = "0123456789abcdef0123456789abcdef";
    let revisions = format!(
        r#"{{"_id":"a","_rev":"3-{hash}","_revisions":{{"start":3,"ids":["{hash}","{hash}"]}},"x":1}}"#
    );
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    vec![
        ("plain", text(r#"{"_id":"id","name":"value","list":[1,2.50,-3e7,true,false,null,{"a":{}}]}"#)),
        (
            "with-revision",
            text(&format!(r#"{{"_id":"a/b é","_rev":"1-{hash}","_deleted":true,"é":"\u00e9"}}"#)),
        ),
        ("with-revisions", text(&revisions)),
        ("local", text(r#"{"_id":"_local/checkpoint","_rev":"0-3","seq":"5-x"}"#)),
        ("design", text(r#"{"_id":"_design/d","views":{"v":{"map":"function (doc) { emit(doc._id) }"}}}"#)),
        (
            "with-attachments",
            text(
                r#"{"_attachments":{"a.txt":{"content_type":"text/plain","data":"aGVsbG8="},
                "b":{"stub":true,"revpos":1,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg==","length":5}}}"#,
            ),
        ),
        ("numbers", text(r#"{"n":[0,-0.0,1e308,1E-400,123456789012345678901234567890,0.1]}"#)),
        ("deep", text(&deep)),
        ("white-space", text(" {\n\t\"a\" : [ ] ,\r\"b\" : \"\\ud83d\\ude00\" } ")),
        ("refused-member", text(r#"{"_unknown":1}"#)),
        ("refused-array", text("[]")),
        ("refused-too-long", text(&format!(r#"{{"a":"{}"}}"#, "x".repeat(5000)))),
    ]
}
