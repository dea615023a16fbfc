//! Traces of requests: the route of each request, its duration and its waits.
//!
//! This module reads the context that a client sends (`traceparent` of W3C Trace Context), and notes the
//! times of one request. The server makes spans of these and exports them.
//!
//! Invariants
//! - A traced request has no key, value or name of a user: of its path only the route and the database.
//! - While there is no collector, a request costs one look at a flag.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use documents::USERS_DATABASE;
use env::Clock;
use http::{HeaderMap, Method, Request, header};
use lsn::Lsn;
use percent_encoding::percent_decode_str;

/// The maximum number of waits that are kept for one request: a request with many batches waits many times.
const WAITS_MAX: usize = 8;
/// The maximum bytes of the name of a database in a trace.
const DATABASE_BYTES_MAX: usize = 128;
/// The header with the context of a client.
const TRACEPARENT: &str = "traceparent";

/// The span of a client in whose course a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the trace, not zero.
    pub trace_id: [u8; 16],
    /// The id of the client's span, not zero.
    pub span_id: [u8; 8],
    /// Whether the client has the trace recorded.
    pub is_sampled: bool,
}

/// Chooses and takes traced requests.
pub trait Traces: Send + Sync {
    /// Whether a request that begins now is traced.
    fn chooses(&self, parent: Option<&TraceParent>) -> bool;
    /// Whether any request may be traced.
    fn is_on(&self) -> bool;
    /// A traced request has ended. Must not wait for anything.
    fn ended(&self, request: &TracedRequest);
}

/// A wait for the log. Times are monotonic microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogWait {
    /// The position of the log that was awaited.
    pub lsn: Lsn,
    /// When the wait began.
    pub since_us: u64,
    /// When the wait ended.
    pub until_us: u64,
}

/// A request whose reply has ended. Times are monotonic microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedRequest {
    /// The span of the client, if it sent one.
    pub parent: Option<TraceParent>,
    /// The HTTP method of the request.
    pub method: Method,
    /// The form of the request's path, such as `/{db}/_find`.
    pub route: &'static str,
    /// The name of the database in the path, if the path names one.
    pub database: Option<String>,
    /// Whether the request came over TLS.
    pub is_encrypted: bool,
    /// When the request began.
    pub began_us: u64,
    /// When the reply ended, or the client left.
    pub ended_us: u64,
    /// Bytes of its body by `Content-Length`, if given.
    pub request_bytes: Option<u64>,
    /// Bytes of the reply's body that the connection took to send.
    pub reply_bytes: u64,
    /// The status of the reply; `None` if the client left before there was one.
    pub status: Option<u16>,
    /// The first waits for the log, in order: eight at most.
    pub waits: Vec<LogWait>,
}

tokio::task_local! {
    /// The waits of the request that the present task answers, if it is traced.
    static WAITS: Rc<Waits>;
}

/// The waits that a request has had so far.
struct Waits {
    clock: Arc<dyn Clock>,
    noted: RefCell<Vec<LogWait>>,
}

/// Waits for `lsn` by `wait`, and notes the wait if the request is traced.
pub(super) async fn waiting<T>(lsn: Lsn, wait: impl Future<Output = T>) -> T {
    let Ok(waits) = WAITS.try_with(Rc::clone) else { return wait.await };
    let since_us = waits.clock.monotonic_us();
    let done = wait.await;
    let mut noted = waits.noted.borrow_mut();
    if noted.len() < WAITS_MAX {
        noted.push(LogWait { lsn, since_us, until_us: waits.clock.monotonic_us() });
    }
    done
}

/// The trace of a request that is being answered.
pub(super) struct Trace {
    traces: Arc<dyn Traces>,
    waits: Rc<Waits>,
    request: TracedRequest,
}

