//! The HTTP routes of backups: `POST /_backup`, `GET /_backup/SESSION/FILE`, `DELETE /_backup/SESSION`.
//!
//! These routes are for admins and for users who may run REPLICATE; the caller of this router checks that.

use std::{borrow::Cow, sync::Arc, time::Duration};

use backup::{FOR_FOLLOWER, LOG_ONLY, Refusal};
use couch::{Body, ByteRange, Reply, set_header};
use env::{Access, Disk, File, RealDisk};
use http::{HeaderMap, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use lsn::Lsn;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use storage::Log;

use super::{
    Backups,
    file_body::FileBody,
    session::{Content, Plan, SESSIONS_MAX, Sessions, TRANSFERS_MAX},
};

/// Polling period of a session that waits for a snapshot.
const SNAPSHOT_POLL: Duration = Duration::from_millis(20);

/// The number of digits in the name of a session. The client may choose the name.
const SESSION_NAME_BYTES: usize = 32;

/// Answers a request for a path below `/_backup`.
pub(crate) async fn answer(backups: Arc<Backups>, request: Request<Incoming>) -> Reply {
    let (method, headers) = (request.method(), request.headers());
    let path = request.uri().path().trim_start_matches('/');
    let below = path.strip_prefix("_backup").unwrap_or_default().trim_start_matches('/');
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(Cow::into_owned).ok();
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match below.split_once('/') {
        None if below.is_empty() && method == Method::POST => begin(backups, request.uri().query()).await,
        None if below.is_empty() => method_not_allowed("POST"),
        None if method == Method::DELETE => match decoded(below) {
            Some(session) => end(backups, &session),
            None => no_session(),
        },
        None => method_not_allowed("DELETE"),
        Some((_, "")) => no_session(),
        Some((session, name)) if reads => match (decoded(session), decoded(name)) {
            (Some(session), Some(name)) => file(backups, &session, &name, headers).await,
            _ => no_session(),
        },
        Some(_) => method_not_allowed("GET,HEAD"),
    }
}

fn method_not_allowed(allowed: &'static str) -> Reply {
    let mut reply = Reply::new(Body::EMPTY);
    *reply.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    set_header(&mut reply, header::ALLOW, allowed);
    reply
}

/// Begins a session; takes a snapshot first if none can be used.
async fn begin(backups: Arc<Backups>, query: Option<&str>) -> Reply {
    let Some(log) = backups.log.get().cloned() else {
        let reason = "The server is loading its data; try again when /_up says ok.";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "loading", reason);
    };
    if log.is_frozen() {
        let reason =
            "A forced recovery must be confirmed first; copy the directory of the stopped server instead.";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "unconfirmed", reason);
    }
    if backups.group.is_witness() {
        let reason = "This server is a witness of its group: it has no data to copy. Ask another member.";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "witness", reason);
    }
    let is_for_follower = has(query, FOR_FOLLOWER) || has(query, LOG_ONLY);
    if let Some(reason) = backups.group.refuses_copy(is_for_follower) {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason);
    }
    let asked = |name: &str| {
        let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let name = match asked("session") {
        None => format!("{:016x}{:016x}", backups.entropy.random_u64(), backups.entropy.random_u64()),
        Some(name) if is_session_name(name) => name.to_string(),
        Some(_) => {
            let reason =
                format!("The name of a session is {SESSION_NAME_BYTES} lower-case hexadecimal digits.");
            return refuse(StatusCode::BAD_REQUEST, "bad_request", &reason);
        }
    };
    // A client that continues after a broken connection sends the same name. The client's earlier session
    // ends when the new session opens, and its files stay pinned until then. If there is no free place, the
    // earlier session ends now.
    let (sessions, now_us) = (&backups.sessions, backups.clock.monotonic_us());
    let give_way = || sessions.end(&name).then(|| sessions.place()).flatten();
    let unused_gives_way = || sessions.end_unused(now_us).then(|| sessions.place()).flatten();
    let Some(place) = sessions.place().or_else(give_way).or_else(unused_gives_way) else {
        let reason =
            format!("There are {SESSIONS_MAX} backups already; one that is abandoned ends after a minute.");
        return refuse(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", &reason);
    };
    let resume = asked("resume").and_then(|lsn| lsn.parse().ok()).map(Lsn::new);
    let planned = match has(query, LOG_ONLY) {
        true => plan_log(&backups, &log).await,
        false => plan(&backups, &log, resume).await,
    };
    match planned {
        Ok(plan) if !is_for_follower && !backups.group.has_committed(plan.log.end_lsn).await => {
            let reason = "A majority of the group does not confirm what was written last; try again, or ask another member.";
            refuse(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
        }
        Ok(plan) => {
            let offer = sessions.open((&backups.startup.dir, &*backups.clock), &log, name, plan, place);
            reply(StatusCode::CREATED, &offer)
        }
        Err(reason) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", &reason),
    }
}

/// Whether the query has this pair of name and value.
fn has(query: Option<&str>, wanted: &str) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == wanted))
}

