//! `sheaf health`: asks a running server whether it serves, for supervisors and containers without curl.

use std::time::Duration;

use backup::fetch::tls_config;
use tls::{ClientFiles, LoadError};
use ureq::{Agent, tls::TlsConfig};

/// How long the answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why the server counts as unhealthy.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The certificates for the connection cannot be used.
    #[error(transparent)]
    Certificates(#[from] LoadError),
    /// The server cannot be asked, or its answer does not arrive.
    #[error("no answer from {url}: {reason}")]
    NoAnswer {
        /// The URL that was asked.
        url: String,
        /// The error, in words.
        reason: String,
    },
    /// The server answers with another status than 200.
    #[error("{url} answers {status}: {answer}")]
    Refused {
        /// The URL that was asked.
        url: String,
        /// The status of the HTTP answer.
        status: u16,
        /// The text of the answer, which gives the reason.
        answer: String,
    },
}

/// Asks `/_up` of the server at `url`, and prints the answer. `files` are for a URL that begins with `https`.
///
/// # Errors
/// [`HealthError`]; a status other than 200 is [`HealthError::Refused`].
pub fn run(url: &str, files: &ClientFiles) -> Result<(), HealthError> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let url = format!("{}/_up", url.trim_end_matches('/'));
    let no_answer = |error: ureq::Error| HealthError::NoAnswer {
        url: url.clone(),
        reason: tls::advised(&error.to_string()),
    };
    let tls = if url.starts_with("https://") { tls_config(files)? } else { TlsConfig::default() };
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .proxy(None)
        .tls_config(tls);
    let agent: Agent = config.build().into();
    let mut response = agent.get(&url).call().map_err(no_answer)?;
    let answer = response.body_mut().read_to_string().map_err(no_answer)?.trim().to_owned();
    match response.status().as_u16() {
        200 => {
            println!("{answer}");
            Ok(())
        }
        status => Err(HealthError::Refused { url, status, answer }),
    }
}
