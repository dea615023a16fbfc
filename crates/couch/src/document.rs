//! Routes of one document: read, write, delete, copy.

use std::{borrow::Cow, sync::Arc};

use documents::{
    Database, DocError, DocRev, DocumentView, EditRequest, Found, History, LOCAL_PREFIX, NewDocument, Pick,
    Rev, Snapshot,
};
use http::{HeaderName, StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;

use super::{
    body::{ChunkWriter, chunks},
    edit::{Edit, edit_of, limits, tree_rev},
    failure::Failure,
    ids::new_uuid,
    reply::{self, Reply},
    request::{Call, decoded},
    security,
    show::{Show, document_reply, parse_rev, parse_revs, send_document},
    unsupported, user_documents,
};

const METHODS: &str = "DELETE,GET,HEAD,POST,PUT,COPY";

/// Serves `/DB/ID`
pub(super) async fn document(call: &mut Call, database: &Arc<Database>, id: &str) -> Result<Reply, Failure> {
    match call.method() {
        "GET" | "HEAD" => read(call, database, id).await,
        "PUT" => put(call, database, id).await,
        "DELETE" => delete(call, database, id).await,
        "COPY" | "copy" => copy(call, database, id).await,
        _ => Err(Failure::MethodNotAllowed(METHODS)),
    }
}

async fn read(call: &Call, database: &Arc<Database>, id: &str) -> Result<Reply, Failure> {
    if let Some(local) = id.strip_prefix(LOCAL_PREFIX) {
        let snapshot = call.snapshot(database).await?;
        let found = snapshot.local(local)?.ok_or(DocError::Missing)?;
        let mut out = Vec::new();
        DocumentView::new(id, DocRev::Local(found.rev), false, &found.body).render(&mut out);
        out.push(b'\n');
        let mut reply = reply::json(StatusCode::OK, out.into());
        reply::set_etag(&mut reply, &DocRev::Local(found.rev).to_string());
        return Ok(reply);
    }
    let snapshot = call.snapshot_of(database, id).await?;
    let show = Show::of(&call.query)?;
    if let Some(open_revs) = call.query.text("open_revs") {
        return read_revs(call, snapshot, id, open_revs, show);
    }
    let pick = match call.query.text("rev") {
        None => Pick::Winner,
        Some(rev) if call.query.flag("latest")? => Pick::Latest(parse_rev(rev)?),
        Some(rev) => Pick::Rev(parse_rev(rev)?),
    };
    let found = snapshot.open(id, pick)?;
    document_reply(call, snapshot, found, show)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OpenRevs {
    Some(Vec<String>),
    All(String),
}

/// All leaves, or the requested revisions.
fn read_revs(
    call: &Call,
    snapshot: Snapshot,
    id: &str,
    open_revs: &str,
    show: Show,
) -> Result<Reply, Failure> {
    let found: Vec<Result<Found, Rev>> = match serde_json::from_str(open_revs) {
        Ok(OpenRevs::Some(revs)) => {
            snapshot.open_revs(id, &parse_revs(&revs)?, call.query.flag("latest")?)?
        }
        Ok(OpenRevs::All(all)) if all == "all" => snapshot.open_all(id)?.into_iter().map(Ok).collect(),
        Err(_) if open_revs == "all" => {
            let all = snapshot.open_all(id)?;
            if all.is_empty() {
                return Err(DocError::Missing.into());
            }
            all.into_iter().map(Ok).collect()
        }
        _ => return Err(Failure::INVALID_JSON),
    };
    let body = chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
        writer.buffer.push(b'[');
        for (index, one) in found.iter().enumerate() {
            if index > 0 {
                writer.buffer.push(b',');
            }
            match one {
                Ok(found) => {
                    writer.buffer.extend_from_slice(b"{\"ok\":");
                    send_document(&mut writer, &snapshot, found, &show).await?;
                    writer.buffer.push(b'}');
                }
                Err(rev) => writer.put(format_args!("{{\"missing\":\"{rev}\"}}")),
            }
        }
        writer.buffer.extend_from_slice(b"]\n");
        writer.send().await
    });
    Ok(reply::json(StatusCode::OK, body))
}

