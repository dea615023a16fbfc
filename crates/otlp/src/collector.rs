//! A collector, to which spans are sent over HTTP.
//!
//! Invariants
//! - A request ends within the given time, whatever the collector does. At most [`ANSWER_BYTES_MAX`] of its
//!   answer are read.

use std::{fmt, time::Duration};

use ureq::{Agent, Error, http::StatusCode};

/// The path that is added to a URL without one.
const PATH: &str = "/v1/traces";
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// A collector at a URL.
pub struct Collector {
    url: String,
    agent: Agent,
}

/// Why a collector has not taken spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    /// The reason in words, for the log of the server.
    pub reason: String,
    /// Whether the same spans may be sent again later.
    pub may_retry: bool,
}

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)
    }
}

impl Collector {
    /// The collector at this URL: `http://HOST:PORT`, or a URL with the whole path.
    pub fn new(url: &str) -> Collector {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("sheaf/", env!("CARGO_PKG_VERSION")))
            .build();
        Collector { url: with_path(url), agent: agent.into() }
    }

    /// The URL to which spans are sent, with its path.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends encoded spans. Returns the number of spans that the collector has refused.
    ///
    /// # Errors
    /// If the collector cannot be reached, does not answer in time, or answers with a status that is not a
    /// success.
    pub fn send(&self, body: &[u8], timeout: Duration) -> Result<u64, SendError> {
        let request = self.agent.post(&self.url).config().timeout_global(Some(timeout)).build();
        let answer = request.content_type("application/json").send(body);
        let mut answer = answer.map_err(|error| SendError { reason: unreachable(error), may_retry: true })?;
        let status = answer.status();
        let text =
            answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
        if status.is_success() { Ok(rejected(&text)) } else { Err(refused(status)) }
    }
}

fn with_path(url: &str) -> String {
    let base = url.trim_end_matches('/');
    let has_path = base.strip_prefix("http://").is_some_and(|rest| rest.contains('/'));
    if has_path { base.to_owned() } else { format!("{base}{PATH}") }
}

/// The number of spans that the answer says were rejected.
fn rejected(answer: &str) -> u64 {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    let count = &answer["partialSuccess"]["rejectedSpans"];
    // In the JSON of OTLP, numbers of 64 bits are texts.
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}

fn unreachable(error: Error) -> String {
    match error {
        Error::Timeout(_) => "it does not answer in time".into(),
        Error::HostNotFound => "its host is not known".into(),
        error => error.to_string(),
    }
}

fn refused(status: StatusCode) -> SendError {
    // OTLP permits a retry after these statuses.
    let may_retry = matches!(status.as_u16(), 429 | 502 | 503 | 504);
    SendError { reason: format!("it answers {status}"), may_retry }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    #[test]
    fn a_url_without_a_path_gets_that_of_the_specification() {
        for (url, expected) in [
            ("http://a:4318", "http://a:4318/v1/traces"),
            ("http://a:4318/", "http://a:4318/v1/traces"),
            ("http://a/v1/traces", "http://a/v1/traces"),
            ("http://a/otlp/v1/traces/", "http://a/otlp/v1/traces"),
        ] {
            assert_eq!(Collector::new(url).url(), expected);
        }
    }

    /// The outcome of a request to which a collector sends these bytes as the answer.
    fn answered(answer: &'static str) -> Result<u64, SendError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answering = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"{\"a\":1}") {
                let count = socket.read(&mut buffer).unwrap();
                assert!(count > 0, "the body comes");
                request.extend_from_slice(&buffer[..count]);
            }
            socket.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        let outcome = Collector::new(&url).send(b"{\"a\":1}", Duration::from_secs(60));
        let request = answering.join().unwrap().to_ascii_lowercase();
        assert!(request.starts_with("post /v1/traces http/1.1\r\n"), "{request}");
        assert!(request.contains("content-type: application/json\r\n"), "{request}");
        outcome
    }

    #[test]
    fn the_answer_says_what_was_taken() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(answered(ok), Ok(0));
        let partly =
            "HTTP/1.1 200 OK\r\ncontent-length: 41\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"3\"}} ";
        assert_eq!(answered(partly), Ok(3));
        let busy = answered("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").unwrap_err();
        assert!(busy.may_retry && busy.reason.contains("503"), "{busy}");
        let wrong = answered("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap_err();
        assert!(!wrong.may_retry, "{wrong}");
        let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        assert!(!answered(elsewhere).unwrap_err().may_retry, "spans do not go elsewhere");
        assert!(answered("nonsense").unwrap_err().may_retry);
    }

    #[test]
    fn nobody_there_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        assert!(Collector::new(&url).send(b"{}", Duration::from_secs(60)).unwrap_err().may_retry);
    }
}
