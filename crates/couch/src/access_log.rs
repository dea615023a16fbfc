//! The line that each request leaves in the access log, if the server keeps one.
//!
//! This module makes the entry of one request, from the head of the request to the end of its reply. The
//! server renders the lines and writes the file.
//!
//! Invariants
//! - Every request that begins while the log is on has one entry, also if its client leaves early.
//! - An entry holds no body. Of the headers it holds only the name of the user, and of the query only the
//!   values of harmless parameters.

use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use env::Clock;
use http::{Extensions, Method, Uri};

use super::user::User;

/// The maximum bytes of a target in the log. A longer target is cut, and [`LEFT_OUT`] follows it.
const TARGET_BYTES_MAX: usize = 1024;
/// The text in place of a value that is left out.
const LEFT_OUT: &str = "...";
/// The parameters whose values are shown: they say how a request is answered, and not which data it is about.
const SHOWN: [&str; 27] = [
    "attachments",
    "att_encoding_info",
    "conflicts",
    "deleted_conflicts",
    "descending",
    "feed",
    "filter",
    "group",
    "group_level",
    "heartbeat",
    "include_docs",
    "inclusive_end",
    "latest",
    "limit",
    "local_seq",
    "meta",
    "new_edits",
    "reduce",
    "revs",
    "revs_info",
    "since",
    "skip",
    "stable",
    "style",
    "timeout",
    "update",
    "update_seq",
];

/// The access log of the server.
pub trait AccessLog: Send + Sync {
    /// Whether requests are to be noted.
    fn is_on(&self) -> bool;
    /// Notes a request. It must not wait for a disk.
    fn note(&self, request: &NotedRequest<'_>);
}

/// A request whose reply has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedRequest<'a> {
    /// When the request began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// The address of the client.
    pub client: SocketAddr,
    /// The user as whom the request was served, if that was noted, or else the name that it gave with a
    /// password; empty for none.
    pub user: &'a str,
    /// The HTTP method, such as `GET`.
    pub method: &'a str,
    /// Path and query, without values that may be secret.
    pub target: &'a str,
    /// The status of the reply; `None` if the client left before there was one.
    pub status: Option<u16>,
    /// Bytes of the reply's body that the connection took to send.
    pub bytes: u64,
    /// Microseconds from the head of the request to the end of the reply.
    pub duration_us: u64,
}

/// The name of the user as whom a request is served, for its entry. An extension of the request.
#[derive(Debug, Clone, Default)]
pub(super) struct ServedUser(Arc<OnceLock<String>>);

impl ServedUser {
    /// Notes that the request with these extensions is served as this user.
    pub(super) fn note(extensions: &Extensions, user: &User) {
        if let (Some(served), Some(name)) = (extensions.get::<ServedUser>(), &user.name) {
            let _ = served.0.set(name.clone());
        }
    }
}

/// The entry of a request that is being answered.
pub(super) struct Entry {
    log: Arc<dyn AccessLog>,
    clock: Arc<dyn Clock>,
    client: SocketAddr,
    began_unix_ms: u64,
    began_us: u64,
    served_user: ServedUser,
    given_name: String,
    method: Method,
    target: String,
}

impl Entry {
    /// The entry of a request that has just begun. `given_name` is the name that it gives with a password, or
    /// empty.
    pub(super) fn new(
        log: Arc<dyn AccessLog>,
        clock: Arc<dyn Clock>,
        client: SocketAddr,
        (method, uri): (&Method, &Uri),
        given_name: String,
    ) -> Entry {
        Entry {
            began_unix_ms: clock.unix_ms(),
            began_us: clock.monotonic_us(),
            served_user: ServedUser::default(),
            given_name,
            method: method.clone(),
            target: shown(uri),
            log,
            clock,
            client,
        }
    }

    /// The place in which the name of the user is to be put.
    pub(super) fn served_user(&self) -> ServedUser {
        self.served_user.clone()
    }

    /// Notes the request, whose reply has ended.
    pub(super) fn end(self, status: Option<u16>, bytes: u64) {
        self.log.note(&NotedRequest {
            began_unix_ms: self.began_unix_ms,
            client: self.client,
            user: self.served_user.0.get().unwrap_or(&self.given_name),
            method: self.method.as_str(),
            target: &self.target,
            status,
            bytes,
            duration_us: self.clock.monotonic_us().saturating_sub(self.began_us),
        });
    }
}

/// The path of a URI, and its query with the values of [`SHOWN`] alone; not its host or user.
fn shown(uri: &Uri) -> String {
    let mut target = uri.path().to_owned();
    for (index, parameter) in uri.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
        if target.len() > TARGET_BYTES_MAX {
            break;
        }
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(&match parameter.split_once('=') {
            Some((name, _)) if !SHOWN.contains(&name) => Cow::from(format!("{name}={LEFT_OUT}")),
            // A parameter without `=` may be a secret, so it is shown only if it is one of the known names.
            None if !SHOWN.contains(&parameter) => Cow::from(LEFT_OUT),
            _ => Cow::from(parameter),
        });
    }
    if target.len() > TARGET_BYTES_MAX {
        target.truncate(target.floor_char_boundary(TARGET_BYTES_MAX));
        target.push_str(LEFT_OUT);
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_show_how_a_request_is_answered_and_no_values() {
        for (uri, expected) in [
            ("/", "/"),
            ("/db/doc?rev=1-a&attachments=true", "/db/doc?rev=...&attachments=true"),
            ("/db/_changes?since=5&feed=longpoll&reduce", "/db/_changes?since=5&feed=longpoll&reduce"),
            ("/db?secret", "/db?..."),
            ("/db?limit=1&secret&", "/db?limit=1&...&..."),
            ("http://a:secret@host/db?token=secret&limit=1", "/db?token=...&limit=1"),
        ] {
            assert_eq!(shown(&uri.parse().unwrap()), expected);
        }
    }

    #[test]
    fn targets_are_cut() {
        for uri in [format!("/{}", "ä".repeat(1000)), format!("/db?{}", "limit=1&".repeat(1000))] {
            let shown = shown(&uri.parse().unwrap());
            assert!(shown.len() <= TARGET_BYTES_MAX + LEFT_OUT.len() && shown.ends_with(LEFT_OUT), "{shown}");
        }
    }
}
