//! The addresses on which this server listens, by which it recognises itself when it is named as a leader.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use engine::replication::Address;

/// The listen addresses of this server.
#[derive(Debug, Clone)]
pub(super) struct OwnAddresses {
    /// The addresses of the Redis protocol; empty if clients connect to a Unix socket alone.
    pub(super) redis: Vec<SocketAddr>,
    pub(super) http_port: u16,
}

impl OwnAddresses {
    pub(super) fn redis_port(&self) -> u16 {
        self.redis.first().map_or(0, SocketAddr::port)
    }

    /// Whether a connection to `address` reaches this server. Names other than `localhost` are not resolved,
    /// because that can take long.
    pub(super) fn include(&self, address: &Address) -> bool {
        let named: Vec<IpAddr> = match address.host.as_str() {
            "localhost" => vec![[127, 0, 0, 1].into(), [0, 0, 0, 0, 0, 0, 0, 1].into()],
            host => host.parse().into_iter().collect(),
        };
        let listens_at = |ip: IpAddr| {
            // The port of HTTP is bound to the same addresses.
            let is_http = address.port == self.http_port;
            let mut listeners =
                self.redis.iter().filter(|listener| listener.port() == address.port || is_http);
            listeners.any(|listener| is_reached(listener.ip().to_canonical(), ip.to_canonical()))
        };
        named.into_iter().any(listens_at)
    }
}

/// Whether a connection to `named` reaches a socket that listens on `listener`.
fn is_reached(listener: IpAddr, named: IpAddr) -> bool {
    // A connection to the unspecified address reaches the machine itself.
    named == listener
        || named.is_unspecified() && listener.is_loopback()
        || listener.is_unspecified() && (named.is_unspecified() || is_of_this_machine(named))
}

fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(redis: &[&str]) -> OwnAddresses {
        let redis = redis.iter().map(|text| text.parse().expect("an address")).collect();
        OwnAddresses { redis, http_port: 1 }
    }

    fn include(own: &OwnAddresses, host: &str, port: u16) -> bool {
        own.include(&Address { host: host.into(), port })
    }

    #[test]
    fn a_server_knows_itself_by_every_address_that_leads_to_it() {
        let at_home = own(&["127.0.0.1:6379", "[::1]:6379"]);
        for host in ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::ffff:127.0.0.1"] {
            assert!(include(&at_home, host, 6379), "{host}");
            assert!(!include(&at_home, host, 6380), "{host}");
        }
        assert!(include(&at_home, "127.0.0.1", 1), "the port of HTTP");
        assert!(!include(&at_home, "127.0.0.2", 6379), "another server may be there");
        assert!(!include(&at_home, "leader.example", 6379));
        let everywhere = own(&["0.0.0.0:6379"]);
        assert!(include(&everywhere, "127.0.0.2", 6379));
        assert!(!include(&everywhere, "192.0.2.1", 6379), "no address of this machine");
    }
}
