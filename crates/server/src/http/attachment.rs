//! Single attachments: read whole or as a range, and stored chunk by chunk as they arrive.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use documents::{
    Attachment, AttachmentRequest, AttachmentSource, BodyHash, CHUNK_BYTES, DEFAULT_CONTENT_TYPE, Database,
    DocError, DocLeaf, EditRequest, Found, History, LOCAL_PREFIX, Pick, Snapshot, check_attachment_name,
    check_id,
};

use super::{
    body::{Body, ChunkWriter, chunks_of},
    document::{based_on_tree, save},
    edit::Edit,
    failure::Failure,
    reply::{self, Reply},
    request::Call,
    request_body::is_gzip,
    security,
    show::parse_rev,
    upload::{Stored, Upload},
};

/// `/DB/ID/NAME`
pub(super) async fn attachment(
    call: &mut Call,
    database: &Arc<Database>,
    id: &str,
    name: &str,
) -> Result<Reply, Failure> {
    match call.method() {
        "GET" | "HEAD" => read(call, database, id, name).await,
        "PUT" => put(call, database, id, name).await,
        "DELETE" => delete(call, database, id, name).await,
        _ => Err(Failure::MethodNotAllowed("GET,HEAD,PUT,DELETE")),
    }
}

async fn read(call: &Call, database: &Arc<Database>, id: &str, name: &str) -> Result<Reply, Failure> {
    let pick = call.query.text("rev").map(parse_rev).transpose()?.map_or(Pick::Winner, Pick::Rev);
    let snapshot = call.snapshot(database).await?;
    let found = snapshot.open(id, pick)?;
    let attachment = found.leaf().attachment(name).ok_or(DocError::NoAttachment)?;
    let digest = attachment.digest.base64();
    if reply::has_version(&call.head.headers, &digest) {
        let mut reply = reply::empty(StatusCode::NOT_MODIFIED);
        reply::set_etag(&mut reply, &digest);
        return Ok(reply);
    }
    let range = call.header(header::RANGE).and_then(|range| parse_range(range, attachment.length));
    let (status, (from, end)) = match range {
        None => (StatusCode::OK, (0, attachment.length)),
        Some(Some(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(None) => return Err(Failure::RangeNotSatisfiable(attachment.length)),
    };
    let body = if call.method() == "HEAD" {
        // The attachment is not read.
        Body::EMPTY
    } else {
        send(call, &snapshot, attachment, (from, end))
    };
    let mut reply = reply::json(status, body);
    reply::set(&mut reply, header::CONTENT_LENGTH, itoa::Buffer::new().format(end - from));
    reply::set(&mut reply, header::CONTENT_TYPE, &attachment.content_type);
    reply::set(&mut reply, header::HeaderName::from_static("content-md5"), &digest);
    reply.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    reply::set_etag(&mut reply, &digest);
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {from}-{}/{}", end - 1, attachment.length);
        reply::set(&mut reply, header::CONTENT_RANGE, &range);
    }
    Ok(reply)
}

fn send(call: &Call, snapshot: &Snapshot, attachment: &Attachment, (from, end): (u64, u64)) -> Body {
    let parts = snapshot.attachment(attachment, from..end);
    chunks_of(&call.patience, end - from, async move |mut writer: ChunkWriter| {
        for part in parts {
            writer.send_bytes(part?).await?;
        }
        Ok(())
    })
}

/// The first byte of a `Range` and the end after its last byte. `None`: it is not understood, and ignored;
/// `Some(None)`: it contains no byte of the attachment.
fn parse_range(text: &str, length: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        let count: u64 = last.parse().ok()?;
        let from = length.saturating_sub(count);
        return Some((from < length).then_some((from, length)));
    }
    let first: u64 = first.parse().ok()?;
    let end = match last {
        "" => length,
        last => last.parse::<u64>().ok().filter(|&last| last >= first)?.saturating_add(1).min(length),
    };
    Some((first < length).then_some((first, end)))
}

