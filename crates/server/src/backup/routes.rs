//! The HTTP routes of backups: `POST /_backup`, `GET /_backup/SESSION/FILE`, `DELETE /_backup/SESSION`.
//!
//! They are for admins; the caller of this router checks that.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use backup::Refusal;
use engine::Host;
use env::{Access, Disk, File, RealDisk};
use lsn::Lsn;
use serde::Serialize;
use storage::Log;

use super::{
    file_body::FileBody,
    session::{Content, Plan, SESSIONS_MAX, Sessions, TRANSFERS_MAX, remove_unpinned},
};
use crate::host::ServerHost;

/// Polling period of a session that waits for a snapshot.
const SNAPSHOT_POLL: Duration = Duration::from_millis(20);

/// Digits of a session's name, which the client may choose.
const SESSION_NAME_BYTES: usize = 32;

pub(crate) fn routes() -> Router<Arc<ServerHost>> {
    Router::new()
        .route("/_backup", post(begin))
        .route("/_backup/{session}", delete(end))
        .route("/_backup/{session}/{*file}", get(file))
}

/// Begins a session; takes a snapshot first if none can be used.
async fn begin(State(host): State<Arc<ServerHost>>, RawQuery(query): RawQuery) -> Response {
    let Some(log) = host.log().cloned() else {
        let reason = "The server is loading its data; try again when /_up says ok.";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "loading", reason);
    };
    if host.awaits_confirmation() {
        let reason =
            "A forced recovery must be confirmed first; copy the directory of the stopped server instead.";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "unconfirmed", reason);
    }
    let asked = |name: &str| {
        let mut pairs = query.as_deref()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let name = match asked("session") {
        None => format!("{:016x}{:016x}", host.random_u64(), host.random_u64()),
        Some(name) if is_session_name(name) => name.to_string(),
        Some(_) => {
            let reason =
                format!("The name of a session is {SESSION_NAME_BYTES} lower-case hexadecimal digits.");
            return refuse(StatusCode::BAD_REQUEST, "bad_request", &reason);
        }
    };
    // A client that continues after a broken connection does not take up another place. The earlier session
    // keeps its files pinned for as long as possible.
    let give_way = || host.backups.end(&name).then(|| host.backups.place()).flatten();
    let unused_gives_way =
        || host.backups.end_unused(host.monotonic_us()).then(|| host.backups.place()).flatten();
    let Some(place) = host.backups.place().or_else(give_way).or_else(unused_gives_way) else {
        let reason =
            format!("There are {SESSIONS_MAX} backups already; one that is abandoned ends after a minute.");
        return refuse(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", &reason);
    };
    let resume = asked("resume").and_then(|lsn| lsn.parse().ok()).map(Lsn::new);
    match plan(&host, &log, resume).await {
        Ok(plan) => {
            let offer = host.backups.open(&host, &log, name, plan, place);
            reply(StatusCode::CREATED, &offer)
        }
        Err(reason) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", &reason),
    }
}

async fn plan(host: &Arc<ServerHost>, log: &Log, resume: Option<Lsn>) -> Result<Plan, String> {
    let mut failures_before = None;
    loop {
        let (planning, log) = (host.clone(), log.clone());
        let planned = tokio::task::spawn_blocking(move || Sessions::plan(&planning, &log, resume)).await;
        match planned.map_err(|panic| panic.to_string())?.map_err(|error| error.to_string())? {
            Some(plan) => return Ok(plan),
            None if failures_before.is_none() => {
                failures_before = Some(host.snapshots.figures().failures);
                host.snapshots.ask(true);
            }
            None if failures_before < Some(host.snapshots.figures().failures) => {
                return Err(
                    "The snapshot failed that the backup starts with; the server's log says why.".into()
                );
            }
            None => tokio::time::sleep(SNAPSHOT_POLL).await,
        }
    }
}

async fn end(State(host): State<Arc<ServerHost>>, Path(session): Path<String>) -> Response {
    if !host.backups.end(&session) {
        return no_session();
    }
    if let Some(log) = host.log().cloned() {
        tokio::task::spawn_blocking(move || remove_unpinned(&host, &log));
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

async fn file(
    State(host): State<Arc<ServerHost>>,
    Path((session, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Some(session) = host.backups.find(&session) else { return no_session() };
    session.touch(host.monotonic_us());
    let Some(content) = session.content(&name) else {
        return refuse(StatusCode::NOT_FOUND, "not_found", "The session has no file of this name.");
    };
    let length = match &content {
        Content::File { bytes, .. } | Content::Open { bytes, .. } => *bytes,
        Content::Bytes(bytes) => bytes.len() as u64,
    };
    let range = headers.get(header::RANGE).and_then(|range| parse_range(range.to_str().ok()?, length));
    let (status, (from, end)) = match range {
        None => (StatusCode::OK, (0, length)),
        Some(Some(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(None) => {
            let mut response =
                refuse(StatusCode::RANGE_NOT_SATISFIABLE, "bad_request", "The file ends before.");
            insert(&mut response, header::CONTENT_RANGE, &format!("bytes */{length}"));
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
                Ok(file) => Body::new(FileBody::new(host, session, transfer, file, (from, end))),
                Err(error) => {
                    let reason = format!("cannot open {name}: {error}");
                    return refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", &reason);
                }
            }
        }
    };
    let mut response = (status, body).into_response();
    insert(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    insert(&mut response, header::ACCEPT_RANGES, "bytes");
    if status == StatusCode::PARTIAL_CONTENT {
        insert(&mut response, header::CONTENT_RANGE, &format!("bytes {from}-{}/{length}", end - 1));
    }
    response
}

fn is_session_name(name: &str) -> bool {
    name.len() == SESSION_NAME_BYTES && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The first byte of a `Range` and the end after its last byte. `None`: it is not understood, and ignored;
/// `Some(None)`: it begins behind the end of the file.
fn parse_range(text: &str, length: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let end = match last {
        "" => length,
        last => last.parse::<u64>().ok().filter(|&last| last >= first)?.saturating_add(1).min(length),
    };
    Some((first < length).then_some((first, end)))
}

fn insert(response: &mut Response, name: header::HeaderName, value: &str) {
    // Names and numbers are always valid header values.
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
}

fn no_session() -> Response {
    let reason = "No such session: it has ended, or the server was restarted.";
    refuse(StatusCode::NOT_FOUND, "not_found", reason)
}

fn refuse(status: StatusCode, error: &str, reason: &str) -> Response {
    reply(status, &Refusal { error: error.into(), reason: reason.into() })
}

fn reply(status: StatusCode, content: &impl Serialize) -> Response {
    let mut text = serde_json::to_string(content).expect("texts and numbers");
    text.push('\n');
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file_and_what_is_not_understood_is_ignored() {
        for (text, expected) in [
            ("bytes=0-", Some(Some((0, 100)))),
            ("bytes=99-", Some(Some((99, 100)))),
            ("bytes=10-19", Some(Some((10, 20)))),
            ("bytes=10-1000", Some(Some((10, 100)))),
            ("bytes=100-", Some(None)),
            ("bytes=18446744073709551615-18446744073709551615", Some(None)),
            ("bytes=20-10", None),
            ("bytes=-5", None),
            ("bytes=0-1,5-6", None),
            ("lines=0-", None),
            ("", None),
        ] {
            assert_eq!(parse_range(text, 100), expected, "{text}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Some(None));
    }

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
