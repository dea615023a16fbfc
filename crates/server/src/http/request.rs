//! A request: its head taken apart, who sent it, and its body until it is read.

use std::rc::Rc;

use axum::{
    body::Bytes,
    http::{HeaderName, header, request::Parts},
};
use commands::Host;
use documents::{Database, Snapshot};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::{
    access::User, failure::Failure, patience::Patience, query::Query, request_body::RequestBody,
    thread::HttpThread,
};
use crate::documents::Refusal;

/// The largest body of a request without documents: what it says takes several times its bytes in memory.
const SMALL_BODY_BYTES_MAX: usize = 8 << 20;

/// See the module documentation.
pub(super) struct Call {
    pub(super) thread: Rc<HttpThread>,
    pub(super) head: Parts,
    pub(super) query: Query,
    pub(super) user: User,
    pub(super) patience: Rc<Patience>,
    pub(super) body: Option<RequestBody>,
}

impl Call {
    pub(super) fn method(&self) -> &str {
        self.head.method.as_str()
    }

    /// Whether a reply without changes is asked for.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.method(), "GET" | "HEAD")
    }

    /// A database as it is now, once the log has committed all that is in it.
    pub(super) async fn snapshot(&self, database: &Database) -> Result<Snapshot, Failure> {
        if self.thread.host.replication().is_stale() {
            return Err(Refusal::Stale.into());
        }
        let snapshot = database.snapshot();
        self.thread.committed(snapshot.last_lsn()).await?;
        Ok(snapshot)
    }

    /// A header, if it is text.
    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// The media type of the body, without parameters.
    pub(super) fn media_type(&self) -> Option<&str> {
        let text = self.header(header::CONTENT_TYPE)?;
        Some(text.split(';').next().unwrap_or(text).trim())
    }

    /// Refuses a body that is not said to be JSON.
    pub(super) fn require_json(&self) -> Result<(), Failure> {
        match self.media_type() {
            Some(media_type) if media_type.eq_ignore_ascii_case("application/json") => Ok(()),
            _ => Err(Failure::BadContentType("application/json")),
        }
    }

    /// The body piece by piece.
    pub(super) fn take_body(&mut self) -> Option<RequestBody> {
        self.body.take()
    }

    /// The whole body, once.
    pub(super) async fn body(&mut self) -> Result<Bytes, Failure> {
        match self.body.take() {
            Some(body) => body.whole(&self.head.headers).await,
            None => Ok(Bytes::new()),
        }
    }

    /// The whole body, once, in memory that goes back to the thread's [`Spare`](super::request_body::Spare).
    pub(super) async fn batch_body(&mut self) -> Result<Vec<u8>, Failure> {
        match self.body.take() {
            Some(body) => body.whole_in(&self.head.headers, self.thread.spare.take()).await,
            None => Ok(Vec::new()),
        }
    }

    /// The whole body, once, of a request that asks for something and brings no documents.
    pub(super) async fn small_body(&mut self) -> Result<Bytes, Failure> {
        match self.body.take() {
            Some(body) => body.at_most(SMALL_BODY_BYTES_MAX).whole(&self.head.headers).await,
            None => Ok(Bytes::new()),
        }
    }

    /// The whole body as JSON.
    pub(super) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let body = self.small_body().await?;
        serde_json::from_slice(&body).map_err(|_| Failure::INVALID_JSON)
    }

    /// The whole body as a JSON object.
    pub(super) async fn json_object(
        &mut self,
    ) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
        match self.json().await? {
            serde_json::Value::Object(members) => Ok(members),
            _ => Err(Failure::bad_request("Request body must be a JSON object")),
        }
    }
}

/// The segments of a path, decoded. Empty ones at the end are left out, as in `/db/`.
pub(super) fn segments(path: &str) -> Result<Vec<String>, Failure> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut segments = Vec::with_capacity(4);
    if path.is_empty() {
        return Ok(segments);
    }
    for segment in path.split('/') {
        let decoded = percent_decode_str(segment).decode_utf8();
        segments.push(decoded.map_err(|_| Failure::bad_request("invalid UTF-8 in path"))?.into_owned());
    }
    while segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_before_they_are_decoded() {
        assert_eq!(segments("/").unwrap(), Vec::<String>::new());
        assert_eq!(segments("/a%2Fb/_design/x%20y/").unwrap(), ["a/b", "_design", "x y"]);
        assert_eq!(segments("//x").unwrap(), ["", "x"]);
        assert!(segments("/%ff").is_err());
    }
}
