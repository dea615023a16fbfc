//! `/_session`: who the client is, log-in, logout.

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::{
    access::check_password,
    cookie::remove_cookie,
    cross_site,
    failure::Failure,
    query,
    reply::{self, Reply},
    request::Call,
    user::{Shown, User},
};

/// Limit of the body of a log-in request.
const LOGIN_BYTES_MAX: usize = 16 << 10;
const FORM: &str = "application/x-www-form-urlencoded";

#[derive(Deserialize)]
struct Login {
    #[serde(alias = "username")]
    name: String,
    password: String,
}

/// `/_session`: the current user, log-in, logout.
pub(super) async fn session(call: &mut Call) -> Result<Reply, Failure> {
    match call.method() {
        "GET" | "HEAD" => Ok(who_am_i(call)),
        "POST" => log_in(call).await,
        "DELETE" => {
            call.thread.front.sessions.log_out(call.thread.host(), &call.head.headers);
            // Do not renew the client's cookie.
            call.user.shown = Shown::Nothing;
            let mut reply = reply::ok(StatusCode::OK);
            remove_cookie(&mut reply);
            Ok(reply)
        }
        _ => Err(Failure::MethodNotAllowed("GET,HEAD,POST,DELETE")),
    }
}

fn who_am_i(call: &Call) -> Reply {
    let user = &call.user;
    let mut info = json!({ "authentication_handlers": ["cookie", "default"] });
    match user.shown {
        Shown::Cookie { .. } => info["authenticated"] = "cookie".into(),
        Shown::Password => info["authenticated"] = "default".into(),
        Shown::Nothing => {}
    }
    let who = json!({ "ok": true, "userCtx": { "name": user.name, "roles": user.roles() }, "info": info });
    reply::value(StatusCode::OK, &who)
}

async fn log_in(call: &mut Call) -> Result<Reply, Failure> {
    let is_form = cross_site::media_type(&call.head.headers) == Some(FORM);
    let body = match call.take_body() {
        // The route is open to all clients: limit the body to the size of a log-in.
        Some(body) => body.at_most(LOGIN_BYTES_MAX).whole(&call.head.headers).await?,
        None => Bytes::new(),
    };
    let login = if is_form {
        let pairs = query::pairs(&body, "invalid UTF-8 in form")?;
        let take = |wanted: &[&str]| {
            pairs.clone().find(|(name, _)| wanted.contains(&&**name)).map(|(_, value)| value.into_owned())
        };
        Login {
            name: take(&["name", "username"]).unwrap_or_default(),
            password: take(&["password"]).unwrap_or_default(),
        }
    } else {
        call.require_json()?;
        serde_json::from_slice(&body)
            .map_err(|_| Failure::bad_request("request body must contain a username and password"))?
    };
    let host = call.thread.host();
    check_password(host, &call.peer, (&login.name, &login.password), None)?;
    let user = User::admin(&login.name, Shown::Cookie { session: host.random_u64(), renew: true });
    let body = json!({ "ok": true, "name": login.name, "roles": user.roles() });
    let mut reply = reply::value(StatusCode::OK, &body);
    call.thread.front.sessions.renew(host, &user, &mut reply);
    Ok(reply)
}
