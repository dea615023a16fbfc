//! Routes of the server as a whole: identity, health, metrics, ids, tasks.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::IntoResponse,
};
use engine::Host;
use serde_json::json;

use super::{
    body::Body,
    failure::Failure,
    mango,
    reply::{self, Reply},
    request::Call,
};
use crate::{
    host::ServerHost,
    metrics::{self, Exposition},
    read_only::ReadOnly,
};

/// The version of CouchDB whose protocol is served.
const COUCHDB_VERSION: &str = "3.5.0";
/// Limit of `count` in `/_uuids`.
const UUIDS_MAX: u64 = 1000;

/// `/_up`. As in CouchDB: 200 `{"status":"ok"}` when requests are served, and 404 (with progress) while the
/// server recovers. 503 with the reason when a fault prevents writes; a replica is healthy.
pub(super) fn up(host: &ServerHost) -> Reply {
    if let Some(loading) = host.loading() {
        let (done, total) = host.progress.bytes();
        let eta = loading.eta_seconds.map_or("null".into(), |seconds| format!("{seconds:.1}"));
        let body = format!(
            "{{\"status\":\"loading\",\"percent\":{:.1},\"eta_seconds\":{eta},\"bytes\":{done},\"total_bytes\":{total}}}\n",
            loading.percent
        );
        return reply::json(StatusCode::NOT_FOUND, Body::from(body));
    }
    match ReadOnly::of(host).filter(|reason| reason.is_fault()) {
        None => reply::value(StatusCode::OK, &json!({ "status": "ok" })),
        Some(fault) => {
            let told = json!({ "status": "read_only", "error": fault.name(), "reason": fault.reason(host) });
            reply::value(StatusCode::SERVICE_UNAVAILABLE, &told)
        }
    }
}

/// `/metrics`
pub(super) async fn metrics_text(
    State(host): State<Arc<ServerHost>>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let exposition = Exposition::of(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    match metrics::render(&host) {
        Ok(text) => {
            let told = [(header::CONTENT_TYPE, exposition.content_type())];
            (StatusCode::OK, told, exposition.text(text))
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], String::new()),
    }
}

/// `/`: the greeting by which clients detect CouchDB. Its uuid is that of the log, which stays with the data:
/// PouchDB restarts replication when it changes.
pub(super) fn welcome(host: &ServerHost) -> Reply {
    let id = host.log().map(|log| log.id()).unwrap_or_default();
    let uuid: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    let welcome = json!({
        "couchdb": "Welcome",
        "version": COUCHDB_VERSION,
        "git_sha": "sheaf",
        "uuid": uuid,
        "features": ["pluggable-storage-engines"],
        "vendor": { "name": "Sheaf", "version": version },
    });
    reply::value(StatusCode::OK, &welcome)
}

/// `/_uuids?count=`
pub(super) fn uuids(call: &Call) -> Result<Reply, Failure> {
    let count = call.query.count("count")?.unwrap_or(1);
    if count > UUIDS_MAX {
        return Err(Failure::Forbidden("count parameter too large"));
    }
    let ids: Vec<String> = (0..count).map(|_| new_uuid(&call.thread.host)).collect();
    let mut reply = reply::value(StatusCode::OK, &json!({ "uuids": ids }));
    let headers = reply.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("must-revalidate, no-cache"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

/// 128 bits of randomness in hexadecimal.
pub(super) fn new_uuid(host: &ServerHost) -> String {
    format!("{:016x}{:016x}", host.random_u64(), host.random_u64())
}

/// `/_membership`: one node.
pub(super) fn membership() -> Reply {
    reply::value(StatusCode::OK, &json!({ "all_nodes": [NODE], "cluster_nodes": [NODE] }))
}

/// The name of the only node.
pub(super) const NODE: &str = "nonode@nohost";

/// `/_active_tasks`: index updates, and the running compaction.
pub(super) fn tasks(call: &Call) -> Vec<serde_json::Value> {
    let mut tasks = mango::tasks(call);
    let running = call.thread.host.compactor.running();
    let compacted = running.and_then(|it| Some((it, call.thread.documents().by_id(it.db)?)));
    tasks.extend(compacted.map(|(running, database)| {
        serde_json::json!({
            "type": "database_compaction",
            "node": NODE,
            "database": &**database.name(),
            "progress": running.percent,
            "started_on": running.since_unix_ms / 1000,
        })
    }));
    tasks
}
