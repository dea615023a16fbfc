//! Routes for many documents in one request, as replication uses them.
//!
//! A replicated document (`new_edits` false) fails alone if [`NewDocument::read_or_skip`] refuses it, or if
//! it has a meaning that this server does not support: its row says `forbidden`. So the replication can
//! continue; a retry would not help, because the source never has another document under that revision. If a
//! document that is not replicated is refused there, so is the whole request, as in CouchDB.

use std::{collections::BTreeMap, sync::Arc};

use documents::{
    Database, DocError, DocId, DocRev, Found, LOCAL_PREFIX, NewDocument, RefusedDocument, Rev, Snapshot,
    WRITE_BATCH_BYTES_MAX, WRITE_BATCH_DOCUMENTS_MAX,
    json::{Kind, Reader, put_string},
};
use http::StatusCode;
use lsn::Lsn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{Broken, ChunkWriter, chunks},
    edit::{Edit, edit_of, limits},
    failure::Failure,
    ids::new_uuid,
    reply::{self, Reply},
    request::{Call, only},
    security,
    show::{Show, parse_rev, parse_revs, send_document},
    user_documents,
};

/// The maximum number of documents in one request: each takes some memory beside its bytes.
const DOCUMENTS_MAX: usize = 100_000;

/// A parsed request of `_bulk_docs`.
struct Batch {
    documents: Vec<Result<NewDocument, RefusedDocument>>,
    new_edits: bool,
}

/// The state of a document of the request.
enum Row {
    /// The edit of the document is submitted.
    Submitted,
    /// The edit of the document was refused before it was submitted.
    NotAllowed(Failure),
    /// The document breaks a rule for documents.
    Refused(RefusedDocument),
}

impl Batch {
    fn parse(call: &Call, body: &[u8]) -> Result<Batch, Failure> {
        let limits = limits(call);
        let mut reader = Reader::new(body).map_err(DocError::from)?;
        if reader.peek().map_err(DocError::from)? != Kind::Object {
            return Err(Failure::bad_request("Request body must be a JSON object"));
        }
        let (mut documents, mut new_edits) = (None, true);
        let mut memory = Vec::new();
        reader.object::<DocError>(|reader, key| {
            match (&*key, reader.peek()?) {
                ("docs", Kind::Array) => {
                    let mut list = Vec::new();
                    reader.array::<DocError>(|reader| {
                        if list.len() == DOCUMENTS_MAX {
                            return Err(DocError::TooLarge);
                        }
                        list.push(NewDocument::read_or_skip(reader, &limits, &mut memory)?);
                        Ok(())
                    })?;
                    documents = Some(list);
                }
                ("docs", _) => return Err(DocError::bad_request("`docs` parameter must be an array.")),
                ("new_edits", Kind::Bool) => new_edits = reader.boolean()?,
                ("new_edits", _) => {
                    return Err(DocError::bad_request("`new_edits` parameter must be a boolean."));
                }
                _ => reader.raw().map(drop)?,
            }
            Ok(())
        })?;
        reader.end().map_err(DocError::from)?;
        let documents =
            documents.ok_or_else(|| Failure::bad_request("POST body must include `docs` parameter."))?;
        Ok(Batch { documents, new_edits })
    }
}