impl Trace {
    /// The trace of a request that begins now; `None` if it is not traced.
    pub(super) fn begin<B>(
        traces: &Arc<dyn Traces>,
        clock: &Arc<dyn Clock>,
        request: &Request<B>,
        is_encrypted: bool,
    ) -> Option<Trace> {
        if !traces.is_on() {
            return None;
        }
        let headers = request.headers();
        let parent = parent_of(headers);
        if !traces.chooses(parent.as_ref()) {
            return None;
        }
        let (route, database) = shape(request.uri().path());
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let began_us = clock.monotonic_us();
        let request = TracedRequest {
            parent,
            method: request.method().clone(),
            route,
            database,
            is_encrypted,
            began_us,
            ended_us: began_us,
            request_bytes: length.and_then(|length| length.parse().ok()),
            reply_bytes: 0,
            status: None,
            waits: Vec::new(),
        };
        let waits = Rc::new(Waits { clock: clock.clone(), noted: RefCell::default() });
        Some(Trace { traces: traces.clone(), waits, request })
    }

    /// Answers the request by `answer`, whose waits for the log are noted.
    pub(super) async fn during<T>(trace: Option<&Trace>, answer: impl Future<Output = T>) -> T {
        match trace {
            Some(trace) => WAITS.scope(trace.waits.clone(), answer).await,
            None => answer.await,
        }
    }

    /// Ends the trace and delivers it, when the reply has ended or the client has left. `status` is `None` if
    /// there was no reply yet.
    pub(super) fn end(mut self, status: Option<u16>, reply_bytes: u64) {
        self.request.ended_us = self.waits.clock.monotonic_us();
        self.request.waits = self.waits.noted.take();
        (self.request.status, self.request.reply_bytes) = (status, reply_bytes);
        self.traces.ended(&self.request);
    }
}

/// The span of the client, if exactly one valid header names it.
fn parent_of(headers: &HeaderMap) -> Option<TraceParent> {
    let mut given = headers.get_all(TRACEPARENT).iter();
    let (first, None) = (given.next()?, given.next()) else { return None };
    parse(first.to_str().ok()?.trim())
}

/// Parses `VERSION-TRACE_ID-SPAN_ID-FLAGS`. Later versions may have more fields.
fn parse(text: &str) -> Option<TraceParent> {
    let mut fields = text.split('-');
    let version: [u8; 1] = digits(fields.next()?)?;
    let (trace_id, span_id) = (digits(fields.next()?)?, digits(fields.next()?)?);
    let [flags]: [u8; 1] = digits(fields.next()?)?;
    let is_valid = version != [0xff] && trace_id != [0; 16] && span_id != [0; 8];
    let has_end = version != [0] || fields.next().is_none();
    (is_valid && has_end).then_some(TraceParent { trace_id, span_id, is_sampled: flags & 1 == 1 })
}

/// Bytes from lower-case hexadecimal digits.
fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

/// Routes of the server, by the first segment of the path.
const OF_SERVER: [(&str, &str); 13] = [
    ("metrics", "/metrics"),
    ("_up", "/_up"),
    ("_backup", "/_backup"),
    ("_redis", "/_redis"),
    ("_console", "/_console"),
    ("_session", "/_session"),
    ("_uuids", "/_uuids"),
    ("_membership", "/_membership"),
    ("_node", "/_node"),
    ("_all_dbs", "/_all_dbs"),
    ("_dbs_info", "/_dbs_info"),
    ("_db_updates", "/_db_updates"),
    ("_active_tasks", "/_active_tasks"),
];

