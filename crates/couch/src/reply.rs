//! Replies: JSON with a final newline, and the headers that they share.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::{body::Body, failure::Failure};

/// A reply with its status, headers and body.
pub type Reply = Response<Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const SERVER: HeaderValue =
    HeaderValue::from_static(concat!("Sheaf/", env!("CARGO_PKG_VERSION"), " (CouchDB)"));
const MUST_REVALIDATE: HeaderValue = HeaderValue::from_static("must-revalidate");
/// The `Retry-After` of [`Failure::Busy`], in seconds.
const RETRY_AFTER_S: &str = "5";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");

pub(super) fn json(status: StatusCode, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, JSON);
    reply
}

/// A reply with this value as its JSON body.
pub(super) fn value(status: StatusCode, value: &impl Serialize) -> Reply {
    let mut body = Vec::with_capacity(256);
    write_json(&mut body, value);
    body.push(b'\n');
    json(status, Body::from(body))
}

/// The reply `{"ok":true}`.
pub(super) fn ok(status: StatusCode) -> Reply {
    json(status, Body::from(&b"{\"ok\":true}\n"[..]))
}

/// The reply to a request that fails.
pub(super) fn failed(failure: Failure) -> Reply {
    let (status, error, reason) = failure.row();
    let mut body = Vec::with_capacity(48 + reason.len());
    body.extend_from_slice(b"{\"error\":\"");
    body.extend_from_slice(error.as_bytes());
    body.extend_from_slice(b"\",\"reason\":");
    write_json(&mut body, &*reason);
    body.extend_from_slice(b"}\n");
    let mut reply = json(status, Body::from(body));
    let headers = reply.headers_mut();
    match failure {
        Failure::MethodNotAllowed(methods) => {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        Failure::Refused(refusal) => {
            if let Some(seconds) = refusal.retry_after_s() {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
            }
        }
        Failure::Busy => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        Failure::RangeNotSatisfiable(length) => {
            if let Ok(range) = format!("bytes */{length}").parse() {
                headers.insert(header::CONTENT_RANGE, range);
            }
        }
        _ => {}
    }
    reply
}

/// The reply that sends a client to another server: the same request, at this URL.
pub(super) fn elsewhere(url: &str) -> Reply {
    let told = serde_json::json!({ "ok": false, "location": url });
    let mut reply = value(StatusCode::TEMPORARY_REDIRECT, &told);
    set_header(&mut reply, header::LOCATION, url);
    reply
}

pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::EMPTY);
    *reply.status_mut() = status;
    reply
}

/// Appends a value as JSON.
pub(super) fn write_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Writing values with string keys to memory cannot fail.
    serde_json::to_writer(out, value).expect("memory takes everything");
}

/// Sets a header. A text that is not a valid header value is left out.
pub fn set_header(reply: &mut Reply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}

/// Sets `ETag` to a text in quotes.
pub(super) fn set_etag(reply: &mut Reply, tag: &str) {
    set_header(reply, header::ETAG, &format!("\"{tag}\""));
}

/// Adds the headers of all replies but those of tools.
pub(super) fn finish(reply: &mut Reply, accept: Option<&HeaderValue>, request_id: u64) {
    let headers = reply.headers_mut();
    headers.insert(header::SERVER, SERVER);
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, MUST_REVALIDATE);
    }
    let mut id = [0; 16];
    // 16 digits fit, and are always a valid value.
    if hex::encode_to_slice(request_id.to_be_bytes(), &mut id).is_ok()
        && let Ok(id) = HeaderValue::from_bytes(&id)
    {
        headers.insert(REQUEST_ID, id);
    }
    // Old browsers display JSON only as plain text.
    if accept.is_some_and(|accept| !accepts_json(accept)) && headers.get(header::CONTENT_TYPE) == Some(&JSON)
    {
        headers.insert(header::CONTENT_TYPE, PLAIN_TEXT);
    }
}

fn accepts_json(accept: &HeaderValue) -> bool {
    let accept = accept.as_bytes();
    [&b"application/json"[..], b"*/*", b"application/*"]
        .iter()
        .any(|kind| memchr::memmem::find(accept, kind).is_some())
}

/// Whether `If-None-Match` contains this tag, or `*`.
pub(super) fn has_version(headers: &HeaderMap, tag: &str) -> bool {
    let Some(tags) = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()) else {
        return false;
    };
    tags.split(',').map(|known| known.trim().trim_start_matches("W/")).any(|known| {
        known == "*" || known.strip_prefix('"').and_then(|known| known.strip_suffix('"')) == Some(tag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    #[test]
    fn versions_are_found_among_the_tags_a_client_has() {
        let known = |tags: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, tags.parse().unwrap());
            has_version(&headers, "1-a")
        };
        assert!(known("\"1-a\""));
        assert!(known("\"2-b\", W/\"1-a\""));
        assert!(known("*"));
        assert!(!known("1-a"));
        assert!(!known("\"1-ab\""));
        assert!(!has_version(&HeaderMap::new(), "1-a"));
    }

    #[test]
    fn a_client_is_told_when_to_try_again_or_where() {
        let header = |reply: Reply, name| reply.headers().get(name).cloned();
        for refusal in [Refusal::Follower, Refusal::NoMajority, Refusal::NotCommitted, Refusal::Stale] {
            let reply = failed(Failure::Refused(refusal));
            assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(header(reply, header::RETRY_AFTER).expect("a time"), "1");
        }
        assert_eq!(header(failed(Failure::Refused(Refusal::Replica)), header::RETRY_AFTER), None);
        let reply = elsewhere("http://[::1]:5984/db/a%20b?rev=1-a");
        assert_eq!(reply.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(header(reply, header::LOCATION).expect("a URL"), "http://[::1]:5984/db/a%20b?rev=1-a");
    }

    #[test]
    fn json_is_sent_as_plain_text_only_to_clients_that_do_not_accept_it() {
        for (accept, expected) in [
            (None, JSON),
            (Some("*/*"), JSON),
            (Some("text/html, application/json;q=0.9"), JSON),
            (Some("text/html"), PLAIN_TEXT),
        ] {
            let mut reply = ok(StatusCode::OK);
            let accept = accept.map(HeaderValue::from_static);
            finish(&mut reply, accept.as_ref(), 0xab);
            assert_eq!(reply.headers()[header::CONTENT_TYPE], expected);
            assert_eq!(reply.headers()[REQUEST_ID], "00000000000000ab");
        }
    }

    #[test]
    fn some_failures_say_more_in_headers() {
        let reply = failed(Failure::MethodNotAllowed("PUT,GET"));
        assert_eq!(reply.headers()[header::ALLOW], "PUT,GET");
        let reply = failed(Failure::RangeNotSatisfiable(100));
        assert_eq!(reply.headers()[header::CONTENT_RANGE], "bytes */100");
        let reply = failed(Failure::Busy);
        assert_eq!(
            (reply.status().as_u16(), &reply.headers()[header::RETRY_AFTER]),
            (503, &RETRY_AFTER_S.parse().unwrap())
        );
    }
}