/// Serves `POST /DB/_bulk_docs`
pub(super) async fn bulk_docs(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    only(&call.head, "POST")?;
    call.require_json()?;
    let body = call.batch_body().await?;
    let batch = Batch::parse(call, &body);
    call.thread.spare.keep(body);
    let Batch { documents, new_edits } = batch?;
    // All edits are prepared before any is submitted: if the preparation of one makes the whole request fail,
    // no document is changed.
    let mut rows: Vec<(DocId, Option<DocRev>, Row)> = Vec::with_capacity(documents.len());
    let mut edits = Vec::with_capacity(documents.len());
    for document in documents {
        let mut document = match document {
            Ok(document) => document,
            Err(refused) if new_edits => return Err(refused.error.into()),
            Err(refused) => {
                rows.push(("".into(), None, Row::Refused(refused)));
                continue;
            }
        };
        let id: DocId = document.id.take().unwrap_or_else(|| new_uuid(call.thread.host()).into());
        let sent = document.rev.filter(|_| !new_edits);
        let row = match prepare(call, database, id.clone(), document, new_edits).await? {
            Ok(edit) => {
                edits.push(edit);
                Row::Submitted
            }
            Err(failure) => Row::NotAllowed(failure),
        };
        rows.push((id, sent, row));
    }
    let mut outcomes: Vec<Result<DocRev, DocError>> = Vec::with_capacity(edits.len());
    let mut batch = EditBatch::default();
    for edit in edits {
        batch.add(edit);
        if batch.is_full() {
            batch.run(call, database, &mut outcomes).await?;
        }
    }
    batch.run(call, database, &mut outcomes).await?;
    call.thread.committed(batch.last_lsn).await?;
    let mut outcomes = outcomes.into_iter();
    let mut out = Vec::with_capacity(96 * rows.len() + 4);
    out.push(b'[');
    for (id, sent, row) in rows {
        let outcome = match row {
            Row::Submitted => outcomes.next().unwrap_or(Err(DocError::Missing)).map_err(Failure::Doc),
            Row::NotAllowed(failure) => Err(failure),
            Row::Refused(refused) => {
                put_comma(&mut out);
                put_refused(&mut out, &refused);
                continue;
            }
        };
        // For replicated edits (`new_edits` false) only failures are reported.
        if new_edits || outcome.is_err() {
            put_comma(&mut out);
            put_outcome(&mut out, &id, sent, &outcome, new_edits);
        }
    }
    out.extend_from_slice(b"]\n");
    Ok(reply::json(StatusCode::CREATED, out.into()))
}

/// The edit of one document. The inner error is of this document alone: its row shows it.
///
/// # Errors
/// The whole request fails.
async fn prepare(
    call: &Call,
    database: &Arc<Database>,
    id: DocId,
    document: NewDocument,
    new_edits: bool,
) -> Result<Result<Edit, Failure>, Failure> {
    // As in CouchDB, a document that the user may not edit gets the error in its row.
    if let Err(failure) = security::check_edit(call, database, &id) {
        return Ok(Err(failure));
    }
    let is_local = id.starts_with(LOCAL_PREFIX);
    match edit_of(call, database, id, document, new_edits).await {
        Ok(edit) => Ok(user_documents::guard(call, database, edit).await),
        // A `_local` document with an invalid id or revision fails alone, so that a replication can write the
        // other documents.
        Err(failure) if is_local && !new_edits => Ok(Err(failure)),
        Err(failure) => Err(failure),
    }
}

/// Edits that are submitted to the log together.
#[derive(Default)]
struct EditBatch {
    edits: Vec<Edit>,
    bytes: usize,
    last_lsn: Lsn,
}

impl EditBatch {
    fn add(&mut self, edit: Edit) {
        self.bytes += edit.size_bytes();
        self.edits.push(edit);
    }

    fn is_full(&self) -> bool {
        self.edits.len() >= WRITE_BATCH_DOCUMENTS_MAX || self.bytes >= WRITE_BATCH_BYTES_MAX
    }

    async fn run(
        &mut self,
        call: &Call,
        database: &Arc<Database>,
        outcomes: &mut Vec<Result<DocRev, DocError>>,
    ) -> Result<(), Failure> {
        let edits = std::mem::take(&mut self.edits);
        let size = (edits.len(), std::mem::take(&mut self.bytes));
        let make = move |writer: &mut documents::Writer| {
            writer.look_up(edits.iter().filter_map(Edit::document_id));
            Ok(edits.into_iter().map(|edit| edit.make(writer)).collect::<Vec<_>>())
        };
        let (made, lsn) = call.thread.submit(database, size, make).await?;
        self.last_lsn = lsn;
        outcomes.extend(made?);
        Ok(())
    }
}

fn put_comma(rows: &mut Vec<u8>) {
    if rows.len() > 1 {
        rows.push(b',');
    }
}

/// Why a replicated document is refused. Beside `error`, PouchDB reads the `name` of the error: it continues
/// with the other documents only if the name says that a permission is lacking.
const FORBIDDEN: &[u8] = b"\"error\":\"forbidden\",\"name\":\"forbidden\"";

/// The row of a replicated document that breaks a rule.
fn put_refused(out: &mut Vec<u8>, refused: &RefusedDocument) {
    out.push(b'{');
    for (key, json) in [("id", &refused.id), ("rev", &refused.rev)] {
        if let Some(json) = json {
            out.extend_from_slice(format!("\"{key}\":{json},").as_bytes());
        }
    }
    out.extend_from_slice(FORBIDDEN);
    out.extend_from_slice(b",\"reason\":");
    let reason = match refused.error.status() {
        // For a document or an attachment that is too large, the reason is only its id or name, so the error
        // is put before it.
        413 => format!("{}: {}", refused.error.error(), refused.error.reason()),
        _ => refused.error.reason(),
    };
    put_string(out, &reason);
    out.push(b'}');
}

