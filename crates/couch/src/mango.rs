//! Mango queries: `_find`, `_explain`, `_index`.
//!
//! This module translates between HTTP and `documents::mango`, and sends results in chunks. A query updates
//! its index first unless the request says otherwise, in steps between which other connections are served.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use documents::{
    BodyHash, DESIGN_PREFIX, Database, DocError, EditRequest, Found, History, Pick, Snapshot,
    mango::{
        ALL_DOCS_INDEX, FindRequest, IndexDefinition, IndexSnapshot, IndexUpdate, Indexes, Indexing, Plan,
        Query, QueryError, Value, WithoutIndex, explain as explained,
    },
};
use http::StatusCode;
use serde_json::json;

use super::{
    body::{ChunkWriter, chunks},
    edit::Edit,
    failure::Failure,
    ids::NODE,
    reply::{self, Reply},
    request::{Call, only},
    security,
};

/// The number of attempts to begin a reply: a damaged index fails one attempt, and is rebuilt for the next.
const INDEX_TRIES: usize = 3;

/// The body of a request that must be JSON.
async fn text(call: &mut Call) -> Result<Bytes, Failure> {
    call.require_json()?;
    call.small_body().await
}

fn parse(body: &[u8]) -> Result<Value<'_>, Failure> {
    let text = std::str::from_utf8(body).map_err(|_| Failure::INVALID_JSON)?;
    let value = Value::parse(text).map_err(DocError::from)?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Failure::bad_request("Request body must be a JSON object")),
    }
}

/// Parses the body of a stored design document.
fn parse_stored(body: &[u8]) -> Result<Value<'_>, Failure> {
    let text = std::str::from_utf8(body).map_err(|_| Failure::INVALID_JSON)?;
    Ok(Value::parse_stored(text).map_err(DocError::from)?)
}

fn query_error(error: QueryError) -> Failure {
    Failure::Doc(error.into())
}

/// Serves `POST /DB/_find`
pub(super) async fn find(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    only(&call.head, "POST")?;
    let clock = call.thread.host().clock.clone();
    let begun_us = clock.monotonic_us();
    let elapsed = move || Duration::from_micros(clock.monotonic_us() - begun_us);
    let body = text(call).await?;
    let request = FindRequest::parse(&parse(&body)?).map_err(query_error)?;
    let mut tries_left = INDEX_TRIES;
    let (mut query, first, mut has_more) = loop {
        tries_left -= 1;
        let mut first = Vec::new();
        let begun = begin(call, database, request.clone()).await.and_then(|mut query| {
            let has_more = query.step(elapsed(), &mut first)?;
            Ok((query, first, has_more))
        });
        match begun {
            // A damaged index is rebuilt: the client sees an error only after the last attempt, or once the
            // reply has begun.
            Err(Failure::Doc(DocError::Storage(_))) if tries_left > 0 => {}
            begun => break begun?,
        }
    };
    let body = chunks(&call.idle_timer, async move |mut writer: ChunkWriter| {
        writer.buffer = first;
        while has_more {
            writer.breathe().await?;
            writer.rest().await?;
            has_more = query.step(elapsed(), &mut writer.buffer)?;
        }
        writer.send().await
    });
    Ok(reply::json(StatusCode::OK, body))
}

/// A query that is ready to run: its index exists and is up to date, if that is requested.
async fn begin(call: &Call, database: &Arc<Database>, request: FindRequest) -> Result<Query, Failure> {
    let snapshot = call.snapshot(database).await?;
    let plan = Plan::choose(&request, &Indexes::definitions(&snapshot)?).map_err(query_error)?;
    let (snapshot, index) = match &plan.index {
        None => (snapshot, None),
        Some(index) if request.update => {
            let (snapshot, index) = up_to_date(call, database, snapshot, index).await?;
            (snapshot, Some(index))
        }
        Some(index) => {
            let index = call.thread.indexes().as_it_is(&snapshot, index)?;
            (snapshot, Some(index))
        }
    };
    Ok(Query::new(snapshot, request, plan, index)?)
}

/// The index with all documents of a snapshot, and that snapshot: the given one, or a newer one if the index
/// is ahead.
async fn up_to_date(
    call: &Call,
    database: &Arc<Database>,
    mut snapshot: Snapshot,
    index: &IndexDefinition,
) -> Result<(Snapshot, IndexSnapshot), Failure> {
    let update = IndexUpdate::default();
    loop {
        match call.thread.indexes().step(&update, &snapshot, index)? {
            Indexing::Ready(index) => return Ok((snapshot, index)),
            Indexing::Working(_) => tokio::task::yield_now().await,
            Indexing::Behind => snapshot = call.snapshot(database).await?,
        }
    }
}