async fn put(call: &mut Call, database: &Arc<Database>, id: &str) -> Result<Reply, Failure> {
    security::check_edit(call, database, id)?;
    unsupported::of_body(call.header(header::CONTENT_TYPE))?;
    let body = call.body().await?;
    let mut document = NewDocument::parse(&body, &limits(call)).map_err(|error| named(error, id))?;
    let new_edits = call.query.flag_or("new_edits", true)?;
    document.rev = based_on(call, document.rev)?;
    let edit = edit_of(call, database, id.into(), document, new_edits).await?;
    save(call, database, id, edit, StatusCode::CREATED).await
}

/// `POST /DB`: like PUT, with the id in the document or a generated one.
pub(super) async fn post(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    call.require_json()?;
    let body = call.body().await?;
    let document = NewDocument::parse(&body, &limits(call))?;
    let id = document.id.clone();
    let id = id.unwrap_or_else(|| new_uuid(call.thread.host()).into());
    security::check_edit(call, database, &id)?;
    let new_edits = call.query.flag_or("new_edits", true)?;
    let edit = edit_of(call, database, id.clone(), document, new_edits).await?;
    save(call, database, &id, edit, StatusCode::CREATED).await
}

async fn delete(call: &Call, database: &Arc<Database>, id: &str) -> Result<Reply, Failure> {
    security::check_edit(call, database, id)?;
    // Deleting a missing document is 404, even if a revision is given.
    match id.strip_prefix(LOCAL_PREFIX) {
        Some(local) => call.snapshot(database).await?.local(local)?.map(drop).ok_or(DocError::Missing)?,
        None => call.snapshot_of(database, id).await?.open(id, Pick::Winner).map(drop)?,
    }
    let document = NewDocument::deletion(id.into(), based_on(call, None)?);
    let edit = edit_of(call, database, id.into(), document, true).await?;
    save(call, database, id, edit, StatusCode::OK).await
}

async fn copy(call: &Call, database: &Arc<Database>, id: &str) -> Result<Reply, Failure> {
    let (target, target_rev) = destination(call)?;
    security::check_edit(call, database, &target)?;
    let pick = call.query.text("rev").map(parse_rev).transpose()?.map_or(Pick::Winner, Pick::Rev);
    let snapshot = call.snapshot_of(database, id).await?;
    let found = snapshot.open(id, pick)?;
    if !found.leaf().attachments.is_empty() {
        return Err(Failure::bad_request("Documents with attachments cannot be copied"));
    }
    let body = snapshot.body(found.leaf())?;
    documents::check_id(&target)?;
    let edit = Edit::Document(
        EditRequest {
            id: target.as_str().into(),
            history: History::Parent(target_rev),
            deleted: false,
            body_hash: documents::BodyHash::of(&body),
            body,
            attachments: Vec::new(),
        },
        Vec::new(),
    );
    save(call, database, &target, edit, StatusCode::CREATED).await
}

/// Parses the header `Destination: ID[?rev=REV]`.
fn destination(call: &Call) -> Result<(String, Option<Rev>), Failure> {
    let text = call.header(HeaderName::from_static("destination"));
    let text = text.ok_or_else(|| Failure::bad_request("Destination header is mandatory for COPY."))?;
    let (id, query) = text.split_once('?').map_or((text, None), |(id, query)| (id, Some(query)));
    if id.starts_with("http://") || id.starts_with("https://") {
        return Err(Failure::bad_request("Destination URL must be relative."));
    }
    let rev = query.and_then(|query| query.strip_prefix("rev=")).map(parse_rev).transpose()?;
    Ok((decoded(id)?, rev))
}

