//! The certificates in force, and the settings about them.
//!
//! ```text
//! start | CONFIG SET, the file of settings | SIGHUP | files that changed
//!    -> tls::Loaded, checked -> tls::Acceptor of each door
//! ```
//!
//! This module decides when the files are read, and reports the outcome. The crate `tls` reads the files and
//! judges certificates. Listeners and handshakes get their sessions from here.
//!
//! Invariants
//! - A server with a door for TLS starts only with files that can be used. Afterwards it always has a usable
//!   set of them: files that cannot be used do not replace earlier ones.
//! - Values that a client sets are checked with their files before they are in force.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use settings::{Key, Settings};
use tls::{Acceptor, ClientCertificates, ClientFiles, LoadError, Loaded, ServerPolicy, Versions};

/// The settings that name files or say how sessions begin.
const OF_SESSIONS: [Key; 7] = [
    Key::TlsCertFile,
    Key::TlsKeyFile,
    Key::TlsCaCertFile,
    Key::TlsCaCertDir,
    Key::TlsAuthClients,
    Key::HttpTlsAuthClients,
    Key::TlsProtocols,
];
/// The server warns of a certificate that expires within this time.
const EXPIRES_SOON_S: i64 = 7 * 24 * 3600;

/// The figures of encrypted connections for INFO and metrics.
#[derive(Debug, Default)]
pub(crate) struct EncryptionFigures {
    /// Handshakes that succeeded.
    pub(crate) handshakes: AtomicU64,
    /// Handshakes that failed, took too long or gave way to others.
    pub(crate) failed: AtomicU64,
    /// Handshakes in progress.
    pub(crate) unfinished: AtomicU64,
    /// Times that files were read again and put in force.
    pub(crate) reloads: AtomicU64,
}

/// A port with TLS. Each has a setting of its own for the certificates of its clients; all use the same
/// files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// `tls-port`.
    Redis,
    /// `http-tls-port`.
    Http,
}

impl Door {
    const ALL: [Door; 2] = [Door::Redis, Door::Http];

    fn is_open(self, settings: &Settings) -> bool {
        let port = match self {
            Door::Redis => Key::TlsPort,
            Door::Http => Key::HttpTlsPort,
        };
        settings.integer(port) != 0
    }

    fn policy(self, settings: &Settings) -> Result<ServerPolicy, LoadError> {
        let path = |key| PathBuf::from(settings.text(key));
        let clients = match self {
            Door::Redis => Key::TlsAuthClients,
            Door::Http => Key::HttpTlsAuthClients,
        };
        Ok(ServerPolicy {
            certificate: path(Key::TlsCertFile),
            key: path(Key::TlsKeyFile),
            authority_file: path(Key::TlsCaCertFile),
            authority_dir: path(Key::TlsCaCertDir),
            clients: match settings.text(clients) {
                "no" => ClientCertificates::Unasked,
                "optional" => ClientCertificates::Optional,
                _ => ClientCertificates::Required,
            },
            versions: Versions::parse(settings.text(Key::TlsProtocols))?,
        })
    }

    fn load(self, settings: &Settings) -> Result<Loaded, LoadError> {
        Loaded::read(&self.policy(settings)?)
    }
}

pub(crate) struct Encryption {
    /// Has at least one door.
    doors: Vec<(Door, Arc<Acceptor>)>,
    pub(crate) figures: EncryptionFigures,
    /// Whether a warning about the end of the certificate was logged.
    has_warned: AtomicBool,
}

impl Encryption {
    /// Reads the files; `None` if no setting opens a door for TLS.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub(crate) fn open(settings: &Settings) -> Result<Option<Encryption>, LoadError> {
        let mut doors = Vec::new();
        for door in Door::ALL.into_iter().filter(|door| door.is_open(settings)) {
            doors.push((door, Arc::new(Acceptor::new(door.load(settings)?))));
        }
        let figures = EncryptionFigures::default();
        Ok((!doors.is_empty()).then(|| Encryption { doors, figures, has_warned: false.into() }))
    }

    /// The acceptor of a door; `None` if the door is closed.
    pub(crate) fn acceptor(&self, door: Door) -> Option<Arc<Acceptor>> {
        self.doors.iter().find(|(it, _)| *it == door).map(|(_, acceptor)| acceptor.clone())
    }

    /// Checks settings that are not in force yet; `changed` has the keys that were set.
    ///
    /// # Errors
    /// If sessions of an open door could not begin with these settings: the first changed setting that
    /// concerns sessions, and the reason.
    pub(crate) fn check(settings: &Settings, changed: &[Key]) -> Result<(), (Key, String)> {
        let Some(key) = changed.iter().find(|key| OF_SESSIONS.contains(key)) else { return Ok(()) };
        // All settings are checked together, because a certificate and its key change together.
        for door in Door::ALL.into_iter().filter(|door| door.is_open(settings)) {
            door.load(settings).map_err(|error| (*key, error.to_string()))?;
        }
        Ok(())
    }

    /// Follows a change of the settings in force. If the change concerns sessions and its files can be used,
    /// new sessions begin with them. If it does not concern sessions, the files are read again if they have
    /// changed.
    pub(crate) fn follow(&self, settings: &Settings) {
        self.report(self.doors.iter().filter_map(|(door, acceptor)| {
            let policy = door.policy(settings).ok()?;
            if *acceptor.loaded().policy() == policy {
                return acceptor.reload(false);
            }
            Some(Loaded::read(&policy).map(|loaded| acceptor.replace(loaded)))
        }));
    }

    /// Reads the files again if they have changed; with `always`, in any case.
    pub(crate) fn reload(&self, always: bool) {
        self.report(self.doors.iter().filter_map(|(_, acceptor)| acceptor.reload(always)));
    }

    /// Logs the outcome of reading the files again, in one line for all doors.
    fn report(&self, outcomes: impl Iterator<Item = Result<(), LoadError>>) {
        match outcomes.reduce(Result::and) {
            None => {}
            Some(Ok(())) => {
                self.figures.reloads.fetch_add(1, Relaxed);
                self.has_warned.store(false, Relaxed);
                let expires_unix_s = self.expires_unix_s().unwrap_or(0);
                tracing::info!(target: "server", expires_unix_s, "TLS: new connections get the certificate that was read just now");
            }
            Some(Err(error)) => tracing::warn!(
                target: "server", %error,
                "TLS: the files have changed and cannot be used; connections get the earlier certificate"
            ),
        }
    }

    /// When the server's certificate ends, in seconds since 1970.
    pub(crate) fn expires_unix_s(&self) -> Option<i64> {
        self.doors.first().and_then(|(_, acceptor)| acceptor.loaded().expires_unix_s)
    }

    /// Warns if the certificate has expired, or expires within [`EXPIRES_SOON_S`]: once after the start, and
    /// once after each reload that has put files in force.
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

/// The certificate that this server shows to other servers, and the authority that must have signed theirs.
pub(crate) fn files_for_servers(settings: &Settings) -> ClientFiles {
    let path = |key| Some(PathBuf::from(settings.text(key))).filter(|path| !path.as_os_str().is_empty());
    ClientFiles {
        authorities: path(Key::TlsCaCertFile),
        certificate: path(Key::TlsCertFile),
        key: path(Key::TlsKeyFile),
        ..ClientFiles::default()
    }
}

/// Whether the name in a client's certificate says which user it is.
pub(crate) fn certificates_name_users(settings: &Settings) -> bool {
    settings.integer(Key::TlsPort) != 0 && settings.text(Key::TlsAuthClientsUser) == "CN"
}
