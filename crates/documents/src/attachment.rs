//! Attachments as requests send them (`_attachments`) and as replies show them.
//!
//! This module reads and writes the member `_attachments`. It does not store the bytes of attachments:
//! [`Attachment`] refers to them.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::DocError;
use crate::digest::Digest;
use crate::doc_info::Attachment;
use crate::json::{Kind, Reader, put_string};
use crate::limits::Limits;
use crate::names::check_attachment_name;

/// The maximum number of attachments of a document.
pub const ATTACHMENTS_MAX: usize = 1000;
/// The content type of an attachment that was sent without one.
pub const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// An attachment in a document that a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttachment {
    /// Its name in the document.
    pub name: String,
    /// Its MIME type.
    pub content_type: String,
    /// The number of the revision that added it, if given and readable.
    pub revpos: Option<u32>,
    /// Its bytes, or their location.
    pub content: NewContent,
}

/// The location of the bytes of a [`NewAttachment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewContent {
    /// In the document.
    Inline {
        /// The bytes, decoded.
        bytes: Vec<u8>,
        /// The digest of the bytes.
        digest: Digest,
    },
    /// In an earlier revision, under the same name.
    Stub {
        /// The digest of the bytes that the sender means, if given and readable.
        digest: Option<Digest>,
    },
    /// In a later part of the same request.
    Follows {
        /// The announced number of bytes.
        length: u64,
        /// The digest of the bytes, if given and readable.
        digest: Option<Digest>,
    },
}

/// Reads the value of `_attachments`; the result is sorted by name.
pub(crate) fn read(reader: &mut Reader<'_>, limits: &Limits) -> Result<Vec<NewAttachment>, DocError> {
    let mut attachments = Vec::new();
    reader.object(|reader, name| {
        if attachments.len() == ATTACHMENTS_MAX {
            return Err(DocError::DocumentTooLarge("hit max_attachments_per_document".into()));
        }
        check_attachment_name(&name)?;
        attachments.push(read_one(reader, name.into_owned(), limits)?);
        Ok(())
    })?;
    attachments.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some([twice, _]) = attachments.array_windows().find(|[a, b]| a.name == b.name) {
        return Err(DocError::BadRequest(format!("Duplicate attachment: {}", twice.name).into()));
    }
    Ok(attachments)
}

fn read_one(reader: &mut Reader<'_>, name: String, limits: &Limits) -> Result<NewAttachment, DocError> {
    if reader.peek()? != Kind::Object {
        return Err(DocError::doc_validation("Bad special document member: _attachments"));
    }
    let (mut content_type, mut data) = (None, None);
    let (mut digest, mut revpos, mut length) = (None, None, None);
    let (mut stub, mut follows, mut encoded) = (false, false, false);
    reader.object::<DocError>(|reader, key| {
        match (&*key, reader.peek()?) {
            ("content_type", Kind::String) => content_type = Some(reader.string()?.into_owned()),
            ("data", Kind::String) => data = Some(reader.string()?),
            ("digest", Kind::String) => digest = Digest::parse(&reader.string()?),
            ("encoding", Kind::String) => encoded = reader.string()? != "identity",
            ("revpos", Kind::Number) => revpos = reader.raw()?.parse().ok(),
            ("length", Kind::Number) => length = reader.raw()?.parse().ok(),
            ("stub", Kind::Bool) => stub = reader.boolean()?,
            ("follows", Kind::Bool) => follows = reader.boolean()?,
            _ => reader.raw().map(drop)?,
        }
        Ok(())
    })?;
    let invalid = |what: &str| DocError::BadRequest(format!("Invalid attachment {what} for {name}").into());
    let content = if stub {
        NewContent::Stub { digest }
    } else if follows && encoded {
        return Err(invalid("encoding"));
    } else if follows {
        NewContent::Follows { length: length.ok_or_else(|| invalid("length"))?, digest }
    } else {
        let bytes = data.as_deref().and_then(decode_base64).ok_or_else(|| invalid("data"))?;
        NewContent::Inline { digest: Digest::of(&bytes), bytes }
    };
    let bytes = match &content {
        NewContent::Inline { bytes, .. } => bytes.len() as u64,
        NewContent::Follows { length, .. } => *length,
        NewContent::Stub { .. } => 0,
    };
    if bytes > limits.attachment_bytes_max {
        return Err(DocError::AttachmentTooLarge(name));
    }
    let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned());
    Ok(NewAttachment { name, content_type, revpos, content })
}

/// Decodes base64; white space is allowed, as in MIME.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = match text.contains(|byte: char| byte.is_ascii_whitespace()) {
        true => Cow::Owned(text.split_ascii_whitespace().collect::<String>()),
        false => Cow::Borrowed(text),
    };
    STANDARD.decode(&*text).ok()
}

/// An attachment as a reply shows it.
#[derive(Debug, Clone, Copy)]
pub struct AttachmentView<'a> {
    /// Its name in the document.
    pub name: &'a str,
    /// Its MIME type.
    pub content_type: &'a str,
    /// The number of the revision that added it.
    pub revpos: u32,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub length: u64,
    /// The form in which its bytes are shown.
    pub content: ContentView<'a>,
}

