//! Routes of the server as a whole: identity, health, ids, tasks.

use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use super::{
    failure::Failure,
    ids::{NODE, new_uuid},
    mango,
    reply::{self, Reply},
    request::Call,
};
use crate::{Fault, Host, Progress};

/// The version of CouchDB whose protocol is served.
const COUCHDB_VERSION: &str = "3.5.0";
/// Limit of `count` in `/_uuids`.
const UUIDS_MAX: u64 = 1000;

/// `/_up`: 200 `{"status":"ok"}` as in CouchDB, or 503 with the reason while a fault prevents writes, and
/// with the progress while the server recovers. A replica that shows data is healthy.
pub(super) fn up(host: &Host) -> Reply {
    let progress = host.status.loading();
    let Some(Fault { name, reason }) = host.status.fault() else {
        return reply::value(StatusCode::OK, &json!({ "status": "ok" }));
    };
    let mut told = json!({ "status": "read_only", "error": name, "reason": reason });
    if let Some(Progress { percent, eta_seconds, bytes, total_bytes }) = progress {
        let tenths = |value: f64| (value * 10.0).round() / 10.0;
        told["status"] = json!("loading");
        told["percent"] = json!(tenths(percent));
        told["eta_seconds"] = json!(eta_seconds.map(tenths));
        (told["bytes"], told["total_bytes"]) = (json!(bytes), json!(total_bytes));
    }
    reply::value(StatusCode::SERVICE_UNAVAILABLE, &told)
}

/// `/`: the greeting by which clients detect CouchDB. The uuid in it is the id of the log, which stays with
/// the data: PouchDB restarts replication when the uuid changes.
pub(super) fn welcome(host: &Host) -> Reply {
    let id = host.store.get().map(|store| store.log.id()).unwrap_or_default();
    let uuid = hex::encode(id);
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

/// Serves `/_uuids?count=`
pub(super) fn uuids(call: &Call) -> Result<Reply, Failure> {
    let count = call.query.count("count")?.unwrap_or(1);
    if count > UUIDS_MAX {
        return Err(Failure::Forbidden("count parameter too large"));
    }
    let ids: Vec<String> = (0..count).map(|_| new_uuid(call.thread.host())).collect();
    let mut reply = reply::value(StatusCode::OK, &json!({ "uuids": ids }));
    let headers = reply.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("must-revalidate, no-cache"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

/// `/_membership`: one node.
pub(super) fn membership() -> Reply {
    reply::value(StatusCode::OK, &json!({ "all_nodes": [NODE], "cluster_nodes": [NODE] }))
}

/// `/_active_tasks`: index updates, and the running compaction.
pub(super) fn tasks(call: &Call) -> Vec<serde_json::Value> {
    let mut tasks = mango::tasks(call);
    let running = call.thread.host().compaction.running();
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
