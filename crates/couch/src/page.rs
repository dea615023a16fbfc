//! The page of the console: `/` for browsers, and its files below `/_console`.
//!
//! The files are the same for all clients and hold no data, so every client that is served gets them, and
//! logs in on the page. The page requests its contents (`/metrics`, `/_redis`, the databases) with the rights
//! of its user.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};

use super::{
    body::Body,
    failure::Failure,
    reply::{self, Reply},
    request::only,
};

/// The first segment of the paths of the files.
pub(super) const FOLDER: &str = "_console";
const PAGE: &str = "index.html";

/// The page loads nothing from other servers and has no inline script, and no page may show it in a frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
);
static ALWAYS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    (header::VARY, HeaderValue::from_static("Accept, Accept-Encoding")),
];

/// The name of the console's file that the request asks for; `None` if it asks for none.
pub(super) fn file_name(head: &Parts, path: &[&str]) -> Option<String> {
    match path {
        [] if is_read(head) && prefers_html(&head.headers) => Some(PAGE.into()),
        [FOLDER, below @ ..] if !below.is_empty() => Some(below.join("/")),
        _ => None,
    }
}

fn is_read(head: &Parts) -> bool {
    only(head, "GET,HEAD").is_ok()
}

pub(super) fn send_file(head: &Parts, name: &str) -> Result<Reply, Failure> {
    only(head, "GET,HEAD")?;
    let file = webconsole::file(name).ok_or(Failure::NotFound("missing"))?;
    let is_gzip = accepts_gzip(&head.headers);
    // Two representations of one file have two tags.
    let tag = if is_gzip { format!("{}-gzip", file.tag()) } else { file.tag().into() };
    let mut reply = match reply::has_version(&head.headers, &tag) {
        true => reply::empty(StatusCode::NOT_MODIFIED),
        false if is_gzip => Reply::new(Body::from(file.gzip())),
        false => Reply::new(Body::from(file.bytes)),
    };
    if reply.status() == StatusCode::OK {
        reply::set_header(&mut reply, header::CONTENT_TYPE, file.media_type());
        if is_gzip {
            reply.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    reply::set_etag(&mut reply, &tag);
    reply.headers_mut().extend(ALWAYS.iter().cloned());
    Ok(reply)
}

/// Whether the console asks if a proxy before this server serves Fauxton below `/_utils`. All other requests
/// there are refused; this one gets a reply that says no, because browsers log each failed request of a page
/// as an error.
pub(super) fn asks_for_fauxton(head: &Parts) -> bool {
    is_read(head) && quality(&head.headers, header::ACCEPT, "application/vnd.sheaf.console+json") > 0.0
}

/// Whether the client names HTML, and either does not name JSON or gives it a lower quality. Clients of
/// CouchDB name JSON, or accept everything.
fn prefers_html(headers: &HeaderMap) -> bool {
    let html = quality(headers, header::ACCEPT, "text/html");
    html > 0.0 && html > quality(headers, header::ACCEPT, "application/json")
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    quality(headers, header::ACCEPT_ENCODING, "gzip") > 0.0
}

/// The quality that a header gives to `wanted`; 0 if the header does not name it.
fn quality(headers: &HeaderMap, name: HeaderName, wanted: &str) -> f64 {
    let given = headers.get_all(name).iter().filter_map(|given| given.to_str().ok());
    let mut qualities = given.flat_map(|given| given.split(',')).filter_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(wanted) {
            return None;
        }
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Some(quality.map_or(1.0, |quality| quality.parse().unwrap_or(0.0)))
    });
    qualities.next().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};

    use super::*;

    fn head(method: Method, headers: &[(HeaderName, &str)]) -> Parts {
        let (mut head, ()) = Request::builder().method(method).body(()).unwrap().into_parts();
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        head.headers.extend(headers);
        head
    }

    fn accepting(accept: &str) -> Parts {
        head(Method::GET, &[(header::ACCEPT, accept)])
    }

    #[test]
    fn browsers_get_the_page_and_other_clients_the_greeting() {
        for browser in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/html",
            "application/json;q=0.5, TEXT/HTML;level=1;q=0.9",
        ] {
            assert_eq!(file_name(&accepting(browser), &[]).as_deref(), Some(PAGE), "{browser}");
        }
        for other in [
            "*/*",
            "application/json",
            "application/json, text/html",
            "text/html;q=0.5, application/json",
            "text/html;q=0",
            "text/html;q=x",
            "text/*",
            "",
        ] {
            assert_eq!(file_name(&accepting(other), &[]), None, "{other}");
        }
        assert_eq!(file_name(&head(Method::GET, &[]), &[]), None);
        assert_eq!(file_name(&head(Method::POST, &[(header::ACCEPT, "text/html")]), &[]), None);
        assert_eq!(file_name(&accepting("text/html"), &["db"]), None);
        assert_eq!(file_name(&accepting("*/*"), &[FOLDER, "a", "b.js"]).as_deref(), Some("a/b.js"));
        assert_eq!(file_name(&accepting("*/*"), &[FOLDER]), None);
    }

    #[test]
    fn a_file_is_sent_once_and_never_shown_by_other_pages() {
        let plain = send_file(&accepting("*/*"), PAGE).unwrap();
        assert_eq!(plain.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        let zipped = send_file(&head(Method::GET, &[(header::ACCEPT_ENCODING, "br, gzip")]), PAGE).unwrap();
        assert_eq!(zipped.headers()[header::CONTENT_ENCODING], "gzip");
        assert_ne!(plain.headers()[header::ETAG], zipped.headers()[header::ETAG]);
        let tag = plain.headers()[header::ETAG].to_str().unwrap();
        let again = send_file(&head(Method::GET, &[(header::IF_NONE_MATCH, tag)]), PAGE).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        for reply in [&plain, &zipped, &again] {
            let policy = reply.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"));
            assert_eq!(reply.headers()[header::X_FRAME_OPTIONS], "DENY");
        }
    }

    #[test]
    fn there_are_no_other_files() {
        for name in ["", "..", "../src/lib.rs", "no.js", "index.html/"] {
            assert_eq!(
                send_file(&accepting("*/*"), name).err(),
                Some(Failure::NotFound("missing")),
                "{name}"
            );
        }
        let put = send_file(&head(Method::PUT, &[]), PAGE);
        assert_eq!(put.err(), Some(Failure::MethodNotAllowed("GET,HEAD")));
    }
}
