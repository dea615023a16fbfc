//! `/_session`: who the client is, log-in, logout.

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use super::{
    access,
    cookie::remove_cookie,
    cross_site,
    document::set_location,
    failure::Failure,
    query,
    reply::{self, Reply},
    request::Call,
    user::{Shown, User},
};

/// Limit of the body of a log-in request.
const LOGIN_BYTES_MAX: usize = 16 << 10;
const FORM: &str = "application/x-www-form-urlencoded";

/// `/_session`: the current user, log-in, logout.
pub(super) async fn session(call: &mut Call) -> Result<Reply, Failure> {
    match call.method() {
        "GET" | "HEAD" if call.query.flag("basic")? && call.user.name.is_none() => {
            Err(Failure::Unauthorized("Please login."))
        }
        "GET" | "HEAD" => Ok(who_am_i(call)),
        "POST" => log_in(call).await,
        "DELETE" => {
            call.thread.front.sessions.log_out(call.thread.host(), &call.head.headers);
            call.thread.feeds().note_rights();
            // Do not renew the client's cookie.
            call.user.shown = Shown::Nothing;
            let mut reply = reply::ok(StatusCode::OK);
            remove_cookie(call.thread.host(), &mut reply);
            go_on_at(call, "next", &mut reply)?;
            Ok(reply)
        }
        _ => Err(Failure::MethodNotAllowed("GET,HEAD,POST,DELETE")),
    }
}

fn who_am_i(call: &Call) -> Reply {
    let user = &call.user;
    let trusted = call.thread.host().access.trusted_issuers();
    let mut handlers = vec!["cookie", "default"];
    handlers.extend(trusted.jwt.map(|_| "jwt"));
    handlers.extend(trusted.proxy.map(|_| "proxy"));
    let mut info = json!({ "authentication_handlers": handlers });
    match user.shown {
        Shown::Token(_) => info["authenticated"] = "jwt".into(),
        Shown::Proxy(_) => info["authenticated"] = "proxy".into(),
        Shown::Cookie { .. } => info["authenticated"] = "cookie".into(),
        Shown::Password => info["authenticated"] = "default".into(),
        Shown::Nothing => {}
    }
    let who = json!({ "ok": true, "userCtx": { "name": user.name, "roles": user.roles }, "info": info });
    reply::value(StatusCode::OK, &who)
}

async fn log_in(call: &mut Call) -> Result<Reply, Failure> {
    let media_type = cross_site::media_type(&call.head.headers);
    let is_form = media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case(FORM));
    let body = match call.take_body() {
        // The route is open to all clients: limit the body to the size of a log-in.
        Some(body) => body.at_most(LOGIN_BYTES_MAX).whole(&call.head.headers).await?,
        None => Bytes::new(),
    };
    let (name, password) = if is_form {
        let pairs = query::pairs(&body, "invalid UTF-8 in form")?;
        let take =
            |wanted: &str| pairs.clone().find(|(name, _)| name == wanted).map(|(_, it)| it.into_owned());
        (one_name(take("name"), take("username"))?, take("password").unwrap_or_default())
    } else {
        call.require_json()?;
        let Login { name, username, password } = serde_json::from_slice(&body)
            .map_err(|_| Failure::bad_request("request body must contain a username and password"))?;
        (one_name(name, username)?, password.unwrap_or_default())
    };
    let thread = call.thread.clone();
    let account = match access::log_in(&thread, &call.peer, (&name, password.as_bytes())).await {
        Ok(account) => account,
        Err(failure @ Failure::Unauthorized(_)) => {
            let mut reply = reply::failed(failure);
            call.user.shown = Shown::Nothing;
            remove_cookie(thread.host(), &mut reply);
            go_on_at(call, "fail", &mut reply)?;
            return Ok(reply);
        }
        Err(failure) => return Err(failure),
    };
    thread.front.sessions.prepare(&thread).await;
    let body = json!({ "ok": true, "name": name, "roles": account.roles });
    let session = thread.host().random_u64();
    let shown =
        Shown::Cookie { session, begun_s: thread.front.sessions.begins_s(thread.host(), &name), renew: true };
    call.user = User::known(&name, account, shown);
    let mut reply = reply::value(StatusCode::OK, &body);
    go_on_at(call, "next", &mut reply)?;
    // The cookie is set by `Sessions::renew`, which `route` calls.
    Ok(reply)
}

#[derive(Deserialize)]
struct Login {
    name: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// The name in a log-in, which may be given as `name`, as `username`, or as both if they are equal.
fn one_name(name: Option<String>, username: Option<String>) -> Result<String, Failure> {
    match (name, username) {
        (None, None) => Err(Failure::bad_request("request body must contain a username")),
        (Some(name), Some(username)) if name != username => {
            Err(Failure::bad_request("request body contains different usernames"))
        }
        (Some(name), _) | (None, Some(name)) => Ok(name),
    }
}

/// Redirects the browser to the path in this parameter of the query, if it is given. The path must be of this
/// server: a link to the log-in must not lead to a page of others.
fn go_on_at(call: &Call, parameter: &str, reply: &mut Reply) -> Result<(), Failure> {
    let Some(path) = call.query.text(parameter) else { return Ok(()) };
    let is_ours =
        path.starts_with('/') && !path.starts_with("//") && !path.contains(['\\', '\r', '\n', '\t']);
    if !is_ours {
        return Err(Failure::bad_request("next and fail must be paths of this server"));
    }
    *reply.status_mut() = StatusCode::FOUND;
    set_location(call, reply, &utf8_percent_encode(path, CONTROLS).to_string());
    Ok(())
}
