//! Cross-origin requests (CORS): the headers with which browsers let pages of other origins read replies.
//!
//! Disabled unless `cors` is on. `cors-origins` is a list of origins, or `*`.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, StatusCode, header};
use settings::{Key, Settings};

use super::reply::{self, Reply};

const MAX_AGE_S: &str = "600";
/// Headers that pages may always send.
const HEADERS: &str = "accept,accept-language,authorization,content-length,content-range,content-type,destination,expires,\
                       if-match,if-none-match,last-modified,origin,pragma,range,x-couch-full-commit,x-couch-id,x-couch-persist,\
                       x-couchdb-www-authenticate,x-http-method-override,x-requested-with,x-couchdb-vhost-path";
/// Headers of replies that pages may read.
const EXPOSED: &str =
    "content-type,accept-ranges,etag,server,x-couch-request-id,x-couch-update-newrev,x-couchdb-body-time";

/// The permission for one origin.
pub(super) struct Granted {
    origin: String,
    credentials: bool,
}

/// The permission for the request's origin, if it has one and CORS permits it.
pub(super) fn grant(settings: &Settings, headers: &HeaderMap) -> Option<Granted> {
    // Nearly all requests have no `Origin`.
    let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
    if !settings.switch(Key::Cors) {
        return None;
    }
    let credentials = settings.switch(Key::CorsCredentials);
    let mut origins = settings.text(Key::CorsOrigins).split(',').map(str::trim);
    let known = origins.find(|known| *known == "*" || *known == origin)?;
    // With credentials, the browser rejects `*`: name the origin.
    let origin = if known == "*" && !credentials { "*" } else { origin };
    Some(Granted { origin: origin.into(), credentials })
}

/// The reply to a preflight request; `None` for any other request.
pub(super) fn preflight(granted: &Granted, settings: &Settings, headers: &HeaderMap) -> Option<Reply> {
    let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()?;
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    grant_origin(granted, &mut reply);
    let methods = settings.text(Key::CorsMethods);
    if !methods.split(',').any(|known| known.trim() == method) {
        return Some(reply);
    }
    let more = settings.text(Key::CorsHeaders);
    let known: HashSet<String> =
        HEADERS.split(',').chain(more.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|names| names.to_str().ok());
    let asked = asked.unwrap_or_default();
    let is_allowed = |name: &str| name.is_empty() || known.contains(&name.to_ascii_lowercase());
    if !asked.split(',').map(str::trim).all(is_allowed) {
        return Some(reply);
    }
    reply::set_header(&mut reply, header::ACCESS_CONTROL_ALLOW_METHODS, methods);
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
