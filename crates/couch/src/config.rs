//! `/_node/_local/_config`: settings under the names that CouchDB has for them.
//!
//! Only names of CouchDB that correspond to a setting of this server are known. Values are shown as CONFIG
//! GET shows them, except that switches are `true` and `false`. As in CouchDB, a change lasts over a restart
//! (see [`settings::Lasting`]).

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::Value;
use settings::{Key, Settings};

use super::{
    failure::Failure,
    reply::{self, Reply},
    request::Call,
};

/// Section and key of CouchDB, and the corresponding setting.
const NAMES: &[(&str, &str, Key)] = &[
    ("chttpd", "enable_cors", Key::Cors),
    ("chttpd", "max_http_request_size", Key::HttpBodyBytesMax),
    ("chttpd", "port", Key::HttpPort),
    ("chttpd", "require_valid_user", Key::HttpRequireValidUser),
    ("chttpd_auth", "public_fields", Key::UsersPublicFields),
    ("chttpd_auth", "same_site", Key::HttpSessionSameSite),
    ("chttpd_auth", "timeout", Key::HttpSessionTimeout),
    ("cors", "credentials", Key::CorsCredentials),
    ("cors", "headers", Key::CorsHeaders),
    ("cors", "methods", Key::CorsMethods),
    ("cors", "origins", Key::CorsOrigins),
    ("couchdb", "database_dir", Key::Dir),
    ("couch_httpd_auth", "timeout", Key::HttpSessionTimeout),
    ("couchdb", "max_document_size", Key::MaxDocumentSize),
    ("httpd", "enable_cors", Key::Cors),
    ("jwt_auth", "required_claims", Key::JwtRequiredClaims),
    ("jwt_auth", "roles_claim_path", Key::JwtRolesClaimPath),
    ("log", "level", Key::Loglevel),
];

/// Serves `/_node/NODE/_config/...`
pub(super) async fn config(call: &mut Call, path: &[&str]) -> Result<Reply, Failure> {
    call.user.require_admin()?;
    let [section, key] = match path {
        [] if call.is_read() => return Ok(all(&call.thread.host().settings())),
        [section] if call.is_read() => {
            let settings = call.thread.host().settings();
            let rows = NAMES.iter().filter(|row| row.0 == *section);
            let found: BTreeMap<_, _> = rows.map(|row| (row.1, shown(&settings, row.2))).collect();
            return Ok(reply::value(StatusCode::OK, &found));
        }
        [section, key] => [*section, *key],
        [] | [_] => return Err(Failure::MethodNotAllowed("GET,HEAD")),
        _ => return Err(Failure::NotFound("missing")),
    };
    let known = NAMES.iter().find(|row| row.0 == section && row.1 == key).map(|row| row.2);
    let setting = known.ok_or(Failure::NotFound("unknown_config_value"))?;
    let before = shown(&call.thread.host().settings(), setting);
    match call.method() {
        "GET" | "HEAD" => {}
        "PUT" => match call.json().await? {
            Value::String(text) => change(call, setting, Some(text)).await?,
            _ => return Err(Failure::bad_request("Config values must be strings")),
        },
        "DELETE" => change(call, setting, None).await?,
        _ => return Err(Failure::MethodNotAllowed("GET,HEAD,PUT,DELETE")),
    }
    Ok(reply::value(StatusCode::OK, &before))
}

/// Changes a setting on a thread that serves no clients: the disk may take long to store it.
async fn change(call: &Call, setting: Key, value: Option<String>) -> Result<(), Failure> {
    let config = call.thread.host().config.clone();
    let change = move || config.set_and_keep(setting, value.as_deref());
    Ok(tokio::task::spawn_blocking(change).await.map_err(|_| Failure::Busy)??)
}

fn all(settings: &Settings) -> Reply {
    let mut sections: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for (section, key, setting) in NAMES {
        sections.entry(section).or_default().insert(key, shown(settings, *setting));
    }
    reply::value(StatusCode::OK, &sections)
}

/// A value as CouchDB would show it: switches are `true` and `false`.
fn shown(settings: &Settings, setting: Key) -> String {
    let value = settings.iter().find(|(option, _)| option.key == setting).map(|(_, value)| value);
    match value.unwrap_or_default().as_str() {
        "yes" => "true".into(),
        "no" => "false".into(),
        other => other.into(),
    }
}
