//! JSON Web Tokens: the name and the roles of the sender of a request, signed by another server.
//!
//! ```text
//! Authorization: Bearer HEADER.CLAIMS.SIGNATURE -> Unverified -> its key (jwt_keys) -> claims -> Claimed
//! ```
//!
//! This module judges one token, as CouchDB's `jwt_auth` does. It issues no tokens and keeps no list of them:
//! a token is valid until its end, and its user needs no document in `_users`.
//!
//! Invariants
//! - The kind of a key decides which algorithms it verifies, not the token: the public key of RSA is no
//!   secret of HMAC, and nothing is accepted without a signature.
//! - No claim counts before the signature is verified.
//! - `exp` and `nbf` are checked wherever they are given, and demanded if the setting says so.
//! - A token with a member that is given twice is refused: its issuer may have meant either.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::{
    failure::Failure,
    jwt_keys::{Algorithm, JwtKeys},
    unique_json::Unique,
};

const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The reason why a token is refused, with CouchDB's text where CouchDB has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("Malformed token")]
    Malformed,
    #[error("Missing alg header parameter")]
    MissingAlg,
    #[error("Invalid alg header parameter")]
    InvalidAlg,
    #[error("Unsupported crit header parameter")]
    Crit,
    #[error("Missing typ header parameter")]
    MissingTyp,
    #[error("Invalid typ header parameter")]
    InvalidTyp,
    #[error("Missing kid claim")]
    MissingKid,
    #[error("Unknown kid")]
    UnknownKid,
    #[error("Bad HMAC")]
    BadHmac,
    #[error("Bad signature")]
    BadSignature,
    #[error("Missing iss claim")]
    MissingIss,
    #[error("Invalid iss claim")]
    InvalidIss,
    #[error("Missing aud claim")]
    MissingAud,
    #[error("Invalid aud claim")]
    InvalidAud,
    #[error("Missing iat claim")]
    MissingIat,
    #[error("Invalid iat claim")]
    InvalidIat,
    #[error("Missing exp claim")]
    MissingExp,
    #[error("exp not in future")]
    Expired,
    #[error("Missing nbf claim")]
    MissingNbf,
    #[error("nbf not in past")]
    NotYet,
    #[error("Token missing sub claim.")]
    MissingSub,
    #[error("Roles are not a list of strings")]
    InvalidRoles,
}

impl From<TokenError> for Failure {
    /// As in CouchDB, three of the errors are a 401, and all others a 400.
    fn from(error: TokenError) -> Failure {
        match error {
            TokenError::Expired => Failure::Unauthorized("exp not in future"),
            TokenError::NotYet => Failure::Unauthorized("nbf not in past"),
            TokenError::MissingSub => Failure::Unauthorized("Token missing sub claim."),
            other => Failure::bad_request(other.to_string()),
        }
    }
}

/// A fault in the settings about tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// A line of the file of keys is wrong. The error does not show it.
    #[error("line {line}: {reason}")]
    Key {
        /// The number of the line, from 1.
        line: usize,
        /// The fault in the line, as a text for the operator.
        reason: &'static str,
    },
    /// The file of keys has no key.
    #[error("there is no key: lines are hmac:KID = BASE64, rsa:KID = PEM, ec:KID = PEM")]
    NoKey,
    /// The list of required claims is wrong.
    #[error(
        "'{0}' is no claim that can be required: exp, iat, nbf, kid, typ, {{iss, \"VALUE\"}}, {{aud, \"VALUE\"}}"
    )]
    Claim(String),
}

/// A claim that tokens must have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Required {
    Exp,
    Iat,
    Nbf,
    Kid,
    Typ,
    Iss(String),
    Aud(String),
}

/// The rules by which tokens are accepted.
#[derive(Debug)]
pub struct Jwt {
    keys: JwtKeys,
    required: Vec<Required>,
    /// The names that lead to the list of roles.
    roles_path: Vec<String>,
}

/// The user that a token names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) name: String,
    pub(crate) roles: Vec<String>,
    /// When the token ends, in seconds since 1970; `None` if it has no end.
    pub(crate) ends_s: Option<u64>,
}

