//! The server's side: the certificate in force, and the sessions that begin with it.
//!
//! Invariants
//! - [`Acceptor::accept`] neither waits nor fails when files are being replaced.
//! - A set of files takes effect as a whole: a certificate is never served with the key of another one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{RootCertStore, ServerConfig, ServerConnection, server::WebPkiClientVerifier};

use crate::{
    ClientCertificates, LoadError, ServerPolicy, Session,
    certificate::{expires_unix_s, fault_of},
    files::{Named, Stamp},
    policy::named,
    provider,
};

/// A set of files that was loaded and fits together.
#[derive(Debug)]
pub struct Loaded {
    config: Arc<ServerConfig>,
    policy: ServerPolicy,
    stamp: Stamp,
    /// The end of the validity of the server's certificate, in seconds since 1970; `None` if it cannot be
    /// read.
    pub expires_unix_s: Option<i64>,
}

impl Loaded {
    /// Reads the files that the policy names.
    ///
    /// # Errors
    /// If a file is missing or wrong, a necessary file is not named, or the files do not fit together.
    pub fn read(policy: &ServerPolicy) -> Result<Loaded, LoadError> {
        // The stamp is taken before the files are read. So if a file changes during the reading, the next
        // reload notices.
        let stamp = Stamp::of(policy.files(), policy.directory());
        let file = |name, path| match named(path) {
            Some(path) => Ok(Named { name, path }),
            None => Err(LoadError::NotNamed(name)),
        };
        let certificates = file("tls-cert-file", &policy.certificate)?.certificates()?;
        let key = file("tls-key-file", &policy.key)?.key()?;
        let leaf = certificates.first().cloned();
        let expires_unix_s = leaf.as_ref().and_then(expires_unix_s);
        let refused = |error: rustls::Error| LoadError::Refused(error.to_string());
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&policy.versions.supported())
            .map_err(refused)?;
        let builder = match policy.clients {
            ClientCertificates::Unasked => builder.with_no_client_auth(),
            asked => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(policy)?), provider());
                let verifier = match asked {
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                let verifier = verifier.build().map_err(|error| LoadError::Refused(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mismatch =
            || LoadError::Mismatch { certificate: policy.certificate.clone(), key: policy.key.clone() };
        let config = builder.with_single_cert(certificates, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => mismatch(),
            error @ rustls::Error::InvalidCertificate(_) => LoadError::Unusable {
                name: "tls-cert-file",
                path: policy.certificate.clone(),
                reason: format!("{}, so no client would accept it", fault_of(leaf.as_ref(), &error)),
            },
            error => refused(error),
        })?;
        Ok(Loaded { config: Arc::new(config), policy: policy.clone(), stamp, expires_unix_s })
    }
}

impl Loaded {
    /// The policy that names the files.
    pub fn policy(&self) -> &ServerPolicy {
        &self.policy
    }
}

/// The authorities that sign the certificates of clients.
fn authorities(policy: &ServerPolicy) -> Result<RootCertStore, LoadError> {
    let mut authorities = RootCertStore::empty();
    if let Some(path) = named(&policy.authority_file) {
        Named { name: "tls-ca-cert-file", path }.add_authorities(&mut authorities)?;
    }
    if let Some(path) = policy.directory() {
        Named { name: "tls-ca-cert-dir", path }.add_directory(&mut authorities)?;
    }
    if authorities.is_empty() { Err(LoadError::NoAuthority) } else { Ok(authorities) }
}

/// Begins the sessions of a server.
#[derive(Debug)]
pub struct Acceptor {
    loaded: ArcSwap<Loaded>,
    /// The state of the files that were refused last. Files in this state are read again only by a
    /// [`Acceptor::reload`] with `always`.
    refused: Mutex<Option<Stamp>>,
    /// Held during a reload and a replacement. Otherwise a reload by an earlier policy could replace the
    /// files that a later policy has put in force meanwhile.
    changing: Mutex<()>,
}

impl Acceptor {
    /// An acceptor whose sessions begin with these files.
    pub fn new(loaded: Loaded) -> Acceptor {
        Acceptor {
            loaded: ArcSwap::from_pointee(loaded),
            refused: Mutex::default(),
            changing: Mutex::default(),
        }
    }

    /// Puts these files in force: new sessions begin with them from now on.
    pub fn replace(&self, loaded: Loaded) {
        let _changing = self.changing.lock();
        self.put_in_force(loaded);
    }

    fn put_in_force(&self, loaded: Loaded) {
        *self.refused.lock() = None;
        self.loaded.store(Arc::new(loaded));
    }

    /// The files in force.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// Reads the files again if they have changed; with `always`, in any case. Returns `None` if the files
    /// were not read.
    ///
    /// # Errors
    /// As [`Loaded::read`]. The earlier files then remain in force, and without `always` the refused files
    /// are not read again until they change.
    pub fn reload(&self, always: bool) -> Option<Result<(), LoadError>> {
        let _changing = self.changing.lock();
        let policy = self.loaded.load().policy.clone();
        let stamp = Stamp::of(policy.files(), policy.directory());
        let is_known = self.loaded.load().stamp == stamp || self.refused.lock().as_ref() == Some(&stamp);
        if is_known && !always {
            return None;
        }
        Some(match Loaded::read(&policy) {
            Ok(loaded) => {
                self.put_in_force(loaded);
                Ok(())
            }
            Err(error) => {
                *self.refused.lock() = Some(stamp);
                Err(error)
            }
        })
    }

