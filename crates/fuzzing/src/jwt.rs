//! Arbitrary text as a JSON Web Token, and as the file of keys that verify such tokens: no panic.

use crate::{Outcome, Seed};

/// Decodes a token. Accepts one of the right form, also with a wrong signature.
pub fn jwt(bytes: &[u8]) -> Outcome {
    Outcome::accepted_if(std::str::from_utf8(bytes).is_ok_and(couch::is_jwt))
}

/// Reads the file of keys. Accepts one without errors. The text of an error must be short, so that it does
/// not repeat the file.
pub fn jwt_keys(bytes: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let read = couch::Jwt::new(text, "exp", "");
    if let Err(error) = &read {
        assert!(error.to_string().len() < 200, "{error}");
    }
    Outcome::accepted_if(read.is_ok())
}

const EC: &str = "ec:one = -----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9\\nq9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==\\n-----END PUBLIC KEY-----\\n\n";

pub(crate) fn token_seeds() -> Vec<Seed> {
    vec![
        // {"alg":"HS256"}.{"sub":"a"}, and a byte
        ("plain", b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AA".to_vec()),
        ("empty", b"e30.e30.".to_vec()),
        ("refused-array", b"W10.e30.AA".to_vec()),
        ("refused-two-parts", b"e30.e30".to_vec()),
        // {"alg":1,"alg":1}
        ("refused-twice", b"eyJhbGciOjEsImFsZyI6MX0.e30.AA".to_vec()),
        ("refused-padding", b"e30=.e30.AA".to_vec()),
    ]
}

pub(crate) fn keys_seeds() -> Vec<Seed> {
    vec![
        (
            "hmac",
            b"; keys\n[jwt_keys]\nhmac:_default = YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcy4uLi4=\n".to_vec(),
        ),
        ("ec", EC.as_bytes().to_vec()),
        ("refused-short", b"hmac:_default = c2VjcmV0\n".to_vec()),
        ("refused-kind", b"aes:a = c2VjcmV0\n".to_vec()),
        ("refused-rsa", EC.replace("ec:", "rsa:").into_bytes()),
        ("refused-nothing", b"; nothing\n".to_vec()),
    ]
}