type Members = Map<String, Value>;

impl Jwt {
    /// Parses the settings for tokens: the content of the file of keys, the list of required claims, and the
    /// path of the claim with the roles.
    ///
    /// # Errors
    /// See [`JwtError`].
    pub fn new(keys: &str, required: &str, roles_path: &str) -> Result<Jwt, JwtError> {
        Ok(Jwt {
            keys: JwtKeys::parse(keys)?,
            required: required_of(required)?,
            roles_path: path_of(roles_path),
        })
    }

    /// Checks the setting with the required claims.
    ///
    /// # Errors
    /// The setting is not valid.
    pub fn check_required(required: &str) -> Result<(), JwtError> {
        required_of(required).map(drop)
    }

    /// The user whom a token names, if the token is valid now.
    pub(crate) fn judge(&self, token: &str, now_s: u64) -> Result<Claimed, TokenError> {
        let token = Unverified::decode(token)?;
        let algorithm = match token.header.get("alg").map(Value::as_str) {
            None => return Err(TokenError::MissingAlg),
            Some(name) => name.and_then(Algorithm::named).ok_or(TokenError::InvalidAlg)?,
        };
        self.check_header(&token.header)?;
        let kid = match token.header.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str().ok_or(TokenError::UnknownKid)?),
        };
        let key = self.keys.get(algorithm, kid).ok_or(TokenError::UnknownKid)?;
        if !key.verifies(algorithm, token.signed.as_bytes(), &token.signature) {
            let is_hmac = algorithm.is_hmac();
            return Err(if is_hmac { TokenError::BadHmac } else { TokenError::BadSignature });
        }
        self.check_claims(&token.claims, now_s)?;
        let name = token.claims.get("sub").and_then(Value::as_str).filter(|name| !name.is_empty());
        let exp = token.claims.get("exp").and_then(Value::as_f64);
        Ok(Claimed {
            name: name.ok_or(TokenError::MissingSub)?.into(),
            roles: self.roles(&token.claims)?,
            ends_s: exp.map(|exp| exp as u64),
        })
    }

    fn check_header(&self, header: &Members) -> Result<(), TokenError> {
        if header.contains_key("crit") {
            return Err(TokenError::Crit);
        }
        if self.required.contains(&Required::Typ) {
            match header.get("typ").map(Value::as_str) {
                None => return Err(TokenError::MissingTyp),
                Some(Some("JWT")) => {}
                Some(_) => return Err(TokenError::InvalidTyp),
            }
        }
        if self.required.contains(&Required::Kid) && !header.contains_key("kid") {
            return Err(TokenError::MissingKid);
        }
        Ok(())
    }

    fn check_claims(&self, claims: &Members, now_s: u64) -> Result<(), TokenError> {
        let time = |name: &str, invalid: TokenError| match claims.get(name) {
            None => Ok(None),
            Some(time) => time.as_f64().map(Some).ok_or(invalid),
        };
        let now_s = now_s as f64;
        let exp = time("exp", TokenError::Expired)?;
        let nbf = time("nbf", TokenError::NotYet)?;
        let iat = time("iat", TokenError::InvalidIat)?;
        if exp.is_some_and(|exp| exp <= now_s) {
            return Err(TokenError::Expired);
        }
        if nbf.is_some_and(|nbf| nbf > now_s) {
            return Err(TokenError::NotYet);
        }
        for required in &self.required {
            match required {
                Required::Exp if exp.is_none() => return Err(TokenError::MissingExp),
                Required::Nbf if nbf.is_none() => return Err(TokenError::MissingNbf),
                Required::Iat if iat.is_none() => return Err(TokenError::MissingIat),
                Required::Iss(wanted) => match claims.get("iss") {
                    None => return Err(TokenError::MissingIss),
                    Some(Value::String(iss)) if iss == wanted => {}
                    Some(_) => return Err(TokenError::InvalidIss),
                },
                Required::Aud(wanted) => match claims.get("aud") {
                    None => return Err(TokenError::MissingAud),
                    Some(Value::String(aud)) if aud == wanted => {}
                    Some(Value::Array(all)) if all.iter().any(|aud| aud == wanted) => {}
                    Some(_) => return Err(TokenError::InvalidAud),
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn roles(&self, claims: &Members) -> Result<Vec<String>, TokenError> {
        let Some((first, rest)) = self.roles_path.split_first() else { return Ok(Vec::new()) };
        let found = rest.iter().try_fold(claims.get(first), |at, name| Some(at?.get(name))).flatten();
        let Some(found) = found else { return Ok(Vec::new()) };
        let roles = found.as_array().ok_or(TokenError::InvalidRoles)?.iter();
        roles.map(|role| role.as_str().map(str::to_owned).ok_or(TokenError::InvalidRoles)).collect()
    }
}

/// A token that was decoded; its signature was not checked.
#[derive(Debug)]
struct Unverified<'t> {
    header: Members,
    claims: Members,
    signed: &'t str,
    signature: Vec<u8>,
}

impl Unverified<'_> {
    fn decode(token: &str) -> Result<Unverified<'_>, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let parts = token.rsplit_once('.').and_then(|(signed, signature)| {
            let (header, claims) = signed.split_once('.').filter(|(_, claims)| !claims.contains('.'))?;
            let object = |part: &str| match serde_json::from_slice(&bytes_of(part)?).ok()? {
                Unique(Value::Object(members)) => Some(members),
                Unique(_) => None,
            };
            Some(Unverified {
                header: object(header)?,
                claims: object(claims)?,
                signed,
                signature: bytes_of(signature)?,
            })
        });
        parts.ok_or(TokenError::Malformed)
    }
}

