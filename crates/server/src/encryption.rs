//! The certificates in force, and the settings about them.
//!
//! ```text
//! start | CONFIG SET, the file of settings | SIGHUP | files that changed -> tls::Loaded, checked -> tls::Acceptor
//! ```
//!
//! What it is: what decides when the files are read, and says what came of it. What it is not: a reader of
//! files or a judge of certificates (crate `tls`), or a door: listeners and handshakes ask it for sessions.
//!
//! Invariants
//! - A server with a door for TLS starts only with a set of files that can be used, and keeps one.
//! - Values that a client sets are checked with their files before they are in force.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use settings::{Key, Settings};
use tls::{Acceptor, ClientCertificates, LoadError, Loaded, ServerPolicy, Versions};

/// The settings that name files or say how sessions begin.
const OF_SESSIONS: [Key; 6] = [
    Key::TlsCertFile,
    Key::TlsKeyFile,
    Key::TlsCaCertFile,
    Key::TlsCaCertDir,
    Key::TlsAuthClients,
    Key::TlsProtocols,
];
/// Warnings begin so long before the server's certificate ends.
const EXPIRES_SOON_S: i64 = 7 * 24 * 3600;

/// What INFO and metrics show of encrypted connections.
#[derive(Debug, Default)]
pub(crate) struct EncryptionFigures {
    /// Handshakes that succeeded.
    pub(crate) handshakes: AtomicU64,
    /// Handshakes that failed or took too long.
    pub(crate) failed: AtomicU64,
    /// Handshakes that go on.
    pub(crate) unfinished: AtomicU64,
    /// Times that files were read again and put in force.
    pub(crate) reloads: AtomicU64,
}

pub(crate) struct Encryption {
    acceptor: Arc<Acceptor>,
    pub(crate) figures: EncryptionFigures,
    /// A warning about the end of the certificate was logged.
    has_warned: AtomicBool,
}

impl Encryption {
    /// Reads the files; `None` if no setting opens a door for TLS.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub(crate) fn open(settings: &Settings) -> Result<Option<Encryption>, LoadError> {
        if settings.integer(Key::TlsPort) == 0 {
            return Ok(None);
        }
        let loaded = Loaded::read(&policy(settings)?)?;
        let acceptor = Arc::new(Acceptor::new(loaded));
        Ok(Some(Encryption { acceptor, figures: EncryptionFigures::default(), has_warned: false.into() }))
    }

    pub(crate) fn acceptor(&self) -> &Arc<Acceptor> {
        &self.acceptor
    }

    /// Whether a change of this setting concerns the sessions.
    pub(crate) fn is_concerned(key: Key) -> bool {
        OF_SESSIONS.contains(&key)
    }

    /// Checks settings that are not in force yet.
    ///
    /// # Errors
    /// In words: why sessions cannot begin with them.
    pub(crate) fn check(settings: &Settings) -> Result<(), String> {
        let loaded = policy(settings).and_then(|policy| Loaded::read(&policy));
        loaded.map(|_| ()).map_err(|error| error.to_string())
    }

    /// The settings in force have changed, perhaps in nothing that concerns sessions.
    pub(crate) fn follow(&self, settings: &Settings) {
        let Ok(policy) = policy(settings) else { return };
        if *self.acceptor.loaded().policy() == policy {
            return self.reload(false);
        }
        self.report(Loaded::read(&policy).map(|loaded| self.acceptor.replace(loaded)));
    }

    /// Reads the files again if they have changed; with `always`, in any case.
    pub(crate) fn reload(&self, always: bool) {
        if let Some(outcome) = self.acceptor.reload(always) {
            self.report(outcome);
        }
    }

    fn report(&self, outcome: Result<(), LoadError>) {
        match outcome {
            Ok(()) => {
                self.figures.reloads.fetch_add(1, Relaxed);
                self.has_warned.store(false, Relaxed);
                let expires_unix_s = self.expires_unix_s().unwrap_or(0);
                tracing::info!(target: "server", expires_unix_s, "TLS: new connections get the certificate that was read just now");
            }
            Err(error) => tracing::warn!(
                target: "server", %error,
                "TLS: the files have changed and cannot be used; connections get the earlier certificate"
            ),
        }
    }

    /// When the server's certificate ends, in seconds since 1970.
    pub(crate) fn expires_unix_s(&self) -> Option<i64> {
        self.acceptor.loaded().expires_unix_s
    }

    /// Warns once if the certificate has ended or ends soon.
    pub(crate) fn warn_of_end(&self, now_unix_s: i64) {
        let Some(end) = self.expires_unix_s().filter(|end| *end < now_unix_s + EXPIRES_SOON_S) else {
            return;
        };
        if self.has_warned.swap(true, Relaxed) {
            return;
        }
        let hours = (end - now_unix_s) / 3600;
        if end <= now_unix_s {
            tracing::warn!(target: "server", "TLS: the certificate (tls-cert-file) has expired: clients refuse it");
        } else {
            tracing::warn!(target: "server", hours, "TLS: the certificate (tls-cert-file) expires soon");
        }
    }
}

/// Whether the name in a client's certificate says which user it is.
pub(crate) fn certificates_name_users(settings: &Settings) -> bool {
    settings.integer(Key::TlsPort) != 0 && settings.text(Key::TlsAuthClientsUser) == "CN"
}

fn policy(settings: &Settings) -> Result<ServerPolicy, LoadError> {
    let path = |key| PathBuf::from(settings.text(key));
    Ok(ServerPolicy {
        certificate: path(Key::TlsCertFile),
        key: path(Key::TlsKeyFile),
        authority_file: path(Key::TlsCaCertFile),
        authority_dir: path(Key::TlsCaCertDir),
        clients: match settings.text(Key::TlsAuthClients) {
            "no" => ClientCertificates::Unasked,
            "optional" => ClientCertificates::Optional,
            _ => ClientCertificates::Required,
        },
        versions: Versions::parse(settings.text(Key::TlsProtocols))?,
    })
}