    /// Begins the session of a connection that was accepted.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn accept(&self) -> Result<Session, LoadError> {
        let config = self.loaded.load().config.clone();
        let connection = ServerConnection::new(config);
        connection.map(|it| Session::new(it.into())).map_err(|error| LoadError::Refused(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{Authority, Directory, policy_in, shake_hands};

    #[test]
    fn each_fault_of_the_files_is_named() {
        let directory = Directory::new("faults");
        let authority = Authority::new();
        let policy = policy_in(&directory, &authority);
        let said = |policy: &ServerPolicy| Loaded::read(policy).unwrap_err().to_string();
        assert!(Loaded::read(&policy).unwrap().expires_unix_s.is_some());
        let other = ServerPolicy { key: "".into(), ..policy.clone() };
        assert_eq!(said(&other), "tls-key-file is not set: name a file in PEM");
        let other = ServerPolicy { certificate: directory.path("none.crt"), ..policy.clone() };
        assert!(said(&other).contains("none.crt: No such file"), "{}", said(&other));
        let other = ServerPolicy { certificate: policy.key.clone(), ..policy.clone() };
        assert!(said(&other).ends_with("it holds no certificate in PEM"));
        let other = ServerPolicy { key: policy.certificate.clone(), ..policy.clone() };
        assert!(said(&other).ends_with("it holds no private key in PEM"));
        let other = ServerPolicy { authority_file: "".into(), ..policy.clone() };
        assert!(said(&other).contains("tls-ca-cert-file or tls-ca-cert-dir"));
        let unasked = ServerPolicy { clients: ClientCertificates::Unasked, ..other };
        assert!(Loaded::read(&unasked).is_ok());
        let (_, foreign) = authority.issue(&["other"], &[]);
        fs::write(directory.path("foreign.key"), foreign).unwrap();
        let other = ServerPolicy { key: directory.path("foreign.key"), ..policy.clone() };
        assert!(said(&other).contains("does not belong to the certificate"), "{}", said(&other));
        fs::write(
            directory.path("locked.key"),
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        )
        .unwrap();
        let other = ServerPolicy { key: directory.path("locked.key"), ..policy.clone() };
        assert!(said(&other).contains("passphrase"), "{}", said(&other));
        let other = ServerPolicy { authority_file: "".into(), authority_dir: directory.path(""), ..policy };
        assert!(Loaded::read(&other).is_ok(), "a directory of authorities with other files in it");
    }

    #[test]
    fn changed_files_take_effect_as_a_whole_and_broken_ones_not_at_all() {
        let directory = Directory::new("reload");
        let (authority, successor) = (Authority::new(), Authority::new());
        let policy =
            ServerPolicy { clients: ClientCertificates::Unasked, ..policy_in(&directory, &authority) };
        let acceptor = Acceptor::new(Loaded::read(&policy).unwrap());
        assert!(acceptor.reload(false).is_none());
        let works = |authority: &Authority| {
            let client = authority.connector(&directory, None);
            shake_hands(&mut client.connect("localhost").unwrap(), &mut acceptor.accept().unwrap()).is_ok()
        };
        assert!(works(&authority) && !works(&successor));
        let (certificate, key) = successor.issue_pem(&["server"], &["localhost"]);
        fs::write(&policy.certificate, certificate).unwrap();
        let error = acceptor.reload(false).unwrap().unwrap_err();
        assert!(matches!(error, LoadError::Mismatch { .. }), "{error}");
        assert!(acceptor.reload(false).is_none(), "it is not tried again");
        assert!(works(&authority), "the earlier files are in force");
        fs::write(&policy.key, key).unwrap();
        acceptor.reload(false).unwrap().unwrap();
        assert!(works(&successor) && !works(&authority));
        assert!(acceptor.reload(true).unwrap().is_ok());
    }

    #[test]
    fn a_policy_that_was_replaced_does_not_come_back() {
        let (first, second) = (Directory::new("race-first"), Directory::new("race-second"));
        let policy = |directory: &Directory| ServerPolicy {
            clients: ClientCertificates::Unasked,
            ..policy_in(directory, &Authority::new())
        };
        let policies = [policy(&first), policy(&second)];
        let acceptor = Acceptor::new(Loaded::read(&policies[0]).unwrap());
        std::thread::scope(|scope| {
            let reloading = scope.spawn(|| (0..200).for_each(|_| _ = acceptor.reload(true)));
            for round in 1..100 {
                let wanted = &policies[round % 2];
                acceptor.replace(Loaded::read(wanted).unwrap());
                for _ in 0..10 {
                    assert_eq!(acceptor.loaded().policy(), wanted, "nobody else has named other files");
                    std::thread::yield_now();
                }
            }
            reloading.join().unwrap();
        });
    }
}
