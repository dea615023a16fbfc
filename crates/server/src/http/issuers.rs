//! The other servers whose word about users over HTTP is trusted, as the settings and their files name them.
//!
//! ```text
//! start | CONFIG SET, the file of settings | SIGHUP -> files -> couch::TrustedIssuers
//! ```
//!
//! Invariants
//! - A server starts only with files that can be read. If a file cannot be read later, the earlier keys stay
//!   in force, and a warning says why.
//! - Keys and secrets are in files alone. No setting contains them, so CONFIG GET cannot show them.

use std::{path::Path, sync::Arc};

use couch::{Jwt, JwtError, ProxySecret, TrustedIssuers};
use parking_lot::RwLock;
use settings::{Key, OPTIONS, Settings, read_password};

/// The settings about trusted issuers.
const OF_ISSUERS: [Key; 4] =
    [Key::JwtKeysFile, Key::JwtRequiredClaims, Key::JwtRolesClaimPath, Key::ProxyAuthSecretFile];
/// The maximum bytes of the file of keys.
const KEYS_BYTES_MAX: u64 = 1 << 20;

/// The trusted issuers in force.
#[derive(Debug, Default)]
pub(crate) struct Issuers(RwLock<TrustedIssuers>);

impl Issuers {
    /// The trusted issuers in force.
    pub(crate) fn current(&self) -> TrustedIssuers {
        self.0.read().clone()
    }

    /// Reads the files again, even if no setting has changed.
    pub(crate) fn follow(&self, settings: &Settings) {
        match read(settings) {
            Ok(issuers) => *self.0.write() = issuers,
            Err((key, reason)) => {
                let setting = OPTIONS[key as usize].name;
                tracing::warn!(target: "server", setting, reason, "the earlier keys of users over HTTP stay in force");
            }
        }
    }
}

/// Checks settings that are not in force yet; `changed` has the keys that were set.
///
/// # Errors
/// The wrong setting, and the fault of its value or its file.
pub(crate) fn check(settings: &Settings, changed: &[Key]) -> Result<(), (Key, String)> {
    if changed.iter().any(|key| OF_ISSUERS.contains(key)) { read(settings).map(drop) } else { Ok(()) }
}

/// Reads the files that the settings name.
///
/// # Errors
/// The wrong setting, and the fault of its value or its file.
pub(crate) fn read(settings: &Settings) -> Result<TrustedIssuers, (Key, String)> {
    let named = |key: Key| Some(settings.text(key)).filter(|path| !path.is_empty()).map(Path::new);
    let required = settings.text(Key::JwtRequiredClaims);
    Jwt::check_required(required).map_err(|error| (Key::JwtRequiredClaims, error.to_string()))?;
    let jwt = named(Key::JwtKeysFile).map(|path| {
        let of_file = |reason: String| (Key::JwtKeysFile, reason);
        let content =
            env::stream::read_to_end(path, KEYS_BYTES_MAX).map_err(|error| of_file(error.to_string()))?;
        let content = String::from_utf8(content).map_err(|_| of_file("it is not UTF-8".into()))?;
        let jwt = Jwt::new(&content, required, settings.text(Key::JwtRolesClaimPath));
        jwt.map(Arc::new).map_err(|error: JwtError| of_file(error.to_string()))
    });
    let proxy = named(Key::ProxyAuthSecretFile).map(|path| {
        let secret = read_password(path).map_err(|error| (Key::ProxyAuthSecretFile, error.to_string()))?;
        Ok(Arc::new(ProxySecret::new(&secret)))
    });
    Ok(TrustedIssuers { jwt: jwt.transpose()?, proxy: proxy.transpose()? })
}