fn bytes_of(part: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(part).ok()
}

/// Whether a text has the form of a token. Neither its signature nor its claims are checked.
pub fn is_jwt(text: &str) -> bool {
    Unverified::decode(text).is_ok()
}

/// Reads a list such as `exp, {iss, "https://example.com"}`.
fn required_of(text: &str) -> Result<Vec<Required>, JwtError> {
    let (mut required, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let wrong = || JwtError::Claim(text.into());
        let (one, after) = match rest.strip_prefix('{') {
            Some(inside) => {
                let (pair, after) = inside.split_once('}').ok_or_else(wrong)?;
                let (name, value) = pair.split_once(',').ok_or_else(wrong)?;
                let value = value.trim().strip_prefix('"').and_then(|value| value.strip_suffix('"'));
                let value = value.filter(|value| !value.is_empty()).ok_or_else(wrong)?.to_owned();
                let one = match name.trim() {
                    "iss" => Required::Iss(value),
                    "aud" => Required::Aud(value),
                    _ => return Err(wrong()),
                };
                let after = after.trim_start();
                (one, after.strip_prefix(',').or_else(|| after.is_empty().then_some("")).ok_or_else(wrong)?)
            }
            None => {
                let (name, after) = rest.split_once(',').unwrap_or((rest, ""));
                let one = match name.trim() {
                    "exp" => Required::Exp,
                    "iat" => Required::Iat,
                    "nbf" => Required::Nbf,
                    "kid" => Required::Kid,
                    "typ" => Required::Typ,
                    _ => return Err(wrong()),
                };
                (one, after)
            }
        };
        required.push(one);
        rest = after.trim();
    }
    Ok(required)
}

