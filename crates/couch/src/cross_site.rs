//! Protection against requests that pages of other sites make a browser send (CSRF).
//!
//! A browser sends such a request with its credentials for this server (cookies, passwords, its network
//! position), even if the page may not read the reply. But a page cannot hide its origin. With every request
//! that may change something, the browser sends `Sec-Fetch-Site`, which says whether the page has another
//! origin. Over plain HTTP and in older browsers, it sends `Origin` instead. A request that may change
//! something and has neither header does not come from a browser.
//!
//! Invariants
//! - A page of another origin cannot change anything, unless CORS permits that origin. Another port of the
//!   same machine is another origin.
//! - POST, the only changing method that browsers send without a preflight, needs a JSON body, which does
//!   cause a preflight. The exception is the log-in form, for pages of this server or of an origin that CORS
//!   permits, and for clients other than browsers.

use http::{HeaderMap, HeaderName, Method, header};
use settings::Settings;

use super::{cors, failure::Failure};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The media type of JSON.
const JSON: &str = "application/json";

/// Refuses changes by pages of other origins, unless CORS permits the origin.
pub(super) fn check(settings: &Settings, method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
    if is_harmless(method) || !is_foreign(headers) || cors::grant(settings, headers).is_some() {
        return Ok(());
    }
    Err(Failure::Forbidden(
        "A page of another origin may not change anything here: turn cors on, and list the origin in cors-origins.",
    ))
}

/// Refuses pages of other origins, whatever CORS permits.
pub(super) fn require_own_page(headers: &HeaderMap) -> Result<(), Failure> {
    if !is_foreign(headers) {
        return Ok(());
    }
    Err(Failure::Forbidden("Only pages of this server may run commands."))
}

/// Refuses a POST that a browser sends for any page without a preflight.
pub(super) fn require_json(method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
    if method != Method::POST || is_json(headers) { Ok(()) } else { Err(Failure::BadContentType(JSON)) }
}

/// Whether the content type is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|media_type| media_type.eq_ignore_ascii_case(JSON))
}

/// The media type of the body, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next().unwrap_or(text).trim())
}

fn is_harmless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether the request comes from a page of another origin.
pub(super) fn is_foreign(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter().peekable();
    if sites.peek().is_some() {
        // Proxies may change `Host`, but not this header.
        return !sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    }
    let host = headers.get(header::HOST).map(|host| host.as_bytes());
    headers.get_all(header::ORIGIN).iter().any(|origin| authority(origin.as_bytes()) != host)
}

/// Name and port of an origin; `None` for an origin that is no HTTP server, such as `null`.
fn authority(origin: &[u8]) -> Option<&[u8]> {
    origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    const HOST: (&str, &str) = ("host", "localhost:5984");

    #[test]
    fn pages_of_other_origins_are_foreign_and_clients_that_are_no_browsers_are_not() {
        for own in [
            &[][..],
            &[("origin", "http://localhost:5984")],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "https://behind-a-proxy.example")],
        ] {
            assert!(!is_foreign(&headers(&[&[HOST], own].concat())), "{own:?}");
        }
        for foreign in [
            &[("origin", "http://evil.example")][..],
            &[("origin", "http://localhost:3000")],
            &[("origin", "http://localhost")],
            &[("origin", "null")],
            &[("origin", "file://")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site"), ("origin", "http://localhost:5984")],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        ] {
            let mut sent = headers(&[HOST]);
            foreign.iter().for_each(|(name, value)| _ = sent.append(*name, value.parse().unwrap()));
            assert!(is_foreign(&sent), "{foreign:?}");
        }
        assert!(is_foreign(&headers(&[("origin", "http://evil.example")])), "no host");
    }

    #[test]
    fn only_origins_that_cors_lets_in_may_change_something() {
        let mut settings = Settings::default();
        let sent = headers(&[HOST, ("origin", "http://app.example")]);
        let copy = Method::from_bytes(b"COPY").unwrap();
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, copy.clone()] {
            assert!(matches!(check(&settings, &method, &sent), Err(Failure::Forbidden(_))), "{method}");
        }
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(check(&settings, &method, &sent), Ok(()));
        }
        settings.set("cors", "yes").unwrap();
        settings.set("cors-origins", "http://app.example").unwrap();
        assert_eq!(check(&settings, &copy, &sent), Ok(()));
        let other = headers(&[HOST, ("origin", "http://other.example")]);
        assert!(check(&settings, &copy, &other).is_err());
    }

    #[test]
    fn no_origin_that_cors_lets_in_may_run_commands() {
        let (own, app) = (headers(&[HOST]), headers(&[HOST, ("origin", "http://app.example")]));
        assert_eq!(require_own_page(&own), Ok(()));
        assert!(matches!(require_own_page(&app), Err(Failure::Forbidden(_))));
    }

    #[test]
    fn content_types_without_a_preflight_are_not_json() {
        let post = |content_type| require_json(&Method::POST, &headers(&[("content-type", content_type)]));
        assert_eq!(post("application/json"), Ok(()));
        assert_eq!(post("Application/JSON; charset=utf-8"), Ok(()));
        for simple in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain;application/json",
        ] {
            assert!(post(simple).is_err(), "{simple}");
        }
        assert!(require_json(&Method::POST, &HeaderMap::new()).is_err());
        assert_eq!(require_json(&Method::DELETE, &HeaderMap::new()), Ok(()), "browsers ask before that");
    }
}
