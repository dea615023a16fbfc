//! The address and credentials of a server: `redis://[[USER]:PASSWORD@]HOST[:PORT][/]`, or `HOST[:PORT]`;
//! over TLS, `rediss://`; by a Unix socket, `unix://[[USER]:PASSWORD@]/PATH`.

use std::{fmt, str::FromStr};

use tls::ClientFiles;

use crate::client::is_path;

/// The default port of Redis and Sheaf.
const DEFAULT_PORT: u16 = 6379;

/// The address and credentials of a server. Displayed without credentials: as host and port, or as the path
/// of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The host; an IPv6 address without brackets; or the path of a Unix socket.
    pub host: String,
    /// The port of the Redis protocol.
    pub port: u16,
    /// The user; `None` for the user `default`.
    pub user: Option<String>,
    /// The password; `None` for no authentication.
    pub password: Option<String>,
    /// The certificates, if the connection is encrypted.
    pub tls: Option<ClientFiles>,
}

/// Why a text is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The scheme is none of `redis`, `rediss`, `valkey`, `valkeys` and `unix`.
    #[error(
        "it begins with redis://, rediss:// (over TLS), valkey://, valkeys:// or unix:///, or is HOST:PORT"
    )]
    Scheme,
    /// The host is missing, or it is malformed.
    #[error("the host is missing")]
    Host,
    /// The port is invalid.
    #[error("the port is a number from 1 to 65535")]
    Port,
    /// Text follows the port.
    #[error("nothing follows the port: no database is chosen")]
    Path,
    /// A percent sign without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("%XX in user or password is malformed")]
    Escape,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let (rest, tls) = match text.split_once("://") {
            None => (text, None),
            Some(("redis" | "valkey", rest)) => (rest, None),
            Some(("rediss" | "valkeys", rest)) => (rest, Some(ClientFiles::default())),
            Some(("unix", path)) => return of_socket(path),
            Some(_) => return Err(AddressError::Scheme),
        };
        // A password may contain an unescaped @.
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, rest),
        };
        let (user, password) = login_of(credentials)?;
        let (place, path) = place.split_once('/').unwrap_or((place, ""));
        if !path.is_empty() {
            return Err(AddressError::Path);
        }
        let (host, port) = split_port(place)?;
        Ok(Address { host: host.into(), port, user, password, tls })
    }
}

/// The server at a Unix socket. `text` is its path, which begins with a slash; before it may stand a user and
/// a password.
fn of_socket(text: &str) -> Result<Address, AddressError> {
    let begin = text.find('/').ok_or(AddressError::Host)?;
    let (credentials, path) = text.split_at(begin);
    let credentials = match credentials {
        "" => None,
        credentials => Some(credentials.strip_suffix('@').ok_or(AddressError::Host)?),
    };
    let (user, password) = login_of(credentials)?;
    Ok(Address { host: path.into(), port: DEFAULT_PORT, user, password, tls: None })
}

type Login = (Option<String>, Option<String>);

fn login_of(credentials: Option<&str>) -> Result<Login, AddressError> {
    let (user, password) = match credentials.map(|text| text.split_once(':').unwrap_or((text, ""))) {
        Some((user, password)) => (unescape(user)?, unescape(password)?),
        None => (String::new(), String::new()),
    };
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok((given(user), given(password)))
}

fn split_port(place: &str) -> Result<(&str, u16), AddressError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or(AddressError::Host)?;
            match behind.strip_prefix(':') {
                None if !behind.is_empty() => return Err(AddressError::Port),
                port => (host, port),
            }
        }
        None => match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(AddressError::Port)?,
    };
    if host.is_empty() { Err(AddressError::Host) } else { Ok((host, port)) }
}

fn unescape(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| (digit as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(AddressError::Escape) };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Escape)
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_path(&self.host) {
            to.write_str(&self.host)
        } else if self.host.contains(':') {
            write!(to, "[{}]:{}", self.host, self.port)
        } else {
            write!(to, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood() {
        let at = |host: &str, port, user: Option<&str>, password: Option<&str>| {
            let text = |part: Option<&str>| part.map(String::from);
            Ok(Address { host: host.into(), port, user: text(user), password: text(password), tls: None })
        };
        for (text, expected) in [
            ("redis://db1:7000", at("db1", 7000, None, None)),
            ("redis://db1:7000/", at("db1", 7000, None, None)),
            ("valkey://db1", at("db1", 6379, None, None)),
            ("127.0.0.1:6380", at("127.0.0.1", 6380, None, None)),
            ("redis://:secret@db1", at("db1", 6379, None, Some("secret"))),
            ("redis://mover:p%40ss:w@rd@db1:1", at("db1", 1, Some("mover"), Some("p@ss:w@rd"))),
            ("redis://[::1]:7000", at("::1", 7000, None, None)),
            ("redis://[fe80::1]", at("fe80::1", 6379, None, None)),
            ("unix:///run/s", at("/run/s", 6379, None, None)),
            ("unix://me:p%40@/run/s@1:2", at("/run/s@1:2", 6379, Some("me"), Some("p@"))),
            ("unix://run", Err(AddressError::Host)),
            ("unix://me:x/run", Err(AddressError::Host)),
            ("http://db1", Err(AddressError::Scheme)),
            ("redis://db1/3", Err(AddressError::Path)),
            ("redis://", Err(AddressError::Host)),
            ("redis://[::1", Err(AddressError::Host)),
            ("db1:0", Err(AddressError::Port)),
            ("redis://[::1]6380", Err(AddressError::Port)),
            ("db1:70000", Err(AddressError::Port)),
            ("redis://:%4@db1", Err(AddressError::Escape)),
            ("redis://:%ff@db1", Err(AddressError::Escape)),
        ] {
            assert_eq!(text.parse::<Address>(), expected, "{text}");
        }
    }

    #[test]
    fn a_scheme_says_whether_the_connection_is_encrypted() {
        for (text, is_encrypted) in
            [("rediss://db1", true), ("valkeys://db1:7", true), ("redis://db1", false), ("db1:7", false)]
        {
            assert_eq!(text.parse::<Address>().unwrap().tls.is_some(), is_encrypted, "{text}");
        }
    }

    #[test]
    fn a_shown_address_has_no_password() {
        for (text, shown) in [("redis://u:p@db1:7", "db1:7"), ("redis://[::1]", "[::1]:6379")] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
    }
}
