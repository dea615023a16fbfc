//! The client's side: the authorities that it trusts, and the certificate that it shows.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};

use crate::{LoadError, Session, files::Named, provider};

/// The files with the authorities that a client trusts, and with the certificate that it shows. The flags
/// belong to client commands, and are named as in redis-cli.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that sign servers' certificates (`--cacert`); `None` for the system's own.
    pub authorities: Option<PathBuf>,
    /// The certificate that the client shows (`--cert`).
    pub certificate: Option<PathBuf>,
    /// The key of that certificate (`--key`).
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must have (`--sni`), unless every server is trusted. `None`
    /// means the host of the connection.
    pub server_name: Option<String>,
    /// Whether to trust every server (`--insecure`). The connection is then encrypted, but may be to the
    /// wrong server.
    pub trusts_everybody: bool,
}

/// The contents of [`ClientFiles`].
#[derive(Debug)]
pub struct ClientIdentity {
    /// The authorities to trust.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The certificate to show, followed by the certificates between it and its authority; empty if none is
    /// to be shown.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The key of the certificate to show; `None` if none is to be shown.
    pub key: Option<PrivateKeyDer<'static>>,
}

impl ClientFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file is missing or wrong, if no authority is known and not every server is trusted, or if only
    /// one of certificate and key is given.
    pub fn read(&self) -> Result<ClientIdentity, LoadError> {
        let authorities = match &self.authorities {
            Some(path) => Named { name: "--cacert", path }.certificates()?,
            None if self.trusts_everybody => Vec::new(),
            None => rustls_native_certs::load_native_certs().certs,
        };
        if authorities.is_empty() && !self.trusts_everybody {
            return Err(LoadError::NotNamed("--cacert (this system has no authorities of its own)"));
        }
        let (certificates, key) = match (&self.certificate, &self.key) {
            (None, None) => (Vec::new(), None),
            (Some(_), None) => return Err(LoadError::NotNamed("--key")),
            (None, Some(_)) => return Err(LoadError::NotNamed("--cert")),
            (Some(certificate), Some(key)) => (
                Named { name: "--cert", path: certificate }.certificates()?,
                Some(Named { name: "--key", path: key }.key()?),
            ),
        };
        Ok(ClientIdentity { authorities, certificates, key })
    }
}

/// Begins the sessions of a client.
#[derive(Debug, Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl Connector {
    /// Reads the files. All sessions of the connector use them.
    ///
    /// # Errors
    /// As [`ClientFiles::read`]; also if the files do not fit together.
    pub fn new(files: &ClientFiles) -> Result<Connector, LoadError> {
        let refused = |error: rustls::Error| LoadError::Refused(error.to_string());
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(refused)?;
        let ClientIdentity { authorities, certificates, key } = files.read()?;
        let builder = if files.trusts_everybody {
            let verifier = Arc::new(TrustsEverybody(provider()));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        } else {
            let mut trusted = RootCertStore::empty();
            trusted.add_parsable_certificates(authorities);
            builder.with_root_certificates(trusted)
        };
        let config = match key {
            None => builder.with_no_client_auth(),
            Some(key) => builder.with_client_auth_cert(certificates, key).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => LoadError::Mismatch {
                    certificate: files.certificate.clone().unwrap_or_default(),
                    key: files.key.clone().unwrap_or_default(),
                },
                error => refused(error),
            })?,
        };
        Ok(Connector { config: Arc::new(config), server_name: files.server_name.clone() })
    }

    /// Begins the session of a connection to this host.
    ///
    /// # Errors
    /// If the name that the certificate must have is neither a host name nor an IP address, or if rustls
    /// refuses.
    pub fn connect(&self, host: &str) -> Result<Session, LoadError> {
        let host = self.server_name.as_deref().unwrap_or(host);
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned());
        let name = name.map_err(|_| LoadError::ServerName(bare.into()))?;
        let connection = ClientConnection::new(self.config.clone(), name);
        connection.map(|it| Session::new(it.into())).map_err(|error| LoadError::Refused(error.to_string()))
    }
}

/// Accepts every certificate. It verifies only the signature made with the certificate's key, so the other
/// side is known to have the key of the certificate that it shows.
#[derive(Debug)]
struct TrustsEverybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustsEverybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Acceptor, ClientCertificates, Loaded, ServerPolicy,
        testing::{Authority, Directory, policy_in, shake_hands},
    };

    #[test]
    fn a_client_trusts_whom_it_was_told_to() {
        let directory = Directory::new("trust");
        let (authority, stranger) = (Authority::new(), Authority::new());
        let clients = ClientCertificates::Unasked;
        let policy = ServerPolicy { clients, ..policy_in(&directory, &authority) };
        let acceptor = Acceptor::new(Loaded::read(&policy).unwrap());
        let attempt = |files: &ClientFiles, host: &str| {
            let mut client = Connector::new(files).unwrap().connect(host).unwrap();
            shake_hands(&mut client, &mut acceptor.accept().unwrap())
        };
        let trusting =
            ClientFiles { authorities: Some(authority.file(&directory)), ..ClientFiles::default() };
        assert_eq!(attempt(&trusting, "localhost"), Ok(()));
        assert_eq!(attempt(&trusting, "127.0.0.1"), Ok(()));
        let error = attempt(&trusting, "elsewhere.example").unwrap_err();
        assert!(error.contains("not valid for name"), "{error}");
        let named = ClientFiles { server_name: Some("localhost".into()), ..trusting.clone() };
        assert_eq!(attempt(&named, "elsewhere.example"), Ok(()));
        let wrong = ClientFiles { authorities: Some(stranger.file(&directory)), ..trusting };
        assert!(attempt(&wrong, "localhost").is_err());
        let careless = ClientFiles { trusts_everybody: true, ..wrong };
        assert_eq!(attempt(&careless, "elsewhere.example"), Ok(()));
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let files = ClientFiles { trusts_everybody: true, ..ClientFiles::default() };
        let half = ClientFiles { certificate: Some("a".into()), ..files.clone() };
        assert_eq!(Connector::new(&half).unwrap_err().to_string(), "--key is not set: name a file in PEM");
        let half = ClientFiles { key: Some("a".into()), ..files.clone() };
        assert_eq!(Connector::new(&half).unwrap_err().to_string(), "--cert is not set: name a file in PEM");
        let connector = Connector::new(&files).unwrap();
        assert!(connector.connect("[::1]").is_ok() && connector.connect("no host").is_err());
    }
}
