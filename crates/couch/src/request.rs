//! A request: its parsed head, its sender, and its unread body.

use std::{net::SocketAddr, rc::Rc};

use bytes::Bytes;
use documents::{Database, Snapshot};
use http::{HeaderName, request::Parts};
use lsn::Lsn;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::{
    cross_site, failure::Failure, idle_timer::IdleTimer, query::Query, request_body::RequestBody,
    thread::HttpThread, user::User,
};

/// Limit of bodies without documents: parsed, they take several times their bytes in memory.
const SMALL_BODY_BYTES_MAX: usize = 8 << 20;

/// A request in progress, as handlers get it.
pub(super) struct Call {
    pub(super) thread: Rc<HttpThread>,
    pub(super) head: Parts,
    pub(super) query: Query,
    pub(super) user: User,
    pub(super) peer: SocketAddr,
    pub(super) idle_timer: Rc<IdleTimer>,
    pub(super) body: Option<RequestBody>,
}

/// The mark of a request that came over TLS, among its extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encrypted;

impl Call {
    /// Whether the request came over TLS.
    pub(super) fn is_encrypted(&self) -> bool {
        self.head.extensions.get::<Encrypted>().is_some()
    }

    pub(super) fn method(&self) -> &str {
        self.head.method.as_str()
    }

    /// Whether the method only reads.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.method(), "GET" | "HEAD")
    }

    /// The current state of a database, once replies may show it.
    pub(super) async fn snapshot(&self, database: &Database) -> Result<Snapshot, Failure> {
        self.snapshot_up_to(database, Snapshot::last_lsn).await
    }

    /// The current state of a database, once replies may show this document of it. The reply must show
    /// nothing else of the database: the call does not wait for changes of other documents. The document must
    /// not be a `_local` one.
    pub(super) async fn snapshot_of(&self, database: &Database, id: &str) -> Result<Snapshot, Failure> {
        self.snapshot_up_to(database, |snapshot| snapshot.document_lsn(id)).await
    }

    async fn snapshot_up_to(
        &self,
        database: &Database,
        lsn_of: impl FnOnce(&Snapshot) -> Lsn,
    ) -> Result<Snapshot, Failure> {
        let read = || {
            let snapshot = database.snapshot();
            let lsn = lsn_of(&snapshot);
            Ok((snapshot, lsn))
        };
        self.thread.read(read).await
    }

    /// A header, if it is text.
    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// Refuses a POST without JSON content type.
    pub(super) fn require_json(&self) -> Result<(), Failure> {
        cross_site::require_json(&self.head.method, &self.head.headers)
    }

    /// The body, to be read piece by piece. `None` if it was taken before.
    pub(super) fn take_body(&mut self) -> Option<RequestBody> {
        self.body.take()
    }

    /// The whole body; empty if it was taken before.
    pub(super) async fn body(&mut self) -> Result<Bytes, Failure> {
        match self.body.take() {
            Some(body) => body.whole(&self.head.headers).await,
            None => Ok(Bytes::new()),
        }
    }

    /// The whole body, in a buffer that the caller gives back to the thread's
    /// [`Spare`](super::request_body::Spare). Empty if it was taken before.
    pub(super) async fn batch_body(&mut self) -> Result<Vec<u8>, Failure> {
        match self.body.take() {
            Some(body) => body.whole_in(&self.head.headers, self.thread.spare.take()).await,
            None => Ok(Vec::new()),
        }
    }

    /// The whole body of a request without documents, at most [`SMALL_BODY_BYTES_MAX`] bytes. Empty if it was
    /// taken before.
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

/// Refuses methods that are not among these.
pub(super) fn only(head: &Parts, methods: &'static str) -> Result<(), Failure> {
    let is_known = methods.split(',').any(|known| known == head.method.as_str());
    if is_known { Ok(()) } else { Err(Failure::MethodNotAllowed(methods)) }
}

/// The decoded segments of a path. Empty segments are left out: the end of `/db/`, and the start of `//db`,
/// which clients build from two parts.
pub(super) fn segments(path: &str) -> Result<Vec<String>, Failure> {
    path.split('/').filter(|segment| !segment.is_empty()).map(decoded).collect()
}

/// A decoded segment of a path. As in a query string, and as CouchDB does it, `+` is a space; a plus sign is
/// sent as `%2B`.
pub(super) fn decoded(segment: &str) -> Result<String, Failure> {
    let segment = segment.replace('+', " ");
    let decoded = percent_decode_str(&segment).decode_utf8();
    Ok(decoded.map_err(|_| Failure::bad_request("invalid UTF-8 in path"))?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_before_they_are_decoded() {
        assert_eq!(segments("/").unwrap(), Vec::<String>::new());
        assert_eq!(segments("/a%2Fb/_design/x%20y/").unwrap(), ["a/b", "_design", "x y"]);
        assert_eq!(segments("//x").unwrap(), ["x"]);
        assert_eq!(segments("/db/a+b/c%2Bd%20e").unwrap(), ["db", "a b", "c+d e"]);
        assert_eq!(segments("/_node/n//_config//x").unwrap(), ["_node", "n", "_config", "x"]);
        assert!(segments("/%ff").is_err());
    }
}
