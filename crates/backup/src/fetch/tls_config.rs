//! Converts the certificates that the crate `tls` has read into the configuration of the HTTP client
//! (`ureq`).

use std::{fs, path::Path};

use tls::{ClientFiles, ClientIdentity, LoadError};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

/// Reads the files for connections over TLS. The name of the server is the host of the URL.
///
/// # Errors
/// As [`ClientFiles::read`]; also if the HTTP client cannot use the key.
pub fn tls_config(files: &ClientFiles) -> Result<TlsConfig, LoadError> {
    let ClientIdentity { authorities, certificates, .. } = files.read()?;
    let owned = |der: &[u8]| Certificate::from_der(der).to_owned();
    let authorities: Vec<_> = authorities.iter().map(|der| owned(der)).collect();
    let certificates: Vec<_> = certificates.iter().map(|der| owned(der)).collect();
    let client = files.key.as_deref().map(|path| Ok(ClientCert::new_with_certs(&certificates, key(path)?)));
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&authorities))
        .client_cert(client.transpose()?)
        .disable_verification(files.trusts_everybody)
        .unversioned_rustls_crypto_provider(tls::provider())
        .build())
}

/// The key of a file. The HTTP client takes keys only as PEM, so the file is read again.
fn key(path: &Path) -> Result<PrivateKey<'static>, LoadError> {
    let unusable = |reason: String| LoadError::Unusable { name: "--key", path: path.into(), reason };
    let content = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    PrivateKey::from_pem(&content).map_err(|error| unusable(error.to_string()))
}
