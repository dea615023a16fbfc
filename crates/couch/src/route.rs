//! Routing: finds the handler of a request by matching the segments of its path.

use std::{net::SocketAddr, rc::Rc};

use documents::USERS_DATABASE;
use engine::replication::Address;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version, header, request::Parts,
};
use hyper::body::Incoming;
use serde_json::json;
use settings::Key;

use super::{
    access,
    access_log::ServedUser,
    body_memory::{ANONYMOUS_BODIES_BYTES_MAX, Claim},
    config::config,
    cors, cross_site, database, databases,
    failure::Failure,
    host::Resource,
    idle_timer::IdleTimer,
    ids::NODE,
    instance, page,
    query::Query,
    redis,
    refusal::Refusal,
    reply::{self, Reply},
    request::{Call, only, segments},
    request_body::RequestBody,
    session,
    thread::HttpThread,
    unsupported,
    user::User,
};

pub(super) async fn answer(
    thread: Rc<HttpThread>,
    request: Request<Incoming>,
    peer: SocketAddr,
    idle_timer: Rc<IdleTimer>,
) -> Reply {
    idle_timer.begin();
    let first = request.uri().path().split('/').find(|segment| !segment.is_empty());
    let reply = if let Err(failure) = check_head(&request) {
        let mut reply = reply::failed(failure);
        // The connection cannot be reused: the end of the body is unknown, or client and server may disagree
        // on it.
        reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        reply::finish(&mut reply, request.headers().get(header::ACCEPT), thread.front.request_id());
        reply
    } else if let Some(resource) = first.and_then(|first| thread.host().tools.serves(first)) {
        by_tools(&thread, request, peer, (resource, &idle_timer)).await
    } else {
        let (head, incoming) = request.into_parts();
        answer_documents(&thread, head, incoming, peer, &idle_timer).await
    };
    // A reply in chunks calls `IdleTimer::end` itself, when its body is dropped.
    if !reply.body().is_chunked() {
        idle_timer.end();
    }
    reply
}

/// Refuses heads that HTTP does not allow, and bodies in a coding that this server does not decode.
fn check_head<B>(request: &Request<B>) -> Result<(), Failure> {
    let headers = request.headers();
    if request.version() == Version::HTTP_11 && headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Failure::bad_request("A request of HTTP/1.1 has one Host header."));
    }
    let codings = headers.get_all(header::TRANSFER_ENCODING);
    let mut codings = codings.iter().flat_map(|codings| codings.as_bytes().split(|byte| *byte == b','));
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Failure::NotImplemented(
            "The only transfer coding is chunked: compress a body with Content-Encoding: gzip.",
        )),
    }
}

/// The header with the method that a POST stands for.
const METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");

/// The method that the client means. A client behind a proxy that lets few methods through sends a POST, and
/// names the method in [`METHOD_OVERRIDE`]. As in CouchDB, HEAD becomes GET, because the reply to a POST has
/// a body.
fn meant_method(method: &Method, headers: &HeaderMap) -> Option<Method> {
    let meant = headers.get(METHOD_OVERRIDE).filter(|_| method == Method::POST)?;
    match meant.as_bytes() {
        b"GET" | b"HEAD" => Some(Method::GET),
        meant @ (b"PUT" | b"DELETE" | b"COPY") => Method::from_bytes(meant).ok(),
        _ => None,
    }
}

/// Metrics and backups, for admins and for users with the right to the requested one.
async fn by_tools(
    thread: &HttpThread,
    mut request: Request<Incoming>,
    peer: SocketAddr,
    (resource, idle_timer): (Resource, &IdleTimer),
) -> Reply {
    idle_timer.set_stranger(thread.host().access.has_admins());
    let admitted = admit_to_tools(thread, request.method(), request.headers(), peer, resource).await;
    let user = match admitted {
        Ok(user) => user,
        Err(failure) => {
            let mut reply = reply::failed(failure);
            if reply.status() == StatusCode::UNAUTHORIZED {
                reply::set_header(&mut reply, header::WWW_AUTHENTICATE, "Basic realm=\"sheaf\"");
            }
            return reply;
        }
    };
    ServedUser::note(request.extensions(), &user);
    idle_timer.set_stranger(false);
    *request.uri_mut() = without_empty_segments(request.uri());
    let begins_backup = resource == Resource::Backup && request.method() == Method::POST;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let reply = thread.host().tools.answer(request).await;
    if begins_backup {
        let succeeded = reply.status().is_success();
        let user = user.name.as_deref().unwrap_or_default();
        thread.host().access.note_request(peer, user, (method.as_str(), &path), succeeded);
    }
    reply
}

