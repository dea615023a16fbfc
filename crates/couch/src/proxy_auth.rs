//! Users that a proxy in front of this server has authenticated: headers of the proxy name the user and the
//! user's roles.
//!
//! The header with the token proves that the headers come from the proxy. The token is the HMAC of the user's
//! name with a secret that proxy and server share, as in CouchDB with `proxy_use_secret`. Without a secret,
//! this server ignores the headers.
//!
//! A token never expires: who reads a token can act as its user as long as the secret is the same. So the
//! connection should be encrypted.

use std::fmt;

use http::HeaderMap;
use ring::hmac;

const USER_NAME: &str = "x-auth-couchdb-username";
const ROLES: &str = "x-auth-couchdb-roles";
const TOKEN: &str = "x-auth-couchdb-token";

/// The secret of the proxy.
#[derive(PartialEq, Eq)]
pub struct ProxySecret(Box<[u8]>);

impl fmt::Debug for ProxySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxySecret")
    }
}

/// The user whom headers name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) roles: Vec<String>,
}

/// The token is missing or wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongToken;

impl ProxySecret {
    /// The secret of this text.
    pub fn new(secret: &str) -> ProxySecret {
        ProxySecret(secret.as_bytes().into())
    }

    /// The user whom these headers name; `None` if they name none.
    pub(super) fn judge(&self, headers: &HeaderMap) -> Result<Option<Named>, WrongToken> {
        let mut names = headers.get_all(USER_NAME).iter();
        let Some(name) = names.next() else { return Ok(None) };
        let name = std::str::from_utf8(name.as_bytes()).ok().filter(|name| !name.is_empty());
        let token = headers.get(TOKEN).and_then(|token| hex::decode(token.as_bytes()).ok());
        let (Some(name), Some(token), None) = (name, token, names.next()) else { return Err(WrongToken) };
        // Proxies for CouchDB before 3.4 sign with SHA-1.
        let digests = [hmac::HMAC_SHA256, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY];
        let is_right = digests
            .into_iter()
            .any(|digest| hmac::verify(&hmac::Key::new(digest, &self.0), name.as_bytes(), &token).is_ok());
        if !is_right {
            return Err(WrongToken);
        }
        let roles = headers.get_all(ROLES).iter().filter_map(|roles| roles.to_str().ok());
        let roles = roles.flat_map(|roles| roles.split(',')).map(str::trim).filter(|role| !role.is_empty());
        Ok(Some(Named { name: name.into(), roles: roles.map(str::to_owned).collect() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pairs: &[(&'static str, &str)]) -> Result<Option<Named>, WrongToken> {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut all = HeaderMap::new();
        headers.for_each(|(name, value): (http::HeaderName, http::HeaderValue)| _ = all.append(name, value));
        ProxySecret::new("secret").judge(&all)
    }

    fn token(digest: hmac::Algorithm, name: &str) -> String {
        hex::encode(hmac::sign(&hmac::Key::new(digest, b"secret"), name.as_bytes()))
    }

    #[test]
    fn a_token_of_the_proxy_names_the_user() {
        for digest in [hmac::HMAC_SHA256, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY] {
            let token = token(digest, "anna");
            let named = judged(&[(USER_NAME, "anna"), (ROLES, "a, b,,_admin"), (TOKEN, &token)]);
            let roles = ["a", "b", "_admin"].map(str::to_owned).to_vec();
            assert_eq!(named, Ok(Some(Named { name: "anna".into(), roles })));
            let upper = token.to_uppercase();
            assert!(judged(&[(USER_NAME, "anna"), (TOKEN, &upper)]).is_ok());
        }
        assert_eq!(judged(&[(ROLES, "_admin")]), Ok(None));
    }

    #[test]
    fn nobody_else_names_one() {
        let right = token(hmac::HMAC_SHA256, "anna");
        let empty = token(hmac::HMAC_SHA256, "");
        for pairs in [
            &[(USER_NAME, "anna")][..],
            &[(USER_NAME, "anna"), (TOKEN, "")],
            &[(USER_NAME, "anna"), (TOKEN, "xyz")],
            &[(USER_NAME, "anna"), (TOKEN, &right[..62])],
            &[(USER_NAME, "bert"), (TOKEN, &right)],
            &[(USER_NAME, ""), (TOKEN, &empty)],
            &[(USER_NAME, "anna"), (USER_NAME, "bert"), (TOKEN, &right)],
        ] {
            assert_eq!(judged(pairs), Err(WrongToken), "{pairs:?}");
        }
    }
}