/// Routes of a database, by the second segment.
const OF_DATABASE: [(&str, &str); 19] = [
    ("_all_docs", "/{db}/_all_docs"),
    ("_bulk_docs", "/{db}/_bulk_docs"),
    ("_bulk_get", "/{db}/_bulk_get"),
    ("_changes", "/{db}/_changes"),
    ("_compact", "/{db}/_compact"),
    ("_design", "/{db}/_design/{ddoc}"),
    ("_design_docs", "/{db}/_design_docs"),
    ("_ensure_full_commit", "/{db}/_ensure_full_commit"),
    ("_explain", "/{db}/_explain"),
    ("_find", "/{db}/_find"),
    ("_index", "/{db}/_index"),
    ("_local", "/{db}/_local/{docid}"),
    ("_local_docs", "/{db}/_local_docs"),
    ("_missing_revs", "/{db}/_missing_revs"),
    ("_purge", "/{db}/_purge"),
    ("_revs_diff", "/{db}/_revs_diff"),
    ("_revs_limit", "/{db}/_revs_limit"),
    ("_security", "/{db}/_security"),
    ("_view_cleanup", "/{db}/_view_cleanup"),
];

/// The route of a path, and the database that the path names. The number of routes is small, whatever clients
/// send.
fn shape(path: &str) -> (&'static str, Option<String>) {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let Some(first) = segments.next() else { return ("/", None) };
    let known = |routes: &[(&str, &'static str)], name: &str| {
        routes.iter().find(|(known, _)| *known == name).map(|(_, route)| *route)
    };
    if let Some(route) = known(&OF_SERVER, first) {
        return (route, None);
    }
    if first.starts_with('_') && first != USERS_DATABASE {
        return ("/{unknown}", None);
    }
    let route = match (segments.next(), segments.next()) {
        (None, _) => "/{db}",
        (Some(name), _) if name.starts_with('_') => known(&OF_DATABASE, name).unwrap_or("/{db}/{unknown}"),
        (Some(_), None) => "/{db}/{docid}",
        (Some(_), Some(_)) => "/{db}/{docid}/{attname}",
    };
    let name = percent_decode_str(first).decode_utf8_lossy();
    let name = &name[..name.floor_char_boundary(DATABASE_BYTES_MAX)];
    (route, Some(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_names_the_span_of_the_client() {
        let parent = parse(VALID).unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[7], parent.is_sampled), (0x0a, 0x31, true));
        assert!(!parse(&VALID.replace("-01", "-02")).unwrap().is_sampled);
        assert!(
            parse(&VALID.replace("00-0", "cc-0").replace("-01", "-01-more")).is_some(),
            "a later version"
        );
        for wrong in [
            "",
            "00",
            &VALID.replace("-01", ""),
            &VALID.replace("-01", "-01-more"),
            &VALID.replace("00-0", "ff-0"),
            &VALID.to_uppercase(),
            &VALID.replace("b7ad6b7169203331", "0000000000000000"),
            &VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &VALID.replace("b7", "b"),
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, VALID.parse().unwrap());
        assert!(parent_of(&headers).is_some());
        headers.append(TRACEPARENT, VALID.parse().unwrap());
        assert_eq!(parent_of(&headers), None, "which one?");
    }

    #[test]
    fn a_route_has_no_name_that_a_client_chose() {
        for (path, route, database) in [
            ("/", "/", None),
            ("//_up", "/_up", None),
            ("/_node/_local/_config/x", "/_node", None),
            ("/_secret", "/{unknown}", None),
            ("/a%2Fb", "/{db}", Some("a/b")),
            ("/_users/org.couchdb.user:ann", "/{db}/{docid}", Some("_users")),
            ("/db/doc", "/{db}/{docid}", Some("db")),
            ("/db/doc/a/b.txt", "/{db}/{docid}/{attname}", Some("db")),
            ("/db/_local/secret", "/{db}/_local/{docid}", Some("db")),
            ("/db/_design/x/_view/y", "/{db}/_design/{ddoc}", Some("db")),
            ("/db/_all_docs/queries", "/{db}/_all_docs", Some("db")),
            ("/db/_secret", "/{db}/{unknown}", Some("db")),
        ] {
            assert_eq!(shape(path), (route, database.map(Into::into)), "{path}");
        }
        assert_eq!(shape(&format!("/{}", "ä".repeat(200))).1.unwrap().len(), DATABASE_BYTES_MAX);
    }
}