async fn admit_to_tools(
    thread: &HttpThread,
    method: &Method,
    headers: &HeaderMap,
    peer: SocketAddr,
    resource: Resource,
) -> Result<User, Failure> {
    cross_site::check(&thread.host().settings(), method, headers)?;
    let user = access::admit_to(thread, &peer, headers, resource).await?;
    cross_site::require_json(method, headers).map(|()| user)
}

/// The URI without empty segments, as [`segments`] reads the path: for a router that compares the path as it
/// is.
fn without_empty_segments(uri: &Uri) -> Uri {
    if !uri.path().contains("//") {
        return uri.clone();
    }
    let mut path: String = uri
        .path()
        .split('/')
        .filter(|segment| !segment.is_empty())
        .flat_map(|segment| ["/", segment])
        .collect();
    if let Some(query) = uri.query() {
        path.push('?');
        path.push_str(query);
    }
    // This cannot fail: the parts come from a valid URI.
    path.parse().unwrap_or_else(|_| uri.clone())
}

async fn answer_documents(
    thread: &Rc<HttpThread>,
    mut head: Parts,
    incoming: Incoming,
    peer: SocketAddr,
    idle_timer: &Rc<IdleTimer>,
) -> Reply {
    if let Some(meant) = meant_method(&head.method, &head.headers) {
        head.method = meant;
    }
    let accept = head.headers.get(header::ACCEPT).cloned();
    let asked_scheme = head.headers.get(ASKED_SCHEME).cloned();
    let granted = head
        .headers
        .contains_key(header::ORIGIN)
        .then(|| cors::grant(&thread.host().settings(), &head.headers))
        .flatten();
    if granted.is_none() || head.method == Method::OPTIONS {
        note_refusal(thread, &head.headers);
    }
    let asks_first = granted.as_ref().filter(|_| head.method == Method::OPTIONS);
    let first =
        asks_first.and_then(|granted| cors::preflight(granted, &thread.host().settings(), &head.headers));
    let mut reply = match first {
        Some(reply) => reply,
        None => {
            let body_bytes_max = thread.host().settings().integer(Key::HttpBodyBytesMax) as usize;
            let claim = Claim::new(&thread.front.bodies, true, body_bytes_max as u64);
            let body = RequestBody::new(incoming, idle_timer.clone(), body_bytes_max, claim);
            let uri = head.uri.clone();
            idle_timer.set_stranger(thread.host().access.has_admins());
            let (answered, unread) = admit_and_route(thread, head, body, peer, idle_timer).await;
            let mut reply = answered.unwrap_or_else(|failure| match url_at_leader(thread, &uri, &failure) {
                Some(url) => reply::elsewhere(&url),
                None => reply::failed(failure),
            });
            if reply.status() == StatusCode::UNAUTHORIZED {
                ask_for_password(thread, asked_scheme, &mut reply);
            }
            let is_read = match unread {
                Some(body) if idle_timer.is_stranger() => body.drain_of_stranger().await,
                Some(body) => body.drain().await,
                None => !idle_timer.is_in_body(),
            };
            if !is_read {
                reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            if let Some(granted) = &granted {
                cors::expose(granted, &mut reply);
            }
            reply
        }
    };
    reply::finish(&mut reply, accept.as_ref(), thread.front.request_id());
    reply
}

/// Logs once why pages of an origin are refused.
fn note_refusal(thread: &HttpThread, headers: &HeaderMap) {
    // The cheapest check comes first: nearly all requests have no `Origin`.
    if headers.contains_key(header::ORIGIN)
        && cross_site::is_foreign(headers)
        && let Some(key) = cors::refusing(&thread.host().settings(), headers)
    {
        thread.front.refusals.note(headers, key);
    }
}

/// The header in which a client names the authentication scheme for the `WWW-Authenticate` of the reply.
const ASKED_SCHEME: HeaderName = HeaderName::from_static("x-couchdb-www-authenticate");

/// Has browsers ask for a password, as CouchDB does: if the client wants that, or if every request needs a
/// user. In other cases the reply does not ask: browsers would open their own window over a page that has a
/// log-in form.
fn ask_for_password(thread: &HttpThread, asked_scheme: Option<HeaderValue>, reply: &mut Reply) {
    let default = || requires_valid_user(thread).then(|| HeaderValue::from_static("Basic realm=\"server\""));
    if let Some(scheme) = asked_scheme.or_else(default) {
        reply.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
}

/// The URL at the leader of the group for a write that was refused here, if clients are to be sent there.
fn url_at_leader(thread: &HttpThread, uri: &Uri, failure: &Failure) -> Option<String> {
    let host = thread.host();
    if *failure != Failure::Refused(Refusal::Follower) || !host.settings().switch(Key::HttpRedirect) {
        return None;
    }
    let group = host.group.view()?;
    let leader = group.leader()?;
    let address = Address { port: leader.http_port, ..leader.address.clone() };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // With `tls-replication`, members tell each other the port of HTTP over TLS.
    let scheme = if host.settings().switch(Key::TlsReplication) { "https" } else { "http" };
    Some(format!("{scheme}://{address}{path}"))
}

async fn admit_and_route(
    thread: &Rc<HttpThread>,
    head: Parts,
    body: RequestBody,
    peer: SocketAddr,
    idle_timer: &Rc<IdleTimer>,
) -> (Result<Reply, Failure>, Option<RequestBody>) {
    let path = match segments(head.uri.path()) {
        Ok(path) => path,
        Err(failure) => return (Err(failure), Some(body)),
    };
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    if path == ["_up"] {
        return (only(&head, "GET,HEAD").map(|()| instance::up(thread.host())), Some(body));
    }
    if let Err(failure) = cross_site::check(&thread.host().settings(), &head.method, &head.headers) {
        return (Err(failure), Some(body));
    }
    if let Some(name) = page::file_name(&head, &path) {
        let sent = access::admit(thread, &peer, &head.headers).and_then(|()| page::send_file(&head, &name));
        return (sent, Some(body));
    }
    if let [redis::FOLDER, below @ ..] = &path[..] {
        let mut body = Some(body);
        let answered = redis::answer(thread, &head, below, &mut body, peer).await;
        idle_timer.set_stranger(idle_timer.is_stranger() && answered.is_err());
        return (answered, body);
    }
    let user = match admit(thread, &head, &path, peer).await {
        Ok(user) => user,
        Err(failure) => return (Err(failure), Some(body)),
    };
    ServedUser::note(&head.extensions, &user);
    let is_known = user.name.is_some() || user.is_admin;
    idle_timer.set_stranger(!is_known);
    let body = if is_known {
        let body_bytes_max = thread.host().settings().integer(Key::HttpBodyBytesMax);
        body.claimed_by(Claim::new(&thread.front.bodies, false, body_bytes_max))
    } else {
        body.at_most(ANONYMOUS_BODIES_BYTES_MAX as usize)
    };
    let query = match Query::parse(head.uri.query()) {
        Ok(query) => query,
        Err(failure) => return (Err(failure), Some(body)),
    };
    let (thread, idle_timer, body) = (thread.clone(), idle_timer.clone(), Some(body));
    let mut call = Call { thread, head, query, user, peer, idle_timer, body };
    let mut answered = route(&mut call, &path).await;
    if is_audited(&call.head.method, &path) {
        let succeeded = answered.as_ref().is_ok_and(|reply| reply.status().is_success());
        let user = call.user.name.as_deref().unwrap_or_default();
        let request = (call.head.method.as_str(), call.head.uri.path());
        call.thread.host().access.note_request(peer, user, request, succeeded);
    }
    if let Ok(reply) = &mut answered {
        call.thread.front.sessions.renew(call.thread.host(), &call.user, reply);
    }
    (answered, call.body)
}

/// Paths below a database to which a POST changes nothing.
const POSTS_THAT_READ: [&str; 9] = [
    "_all_docs",
    "_bulk_get",
    "_changes",
    "_design_docs",
    "_explain",
    "_find",
    "_local_docs",
    "_missing_revs",
    "_revs_diff",
];

/// Whether the audit notes a request: one that changes settings, rights or the list of databases, one that
/// purges documents, and every request to `_users` that is not known to read only.
fn is_audited(method: &Method, path: &[&str]) -> bool {
    let reads = match path {
        [_, name, ..] if *method == Method::POST => POSTS_THAT_READ.contains(name),
        _ => matches!(*method, Method::GET | Method::HEAD),
    };
    let changes = !reads;
    let is_database = |name: &str| !name.starts_with('_') || name == USERS_DATABASE;
    changes
        && match path {
            ["_node", ..] | [USERS_DATABASE, ..] | [_, "_security" | "_purge"] => true,
            [name] => is_database(name) && *method != Method::POST,
            _ => false,
        }
}

/// The user that sends the request, if the server admits it.
async fn admit(thread: &HttpThread, head: &Parts, path: &[&str], peer: SocketAddr) -> Result<User, Failure> {
    let headers = &head.headers;
    access::admit(thread, &peer, headers)?;
    if thread.host().status.loading().is_some() {
        return Err(Failure::from(Refusal::Loading));
    }
    thread.require_documents()?;
    // Clients are identified even on routes that are open to all: a client that gives a wrong password is
    // told so.
    let user = access::identify(thread, headers, &peer).await?;
    let is_login = path == ["_session"] && head.method == Method::POST;
    if user.name.is_none() && !user.is_admin && !is_login && requires_valid_user(thread) {
        return Err(Failure::Unauthorized("Authentication required."));
    }
    Ok(user)
}

/// Whether requests need a user (`http-require-valid-user`). Even then, `/_up`, the files of the console,
/// preflight requests and logging in need none.
fn requires_valid_user(thread: &HttpThread) -> bool {
    thread.host().settings().switch(Key::HttpRequireValidUser)
}

async fn route(call: &mut Call, path: &[&str]) -> Result<Reply, Failure> {
    match path {
        [] => only(&call.head, "GET,HEAD").map(|()| instance::welcome(call.thread.host())),
        ["_session"] => session::session(call).await,
        ["_uuids"] => {
            only(&call.head, "GET,HEAD")?;
            instance::uuids(call)
        }
        ["_membership"] => only(&call.head, "GET,HEAD").map(|()| instance::membership()),
        ["_node", "_local" | NODE, "_config", path @ ..] => config(call, path).await,
        ["_all_dbs"] => databases::all_dbs(call).await,
        ["_dbs_info"] => databases::dbs_info(call).await,
        ["_db_updates"] => databases::db_updates(call).await,
        ["_active_tasks"] => {
            only(&call.head, "GET,HEAD")?;
            call.user.require_admin()?;
            Ok(reply::value(StatusCode::OK, &instance::tasks(call)))
        }
        ["_utils"] if page::asks_for_fauxton(&call.head) => {
            Ok(reply::value(StatusCode::OK, &json!({ "fauxton": false })))
        }
        [name, below @ ..] => match unsupported::of_server(path) {
            Some(failure) => Err(failure),
            None => database::database(call, name, below).await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(version: Version, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check_head(&request.body(()).unwrap()).map_or_else(|failure| failure.parts().0, |()| 200)
    }

    #[test]
    fn a_request_has_one_host_and_no_coding_that_is_not_undone() {
        let host = ("host", "localhost");
        let coded = |coding| status(Version::HTTP_11, &[host, ("transfer-encoding", coding)]);
        assert_eq!(status(Version::HTTP_11, &[host]), 200);
        assert_eq!(status(Version::HTTP_11, &[]), 400);
        assert_eq!(status(Version::HTTP_11, &[host, host]), 400);
        assert_eq!(status(Version::HTTP_10, &[]), 200);
        assert_eq!((coded("chunked"), coded(" Chunked ")), (200, 200));
        for coding in ["gzip, chunked", "gzip,chunked", "identity", "chunked, chunked", "x-y", ""] {
            assert_eq!(coded(coding), 501, "{coding}");
        }
        let twice = [host, ("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")];
        assert_eq!(status(Version::HTTP_11, &twice), 501);
    }

    #[test]
    fn only_a_post_stands_for_another_method() {
        let meant = |method: Method, value: &'static str| {
            let headers = HeaderMap::from_iter([(METHOD_OVERRIDE, HeaderValue::from_static(value))]);
            meant_method(&method, &headers).map(|meant| meant.to_string())
        };
        for method in ["PUT", "DELETE", "COPY", "GET"] {
            assert_eq!(meant(Method::POST, method).as_deref(), Some(method));
        }
        assert_eq!(meant(Method::POST, "HEAD").as_deref(), Some("GET"));
        for (method, value) in [
            (Method::POST, "POST"),
            (Method::POST, "delete"),
            (Method::POST, "OPTIONS"),
            (Method::GET, "DELETE"),
            (Method::PUT, "DELETE"),
        ] {
            assert_eq!(meant(method, value), None, "{value}");
        }
    }
}
