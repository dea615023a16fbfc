//! The keys that verify tokens, by kind and name, from a file in the form of CouchDB's section `jwt_keys`:
//!
//! ```text
//! ; a secret of 32 bytes or more, in base64
//! hmac:_default = YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcy4uLi4=
//! ; public keys, in PEM, with \n for the ends of lines
//! rsa:of-2026 = -----BEGIN PUBLIC KEY-----\nMIIB...\n-----END PUBLIC KEY-----\n
//! ec:mobile = -----BEGIN PUBLIC KEY-----\nMFkw...\n-----END PUBLIC KEY-----\n
//! ```
//!
//! Invariants
//! - A key has one kind, and verifies the algorithms of that kind alone. A key that verifies none is refused.
//! - No text of an error, and no `Debug`, shows a key.

use std::{collections::HashMap, fmt};

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
    },
};
use x509_parser::{
    oid_registry::{OID_EC_P256, OID_NIST_EC_P384},
    pem::parse_x509_pem,
    prelude::FromDer,
    public_key::PublicKey,
    x509::SubjectPublicKeyInfo,
};

use super::jwt::JwtError;

/// The key of a token that names none.
const DEFAULT_KEY: &str = "_default";
/// The heading that the lines have in a file of CouchDB.
const HEADING: &str = "[jwt_keys]";
const KEYS_MAX: usize = 1000;
/// The minimum bytes of a secret. A shorter one can be guessed from any token.
const SECRET_BYTES_MIN: usize = 32;
/// Bits of the modulus of an RSA key.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Bytes of a point of P-256 that is not compressed.
const P256_BYTES: usize = 65;
/// Bytes of a point of P-384 that is not compressed.
const P384_BYTES: usize = 97;

/// An algorithm of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
}

impl Algorithm {
    /// The algorithm with this name in the header `alg` of a token.
    pub(super) fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "HS256" => Algorithm::Hs256,
            "HS384" => Algorithm::Hs384,
            "HS512" => Algorithm::Hs512,
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            _ => return None,
        })
    }

    /// Whether the algorithm verifies with the same secret that signed the token.
    pub(super) fn is_hmac(self) -> bool {
        self.kind() == Kind::Hmac
    }

    fn kind(self) -> Kind {
        match self {
            Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => Kind::Hmac,
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 => Kind::Rsa,
            Algorithm::Es256 | Algorithm::Es384 => Kind::Ec,
        }
    }
}

/// The family of algorithms for which a key is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Hmac,
    Rsa,
    Ec,
}

pub(super) enum VerifyingKey {
    Secret(Vec<u8>),
    Rsa(Vec<u8>),
    P256(Vec<u8>),
    P384(Vec<u8>),
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifyingKey")
    }
}

impl VerifyingKey {
    /// Whether the signature is one of this key, by this algorithm.
    pub(super) fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let of_secret = |secret: &[u8], digest: hmac::Algorithm| {
            hmac::verify(&hmac::Key::new(digest, secret), signed, signature).is_ok()
        };
        let of_pair = |key: &[u8], scheme: &'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(scheme, key).verify(signed, signature).is_ok()
        };
        match (self, algorithm) {
            (VerifyingKey::Secret(key), Algorithm::Hs256) => of_secret(key, hmac::HMAC_SHA256),
            (VerifyingKey::Secret(key), Algorithm::Hs384) => of_secret(key, hmac::HMAC_SHA384),
            (VerifyingKey::Secret(key), Algorithm::Hs512) => of_secret(key, hmac::HMAC_SHA512),
            (VerifyingKey::Rsa(key), Algorithm::Rs256) => of_pair(key, &RSA_PKCS1_2048_8192_SHA256),
            (VerifyingKey::Rsa(key), Algorithm::Rs384) => of_pair(key, &RSA_PKCS1_2048_8192_SHA384),
            (VerifyingKey::Rsa(key), Algorithm::Rs512) => of_pair(key, &RSA_PKCS1_2048_8192_SHA512),
            (VerifyingKey::P256(key), Algorithm::Es256) => of_pair(key, &ECDSA_P256_SHA256_FIXED),
            (VerifyingKey::P384(key), Algorithm::Es384) => of_pair(key, &ECDSA_P384_SHA384_FIXED),
            _ => false,
        }
    }
}

/// The keys of a file, each under its kind and name.
#[derive(Debug)]
pub(super) struct JwtKeys(HashMap<(Kind, Box<str>), VerifyingKey>);