/// The names of a path such as `realm.roles`, divided at the dots. A dot that belongs to a name follows a
/// backslash.
fn path_of(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        let name = names.last_mut().expect("there is always one");
        match next {
            '.' => names.push(String::new()),
            '\\' => name.extend(chars.next()),
            other => name.push(other),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use ring::hmac;
    use serde_json::json;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;
    /// The secret of the key `_default`.
    const SECRET: &[u8] = b"a secret of thirty-two bytes....";
    /// [`SECRET`], and another one.
    const KEYS: &str = "hmac:_default = YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcy4uLi4=\n\
                        hmac:two = YW5vdGhlciBzZWNyZXQgb2YgMzIgYnl0ZXMuLi4uLi4=\n";

    fn token(header: impl Display, claims: impl Display, secret: &[u8]) -> String {
        let encode = |part: &dyn Display| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    fn judged(required: &str, header: Value, claims: Value) -> Result<Claimed, TokenError> {
        let jwt = Jwt::new(KEYS, required, r"_couchdb\.roles").unwrap();
        jwt.judge(&token(&header, &claims, SECRET), NOW_S)
    }

    fn of_claims(required: &str, claims: Value) -> Result<Claimed, TokenError> {
        judged(required, json!({ "alg": "HS256", "typ": "JWT" }), claims)
    }

    #[test]
    fn a_token_names_a_user_and_its_roles() {
        let claims = json!({ "sub": "anna", "exp": NOW_S + 10, "_couchdb.roles": ["a", "_admin"] });
        let claimed = of_claims("exp", claims).unwrap();
        let roles = vec!["a".to_owned(), "_admin".to_owned()];
        assert_eq!(claimed, Claimed { name: "anna".into(), roles, ends_s: Some(NOW_S + 10) });
        assert_eq!(of_claims("", json!({ "sub": "anna" })).unwrap().roles, [""; 0]);
    }

    #[test]
    fn every_claim_that_is_required_or_given_is_checked() {
        for (required, claims, expected) in [
            ("", json!({ "sub": "a", "exp": NOW_S }), TokenError::Expired),
            ("", json!({ "sub": "a", "exp": "soon" }), TokenError::Expired),
            ("", json!({ "sub": "a", "exp": null }), TokenError::Expired),
            ("exp", json!({ "sub": "a" }), TokenError::MissingExp),
            ("", json!({ "sub": "a", "nbf": NOW_S + 1 }), TokenError::NotYet),
            ("nbf", json!({ "sub": "a" }), TokenError::MissingNbf),
            ("iat", json!({ "sub": "a" }), TokenError::MissingIat),
            ("iat", json!({ "sub": "a", "iat": "x" }), TokenError::InvalidIat),
            ("{iss, \"me\"}", json!({ "sub": "a" }), TokenError::MissingIss),
            ("{iss, \"me\"}", json!({ "sub": "a", "iss": "you" }), TokenError::InvalidIss),
            ("{iss, \"me\"}", json!({ "sub": "a", "iss": ["me"] }), TokenError::InvalidIss),
            ("{aud, \"db\"}", json!({ "sub": "a", "aud": ["x", "y"] }), TokenError::InvalidAud),
            ("{aud, \"db\"}", json!({ "sub": "a" }), TokenError::MissingAud),
            ("kid", json!({ "sub": "a" }), TokenError::MissingKid),
            ("", json!({}), TokenError::MissingSub),
            ("", json!({ "sub": "" }), TokenError::MissingSub),
            ("", json!({ "sub": 7 }), TokenError::MissingSub),
            ("", json!({ "sub": "a", "_couchdb.roles": "_admin" }), TokenError::InvalidRoles),
            ("", json!({ "sub": "a", "_couchdb.roles": ["a", 1] }), TokenError::InvalidRoles),
        ] {
            assert_eq!(of_claims(required, claims.clone()), Err(expected), "{required} {claims}");
        }
        let all = "exp,iat , nbf,typ, {iss, \"me\"},{aud,\"db\"}";
        let claims = json!({ "sub": "a", "exp": NOW_S as f64 + 0.5, "iat": 1, "nbf": NOW_S, "iss": "me", "aud": ["db"] });
        assert!(of_claims(all, claims).is_ok());
    }

    #[test]
    fn the_header_chooses_among_keys_and_never_how_they_are_used() {
        let claims = || json!({ "sub": "a" });
        for (header, expected) in [
            (json!({}), TokenError::MissingAlg),
            (json!({ "alg": "none" }), TokenError::InvalidAlg),
            (json!({ "alg": "None" }), TokenError::InvalidAlg),
            (json!({ "alg": "hs256" }), TokenError::InvalidAlg),
            (json!({ "alg": ["HS256"] }), TokenError::InvalidAlg),
            (json!({ "alg": "RS256" }), TokenError::UnknownKid),
            (json!({ "alg": "ES256", "kid": "two" }), TokenError::UnknownKid),
            (json!({ "alg": "HS256", "kid": "three" }), TokenError::UnknownKid),
            (json!({ "alg": "HS256", "kid": 1 }), TokenError::UnknownKid),
            (json!({ "alg": "HS256", "kid": "two" }), TokenError::BadHmac),
            (json!({ "alg": "HS384" }), TokenError::BadHmac),
            (json!({ "alg": "HS256", "crit": ["exp"] }), TokenError::Crit),
        ] {
            assert_eq!(judged("", header.clone(), claims()), Err(expected), "{header}");
        }
        assert_eq!(judged("typ", json!({ "alg": "HS256" }), claims()), Err(TokenError::MissingTyp));
        let typ = json!({ "alg": "HS256", "typ": "at+jwt" });
        assert_eq!(judged("typ", typ, claims()), Err(TokenError::InvalidTyp));
    }

    #[test]
    fn a_member_that_is_given_twice_refuses_the_token() {
        let jwt = Jwt::new(KEYS, "", r"realm.roles").unwrap();
        let judged = |header, claims| jwt.judge(&token(header, claims, SECRET), NOW_S);
        assert!(judged(r#"{"alg":"HS256"}"#, r#"{"sub":"jo","realm":{"roles":["a"]}}"#).is_ok());
        for (header, claims) in [
            (r#"{"alg":"HS256"}"#, r#"{"sub":"jo","sub":"root"}"#),
            (r#"{"alg":"HS256"}"#, r#"{"sub":"jo","exp":1,"exp":1800000001}"#),
            (r#"{"alg":"HS256"}"#, r#"{"sub":"jo","realm":{"roles":["a"],"roles":["_admin"]}}"#),
            (r#"{"alg":"none","alg":"HS256"}"#, r#"{"sub":"jo"}"#),
        ] {
            assert_eq!(judged(header, claims), Err(TokenError::Malformed), "{header} {claims}");
        }
    }

    #[test]
    fn a_change_of_any_part_is_noticed() {
        let jwt = Jwt::new(KEYS, "", "").unwrap();
        let good = token(json!({ "alg": "HS256" }), json!({ "sub": "anna" }), SECRET);
        assert!(jwt.judge(&good, NOW_S).is_ok());
        for at in 0..good.len() {
            for other in ["A", "."] {
                let mut bad = good.clone();
                bad.replace_range(at..=at, other);
                assert!(bad == good || jwt.judge(&bad, NOW_S).is_err(), "{bad}");
            }
        }
        let (signed, _) = good.rsplit_once('.').unwrap();
        for bad in [signed.to_owned(), format!("{signed}."), format!("{good}.x"), "x".repeat(20_000)] {
            assert!(jwt.judge(&bad, NOW_S).is_err());
        }
        assert!(is_jwt(&good) && !is_jwt("a.b.c"));
    }

    #[test]
    fn roles_may_be_deep_within_the_token() {
        let claims = json!({ "sub": "a", "realm.x": { "roles": ["r"] } });
        let token = token(json!({ "alg": "HS256" }), &claims, SECRET);
        let roles = |path| Jwt::new(KEYS, "", path).unwrap().judge(&token, NOW_S).unwrap().roles;
        assert_eq!(roles(r"realm\.x.roles"), ["r"]);
        assert_eq!(roles("realm.x.roles"), [""; 0]);
        assert_eq!(roles(""), [""; 0]);
    }

    #[test]
    fn lists_of_claims_with_errors_are_refused() {
        for text in
            ["ex", "{iss}", "{iss, me}", "{iss, \"\"}", "{exp, \"1\"}", "{iss, \"a\"} exp", "{iss, \"a\""]
        {
            assert!(Jwt::check_required(text).is_err(), "{text}");
        }
    }
}
