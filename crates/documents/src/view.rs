//! `DocumentView`: renders a document for a reply.
//!
//! This module defines the names and the order of the special members around the body. A view borrows all
//! parts of the document; the caller has read them from the database.

use std::io::Write as _;

use crate::attachment::AttachmentView;
use crate::json::put_string;
use crate::{DocRev, Rev, RevPath};

/// The status of a revision in `_revs_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevStatus {
    /// Its content is stored.
    Available,
    /// Its content is not stored.
    Missing,
    /// The revision is a deletion of the document.
    Deleted,
}

/// A document in a reply. Members that were not requested are `None` or empty; an empty list is omitted.
#[derive(Debug, Clone, Copy)]
pub struct DocumentView<'a> {
    /// `_id`
    pub id: &'a str,
    /// `_rev`
    pub rev: DocRev,
    /// `_deleted`
    pub deleted: bool,
    /// The text of a JSON object, as in [`crate::NewDocument`].
    pub body: &'a [u8],
    /// `_revisions`
    pub revisions: Option<&'a RevPath>,
    /// `_revs_info`
    pub revs_info: &'a [(Rev, RevStatus)],
    /// `_conflicts`
    pub conflicts: &'a [Rev],
    /// `_deleted_conflicts`
    pub deleted_conflicts: &'a [Rev],
    /// `_local_seq`
    pub local_seq: Option<u64>,
    /// `_attachments`
    pub attachments: &'a [AttachmentView<'a>],
}

impl<'a> DocumentView<'a> {
    /// A document with only its id, revision and content.
    pub fn new(id: &'a str, rev: DocRev, deleted: bool, body: &'a [u8]) -> DocumentView<'a> {
        DocumentView {
            id,
            rev,
            deleted,
            body,
            revisions: None,
            revs_info: &[],
            conflicts: &[],
            deleted_conflicts: &[],
            local_seq: None,
            attachments: &[],
        }
    }

    /// Appends the document as JSON.
    pub fn render(&self, out: &mut Vec<u8>) {
        self.render_open(out);
        for (index, attachment) in self.attachments.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b",\"_attachments\":{" } else { b"," });
            attachment.render(out);
        }
        if !self.attachments.is_empty() {
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// Appends all members before `_attachments`, which is the last one, and no closing brace. This is for a
    /// caller that sends attachments piece by piece.
    pub fn render_open(&self, out: &mut Vec<u8>) {
        out.reserve(self.body.len() + self.id.len() + 128);
        out.extend_from_slice(b"{\"_id\":");
        put_string(out, self.id);
        put(out, format_args!(",\"_rev\":\"{}\"", self.rev));
        if let [b'{', members @ .., b'}'] = self.body
            && !members.is_empty()
        {
            out.push(b',');
            out.extend_from_slice(members);
        }
        if self.deleted {
            out.extend_from_slice(b",\"_deleted\":true");
        }
        if let Some(path) = self.revisions {
            put(out, format_args!(",\"_revisions\":{{\"start\":{},\"ids\":[", path.newest().number()));
            put_list(out, path.revs(), |out, rev| put(out, format_args!("\"{}\"", rev.hash_text())));
            out.extend_from_slice(b"]}");
        }
        if !self.revs_info.is_empty() {
            out.extend_from_slice(b",\"_revs_info\":[");
            put_list(out, self.revs_info.iter(), |out, (rev, status)| {
                put(out, format_args!("{{\"rev\":\"{rev}\",\"status\":\"{}\"}}", status.text()));
            });
            out.push(b']');
        }
        put_revs(out, "_conflicts", self.conflicts);
        put_revs(out, "_deleted_conflicts", self.deleted_conflicts);
        if let Some(seq) = self.local_seq {
            put(out, format_args!(",\"_local_seq\":{seq}"));
        }
    }
}

impl RevStatus {
    fn text(self) -> &'static str {
        match self {
            RevStatus::Available => "available",
            RevStatus::Missing => "missing",
            RevStatus::Deleted => "deleted",
        }
    }
}

fn put_revs(out: &mut Vec<u8>, name: &str, revs: &[Rev]) {
    if !revs.is_empty() {
        put(out, format_args!(",\"{name}\":["));
        put_list(out, revs.iter(), |out, rev| put(out, format_args!("\"{rev}\"")));
        out.push(b']');
    }
}

fn put_list<T>(out: &mut Vec<u8>, items: impl Iterator<Item = T>, mut each: impl FnMut(&mut Vec<u8>, T)) {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        each(out, item);
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes all");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::ContentView;
    use crate::digest::Digest;
    use crate::{Limits, NewDocument};

    fn rendered(view: &DocumentView<'_>) -> String {
        let mut out = Vec::new();
        view.render(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    fn rev(number: u32) -> Rev {
        Rev::new(number, [0xab; 16]).expect("not 0")
    }

    const HASH: &str = "abababababababababababababababab";

    #[test]
    fn absent_members_are_not_shown() {
        let view = DocumentView::new("a\n", DocRev::Tree(rev(1)), false, b"{}");
        assert_eq!(rendered(&view), format!(r#"{{"_id":"a\n","_rev":"1-{HASH}"}}"#));
        let view = DocumentView::new("_local/a", DocRev::Local(3), false, b"{\"b\":[{}]}");
        assert_eq!(rendered(&view), r#"{"_id":"_local/a","_rev":"0-3","b":[{}]}"#);
    }

    #[test]
    fn all_members_of_a_view_have_their_place() {
        let path = RevPath::new(2, vec![[0xab; 16], [0xab; 16]]).expect("a path");
        let attachment = |name| AttachmentView {
            name,
            content_type: "a/b",
            revpos: 1,
            digest: Digest::of(b""),
            length: 0,
            content: ContentView::Stub,
        };
        let view = DocumentView {
            deleted: true,
            revisions: Some(&path),
            revs_info: &[(rev(2), RevStatus::Deleted), (rev(1), RevStatus::Missing)],
            conflicts: &[rev(3), rev(2)],
            deleted_conflicts: &[rev(4)],
            local_seq: Some(7),
            attachments: &[attachment("f"), attachment("g")],
            ..DocumentView::new("a", DocRev::Tree(rev(2)), true, b"{\"x\":1}")
        };
        let stub = r#"{"content_type":"a/b","revpos":1,"digest":"md5-1B2M2Y8AsgTpgAmY7PhCfg==","length":0,"stub":true}"#;
        let expected = [
            format!(r#"{{"_id":"a","_rev":"2-{HASH}","x":1,"_deleted":true"#),
            format!(r#","_revisions":{{"start":2,"ids":["{HASH}","{HASH}"]}}"#),
            format!(
                r#","_revs_info":[{{"rev":"2-{HASH}","status":"deleted"}},{{"rev":"1-{HASH}","status":"missing"}}]"#
            ),
            format!(
                r#","_conflicts":["3-{HASH}","2-{HASH}"],"_deleted_conflicts":["4-{HASH}"],"_local_seq":7"#
            ),
            format!(r#","_attachments":{{"f":{stub},"g":{stub}}}}}"#),
        ];
        assert_eq!(rendered(&view), expected.concat());
        let read = NewDocument::parse(rendered(&view).as_bytes(), &Limits::default()).expect("a document");
        assert_eq!((read.body, read.revisions), ("{\"x\":1}".into(), Some(path)));
    }
}