impl JwtKeys {
    /// Reads the lines of a file.
    pub(super) fn parse(text: &str) -> Result<JwtKeys, JwtError> {
        let mut keys = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line_of_key = line.trim();
            if line_of_key.is_empty() || line_of_key.starts_with([';', '#']) || line_of_key == HEADING {
                continue;
            }
            let (name, key) =
                key_of(line_of_key).map_err(|reason| JwtError::Key { line: index + 1, reason })?;
            if keys.insert(name, key).is_some() || keys.len() > KEYS_MAX {
                let reason =
                    if keys.len() > KEYS_MAX { "there are too many keys" } else { "this key is given twice" };
                return Err(JwtError::Key { line: index + 1, reason });
            }
        }
        if keys.is_empty() { Err(JwtError::NoKey) } else { Ok(JwtKeys(keys)) }
    }

    /// The key of this name for this algorithm.
    pub(super) fn get(&self, algorithm: Algorithm, kid: Option<&str>) -> Option<&VerifyingKey> {
        self.0.get(&(algorithm.kind(), kid.unwrap_or(DEFAULT_KEY).into()))
    }
}

fn key_of(line: &str) -> Result<((Kind, Box<str>), VerifyingKey), &'static str> {
    const FORM: &str = "it is not KIND:KID = KEY, of a kind hmac, rsa or ec";
    let (name, key) = line.split_once('=').ok_or(FORM)?;
    let (kind, kid) = name.trim().split_once(':').filter(|(_, kid)| !kid.is_empty()).ok_or(FORM)?;
    let key = key.trim();
    let (kind, key) = match kind {
        "hmac" => {
            let secret = BASE64_STANDARD.decode(key).map_err(|_| "the secret is not in base64")?;
            if secret.len() < SECRET_BYTES_MIN {
                return Err("the secret has less than 32 bytes");
            }
            (Kind::Hmac, VerifyingKey::Secret(secret))
        }
        "rsa" => (
            Kind::Rsa,
            public_key(key)
                .filter(|key| matches!(key, VerifyingKey::Rsa(_)))
                .ok_or("it is not the public key, in PEM, of RSA with 2048 to 8192 bits")?,
        ),
        "ec" => (
            Kind::Ec,
            public_key(key)
                .filter(|key| !matches!(key, VerifyingKey::Rsa(_)))
                .ok_or("it is not the public key, in PEM, of an elliptic curve P-256 or P-384")?,
        ),
        _ => return Err(FORM),
    };
    Ok(((kind, kid.into()), key))
}

