//! Cross-origin requests (CORS): the headers with which browsers let pages of other origins read replies.
//!
//! Disabled unless `cors` is on. `cors-origins` is a list of origins, or `*`. Browsers show nobody but the
//! author of a page why its request was refused, so the log of the server names the setting.
//!
//! Invariants
//! - At most [`REFUSALS_MAX`] refusals are kept in one [`Refusals`] and logged: pages that make up origins
//!   fill neither memory nor disk.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, StatusCode, header};
use parking_lot::Mutex;
use settings::{Key, OPTIONS, Settings};

use super::reply::{self, Reply};

const MAX_AGE_S: &str = "600";
/// Headers that pages of listed origins may send, in addition to those in `cors-headers`.
const HEADERS: &str = "accept,accept-language,authorization,content-length,content-range,content-type,destination,expires,\
                       if-match,if-none-match,last-modified,origin,pragma,range,x-couch-full-commit,x-couch-id,x-couch-persist,\
                       x-couchdb-www-authenticate,x-http-method-override,x-requested-with,x-couchdb-vhost-path";
/// Headers of replies that pages may read.
const EXPOSED: &str =
    "content-type,accept-ranges,etag,server,x-couch-request-id,x-couch-update-newrev,x-couchdb-body-time";

/// The maximum number of refusals that are logged, each with an origin and a setting.
const REFUSALS_MAX: usize = 64;
/// Longer origins are not logged: host names have at most 253 characters.
const ORIGIN_BYTES_MAX: usize = 300;

/// The refusals that were logged.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Vec<(String, Key)>>);

impl Refusals {
    /// Logs that this setting refuses pages of the origin in these headers, unless that was logged before,
    /// the origin is too long, or [`REFUSALS_MAX`] is reached.
    pub(super) fn note(&self, headers: &HeaderMap, key: Key) {
        let Some(origin) = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()) else {
            return;
        };
        if !self.is_news(origin, key) {
            return;
        }
        let setting = OPTIONS[key as usize].name;
        let what_to_do = match key {
            Key::Cors => "turn cors on, and list the origin in cors-origins",
            Key::CorsOrigins => "list the origin in cors-origins",
            Key::CorsMethods => "list the method that it wants to use in cors-methods",
            _ => "list the headers that it wants to send in cors-headers",
        };
        tracing::warn!(
            target: "server", origin, setting,
            "CORS: a page of this origin is refused. If it is to be let in, {what_to_do}"
        );
    }

    fn is_news(&self, origin: &str, key: Key) -> bool {
        let mut known = self.0.lock();
        let is_room = known.len() < REFUSALS_MAX && origin.len() <= ORIGIN_BYTES_MAX;
        let is_news = is_room && !known.iter().any(|(of, by)| of == origin && *by == key);
        if is_news {
            known.push((origin.into(), key));
        }
        is_news
    }
}

/// The permission for one origin.
pub(super) struct Granted {
    origin: String,
    credentials: bool,
}

/// The permission for the request's origin, if it has one and CORS permits it.
pub(super) fn grant(settings: &Settings, headers: &HeaderMap) -> Option<Granted> {
    // Nearly all requests have no `Origin`.
    judge(settings, headers.get(header::ORIGIN)?.to_str().ok()?).ok()
}

/// The permission for an origin.
///
/// # Errors
/// The setting that refuses it.
fn judge(settings: &Settings, origin: &str) -> Result<Granted, Key> {
    if !settings.switch(Key::Cors) {
        return Err(Key::Cors);
    }
    let credentials = settings.switch(Key::CorsCredentials);
    let mut origins = settings.text(Key::CorsOrigins).split(',').map(str::trim);
    let known = origins.find(|known| *known == "*" || *known == origin).ok_or(Key::CorsOrigins)?;
    // With credentials, the browser rejects `*`: name the origin.
    let origin = if known == "*" && !credentials { "*" } else { origin };
    Ok(Granted { origin: origin.into(), credentials })
}

/// The setting that refuses a page of another origin: the page cannot read the reply, or may not send the
/// request about which this preflight asks.
pub(super) fn refusing(settings: &Settings, headers: &HeaderMap) -> Option<Key> {
    let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
    match judge(settings, origin) {
        Err(key) => Some(key),
        Ok(_) => {
            let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()?;
            refusing_method(settings, method).or_else(|| refusing_headers(settings, asked_headers(headers)))
        }
    }
}

fn refusing_method(settings: &Settings, method: &str) -> Option<Key> {
    let mut methods = settings.text(Key::CorsMethods).split(',');
    (!methods.any(|known| known.trim() == method)).then_some(Key::CorsMethods)
}