/// Appends the row of a document: its new revision, or its failure with the revision that a replicated
/// document came with (`sent`).
fn put_outcome(
    out: &mut Vec<u8>,
    id: &str,
    sent: Option<DocRev>,
    outcome: &Result<DocRev, Failure>,
    new_edits: bool,
) {
    match outcome {
        Ok(rev) => {
            out.extend_from_slice(b"{\"ok\":true,\"id\":");
            put_string(out, id);
            out.extend_from_slice(format!(",\"rev\":\"{rev}\"}}").as_bytes());
        }
        Err(failure) => {
            let (status, error, reason) = failure.parts();
            out.extend_from_slice(b"{\"id\":");
            put_string(out, id);
            if let Some(rev) = sent {
                out.extend_from_slice(format!(",\"rev\":\"{rev}\"").as_bytes());
            }
            out.push(b',');
            if !new_edits && status == StatusCode::NOT_IMPLEMENTED {
                out.extend_from_slice(FORBIDDEN);
            } else {
                out.extend_from_slice(b"\"error\":");
                put_string(out, error);
            }
            out.extend_from_slice(b",\"reason\":");
            put_string(out, &reason);
            out.push(b'}');
        }
    }
}

#[derive(Deserialize)]
struct BulkGetItem {
    id: String,
    rev: Option<String>,
    #[serde(default)]
    atts_since: Vec<String>,
}

/// Serves `POST /DB/_bulk_get`
pub(super) async fn bulk_get(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    only(&call.head, "POST")?;
    call.require_json()?;
    let show = Show::of(&call.query)?;
    let latest = call.query.flag("latest")?;
    let mut body = call.json_object().await?;
    let missing = || Failure::bad_request("Missing JSON list of 'docs'.");
    let Some(Value::Array(asked)) = body.remove("docs") else { return Err(missing()) };
    let snapshot = call.snapshot(database).await?;
    let body = chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
        writer.buffer.extend_from_slice(b"{\"results\":[");
        for (index, asked) in asked.into_iter().enumerate() {
            if index > 0 {
                writer.buffer.push(b',');
            }
            send_result(&mut writer, &snapshot, asked, latest, &show).await?;
        }
        writer.buffer.extend_from_slice(b"]}\n");
        writer.send().await
    });
    Ok(reply::json(StatusCode::OK, body))
}

async fn send_result(
    writer: &mut ChunkWriter,
    snapshot: &Snapshot,
    asked: Value,
    latest: bool,
    show: &Show,
) -> Result<(), Broken> {
    let named = |name: &str| asked.get(name).and_then(Value::as_str).unwrap_or("undefined").to_owned();
    let (id, rev_text) = (named("id"), named("rev"));
    writer.buffer.extend_from_slice(b"{\"id\":");
    put_string(&mut writer.buffer, &id);
    writer.buffer.extend_from_slice(b",\"docs\":[");
    match find(snapshot, asked, latest, show) {
        Err(failure) => put_missing(&mut writer.buffer, &id, &rev_text, &failure),
        Ok((found, show)) => {
            for (index, one) in found.iter().enumerate() {
                if index > 0 {
                    writer.buffer.push(b',');
                }
                match one {
                    Ok(found) => {
                        writer.buffer.extend_from_slice(b"{\"ok\":");
                        send_document(writer, snapshot, found, &show).await?;
                        writer.buffer.push(b'}');
                    }
                    Err(rev) => {
                        put_missing(&mut writer.buffer, &id, &rev.to_string(), &DocError::Missing.into());
                    }
                }
            }
        }
    }
    writer.buffer.extend_from_slice(b"]}");
    writer.breathe().await
}

type FoundRevs = Vec<Result<Found, Rev>>;

