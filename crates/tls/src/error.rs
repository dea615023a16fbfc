//! Why files cannot be used for TLS, or why a session cannot begin with them.

use std::path::PathBuf;

/// A fault of a file, of a setting that names files or versions, or of the name of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A file is needed, but none is named.
    #[error("{0} is not set: name a file in PEM")]
    NotNamed(&'static str),
    /// The file or directory cannot be read.
    #[error("{name} {path}: {reason}")]
    Unreadable {
        /// The setting or flag that names the file or directory.
        name: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The reason that the OS gives.
        reason: String,
    },
    /// The file or directory can be read, but not used.
    #[error("{name} {path}: {reason}")]
    Unusable {
        /// The setting or flag that names the file or directory.
        name: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// A description of the fault.
        reason: String,
    },
    /// The key does not belong to the certificate.
    #[error("the key in {key} does not belong to the certificate in {certificate}")]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Clients are asked for certificates, but no authority that signs such certificates is named.
    #[error(
        "tls-auth-clients asks clients for certificates: name the authority that signs them (tls-ca-cert-file or \
         tls-ca-cert-dir), or set tls-auth-clients no"
    )]
    NoAuthority,
    /// The setting `tls-protocols` names an unknown version.
    #[error("tls-protocols {0:?}: it takes TLSv1.2 and TLSv1.3, separated by a space, or nothing for both")]
    Versions(String),
    /// The name of a server has no valid form.
    #[error("{0:?} is neither a host name nor an IP address")]
    ServerName(String),
    /// rustls refuses the files, or refuses to begin a session with them, for a reason that no other variant
    /// has. The text is the one of rustls.
    #[error("{0}")]
    Refused(String),
}
