use super::*;
use crate::attachment::NewContent;

const HASH: &str = "00112233445566778899aabbccddeeff";

fn parse(text: &str) -> Result<NewDocument, DocError> {
    NewDocument::parse(text.as_bytes(), &Limits::default())
}

fn told(text: &str) -> (u16, &'static str, String) {
    let error = parse(text).expect_err(text);
    (error.status(), error.error(), error.reason())
}

#[test]
fn special_members_are_read_and_the_rest_is_the_body() {
    let text = format!(
        r#" {{ "z" : 1 , "_id":"a", "_rev":"2-{HASH}", "a":{{ "_id" : [ ] }}, "_deleted" : false,
            "_conflicts":[], "_revs_info":{{}}, "_replication_state":"x", "_attachments":{{"f":{{"data":""}}}} }} "#
    );
    let document = parse(&text).expect("a document");
    assert_eq!(document.id.as_deref(), Some("a"));
    assert_eq!(document.rev, Some(DocRev::Tree(format!("2-{HASH}").parse().expect("a rev"))));
    assert_eq!(String::from_utf8_lossy(&document.body), r#"{"z":1,"a":{"_id":[]},"_replication_state":"x"}"#);
    assert_eq!(document.body_hash, BodyHash::of(&document.body));
    assert!(!document.deleted && document.revisions.is_none());
    assert!(matches!(&document.attachments[0].content, NewContent::Inline { bytes, .. } if bytes.is_empty()));
    let empty = parse("{}").expect("a document");
    assert_eq!((empty.body, empty.id, empty.rev), ("{}".into(), None, None));
    assert!(parse(r#"{"_deleted":true}"#).expect("a document").deleted);
}

#[test]
fn revisions_say_more_than_the_rev() {
    let text = format!(
        r#"{{"_rev":"9-{HASH}","_revisions":{{"start":2,"ids":["{HASH}","{}"]}}}}"#,
        HASH.to_uppercase()
    );
    let document = parse(&text).expect("a document");
    let path = document.revisions.expect("a path");
    assert_eq!(
        path.revs().map(|rev| rev.to_string()).collect::<Vec<_>>(),
        [format!("2-{HASH}"), format!("1-{HASH}")]
    );
    assert_eq!(document.rev, Some(DocRev::Tree(path.newest())));
    assert_eq!(parse(r#"{"_revisions":{"start":0,"ids":[]}}"#).expect("a document").revisions, None);
}

#[test]
fn local_documents_have_revisions_of_their_own() {
    let rev = parse(r#"{"_rev":"0-12"}"#).expect("a document").rev.expect("a rev");
    assert_eq!((rev, rev.to_string()), (DocRev::Local(12), "0-12".into()));
    assert_eq!(told(r#"{"_rev":"0-"}"#).2, "Invalid rev format");
    assert_eq!(told(r#"{"_rev":"0-99999999999999999999"}"#).2, "Invalid rev format");
}

#[test]
fn each_error_has_its_text() {
    let bad_request = |reason: &str| (400, "bad_request", reason.to_owned());
    let validation = |reason: &str| (400, "doc_validation", reason.to_owned());
    for text in ["[]", "1", "\"a\"", "null"] {
        assert_eq!(told(text), bad_request("Document must be a JSON object"), "{text}");
    }
    for text in [
        "",
        "{",
        "{\"a\":}",
        "{} {}",
        "{\"a\":\"\\ud800\"}",
        "{\"\\ud800\":1}",
        "{\"_id\":\"\\ud800\"}",
        "{\"_id\":x}",
        "{\"a\":1e310}",
        "{\"a\":[{\"b\":-1e310}]}",
        "{\"_conflicts\":[1e310]}",
        "{\"_replication_stats\":{\"n\":1e310}}",
        "{\"_revisions\":{\"start\":1e310,\"ids\":[]}}",
        "{\"_revisions\":{\"x\":1e310}}",
        "{\"_attachments\":{\"f\":{\"data\":\"\",\"length\":1e310}}}",
        "{\"_attachments\":{\"f\":{\"data\":\"\",\"revpos\":1e310}}}",
        "{\"_attachments\":{\"f\":{\"data\":\"\",\"x\":[1e310]}}}",
        "{\"_attachments\":{\"f\":{\"data\":\"\",\"content_type\":\"\\udc00\"}}}",
        "{\"_attachments\":{\"\\udc00\":{\"data\":\"\"}}}",
    ] {
        assert_eq!(told(text), bad_request("invalid UTF-8 JSON"), "{text}");
    }
    let not_text = NewDocument::parse(b"{\"a\":\"\xff\"}", &Limits::default());
    assert_eq!(not_text, Err(DocError::bad_request("invalid UTF-8 JSON")));
    assert_eq!(told(r#"{"_foo":1}"#), validation("Bad special document member: _foo"));
    assert_eq!(told(r#"{"_f\u006fo":1}"#), validation("Bad special document member: _foo"));
    assert_eq!(told(r#"{"_deleted":1}"#), validation("Bad special document member: _deleted"));
    assert_eq!(told(r#"{"_attachments":[]}"#), validation("Bad special document member: _attachments"));
    assert_eq!(told(r#"{"_revisions":[]}"#), validation("Bad special document member: _revisions"));
    assert_eq!(
        told(r#"{"_revisions":{"start":"1","ids":[]}}"#),
        validation("_revisions.start isn't an integer.")
    );
    assert_eq!(
        told(r#"{"_revisions":{"start":1.5,"ids":[]}}"#),
        validation("_revisions.start isn't an integer.")
    );
    assert_eq!(told(r#"{"_revisions":{"start":1,"ids":{}}}"#), validation("_revisions.ids isn't a array."));
    assert_eq!(told(r#"{"_revisions":{"start":1,"ids":[1]}}"#), validation("RevId isn't a string"));
    assert_eq!(
        told(r#"{"_revisions":{"start":1,"ids":["x"]}}"#),
        validation("RevId isn't a valid hexadecimal")
    );
    let surplus = format!(r#"{{"_revisions":{{"start":1,"ids":["{HASH}","{HASH}"]}}}}"#);
    assert_eq!(told(&surplus), validation("_revisions.ids has more revisions than _revisions.start"));
    assert_eq!(told(r#"{"_rev":"foo"}"#), bad_request("Invalid rev format"));
    assert_eq!(told(r#"{"_rev":null}"#), bad_request("Invalid rev format"));
    assert_eq!(told(r#"{"_id":1}"#), (400, "illegal_docid", "Document id must be a string".into()));
    assert_eq!(
        told(r#"{"_id":"_a"}"#),
        (400, "illegal_docid", "Only reserved document ids may start with underscore.".into())
    );
    assert_eq!(told(r#"{"a":1,"\u0061":2}"#), validation("Duplicate document member: a"));
    assert_eq!(told(r#"{"_id":"a","_id":"b"}"#), validation("Duplicate document member: _id"));
    let nested = format!("{{\"a\":{}1{}}}", "[".repeat(256), "]".repeat(256));
    assert_eq!(told(&nested), bad_request("JSON is nested deeper than 256 levels"));
}

#[test]
fn nesting_has_the_same_limit_alone_and_in_a_batch() {
    let nested = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    let in_batch = |document: &str| {
        let text = format!("{{\"docs\":[{document}]}}");
        let (mut reader, mut read) = (Reader::of(&text), None);
        reader
            .object::<DocError>(|reader, _| {
                reader.array::<DocError>(|reader| {
                    read = Some(NewDocument::read(reader, &Limits::default(), &mut Vec::new())?);
                    Ok(())
                })
            })
            .map(|()| read.expect("a document"))
    };
    for (depth, is_taken) in [(255, true), (256, false)] {
        let document = nested(depth);
        assert_eq!((parse(&document).is_ok(), in_batch(&document).is_ok()), (is_taken, is_taken), "{depth}");
    }
}

#[test]
fn one_of_many_that_breaks_a_rule_is_skipped() {
    let many = format!(
        r#"[{{"_id":"a"}},{{"_id":"b","_rev":"1-{HASH}","n":[1e310,{{}}]}},{{"n":"\ud800","_id":"\ud83d"}},
            {{"_x":1}},{{"_id":7}},{{"_id":"{}"}},{{"_id":"z"}}]"#,
        "x".repeat(3000)
    );
    let (mut reader, mut memory) = (Reader::of(&many), Vec::new());
    let mut read = Vec::new();
    reader
        .array::<DocError>(|reader| {
            read.push(NewDocument::read_or_skip(reader, &Limits::default(), &mut memory)?);
            Ok(())
        })
        .expect("JSON");
    reader.end().expect("the end");
    let told: Vec<_> = read
        .into_iter()
        .map(|one| match one {
            Ok(document) => document.id.expect("an id").to_string(),
            Err(RefusedDocument { id, rev, error }) => {
                let id = id.unwrap_or_default();
                format!("{} {} {}", &id[..id.len().min(10)], rev.unwrap_or_default(), error.reason())
            }
        })
        .collect();
    assert_eq!(
        told,
        [
            "a".to_owned(),
            format!("\"b\" \"1-{HASH}\" invalid UTF-8 JSON"),
            "\"\\ud83d\"  invalid UTF-8 JSON".to_owned(),
            "  Bad special document member: _x".to_owned(),
            "  Document id must be a string".to_owned(),
            "\"xxxxxxxxx  Document id is too long".to_owned(),
            "z".to_owned(),
        ]
    );
    for broken in ["[{\"a\":1e310]", "[7]", "[{\"a\":nul}]"] {
        let mut reader = Reader::of(broken);
        let read = reader.array::<DocError>(|reader| {
            NewDocument::read_or_skip(reader, &Limits::default(), &mut memory).map(drop)
        });
        assert!(read.is_err(), "{broken}");
    }
}

#[test]
fn the_body_has_a_limit() {
    let limits = Limits { document_bytes_max: 20, ..Limits::default() };
    let parse = |text: &str| NewDocument::parse(text.as_bytes(), &limits);
    assert!(parse(r#"{"_id":"a-long-identifier",   "a":"0123456789"}"#).is_ok());
    let error = parse(r#"{"_id":"x","a":"0123456789012345"}"#).expect_err("too large");
    assert_eq!((error.status(), error.error(), error.reason()), (413, "document_too_large", "x".into()));
    assert!(parse(r#"{"a":"0123456789012345","b":1,"_id":"x"}"#).is_err());
}

#[test]
fn the_same_edit_has_the_same_hash() {
    let body = BodyHash::of(b"{\"a\":1}");
    let attachment = ("f", "text/plain", Digest::of(b"x"));
    let hash = |deleted, parent, body, attachments: &[(&'static str, &'static str, Digest)]| {
        edit_hash(deleted, parent, body, attachments.iter().copied())
    };
    let plain = hash(false, None, body, &[]);
    assert_eq!(Rev::first(plain).to_string(), "1-9987b2b86fe6d3bc086637030e9a018d");
    assert_eq!(hash(false, None, body, &[]), plain);
    let others = [
        hash(true, None, body, &[]),
        hash(false, Some(Rev::first(plain)), body, &[]),
        hash(false, None, BodyHash::of(b"{}"), &[]),
        hash(false, None, body, &[attachment]),
        hash(false, None, body, &[("ft", "ext/plain", attachment.2)]),
    ];
    for (index, other) in others.iter().enumerate() {
        assert!(*other != plain && !others[..index].contains(other), "{index}");
    }
}

#[test]
fn a_deletion_has_no_content() {
    let made = NewDocument::deletion("a".into(), Some(DocRev::Local(1)));
    assert_eq!(parse(r#"{"_id":"a","_rev":"0-1","_deleted":true}"#), Ok(made));
}
