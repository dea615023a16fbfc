//! Documents in replies, with the requested additional fields.

use base64::{Engine, prelude::BASE64_STANDARD};
use documents::{AttachmentView, ContentView, DocError, DocRev, DocumentView, Found, Rev, RevPath, Snapshot};
use http::StatusCode;

use super::{
    body::{Body, Broken, ChunkWriter, chunks},
    failure::Failure,
    query::Query,
    reply::{self, Reply},
    request::Call,
};

/// The fields to add to a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Show {
    pub(super) revs: bool,
    pub(super) revs_info: bool,
    pub(super) conflicts: bool,
    pub(super) deleted_conflicts: bool,
    pub(super) local_seq: bool,
    /// Include the contents of attachments.
    pub(super) attachments: bool,
    /// Contents of attachments are left out if these revisions or their ancestors have them: the client has
    /// them already.
    pub(super) atts_since: Vec<Rev>,
}

impl Show {
    pub(super) fn of(query: &Query) -> Result<Show, Failure> {
        let meta = query.flag("meta")?;
        let atts_since = query.json::<Vec<String>>("atts_since")?;
        Ok(Show {
            revs: query.flag("revs")?,
            revs_info: query.flag("revs_info")? || meta,
            conflicts: query.flag("conflicts")? || meta,
            deleted_conflicts: query.flag("deleted_conflicts")? || meta,
            local_seq: query.flag("local_seq")?,
            attachments: query.flag("attachments")? || atts_since.is_some(),
            atts_since: parse_revs(&atts_since.unwrap_or_default())?,
        })
    }

    /// Whether no fields are added, so that the revision determines the reply and can be its `ETag`.
    pub(super) fn is_plain(&self) -> bool {
        *self == Show::default()
    }
}

pub(super) fn parse_revs(texts: &[String]) -> Result<Vec<Rev>, Failure> {
    texts.iter().map(|text| parse_rev(text)).collect()
}

pub(super) fn parse_rev(text: &str) -> Result<Rev, Failure> {
    text.parse().map_err(|error| Failure::Doc(DocError::from(error)))
}

/// Values that the view of a document borrows.
struct Parts {
    path: Option<RevPath>,
    revs_info: Vec<(Rev, documents::RevStatus)>,
    conflicts: Vec<Rev>,
    deleted_conflicts: Vec<Rev>,
}

impl Parts {
    fn of(found: &Found, show: &Show) -> Parts {
        Parts {
            path: show.revs.then(|| found.path()),
            revs_info: if show.revs_info { found.revs_info() } else { Vec::new() },
            conflicts: if show.conflicts { found.conflicts() } else { Vec::new() },
            deleted_conflicts: if show.deleted_conflicts { found.deleted_conflicts() } else { Vec::new() },
        }
    }

    fn view<'v>(&'v self, found: &'v Found, body: &'v [u8], show: &Show) -> DocumentView<'v> {
        let leaf = found.leaf();
        DocumentView {
            revisions: self.path.as_ref(),
            revs_info: &self.revs_info,
            conflicts: &self.conflicts,
            deleted_conflicts: &self.deleted_conflicts,
            local_seq: show.local_seq.then(|| found.info().seq),
            ..DocumentView::new(&found.info().id, DocRev::Tree(found.rev()), leaf.deleted, body)
        }
    }
}

/// Appends a document with stubs of its attachments.
pub(super) fn put_document(
    out: &mut Vec<u8>,
    snapshot: &Snapshot,
    found: &Found,
    show: &Show,
) -> Result<(), DocError> {
    let leaf = found.leaf();
    let body = snapshot.body(leaf)?;
    let parts = Parts::of(found, show);
    let attachments: Vec<_> = leaf.attachments.iter().map(AttachmentView::stub).collect();
    let document = DocumentView { attachments: &attachments, ..parts.view(found, &body, show) };
    document.render(out);
    Ok(())
}