/// Serves `POST /DB/_explain`
pub(super) async fn explain(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    only(&call.head, "POST")?;
    let body = text(call).await?;
    let request = FindRequest::parse(&parse(&body)?).map_err(query_error)?;
    let snapshot = call.snapshot(database).await?;
    let mut out = Vec::new();
    explained(&request, &Indexes::definitions(&snapshot)?, database.name(), &mut out).map_err(query_error)?;
    out.push(b'\n');
    Ok(reply::json(StatusCode::OK, out.into()))
}

/// Serves `/DB/_index` and below
pub(super) async fn index(
    call: &mut Call,
    database: &Arc<Database>,
    below: &[&str],
) -> Result<Reply, Failure> {
    match (call.method(), below) {
        ("GET" | "HEAD", []) => list(call, database).await,
        ("POST", []) => create(call, database).await,
        (_, []) => Err(Failure::MethodNotAllowed("GET,HEAD,POST")),
        ("DELETE", [design, "json", name]) => {
            let design = design.strip_prefix(DESIGN_PREFIX).unwrap_or(design);
            delete(call, database, design, name).await
        }
        ("DELETE", ["_design", design, "json", name]) => delete(call, database, design, name).await,
        (_, [.., "json", _]) => Err(Failure::MethodNotAllowed("DELETE")),
        _ => Err(Failure::NotFound("missing")),
    }
}

async fn list(call: &Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    let snapshot = call.snapshot(database).await?;
    let definitions = Indexes::definitions(&snapshot)?;
    let mut out =
        format!("{{\"total_rows\":{},\"indexes\":[{ALL_DOCS_INDEX}", definitions.len() + 1).into_bytes();
    for definition in definitions {
        out.push(b',');
        definition.render(&mut out);
    }
    out.extend_from_slice(b"]}\n");
    Ok(reply::json(StatusCode::OK, out.into()))
}

async fn create(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    security::check_admin(call, database)?;
    let body = text(call).await?;
    let definition = IndexDefinition::parse(&parse(&body)?).map_err(query_error)?;
    let snapshot = call.snapshot(database).await?;
    let design = design_document(&snapshot, &definition.design)?;
    let body = design.as_ref().map(|found| snapshot.body(found.leaf())).transpose()?;
    let made = {
        let body = body.as_deref().map(parse_stored).transpose()?;
        definition.put_into(body.as_ref()).map_err(query_error)?
    };
    let result = if let Some(made) = made {
        let rev = design.map(|found| found.rev());
        replace(call, database, &definition.design, History::Parent(rev), Some(made)).await?;
        "created"
    } else {
        "exists"
    };
    let told = json!({ "result": result, "id": definition.design, "name": definition.name });
    Ok(reply::value(StatusCode::OK, &told))
}

async fn delete(call: &Call, database: &Arc<Database>, design: &str, name: &str) -> Result<Reply, Failure> {
    security::check_admin(call, database)?;
    let id = format!("{DESIGN_PREFIX}{design}");
    let snapshot = call.snapshot(database).await?;
    let found = design_document(&snapshot, &id)?.ok_or(DocError::Missing)?;
    let body = snapshot.body(found.leaf())?;
    let body = parse_stored(&body)?;
    let left = match IndexDefinition::remove_from(&body, name).map_err(query_error)? {
        WithoutIndex::Body(body) => Some(body),
        WithoutIndex::Nothing => None,
    };
    replace(call, database, &id, History::Parent(Some(found.rev())), left).await?;
    Ok(reply::ok(StatusCode::OK))
}

fn design_document(snapshot: &Snapshot, id: &str) -> Result<Option<Found>, DocError> {
    match snapshot.open(id, Pick::Winner) {
        Ok(found) => Ok(Some(found)),
        Err(DocError::Missing | DocError::Deleted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a design document with this body; without one, deletes the document.
async fn replace(
    call: &Call,
    database: &Arc<Database>,
    id: &str,
    history: History,
    body: Option<Vec<u8>>,
) -> Result<(), Failure> {
    let deleted = body.is_none();
    let body = body.unwrap_or_else(|| b"{}".to_vec());
    let edit = Edit::Document(
        EditRequest {
            id: id.into(),
            history,
            deleted,
            body_hash: BodyHash::of(&body),
            body: body.into(),
            attachments: Vec::new(),
        },
        Vec::new(),
    );
    let size = (1, edit.size_bytes());
    call.thread.change(database, size, |writer| edit.make(writer)).await?;
    Ok(())
}

/// The index updates in progress, for `_active_tasks`.
pub(super) fn tasks(call: &Call) -> Vec<serde_json::Value> {
    let documents = call.thread.documents();
    let tasks = call.thread.indexes().progress().into_iter().filter_map(|progress| {
        let database = documents.by_id(progress.db)?;
        Some(json!({
            "type": "indexer",
            "node": NODE,
            "database": &**database.name(),
            "design_document": progress.design,
            "index": progress.name,
            "changes_done": progress.seq,
            "total_changes": progress.update_seq,
            "progress": progress.percent(),
        }))
    });
    tasks.collect()
}