/// The key of a PEM whose ends of lines are written `\n`.
fn public_key(text: &str) -> Option<VerifyingKey> {
    let pem = text.replace("\\n", "\n");
    let (rest, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    if pem.label != "PUBLIC KEY" || !rest.trim_ascii().is_empty() {
        return None;
    }
    let (rest, info) = SubjectPublicKeyInfo::from_der(&pem.contents).ok()?;
    let key = info.subject_public_key.data.to_vec();
    let curve = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    match info.parsed().ok().filter(|_| rest.is_empty())? {
        PublicKey::RSA(rsa) if RSA_BITS.contains(&rsa.key_size()) => Some(VerifyingKey::Rsa(key)),
        // The curve is compared as well, because points of other curves can have as many bytes.
        PublicKey::EC(_) if curve == Some(OID_EC_P256) && key.len() == P256_BYTES => {
            Some(VerifyingKey::P256(key))
        }
        PublicKey::EC(_) if curve == Some(OID_NIST_EC_P384) && key.len() == P384_BYTES => {
            Some(VerifyingKey::P384(key))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret of 32 bytes, the minimum, in base64.
    const SECRET: &str = "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcy4uLi4=";
    const EC: &str = "-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9\\nq9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==\\n-----END PUBLIC KEY-----\\n";
    const P384: &str = "-----BEGIN PUBLIC KEY-----\\nMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEi/Jjo2ayd3MHyF7w+K7r7RMSX4r9qjsx\\n5zvMoYLZwBLgGj05/d0Ht9it4xfXTrDVQBUueWRjrxEkXJzm4yjTLkvGRPjyvEm7\\nyXvVncoPUaaY/zh4X50ugPaTxi0+4s+6\\n-----END PUBLIC KEY-----\\n";
    const SECP256K1: &str = "-----BEGIN PUBLIC KEY-----\\nMFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEfaJq/QSmhZyLn5eA7tBDzkE4YOmnKzTY\\na2vFZ/0VP4FDp/LVbR8wfNjjiis6+nVkkFZSj5KWh7NWmk+HA+5GEg==\\n-----END PUBLIC KEY-----\\n";
    const BRAINPOOL_P256: &str = "-----BEGIN PUBLIC KEY-----\\nMFowFAYHKoZIzj0CAQYJKyQDAwIIAQEHA0IABFPKH+JHbDp5+FMdHya8K4C7apmC\\nTXNhxKf5LmPZuy/wozU+wrt0jsxT9dzYS8DAqvCgIvoWqriswdYtQQSHWJM=\\n-----END PUBLIC KEY-----\\n";
    const P256_COMPRESSED: &str = "-----BEGIN PUBLIC KEY-----\\nMDkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDIgADt2SSNza3wmZYO2N8J1oBM2Sgvv6Q\\nUQgi+Y8n/xy6d5o=\\n-----END PUBLIC KEY-----\\n";

    #[test]
    fn a_file_of_couchdb_is_read() {
        let file = format!(
            "; keys\n# more\n[jwt_keys]\n\nhmac:_default = {SECRET}\r\n  hmac:a:b={SECRET}\nec:one = {EC}\n"
        );
        let keys = JwtKeys::parse(&file).unwrap();
        assert!(
            keys.get(Algorithm::Hs256, None).is_some() && keys.get(Algorithm::Hs512, Some("a:b")).is_some()
        );
        assert!(keys.get(Algorithm::Es256, Some("one")).is_some());
        assert!(
            keys.get(Algorithm::Rs256, None).is_none() && keys.get(Algorithm::Hs256, Some("one")).is_none()
        );
        assert!(!format!("{keys:?}").contains("115"), "no key is shown");
    }

    #[test]
    fn a_key_verifies_by_the_algorithms_of_its_kind_alone() {
        let keys = JwtKeys::parse(&format!("ec:_default = {EC}")).unwrap();
        let key = keys.get(Algorithm::Es256, None).unwrap();
        let VerifyingKey::P256(point) = key else { panic!() };
        // The attack: the public key, which everybody knows, as the secret of an HMAC.
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, point), b"signed");
        assert!(!key.verifies(Algorithm::Hs256, b"signed", tag.as_ref()));
        assert!(!key.verifies(Algorithm::Es384, b"signed", &[0; 96]));
        assert!(!key.verifies(Algorithm::Es256, b"signed", &[]));
    }

    #[test]
    fn a_key_that_is_weak_or_verifies_nothing_is_refused() {
        let refused = |line: &str| JwtKeys::parse(line).err().map(|error| error.to_string());
        assert_eq!(refused(&format!("hmac:a = {SECRET}")), None);
        let short = BASE64_STANDARD.encode([b'a'; 31]);
        for secret in ["", "YQ==", &short] {
            let reason = "line 1: the secret has less than 32 bytes";
            assert_eq!(refused(&format!("hmac:a = {secret}")).as_deref(), Some(reason));
        }
        assert_eq!(refused(&format!("ec:a = {P384}")), None, "ES384 is verified");
        for key in [SECP256K1, BRAINPOOL_P256, P256_COMPRESSED] {
            let reason = "line 1: it is not the public key, in PEM, of an elliptic curve P-256 or P-384";
            assert_eq!(refused(&format!("ec:a = {key}")).as_deref(), Some(reason));
        }
    }

    #[test]
    fn errors_name_the_line_and_not_the_key() {
        let twice = format!("hmac:a = {SECRET}\nhmac:a = {SECRET}");
        for (file, line) in [
            ("hmac:a = \n", 1),
            ("\nhmac:a = ???", 2),
            ("hmac: = c2VjcmV0", 1),
            ("aes:a = c2VjcmV0", 1),
            ("c2VjcmV0", 1),
            ("[admins]\n", 1),
            ("rsa:a = c2VjcmV0", 1),
            ("hmac:a = c2VjcmV0", 1),
            (&twice, 2),
        ] {
            match JwtKeys::parse(file) {
                Err(error @ JwtError::Key { line: at, .. }) => {
                    assert_eq!(at, line, "{file}");
                    assert!(!error.to_string().contains("c2VjcmV0") && !error.to_string().contains(SECRET));
                }
                other => panic!("{file}: {other:?}"),
            }
        }
        assert_eq!(
            JwtKeys::parse(&format!("rsa:a = {EC}")).err().map(|it| it.to_string()),
            Some("line 1: it is not the public key, in PEM, of RSA with 2048 to 8192 bits".into())
        );
        assert_eq!(JwtKeys::parse("; nothing").err(), Some(JwtError::NoKey));
    }
}