/// Writes a document, with the contents of its attachments piece by piece if `show` requests them.
pub(super) async fn send_document(
    writer: &mut ChunkWriter,
    snapshot: &Snapshot,
    found: &Found,
    show: &Show,
) -> Result<(), Broken> {
    let leaf = found.leaf();
    if !show.attachments || leaf.attachments.is_empty() {
        put_document(&mut writer.buffer, snapshot, found, show)?;
        return writer.breathe().await;
    }
    let body = snapshot.body(leaf)?;
    let parts = Parts::of(found, show);
    parts.view(found, &body, show).render_open(&mut writer.buffer);
    let known_number = if show.atts_since.is_empty() { 0 } else { found.known_number(&show.atts_since) };
    for (index, attachment) in leaf.attachments.iter().enumerate() {
        writer.buffer.extend_from_slice(if index == 0 { b",\"_attachments\":{" } else { b"," });
        if attachment.revpos <= known_number {
            AttachmentView::stub(attachment).render(&mut writer.buffer);
            continue;
        }
        // Render the attachment without contents and cut the closing `"}`; the contents follow.
        AttachmentView { content: ContentView::Inline(b""), ..AttachmentView::stub(attachment) }
            .render(&mut writer.buffer);
        writer.buffer.truncate(writer.buffer.len() - b"\"}".len());
        send_base64(writer, snapshot, attachment).await?;
        writer.buffer.extend_from_slice(b"\"}");
    }
    writer.buffer.extend_from_slice(b"}}");
    writer.breathe().await
}

/// Writes an attachment as base64. Three bytes become four letters, so one or two bytes that a part has left
/// over are encoded with the next part.
async fn send_base64(
    writer: &mut ChunkWriter,
    snapshot: &Snapshot,
    attachment: &documents::Attachment,
) -> Result<(), Broken> {
    let mut left_over: Vec<u8> = Vec::with_capacity(3);
    let mut letters = String::new();
    for part in snapshot.attachment(attachment, 0..attachment.length) {
        let part = part?;
        let mut part = &part[..];
        if !left_over.is_empty() {
            let (missing, rest) = part.split_at((3 - left_over.len()).min(part.len()));
            left_over.extend_from_slice(missing);
            part = rest;
            if left_over.len() < 3 {
                continue;
            }
            BASE64_STANDARD.encode_string(&left_over, &mut letters);
            left_over.clear();
        }
        let (whole, rest) = part.split_at(part.len() - part.len() % 3);
        BASE64_STANDARD.encode_string(whole, &mut letters);
        left_over.extend_from_slice(rest);
        writer.buffer.extend_from_slice(letters.as_bytes());
        letters.clear();
        writer.breathe().await?;
    }
    BASE64_STANDARD.encode_string(&left_over, &mut letters);
    writer.buffer.extend_from_slice(letters.as_bytes());
    Ok(())
}

pub(super) fn document_reply(
    call: &Call,
    snapshot: Snapshot,
    found: Found,
    show: Show,
) -> Result<Reply, Failure> {
    let rev = found.rev().to_string();
    let is_plain = show.is_plain();
    if is_plain && reply::has_version(&call.head.headers, &rev) {
        let mut reply = reply::empty(StatusCode::NOT_MODIFIED);
        reply::set_etag(&mut reply, &rev);
        return Ok(reply);
    }
    let body = if show.attachments && !found.leaf().attachments.is_empty() {
        chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
            send_document(&mut writer, &snapshot, &found, &show).await?;
            writer.buffer.push(b'\n');
            writer.send().await
        })
    } else {
        let mut out = Vec::new();
        put_document(&mut out, &snapshot, &found, &show)?;
        out.push(b'\n');
        Body::from(out)
    };
    let mut reply = reply::json(StatusCode::OK, body);
    if is_plain {
        reply::set_etag(&mut reply, &rev);
    }
    Ok(reply)
}
