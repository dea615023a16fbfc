//! Reads facts from a certificate.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// The end of the certificate's validity, in seconds since 1970; `None` if the certificate cannot be read.
pub(crate) fn expires_unix_s(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// The fault of a certificate that rustls refuses with `error`, in words.
pub(crate) fn fault_of(certificate: Option<&CertificateDer<'_>>, error: &rustls::Error) -> String {
    let parsed = certificate.and_then(|certificate| X509Certificate::from_der(certificate).ok());
    match parsed.map(|(_, parsed)| parsed.version()) {
        Some(version) if version != X509Version::V3 => format!(
            "it is a certificate of version {}: make one of version 3, with subjectAltName (openssl x509 -req -extfile FILE)",
            version.0 + 1
        ),
        Some(_) => error.to_string(),
        None => "it cannot be read".into(),
    }
}

/// The common name of the subject. `None` unless the subject has exactly one common name, and it is a text
/// that is not empty and has no null bytes.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_owned();
    (names.next().is_none() && !name.is_empty() && !name.contains('\0')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    #[test]
    fn a_certificate_says_who_its_owner_is_and_when_it_ends() {
        let authority = Authority::new();
        let (certificate, _) = authority.issue(&["alice"], &[]);
        assert_eq!(common_name(&certificate).as_deref(), Some("alice"));
        assert!(expires_unix_s(&certificate).is_some_and(|end| end > 1_700_000_000));
    }

    #[test]
    fn a_name_that_is_not_one_name_is_none() {
        let authority = Authority::new();
        for names in [&[][..], &["alice", "root"], &[""], &["root\0.example"]] {
            assert_eq!(common_name(&authority.issue(names, &[]).0), None, "{names:?}");
        }
        assert_eq!(common_name(&CertificateDer::from(vec![0x30, 0x82, 1])), None);
    }
}
