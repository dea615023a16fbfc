//! The policy of a server for its connections: its certificate, and the certificates of clients.

use std::path::{Path, PathBuf};

use rustls::SupportedProtocolVersion;

use crate::LoadError;

/// Whether clients show certificates (`tls-auth-clients`, `http-tls-auth-clients`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients must show a certificate that an authority has signed.
    Required,
    /// Clients may show a certificate, which must then be valid.
    Optional,
    /// Clients are not asked for a certificate.
    Unasked,
}

/// The versions of TLS that are spoken (`tls-protocols`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    v1_2: bool,
    v1_3: bool,
}

impl Versions {
    /// Parses names of versions with white space between them. Without any name, both versions are spoken.
    ///
    /// # Errors
    /// If a name is neither `TLSv1.2` nor `TLSv1.3`.
    pub fn parse(text: &str) -> Result<Versions, LoadError> {
        let mut versions = Versions { v1_2: false, v1_3: false };
        for name in text.split_whitespace() {
            match name.to_ascii_lowercase().as_str() {
                "tlsv1.2" => versions.v1_2 = true,
                "tlsv1.3" => versions.v1_3 = true,
                _ => return Err(LoadError::Versions(text.into())),
            }
        }
        let is_default = !versions.v1_2 && !versions.v1_3;
        Ok(if is_default { Versions { v1_2: true, v1_3: true } } else { versions })
    }

    pub(crate) fn supported(self) -> Vec<&'static SupportedProtocolVersion> {
        let v1_2 = self.v1_2.then_some(&rustls::version::TLS12);
        self.v1_3.then_some(&rustls::version::TLS13).into_iter().chain(v1_2).collect()
    }
}

/// The policy of a server for its connections. An empty path names no file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPolicy {
    /// The server's certificate, followed by the certificates between it and its authority (`tls-cert-file`).
    pub certificate: PathBuf,
    /// The key of that certificate (`tls-key-file`).
    pub key: PathBuf,
    /// A file with authorities that sign certificates of clients (`tls-ca-cert-file`).
    pub authority_file: PathBuf,
    /// A directory with more authorities that sign certificates of clients (`tls-ca-cert-dir`).
    pub authority_dir: PathBuf,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
    /// The versions of the protocol.
    pub versions: Versions,
}

impl ServerPolicy {
    /// The named files, without the directory.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key, &self.authority_file].into_iter().filter_map(|path| named(path))
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        named(&self.authority_dir)
    }
}

/// The path; `None` if it is empty.
pub(crate) fn named(path: &Path) -> Option<&Path> {
    (!path.as_os_str().is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_are_secure() {
        let both = Versions { v1_2: true, v1_3: true };
        assert_eq!(Versions::parse(""), Ok(both));
        assert_eq!(Versions::parse("TLSv1.3 tlsv1.2"), Ok(both));
        assert_eq!(Versions::parse("TLSv1.3"), Ok(Versions { v1_2: false, v1_3: true }));
        for refused in ["TLSv1.1", "TLSv1.2,TLSv1.3", "SSLv3 TLSv1.3"] {
            assert!(Versions::parse(refused).is_err(), "{refused}");
        }
    }
}