/// The revision on which an edit is based: from the document, the query or `If-Match`.
pub(super) fn based_on(call: &Call, in_document: Option<DocRev>) -> Result<Option<DocRev>, Failure> {
    let parse = |text: &str| text.parse().map_err(|error| Failure::Doc(DocError::from(error)));
    let in_query: Option<DocRev> = call.query.text("rev").map(parse).transpose()?;
    let in_header: Option<DocRev> =
        call.header(header::IF_MATCH).map(|tag| parse(tag.trim().trim_matches('"'))).transpose()?;
    if in_query.is_some() && in_header.is_some() && in_query != in_header {
        return Err(Failure::bad_request("Document rev and etag have different values"));
    }
    let beside = in_query.or(in_header);
    if beside.is_some() && in_document.is_some() && beside != in_document {
        return Err(Failure::RevMismatch);
    }
    Ok(beside.or(in_document))
}

/// Like [`based_on`], from the query or `If-Match` only, and for all documents but `_local` ones.
pub(super) fn based_on_tree(call: &Call) -> Result<Option<Rev>, Failure> {
    based_on(call, None)?.map(tree_rev).transpose()
}

/// Puts the id of the path into the error for a too large document.
fn named(error: DocError, id: &str) -> DocError {
    match error {
        DocError::DocumentTooLarge(_) => DocError::DocumentTooLarge(id.into()),
        other => other,
    }
}

/// Makes an edit, and replies once the reply may show it.
pub(super) async fn save(
    call: &Call,
    database: &Arc<Database>,
    id: &str,
    edit: Edit,
    status: StatusCode,
) -> Result<Reply, Failure> {
    let edit = user_documents::guard(call, database, edit).await?;
    let size = (1, edit.size_bytes());
    let rev = call.thread.change(database, size, |writer| edit.make(writer)).await?;
    // `batch=ok` permits a reply before the edit is durable. Here the reply only has another status.
    let is_batch = call.query.text("batch") == Some("ok") && status == StatusCode::CREATED;
    let status = if is_batch { StatusCode::ACCEPTED } else { status };
    let rev = rev.to_string();
    let mut body = Vec::with_capacity(64 + id.len());
    body.extend_from_slice(b"{\"ok\":true,\"id\":");
    documents::json::put_string(&mut body, id);
    body.extend_from_slice(b",\"rev\":\"");
    body.extend_from_slice(rev.as_bytes());
    body.extend_from_slice(b"\"}\n");
    let mut reply = reply::json(status, body.into());
    reply::set_etag(&mut reply, &rev);
    if status != StatusCode::OK {
        let path = format!("/{}/{}", encoded(database.name()), encoded_id(id));
        set_location(call, &mut reply, &path);
    }
    Ok(reply)
}

/// Sets `Location` to the URL of the new resource, as the client sees it: a proxy says which name and scheme
/// the client used.
pub(super) fn set_location(call: &Call, reply: &mut Reply, path: &str) {
    let forwarded = |name| call.header(HeaderName::from_static(name)).map(str::trim);
    // Of several proxies, the first one talked to the client.
    let host = forwarded("x-forwarded-host").and_then(|hosts| hosts.split(',').next()).map(str::trim);
    let host = host.filter(|host| !host.is_empty()).or(call.header(header::HOST)).unwrap_or("localhost");
    let is_https = call.is_encrypted()
        || forwarded("x-forwarded-ssl") == Some("on")
        || forwarded("x-forwarded-proto") == Some("https");
    let scheme = if is_https { "https" } else { "http" };
    reply::set_header(reply, header::LOCATION, &format!("{scheme}://{host}{path}"));
}

/// The characters that are percent-encoded in a segment of a path.
const UNRESERVED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'+')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

pub(super) fn encoded(segment: &str) -> Cow<'_, str> {
    utf8_percent_encode(segment, UNRESERVED).into()
}

/// Encodes an id, but keeps the slash of `_design/` and `_local/`.
fn encoded_id(id: &str) -> String {
    match ["_design/", "_local/"].iter().find_map(|prefix| Some((prefix, id.strip_prefix(prefix)?))) {
        Some((prefix, rest)) => format!("{prefix}{}", encoded(rest)),
        None => encoded(id).into_owned(),
    }
}
