//! The server to be backed up, through its HTTP port.
//!
//! Invariants
//! - A server that is silent for [`SILENCE_MAX`] is given up. Only the request for a session is made up to
//!   [`BEGIN_TRIES`] times, because the server may have to take a snapshot first. A [`Breaker`] ends the wait
//!   at once.

use std::{
    io::{ErrorKind, Read},
    ops::Range,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use tls::{ClientFiles, LoadError};
use ureq::{Agent, Body, Timeout, http::Response, tls::TlsConfig};

use super::{Origin, tls_config};
use crate::{FOR_FOLLOWER, LOG_ONLY, Offer, Refusal};

/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data in either direction after which a connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// The maximum number of requests for a session, each of which waits for [`SILENCE_MAX`]: together half an
/// hour. The server replies once a snapshot exists, and may have to take one first.
const BEGIN_TRIES: usize = 90;

/// The server refuses, or cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No server replies.
    #[error("cannot reach the server at {url}: {error}. Name its HTTP port with --from")]
    Unreachable {
        /// The URL of the request.
        url: String,
        /// The error.
        error: String,
        /// Whether a connection may have been made.
        is_connected: bool,
    },
    /// The password is missing or wrong.
    #[error(
        "{reason} Give a file that holds the password with --password-file, and the user's name with --user"
    )]
    Unauthorized {
        /// The server's reason.
        reason: String,
    },
    /// Any other refusal.
    #[error("the server refuses ({status}): {reason}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's reason.
        reason: String,
    },
    /// The reply does not come from a server that can be backed up.
    #[error(
        "the server at {url} makes no backups: {reason}. Name the HTTP port of a Sheaf server with --from"
    )]
    Strange {
        /// The URL of the request.
        url: String,
        /// The reason.
        reason: String,
        /// Whether the server may have begun a session nevertheless.
        may_have_begun: bool,
    },
}

impl RemoteError {
    /// Whether the error shows that the server has begun no session.
    pub(super) fn has_no_session(&self) -> bool {
        match self {
            RemoteError::Unreachable { is_connected, .. } => !is_connected,
            RemoteError::Unauthorized { .. } | RemoteError::Refused { .. } => true,
            RemoteError::Strange { may_have_begun, .. } => !may_have_begun,
        }
    }
}

/// A server, as the [`Origin`] of a backup.
pub struct Remote {
    agent: Agent,
    url: String,
    authorization: Option<String>,
    is_log_only: bool,
    is_for_follower: bool,
}

/// Ends the requests of a [`Remote`] from another thread; the remote is unusable afterwards.
pub struct Breaker(Agent);

impl Breaker {
    /// Makes the transfer in progress, and later ones, fail.
    pub fn break_off(self) {
        self.0.shutdown();
    }
}