impl<'a> AttachmentView<'a> {
    /// Shows an attachment of a revision without its bytes.
    pub fn stub(attachment: &'a Attachment) -> AttachmentView<'a> {
        AttachmentView {
            name: &attachment.name,
            content_type: &attachment.content_type,
            revpos: attachment.revpos,
            digest: attachment.digest,
            length: attachment.length,
            content: ContentView::Stub,
        }
    }
}

/// The form in which an [`AttachmentView`] shows the bytes.
#[derive(Debug, Clone, Copy)]
pub enum ContentView<'a> {
    /// The bytes are not shown: `"stub":true`.
    Stub,
    /// In a later part of the same reply: `"follows":true`.
    Follows,
    /// Inline, as base64.
    Inline(&'a [u8]),
}

impl AttachmentView<'_> {
    /// Appends `"name":{...}`.
    pub fn render(&self, out: &mut Vec<u8>) {
        put_string(out, self.name);
        out.extend_from_slice(b":{\"content_type\":");
        put_string(out, self.content_type);
        out.extend_from_slice(b",\"revpos\":");
        out.extend_from_slice(self.revpos.to_string().as_bytes());
        out.extend_from_slice(b",\"digest\":\"md5-");
        out.extend_from_slice(self.digest.base64().as_bytes());
        if let ContentView::Inline(bytes) = self.content {
            out.extend_from_slice(b"\",\"data\":\"");
            out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            out.extend_from_slice(b"\"}");
            return;
        }
        out.extend_from_slice(b"\",\"length\":");
        out.extend_from_slice(self.length.to_string().as_bytes());
        out.extend_from_slice(match self.content {
            ContentView::Follows => b",\"follows\":true}",
            _ => b",\"stub\":true}",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<NewAttachment>, DocError> {
        read(&mut Reader::of(text), &Limits { attachment_bytes_max: 8, ..Limits::default() })
    }

    fn content(text: &str) -> NewContent {
        parsed(&format!("{{\"a\":{text}}}")).expect("an attachment").remove(0).content
    }

    #[test]
    fn bytes_are_inline_or_elsewhere() {
        let digest = Digest::of(b"hello");
        assert_eq!(digest.base64(), "XUFAKrxLKna5cZ2REBfFkg==");
        let inline = NewContent::Inline { bytes: b"hello".to_vec(), digest };
        assert_eq!(content(r#"{"data":"aGVsbG8="}"#), inline);
        assert_eq!(content(r#"{"data":"aGVs\r\nbG8=", "length":99, "other":[{}]}"#), inline);
        assert_eq!(
            content(r#"{"stub":true,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg=="}"#),
            NewContent::Stub { digest: Some(digest) }
        );
        assert_eq!(content(r#"{"stub":true,"digest":"sha1-XUFA"}"#), NewContent::Stub { digest: None });
        assert_eq!(
            content(r#"{"follows":true,"length":5}"#),
            NewContent::Follows { length: 5, digest: None }
        );
    }

    #[test]
    fn types_and_order() {
        let both = parsed(r#"{"b":{"data":"","content_type":"text/plain","revpos":3},"a":{"data":""}}"#);
        let [a, b] = both.expect("attachments").try_into().expect("two");
        assert_eq!((&*a.name, &*a.content_type, a.revpos), ("a", "application/octet-stream", None));
        assert_eq!((&*b.name, &*b.content_type, b.revpos), ("b", "text/plain", Some(3)));
    }

    #[test]
    fn invalid_attachments_are_refused_with_a_reason() {
        let reason = |text: &str| parsed(text).expect_err("an error").reason();
        for data in [r#"{"data":"%"}"#, r#"{"data":1}"#, "{}", r#"{"data":"aGVsbG8"}"#] {
            assert_eq!(reason(&format!("{{\"a\":{data}}}")), "Invalid attachment data for a", "{data}");
        }
        assert_eq!(reason(r#"{"a":1}"#), "Bad special document member: _attachments");
        assert_eq!(reason(r#"{"a":{"follows":true}}"#), "Invalid attachment length for a");
        assert_eq!(
            reason(r#"{"a":{"follows":true,"length":1,"encoding":"gzip"}}"#),
            "Invalid attachment encoding for a"
        );
        assert_eq!(reason(r#"{"a":{"data":""},"\u0061":{"data":""}}"#), "Duplicate attachment: a");
        assert_eq!(parsed(r#"{"a":{"data":"MTIzNDU2Nzg5"}}"#), Err(DocError::AttachmentTooLarge("a".into())));
        let many: Vec<String> =
            (0..=ATTACHMENTS_MAX).map(|name| format!("\"{name}\":{{\"stub\":true}}")).collect();
        assert_eq!(reason(&format!("{{{}}}", many.join(","))), "hit max_attachments_per_document");
    }

    #[test]
    fn stubs_and_bytes_are_shown() {
        let view = |content| {
            let view = AttachmentView {
                name: "a\"",
                content_type: "text/plain",
                revpos: 2,
                digest: Digest::of(b"hello"),
                length: 5,
                content,
            };
            let mut out = Vec::new();
            view.render(&mut out);
            String::from_utf8(out).expect("UTF-8")
        };
        let head =
            r#""a\"":{"content_type":"text/plain","revpos":2,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg==","#;
        assert_eq!(view(ContentView::Stub), format!("{head}\"length\":5,\"stub\":true}}"));
        assert_eq!(view(ContentView::Follows), format!("{head}\"length\":5,\"follows\":true}}"));
        assert_eq!(view(ContentView::Inline(b"hello")), format!("{head}\"data\":\"aGVsbG8=\"}}"));
    }
}