async fn plan(backups: &Arc<Backups>, log: &Log, resume: Option<Lsn>) -> Result<Plan, String> {
    let failures_before = backups.snapshots.figures().failures;
    loop {
        let (planning, log) = (backups.clone(), log.clone());
        let planned = tokio::task::spawn_blocking(move || {
            Sessions::plan(&planning.startup.dir, &planning.documents, &log, resume)
        })
        .await;
        match planned.map_err(|panic| panic.to_string())?.map_err(|error| error.to_string())? {
            Some(plan) => return Ok(plan),
            None if failures_before < backups.snapshots.figures().failures => {
                return Err(
                    "The snapshot failed that the backup starts with; the server's log says why.".into()
                );
            }
            None => {
                // The snapshot is requested again each time, because a client can cancel it.
                backups.snapshots.ask(false);
                tokio::time::sleep(SNAPSHOT_POLL).await;
            }
        }
    }
}

/// Plans a copy of the log alone, for a witness. The roster is recorded again first, so that the copied log
/// contains the roster.
async fn plan_log(backups: &Arc<Backups>, log: &Log) -> Result<Plan, String> {
    let (planning, log) = (backups.clone(), log.clone());
    let plan = move || {
        planning.group.repeat_roster()?;
        Sessions::plan_log(&log).map_err(|error| error.to_string())
    };
    tokio::task::spawn_blocking(plan).await.map_err(|panic| panic.to_string())?
}

fn end(backups: Arc<Backups>, session: &str) -> Reply {
    if !backups.sessions.end(session) {
        return no_session();
    }
    if let Some(log) = backups.log.get().cloned() {
        tokio::task::spawn_blocking(move || backups.remove_unpinned(&log));
    }
    reply(StatusCode::OK, &serde_json::json!({ "ok": true }))
}

async fn open(content: Content<'_>) -> std::io::Result<Arc<dyn File>> {
    match content {
        Content::Open { file, .. } => Ok(file),
        Content::File { path, .. } => {
            let opened = tokio::task::spawn_blocking(move || RealDisk.open(&path, Access::Read)).await;
            opened.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
        }
        Content::Bytes(_) => Err(std::io::ErrorKind::InvalidInput.into()),
    }
}

async fn file(backups: Arc<Backups>, session: &str, name: &str, headers: &HeaderMap) -> Reply {
    let Some(session) = backups.sessions.find(session) else { return no_session() };
    session.touch(backups.clock.monotonic_us());
    let Some(content) = session.content(name) else {
        return refuse(StatusCode::NOT_FOUND, "not_found", "The session has no file of this name.");
    };
    let length = match &content {
        Content::File { bytes, .. } | Content::Open { bytes, .. } => *bytes,
        Content::Bytes(bytes) => bytes.len() as u64,
    };
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let (status, (from, end)) = match ByteRange::parse(range, length) {
        ByteRange::Whole => (StatusCode::OK, (0, length)),
        ByteRange::Part { from, end } => (StatusCode::PARTIAL_CONTENT, (from, end)),
        ByteRange::Unsatisfiable => {
            let mut response =
                refuse(StatusCode::RANGE_NOT_SATISFIABLE, "bad_request", "The file ends before.");
            set_header(&mut response, header::CONTENT_RANGE, &format!("bytes */{length}"));
            return response;
        }
    };
    let body = match content {
        Content::Bytes(bytes) => Body::from(bytes[from as usize..end as usize].to_vec()),
        content => {
            let Some(transfer) = session.transfer() else {
                let reason = format!("{TRANSFERS_MAX} files of the session are being sent already.");
                return refuse(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", &reason);
            };
            match open(content).await {
                Ok(file) => Body::boxed(FileBody::new(backups, session, transfer, file, (from, end))),
                Err(error) => {
                    let reason = format!("cannot open {name}: {error}");
                    return refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", &reason);
                }
            }
        }
    };
    let mut response = Reply::new(body);
    *response.status_mut() = status;
    set_header(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    set_header(&mut response, header::ACCEPT_RANGES, "bytes");
    if status == StatusCode::PARTIAL_CONTENT {
        set_header(&mut response, header::CONTENT_RANGE, &format!("bytes {from}-{}/{length}", end - 1));
    }
    response
}

fn is_session_name(name: &str) -> bool {
    name.len() == SESSION_NAME_BYTES && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn no_session() -> Reply {
    let reason = "No such session: it has ended, or the server was restarted.";
    refuse(StatusCode::NOT_FOUND, "not_found", reason)
}

fn refuse(status: StatusCode, error: &str, reason: &str) -> Reply {
    reply(status, &Refusal { error: error.into(), reason: reason.into() })
}

fn reply(status: StatusCode, content: &impl Serialize) -> Reply {
    let mut text = serde_json::to_string(content).expect("texts and numbers");
    text.push('\n');
    let mut reply = Reply::new(Body::from(text));
    *reply.status_mut() = status;
    set_header(&mut reply, header::CONTENT_TYPE, "application/json");
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_are_digits() {
        assert!(is_session_name("0123456789abcdef0123456789abcdef"));
        for wrong in
            ["", "0", "0123456789abcdef0123456789abcdeF", "0123456789abcdef0123456789abcdef0", "../control"]
        {
            assert!(!is_session_name(wrong), "{wrong}");
        }
    }
}