/// The state that an attachment is put to or deleted from: the snapshot, and the revision if the document
/// exists.
async fn parent(
    call: &Call,
    database: &Arc<Database>,
    id: &str,
) -> Result<(Snapshot, Option<Found>), Failure> {
    check_id(id)?;
    if id.starts_with(LOCAL_PREFIX) {
        return Err(Failure::bad_request("_local documents do not accept attachments."));
    }
    security::check_edit(call, database, id)?;
    let snapshot = call.snapshot(database).await?;
    let found = match based_on_tree(call)? {
        Some(rev) => match snapshot.open(id, Pick::Rev(rev)) {
            Err(DocError::Missing) if snapshot.document(id)?.is_some() => {
                return Err(DocError::Conflict.into());
            }
            Err(DocError::Missing) => return Err(DocError::MissingRev.into()),
            found => Some(found?),
        },
        None => match snapshot.open(id, Pick::Winner) {
            Ok(_) => return Err(DocError::Conflict.into()),
            Err(DocError::Missing | DocError::Deleted) => None,
            Err(error) => return Err(error.into()),
        },
    };
    Ok((snapshot, found))
}

async fn put(call: &mut Call, database: &Arc<Database>, id: &str, name: &str) -> Result<Reply, Failure> {
    check_attachment_name(name)?;
    // It would have to be stored compressed, and inflated for clients that do not accept gzip.
    if is_gzip(&call.head.headers)? {
        return Err(Failure::BadContentEncoding);
    }
    // Checked before the upload: a client with a wrong revision need not send all bytes.
    let (snapshot, parent) = parent(call, database, id).await?;
    let content_type = call.header(header::CONTENT_TYPE).unwrap_or(DEFAULT_CONTENT_TYPE).into();
    let mut upload = Upload::new(&call.thread, database);
    if let Some(mut body) = call.take_body() {
        // Room for one chunk and the bytes received at once.
        body.claim(2 * CHUNK_BYTES)?;
        while let Some(piece) = body.piece().await? {
            upload.push(piece).await?;
        }
    }
    let (source, stored) = upload.finish(content_type, None).await?;
    let new = AttachmentRequest { name: name.into(), source };
    let edit = with_attachments(&snapshot, parent.as_ref(), id, name, Some((new, stored)))?;
    save(call, database, id, edit, StatusCode::CREATED).await
}

async fn delete(call: &Call, database: &Arc<Database>, id: &str, name: &str) -> Result<Reply, Failure> {
    let (snapshot, parent) = parent(call, database, id).await?;
    let parent = parent.ok_or(DocError::Missing)?;
    parent.leaf().attachment(name).ok_or(DocError::NoAttachment)?;
    let edit = with_attachments(&snapshot, Some(&parent), id, name, None)?;
    save(call, database, id, edit, StatusCode::OK).await
}

/// The edit that replaces, adds or removes the attachment `name` and keeps everything else.
fn with_attachments(
    snapshot: &Snapshot,
    parent: Option<&Found>,
    id: &str,
    name: &str,
    new: Option<(AttachmentRequest, Option<Stored>)>,
) -> Result<Edit, Failure> {
    let (new, stored) = new.unzip();
    let stubs = |leaf: &DocLeaf| {
        let others = leaf.attachments.iter().filter(|attachment| &*attachment.name != name);
        let stub = |attachment: &Attachment| AttachmentRequest {
            name: attachment.name.clone(),
            source: AttachmentSource::Stub,
        };
        others.map(stub).collect()
    };
    let mut attachments: Vec<AttachmentRequest> = parent.map_or_else(Vec::new, |parent| stubs(parent.leaf()));
    attachments.extend(new);
    attachments.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let body = match parent {
        Some(parent) => snapshot.body(parent.leaf())?,
        None => b"{}"[..].into(),
    };
    let request = EditRequest {
        id: id.into(),
        history: History::Parent(parent.map(Found::rev)),
        deleted: false,
        body_hash: BodyHash::of(&body),
        body,
        attachments,
    };
    Ok(Edit::Document(request, stored.flatten().into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_what_there_is_and_what_is_not_understood_is_ignored() {
        for (text, expected) in [
            ("bytes=0-", Some(Some((0, 100)))),
            ("bytes=10-19", Some(Some((10, 20)))),
            ("bytes=10-1000", Some(Some((10, 100)))),
            ("bytes=-5", Some(Some((95, 100)))),
            ("bytes=-500", Some(Some((0, 100)))),
            ("bytes=-0", Some(None)),
            ("bytes=100-", Some(None)),
            ("bytes=20-10", None),
            ("bytes=0-1,5-6", None),
            ("lines=0-", None),
            ("bytes=-", None),
            ("", None),
        ] {
            assert_eq!(parse_range(text, 100), expected, "{text}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Some(None));
    }
}