fn refusing_headers(settings: &Settings, asked: &str) -> Option<Key> {
    let more = settings.text(Key::CorsHeaders);
    let known: HashSet<String> =
        HEADERS.split(',').chain(more.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_allowed = |name: &str| name.is_empty() || known.contains(&name.to_ascii_lowercase());
    (!asked.split(',').map(str::trim).all(is_allowed)).then_some(Key::CorsHeaders)
}

fn asked_headers(headers: &HeaderMap) -> &str {
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    asked.and_then(|names| names.to_str().ok()).unwrap_or_default()
}

/// The reply to a preflight request; `None` for any other request.
pub(super) fn preflight(granted: &Granted, settings: &Settings, headers: &HeaderMap) -> Option<Reply> {
    let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()?;
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    grant_origin(granted, &mut reply);
    let asked = asked_headers(headers);
    if refusing_method(settings, method).or_else(|| refusing_headers(settings, asked)).is_some() {
        return Some(reply);
    }
    reply::set_header(&mut reply, header::ACCESS_CONTROL_ALLOW_METHODS, settings.text(Key::CorsMethods));
    reply::set_header(&mut reply, header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
    let told = if asked.is_empty() { HEADERS } else { asked };
    reply::set_header(&mut reply, header::ACCESS_CONTROL_ALLOW_HEADERS, told);
    Some(reply)
}

/// Adds the headers that let the origin's pages read the reply.
pub(super) fn expose(granted: &Granted, reply: &mut Reply) {
    grant_origin(granted, reply);
    reply::set_header(reply, header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

fn grant_origin(granted: &Granted, reply: &mut Reply) {
    reply::set_header(reply, header::ACCESS_CONTROL_ALLOW_ORIGIN, &granted.origin);
    if granted.credentials {
        reply::set_header(reply, header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    if granted.origin != "*" {
        reply::set_header(reply, HeaderName::from_static("vary"), "Origin");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        pairs.iter().for_each(|(name, value)| _ = settings.set(name, value).unwrap());
        settings
    }

    fn from(origin: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ORIGIN, origin.parse().unwrap())])
    }

    #[test]
    fn origins_are_let_in_only_if_they_are_listed_and_cors_is_on() {
        let listed = settings(&[("cors", "yes"), ("cors-origins", "http://a.example, http://b.example")]);
        assert_eq!(grant(&listed, &from("http://b.example")).unwrap().origin, "http://b.example");
        assert!(grant(&listed, &from("http://c.example")).is_none());
        assert!(grant(&listed, &HeaderMap::new()).is_none());
        assert!(grant(&settings(&[("cors-origins", "*")]), &from("http://a.example")).is_none(), "it is off");
        let all = settings(&[("cors", "yes"), ("cors-origins", "*")]);
        assert_eq!(grant(&all, &from("http://a.example")).unwrap().origin, "*");
        let with_credentials =
            settings(&[("cors", "yes"), ("cors-origins", "*"), ("cors-credentials", "yes")]);
        assert_eq!(grant(&with_credentials, &from("http://a.example")).unwrap().origin, "http://a.example");
    }

    #[test]
    fn a_refusal_names_its_setting_once_for_each_origin() {
        let listed = settings(&[("cors", "yes"), ("cors-origins", "http://a.example")]);
        let mut asking = from("http://a.example");
        assert_eq!(refusing(&listed, &asking), None);
        assert_eq!(refusing(&settings(&[]), &asking), Some(Key::Cors));
        assert_eq!(refusing(&listed, &from("http://b.example")), Some(Key::CorsOrigins));
        assert_eq!(refusing(&listed, &HeaderMap::new()), None);
        asking.insert(header::ACCESS_CONTROL_REQUEST_METHOD, "BREW".parse().unwrap());
        assert_eq!(refusing(&listed, &asking), Some(Key::CorsMethods));
        asking.insert(header::ACCESS_CONTROL_REQUEST_METHOD, "PUT".parse().unwrap());
        asking.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, "x-own".parse().unwrap());
        assert_eq!(refusing(&listed, &asking), Some(Key::CorsHeaders));
        let refusals = Refusals::default();
        let is_news = |origin: &str| refusals.is_news(origin, Key::Cors);
        assert_eq!((is_news("a"), is_news("a"), is_news("b")), (true, false, true));
        assert!(refusals.is_news("a", Key::CorsOrigins) && !is_news(&"x".repeat(ORIGIN_BYTES_MAX + 1)));
        assert_eq!((0..1000).filter(|number| is_news(&number.to_string())).count(), REFUSALS_MAX - 3);
    }

    #[test]
    fn a_preflight_lists_the_allowed_headers() {
        let settings = settings(&[("cors", "yes"), ("cors-origins", "*"), ("cors-headers", "x-own")]);
        let ask = |method: &str, names: &'static str| {
            let mut headers = from("http://a.example");
            headers.insert(header::ACCESS_CONTROL_REQUEST_METHOD, method.parse().unwrap());
            headers.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, names.parse().unwrap());
            let granted = grant(&settings, &headers).unwrap();
            let reply = preflight(&granted, &settings, &headers).unwrap();
            reply
                .headers()
                .get(header::ACCESS_CONTROL_ALLOW_HEADERS)
                .map(|told| told.to_str().unwrap().to_owned())
        };
        assert_eq!(ask("PUT", "Content-Type, X-Own"), Some("Content-Type, X-Own".into()));
        assert_eq!(ask("PUT", "x-other"), None);
        assert_eq!(ask("BREW", "accept"), None);
        let granted = grant(&settings, &from("http://a.example")).unwrap();
        assert!(preflight(&granted, &settings, &from("http://a.example")).is_none(), "it is no question");
    }
}
