//! Single attachments: read whole or as a range, and stored chunk by chunk as they arrive.

use std::sync::Arc;

use documents::{
    Attachment, AttachmentRequest, AttachmentSource, BodyHash, CHUNK_BYTES, DEFAULT_CONTENT_TYPE, Database,
    Digest, DocError, DocLeaf, EditRequest, Found, History, LOCAL_PREFIX, Pick, Snapshot,
    check_attachment_name, check_id,
};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{
    body::{Body, ChunkWriter, chunks_of},
    document::{based_on_tree, save},
    edit::Edit,
    failure::Failure,
    range::ByteRange,
    reply::{self, Reply},
    request::Call,
    request_body::is_gzip,
    security,
    show::parse_rev,
    upload::{Stored, Upload},
};

/// The header with the digest of an attachment.
const CONTENT_MD5: &str = "content-md5";
/// The policy by which a browser shows an attachment as a page of no origin, as with CouchDB. So a script in
/// the attachment does not have the rights of a page of this server.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");

/// Serves `/DB/ID/NAME`
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
    let snapshot = call.snapshot_of(database, id).await?;
    let found = snapshot.open(id, pick)?;
    let attachment = found.leaf().attachment(name).ok_or(DocError::NoAttachment)?;
    let digest = attachment.digest.base64();
    if reply::has_version(&call.head.headers, &digest) {
        let mut reply = reply::empty(StatusCode::NOT_MODIFIED);
        reply::set_etag(&mut reply, &digest);
        return Ok(reply);
    }
    let (status, (from, end)) = match ByteRange::parse(call.header(header::RANGE), attachment.length) {
        ByteRange::Whole => (StatusCode::OK, (0, attachment.length)),
        ByteRange::Part { from, end } => (StatusCode::PARTIAL_CONTENT, (from, end)),
        ByteRange::Unsatisfiable => return Err(Failure::RangeNotSatisfiable(attachment.length)),
    };
    let body = if call.method() == "HEAD" {
        // The attachment is not read.
        Body::EMPTY
    } else {
        send(call, &snapshot, attachment, (from, end))
    };
    let mut reply = reply::json(status, body);
    reply::set_header(&mut reply, header::CONTENT_LENGTH, itoa::Buffer::new().format(end - from));
    reply::set_header(&mut reply, header::CONTENT_TYPE, &attachment.content_type);
    reply::set_header(&mut reply, HeaderName::from_static(CONTENT_MD5), &digest);
    reply.headers_mut().insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    reply.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    reply::set_etag(&mut reply, &digest);
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {from}-{}/{}", end - 1, attachment.length);
        reply::set_header(&mut reply, header::CONTENT_RANGE, &range);
    }
    Ok(reply)
}

fn send(call: &Call, snapshot: &Snapshot, attachment: &Attachment, (from, end): (u64, u64)) -> Body {
    let parts = snapshot.attachment(attachment, from..end);
    chunks_of(&call.idle_timer, end - from, async move |mut writer: ChunkWriter| {
        for part in parts {
            writer.send_bytes(part?).await?;
        }
        Ok(())
    })
}

/// The state that an attachment is put to or deleted from: the snapshot, and the revision that the request
/// names; `None` if it names none, which is allowed if the document is missing or deleted.
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
    let snapshot = call.snapshot_of(database, id).await?;
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
    // A compressed attachment is refused: it would have to be inflated for clients that do not accept gzip.
    if is_gzip(&call.head.headers)? {
        return Err(Failure::BadContentEncoding);
    }
    // An invalid digest becomes `Some(None)`. No upload has this digest, so the request fails.
    let expected = call.header(HeaderName::from_static(CONTENT_MD5)).map(Digest::of_base64);
    // The revision is checked before the upload: a client with a wrong one need not send all bytes.
    let (snapshot, parent) = parent(call, database, id).await?;
    let content_type = match call.head.headers.get(header::CONTENT_TYPE) {
        None => DEFAULT_CONTENT_TYPE,
        // The content type is stored as it was sent, or refused: a reply could not show other bytes.
        Some(given) => given.to_str().map_err(|_| Failure::bad_request("Content-Type is not ASCII text"))?,
    };
    let content_type = content_type.into();
    let mut upload = Upload::new(&call.thread, database);
    if let Some(mut body) = call.take_body() {
        // Room for one chunk and the bytes received at once.
        body.claim(2 * CHUNK_BYTES)?;
        while let Some(piece) = body.piece().await? {
            upload.push(piece).await?;
        }
    }
    let (source, stored) = upload.finish(content_type, None).await?;
    if expected.is_some_and(|expected| source.digest() != expected) {
        return Err(Failure::DigestMismatch);
    }
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
