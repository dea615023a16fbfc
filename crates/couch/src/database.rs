//! Routes of one database: its information and settings, and the dispatch of all paths below it.

use std::sync::Arc;

use documents::{DESIGN_PREFIX, Database, LOCAL_PREFIX, USERS_DATABASE, mango::Indexes};
use http::StatusCode;
use serde_json::json;

use super::{
    attachment::attachment,
    bulk, changes,
    document::{self, document, encoded, set_location},
    failure::Failure,
    ids::seq_text,
    listing, mango,
    reply::{self, Reply},
    request::{Call, only},
    security, unsupported, user_documents,
};
use crate::Host;

const METHODS: &str = "DELETE,GET,HEAD,POST,PUT";

/// Serves `/DB` and all paths below.
pub(super) async fn database(call: &mut Call, name: &str, path: &[&str]) -> Result<Reply, Failure> {
    match (call.method(), path) {
        ("PUT", []) => return create(call, name).await,
        ("DELETE", []) => return delete(call, name).await,
        _ => {}
    }
    let database = &call.thread.database(name).await?;
    match name {
        USERS_DATABASE => {
            if let Some(reply) = user_documents::public_part(call, database, path).await? {
                return Ok(reply);
            }
            user_documents::admit(call, path)?
        }
        _ => security::check_member(&call.user, database)?,
    }
    match path {
        [] => match call.method() {
            "GET" | "HEAD" => info(call, database).await,
            "POST" => document::post(call, database).await,
            _ => Err(Failure::MethodNotAllowed(METHODS)),
        },
        ["_design" | "_local"] => Err(Failure::NotFound("missing")),
        [prefix @ ("_design" | "_local"), id, below @ ..] => {
            let id = format!("{prefix}/{id}");
            document_or_below(call, database, &id, below).await
        }
        // The slash of the id was percent-encoded.
        [id, below @ ..] if id.starts_with(DESIGN_PREFIX) || id.starts_with(LOCAL_PREFIX) => {
            document_or_below(call, database, id, below).await
        }
        [name, below @ ..] if name.starts_with('_') => special(call, database, name, below).await,
        [id, below @ ..] => document_or_below(call, database, id, below).await,
    }
}

async fn document_or_below(
    call: &mut Call,
    database: &Arc<Database>,
    id: &str,
    below: &[&str],
) -> Result<Reply, Failure> {
    match below {
        [] => document(call, database, id).await,
        [name, ..] if name.starts_with('_') && id.starts_with(DESIGN_PREFIX) => {
            Err(unsupported::of_document(id, name).unwrap_or(Failure::NotFound("missing")))
        }
        name => attachment(call, database, id, &name.join("/")).await,
    }
}

/// Dispatches paths below a database that begin with an underscore and are not documents.
async fn special(
    call: &mut Call,
    database: &Arc<Database>,
    name: &str,
    below: &[&str],
) -> Result<Reply, Failure> {
    match (name, below) {
        ("_all_docs", []) => listing::all_docs(call, database, "").await,
        ("_all_docs", ["queries"]) => listing::queries(call, database).await,
        ("_design_docs", []) => listing::all_docs(call, database, DESIGN_PREFIX).await,
        ("_bulk_docs", []) => bulk::bulk_docs(call, database).await,
        ("_bulk_get", []) => bulk::bulk_get(call, database).await,
        ("_changes", []) => changes::changes(call, database).await,
        ("_revs_diff", []) => bulk::revs_diff(call, database).await,
        ("_missing_revs", []) => bulk::missing_revs(call, database).await,
        ("_purge", []) => bulk::purge(call, database).await,
        ("_find", []) => mango::find(call, database).await,
        ("_explain", []) => mango::explain(call, database).await,
        ("_index", below) => mango::index(call, database, below).await,
        ("_security", []) => security::security(call, database).await,
        ("_revs_limit", []) => revs_limit(call, database).await,
        ("_compact", _) => {
            only(&call.head, "POST")?;
            call.require_json()?;
            security::check_admin(call, database)?;
            call.thread.host().compaction.ask(database.id());
            Ok(reply::ok(StatusCode::ACCEPTED))
        }
        ("_view_cleanup", []) => {
            only(&call.head, "POST")?;
            call.require_json()?;
            security::check_admin(call, database)?;
            let snapshot = call.snapshot(database).await?;
            call.thread.indexes().retain(snapshot.db(), &Indexes::definitions(&snapshot)?)?;
            Ok(reply::ok(StatusCode::ACCEPTED))
        }
        ("_ensure_full_commit", []) => {
            only(&call.head, "POST")?;
            call.require_json()?;
            // With durability interval or none, acknowledged changes are not durable by themselves.
            let snapshot = call.snapshot(database).await?;
            call.thread.make_durable(snapshot.last_lsn()).await?;
            let done = json!({ "ok": true, "instance_start_time": "0" });
            Ok(reply::value(StatusCode::CREATED, &done))
        }
        _ => Err(match (unsupported::of_database(name), call.method()) {
            (Some(failure), _) => failure,
            (None, "PUT") => {
                documents::check_id(name).err().map_or(Failure::NotFound("missing"), Failure::Doc)
            }
            _ => Failure::NotFound("missing"),
        }),
    }
}