fn agent(tls: TlsConfig) -> Agent {
    let config = Agent::config_builder()
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_per_read(Some(SILENCE_MAX))
        .timeout_per_write(Some(SILENCE_MAX))
        .http_status_as_error(false)
        .proxy(None)
        .tls_config(tls)
        .user_agent(concat!("sheaf/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

impl Remote {
    /// The server at `url`, with the credentials of `user` if there is a password.
    pub fn new(url: &str, user: &str, password: Option<&str>) -> Remote {
        let url = if url.contains("://") { url.to_string() } else { format!("http://{url}") };
        let basic = |password| format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        Remote {
            agent: agent(TlsConfig::default()),
            url: url.trim_end_matches('/').to_string(),
            authorization: password.map(basic),
            is_log_only: false,
            is_for_follower: false,
        }
    }

    /// Uses these files for connections over TLS. Connections use TLS if the URL begins with `https`.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn over_tls(self, files: &ClientFiles) -> Result<Remote, LoadError> {
        Ok(Remote { agent: agent(tls_config(files)?), ..self })
    }

    /// Asks the server for its log alone, without the state before it.
    pub fn log_only(self) -> Remote {
        Remote { is_log_only: true, ..self }
    }

    /// Asks as a server that will follow the server from which it copies.
    pub fn for_follower(self) -> Remote {
        Remote { is_for_follower: true, ..self }
    }

    /// A handle that stops this remote's transfers from another thread.
    pub fn breaker(&self) -> Breaker {
        Breaker(self.agent.clone())
    }

    fn accepted(&self, response: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, RemoteError> {
        let unreachable = |error: ureq::Error| RemoteError::Unreachable {
            url: self.url.clone(),
            error: error.to_string(),
            is_connected: !fails_to_connect(&error),
        };
        let response = response.map_err(|error| match error {
            ureq::Error::Protocol(error) => self.foreign(format_args!("it does not speak HTTP ({error})")),
            error => unreachable(error),
        })?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let text = self.text(response)?;
        let reason = serde_json::from_str(&text).map_or(text, |Refusal { reason, .. }| reason);
        match status {
            401 => Err(RemoteError::Unauthorized { reason }),
            _ => Err(RemoteError::Refused { status, reason }),
        }
    }

    fn text(&self, mut response: Response<Body>) -> Result<String, RemoteError> {
        response.body_mut().read_to_string().map_err(|error| self.strange(error))
    }

    fn strange(&self, reason: impl ToString) -> RemoteError {
        RemoteError::Strange { url: self.url.clone(), reason: reason.to_string(), may_have_begun: true }
    }

    /// The error for a server of another kind.
    fn foreign(&self, reason: impl ToString) -> RemoteError {
        RemoteError::Strange { url: self.url.clone(), reason: reason.to_string(), may_have_begun: false }
    }
}

/// Whether this is an error of connecting.
fn fails_to_connect(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
        ),
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => true,
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => true,
        _ => false,
    }
}

impl Origin for Remote {
    fn begin(&self, session: &str, resume: Option<u64>, is_silent: &dyn Fn()) -> Result<Offer, RemoteError> {
        let resume = resume.map_or(String::new(), |begin_lsn| format!("&resume={begin_lsn}"));
        let ask = || {
            let part = if self.is_log_only { format!("&{LOG_ONLY}") } else { String::new() };
            let asker = if self.is_for_follower { format!("&{FOR_FOLLOWER}") } else { String::new() };
            let url = format!("{}/_backup?session={session}{resume}{part}{asker}", self.url);
            // The request has no body. It is declared as JSON nevertheless, because only such requests may
            // change state.
            let mut request = self.agent.post(url).header("content-type", "application/json");
            if let Some(authorization) = &self.authorization {
                request = request.header("authorization", authorization);
            }
            request.send_empty()
        };
        let is_waiting =
            |answer: &Result<_, _>| matches!(answer, Err(ureq::Error::Timeout(Timeout::PerRead)));
        let mut answer = ask();
        // Only a read timeout is retried: a server that takes a snapshot is reachable but silent.
        for _ in 1..BEGIN_TRIES {
            if !is_waiting(&answer) {
                break;
            }
            is_silent();
            answer = ask();
        }
        let accepted = self.accepted(answer).map_err(|error| match error {
            // Servers of other kinds answer an unknown path with one of these.
            RemoteError::Refused { status: 404 | 405 | 501, .. } => self.foreign("it is no Sheaf server"),
            error => error,
        });
        let text = self.text(accepted?)?;
        serde_json::from_str(&text).map_err(|error| self.strange(error))
    }

    fn read(&self, offer: &Offer, name: &str, range: Range<u64>) -> Result<Box<dyn Read>, RemoteError> {
        let mut request = self.agent.get(format!("{}/_backup/{}/{name}", self.url, offer.session));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        request = request.header("range", format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
        let response = self.accepted(request.call())?;
        match response.status().as_u16() {
            206 => Ok(Box::new(response.into_body().into_reader())),
            status => Err(self.strange(format!("status {status} for a piece of a file"))),
        }
    }

    fn end(&self, offer: &Offer) {
        let mut request = self.agent.delete(format!("{}/_backup/{}", self.url, offer.session));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let _ = request.call();
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener, thread};

    use super::*;

    /// The error of a backup from a server with this answer.
    fn begun(answer: &'static str) -> RemoteError {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = listener.local_addr().expect("an address").to_string();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        });
        let error = Remote::new(&url, "", None).begin("s", None, &|| ()).expect_err("it makes no backups");
        serving.join().expect("it has answered");
        error
    }

    #[test]
    fn a_server_of_another_kind_has_no_session() {
        for answer in ["-ERR unknown command\r\n", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"] {
            assert!(begun(answer).has_no_session(), "{answer}");
        }
        // The answer is broken, but the server may be a Sheaf server.
        assert!(!begun("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{").has_no_session());
    }
}