fn find(snapshot: &Snapshot, asked: Value, latest: bool, show: &Show) -> Result<(FoundRevs, Show), Failure> {
    let asked: BulkGetItem = serde_json::from_value(asked)
        .map_err(|_| Failure::bad_request("a document that is asked for has an id, and may have a rev"))?;
    let atts_since = parse_revs(&asked.atts_since)?;
    let show = if atts_since.is_empty() { show.clone() } else { Show { atts_since, ..show.clone() } };
    let found = match asked.rev {
        Some(rev) => snapshot.open_revs(&asked.id, &[parse_rev(&rev)?], latest)?,
        None => {
            let all = snapshot.open_all(&asked.id)?;
            if all.is_empty() {
                return Err(DocError::Missing.into());
            }
            all.into_iter().map(Ok).collect()
        }
    };
    Ok((found, show))
}

fn put_missing(out: &mut Vec<u8>, id: &str, rev: &str, failure: &Failure) {
    let (_, error, reason) = failure.parts();
    let row = json!({ "error": { "id": id, "rev": rev, "error": error, "reason": reason } });
    reply::write_json(out, &row);
}

/// Reads the body `{"id":["rev",...],...}`.
async fn revs_by_id(call: &mut Call) -> Result<Vec<(String, Vec<Rev>)>, Failure> {
    only(&call.head, "POST")?;
    call.require_json()?;
    let body = call.small_body().await?;
    let mut reader = Reader::new(&body).map_err(DocError::from)?;
    if reader.peek().map_err(DocError::from)? != Kind::Object {
        return Err(Failure::bad_request("Request body must be a JSON object"));
    }
    let mut asked = Vec::new();
    reader.object::<DocError>(|reader, id| {
        if reader.peek()? != Kind::Array {
            return Err(DocError::bad_request("Revisions must be a list"));
        }
        let mut revs = Vec::new();
        reader.array::<DocError>(|reader| {
            if reader.peek()? != Kind::String {
                return Err(documents::RevError.into());
            }
            revs.push(reader.string()?.parse()?);
            Ok(())
        })?;
        asked.push((id.into_owned(), revs));
        Ok(())
    })?;
    reader.end().map_err(DocError::from)?;
    Ok(asked)
}

fn put_revs(out: &mut Vec<u8>, revs: &[Rev]) {
    out.push(b'[');
    for (index, rev) in revs.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(rev.to_string().as_bytes());
        out.push(b'"');
    }
    out.push(b']');
}

/// Serves `POST /DB/_revs_diff`
pub(super) async fn revs_diff(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    let asked = revs_by_id(call).await?;
    let snapshot = call.snapshot(database).await?;
    let body = chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
        writer.buffer.push(b'{');
        let mut is_first = true;
        for (id, revs) in asked {
            let Some(diff) = snapshot.revs_diff(&id, &revs)? else { continue };
            if !std::mem::take(&mut is_first) {
                writer.buffer.push(b',');
            }
            put_string(&mut writer.buffer, &id);
            writer.buffer.extend_from_slice(b":{\"missing\":");
            put_revs(&mut writer.buffer, &diff.missing);
            if !diff.possible_ancestors.is_empty() {
                writer.buffer.extend_from_slice(b",\"possible_ancestors\":");
                put_revs(&mut writer.buffer, &diff.possible_ancestors);
            }
            writer.buffer.push(b'}');
            writer.breathe().await?;
        }
        writer.buffer.extend_from_slice(b"}\n");
        writer.send().await
    });
    Ok(reply::json(StatusCode::OK, body))
}

/// Serves `POST /DB/_missing_revs`
pub(super) async fn missing_revs(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    let asked = revs_by_id(call).await?;
    let snapshot = call.snapshot(database).await?;
    let mut out = b"{\"missing_revs\":{".to_vec();
    let mut is_first = true;
    for (id, revs) in asked {
        let Some(diff) = snapshot.revs_diff(&id, &revs)? else { continue };
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        put_string(&mut out, &id);
        out.push(b':');
        put_revs(&mut out, &diff.missing);
    }
    out.extend_from_slice(b"}}\n");
    Ok(reply::json(StatusCode::OK, out.into()))
}

/// Serves `POST /DB/_purge`
pub(super) async fn purge(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    let asked = revs_by_id(call).await?;
    security::check_admin(call, database)?;
    let size = (asked.len(), 64 * asked.len());
    let purge = move |writer: &mut documents::Writer| {
        let mut purged: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, revs) in asked {
            let gone = writer.purge(&id, &revs)?;
            purged.insert(id, gone.iter().map(Rev::to_string).collect());
        }
        Ok(purged)
    };
    let purged = call.thread.change(database, size, purge).await?;
    Ok(reply::value(StatusCode::CREATED, &json!({ "purge_seq": null, "purged": purged })))
}