async fn create(call: &Call, name: &str) -> Result<Reply, Failure> {
    call.user.require_admin()?;
    if call.query.flag("partitioned")? {
        return Err(unsupported::partitioned());
    }
    call.thread.change_catalog(|catalog| catalog.create(name)).await?;
    let mut reply = reply::ok(StatusCode::CREATED);
    set_location(call, &mut reply, &format!("/{}", encoded(name)));
    Ok(reply)
}

async fn delete(call: &Call, name: &str) -> Result<Reply, Failure> {
    call.user.require_admin()?;
    if call.query.text("rev").is_some() {
        let reason = "You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?";
        return Err(Failure::bad_request(reason));
    }
    if name == USERS_DATABASE {
        return Err(Failure::Forbidden("The database of users cannot be deleted: delete its documents."));
    }
    let db = call.thread.database(name).await?.id();
    call.thread.change_catalog(|catalog| catalog.delete(name)).await?;
    call.thread.indexes().retain(db, &[])?;
    Ok(reply::ok(StatusCode::OK))
}

async fn info(call: &Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    let snapshot = call.snapshot(database).await?;
    Ok(reply::value(StatusCode::OK, &described(call.thread.host(), database, &snapshot)))
}

/// The information on a database, as `GET /DB` returns it.
pub(super) fn described(
    host: &Host,
    database: &Database,
    snapshot: &documents::Snapshot,
) -> serde_json::Value {
    let info = snapshot.info();
    let id = database.id();
    json!({
        "instance_start_time": "0",
        "db_name": &**database.name(),
        "purge_seq": seq_text(info.purge_seq, id),
        "update_seq": seq_text(info.update_seq, id),
        "sizes": {
            "file": info.file_bytes,
            "external": info.sums.body_bytes + info.sums.attachment_bytes,
            "active": info.active_bytes,
        },
        "props": {},
        "doc_del_count": info.sums.deleted,
        "doc_count": info.sums.documents,
        "disk_format_version": 8,
        "compact_running": host.compaction.is_to_compact(id) || database.is_compacting(),
        "cluster": { "q": 1, "n": 1, "w": 1, "r": 1 },
    })
}

async fn revs_limit(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    match call.method() {
        "GET" | "HEAD" => {
            let limit = call.snapshot(database).await?.revs_limit();
            Ok(reply::value(StatusCode::OK, &limit))
        }
        "PUT" => {
            security::check_admin(call, database)?;
            let limit: serde_json::Value = call.json().await?;
            let limit = limit.as_u64().and_then(|limit| u32::try_from(limit).ok()).unwrap_or(0);
            call.thread.change(database, (0, 0), move |writer| writer.set_revs_limit(limit)).await?;
            Ok(reply::ok(StatusCode::OK))
        }
        _ => Err(Failure::MethodNotAllowed("PUT,GET,HEAD")),
    }
}
