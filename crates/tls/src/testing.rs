//! Helpers for tests: authorities that sign certificates, directories, and two sides without sockets between
//! them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair,
};
use rustls::pki_types::CertificateDer;

use crate::{
    Acceptor, ClientCertificates, ClientFiles, Connector, Loaded, RECORD_BYTES_MAX, ServerPolicy, Session,
    Versions,
};

/// A directory that is removed when the value is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("sheaf-tls-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(unique);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A test authority, which signs certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    number: u32,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer, number }
    }

    /// Issues a certificate with these common names, valid for these hosts. Returns the certificate, and its
    /// key in PEM.
    pub(crate) fn issue(&self, names: &[&str], hosts: &[&str]) -> (CertificateDer<'static>, String) {
        let (certificate, key) = self.signed(names, hosts);
        (certificate.der().clone(), key.serialize_pem())
    }

    pub(crate) fn issue_pem(&self, names: &[&str], hosts: &[&str]) -> (String, String) {
        let (certificate, key) = self.signed(names, hosts);
        (certificate.pem(), key.serialize_pem())
    }

    fn signed(&self, names: &[&str], hosts: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (index, name) in names.iter().enumerate() {
            // The library keeps only one value of each type, so a second common name gets a custom type with
            // the same number.
            let kind = match index {
                0 => DnType::CommonName,
                _ => DnType::CustomDnType(vec![2, 5, 4, 3]),
            };
            params.distinguished_name.push(kind, *name);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes the authority's certificate to a file, and returns the file's path.
    pub(crate) fn file(&self, directory: &Directory) -> PathBuf {
        let path = directory.path(&format!("authority-{}.crt", self.number));
        fs::write(&path, self.issuer.pem()).unwrap();
        path
    }

    /// A client that trusts this authority. With `shown`, the client shows a certificate that the given
    /// authority has signed for the given name.
    pub(crate) fn connector(&self, directory: &Directory, shown: Option<(&Authority, &str)>) -> Connector {
        let mut files = ClientFiles { authorities: Some(self.file(directory)), ..ClientFiles::default() };
        if let Some((by, name)) = shown {
            let (certificate, key) = by.issue_pem(&[name], &[]);
            let write = |name: &str, content: String| {
                let path = directory.path(name);
                fs::write(&path, content).unwrap();
                path
            };
            files.certificate = Some(write("client.crt", certificate));
            files.key = Some(write("client.key", key));
        }
        Connector::new(&files).unwrap()
    }
}

/// A policy with a certificate for this machine, which requires certificates of clients.
pub(crate) fn policy_in(directory: &Directory, authority: &Authority) -> ServerPolicy {
    let (certificate, key) = authority.issue_pem(&["server"], &["localhost", "127.0.0.1"]);
    let policy = ServerPolicy {
        certificate: directory.path("server.crt"),
        key: directory.path("server.key"),
        authority_file: authority.file(directory),
        authority_dir: Path::new("").into(),
        clients: ClientCertificates::Required,
        versions: Versions::parse("").unwrap(),
    };
    fs::write(&policy.certificate, certificate).unwrap();
    fs::write(&policy.key, key).unwrap();
    policy
}

/// Two sides before their handshake: a client named alice, and a server.
pub(crate) fn begin(name: &str) -> (Session, Session) {
    let (directory, authority) = (Directory::new(name), Authority::new());
    let acceptor = Acceptor::new(Loaded::read(&policy_in(&directory, &authority)).unwrap());
    let connector = authority.connector(&directory, Some((&authority, "alice")));
    (connector.connect("localhost").unwrap(), acceptor.accept().unwrap())
}

/// Two sides after their handshake.
pub(crate) fn pair(name: &str) -> (Session, Session) {
    let (mut client, mut server) = begin(name);
    shake_hands(&mut client, &mut server).unwrap();
    (client, server)
}

/// Carries bytes between the sides until neither side sends any more. Fails if a handshake is not complete
/// then.
pub(crate) fn shake_hands(client: &mut Session, server: &mut Session) -> Result<(), String> {
    let mut plain = vec![0; (64 << 10) + RECORD_BYTES_MAX];
    loop {
        let mut moved = false;
        for turn in 0..2 {
            let (from, to) =
                if turn == 0 { (&mut *client, &mut *server) } else { (&mut *server, &mut *client) };
            let mut wire = Vec::new();
            from.write_to(&mut wire).map_err(|error| error.to_string())?;
            moved |= !wire.is_empty();
            to.receive(&wire, &mut plain).map_err(|error| error.to_string())?;
        }
        if !moved {
            return if client.is_handshaking() || server.is_handshaking() {
                Err("stuck".into())
            } else {
                Ok(())
            };
        }
    }
}
