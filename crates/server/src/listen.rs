//! Listening: accepts connections and hands them to the workers in turn.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use socket2::SockRef;
use tls::Session;
use tokio::net::{TcpListener, TcpSocket};

use crate::{
    access::Access,
    attached_log::AttachedLog,
    connection::error_line,
    handshakes::{Then, TlsDoor},
    mailbox::{Admitted, Mailbox, UnixPeer, WorkerOrder},
};

/// Pause after a failed accept; the usual cause is a lack of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A write of the log that takes longer keeps new connections away from the worker that waits for it.
const SLOW_WRITE_US: u64 = 100_000;
/// The first port that every user may listen on; lower ports need a privilege.
const PRIVILEGED_END: u16 = 1024;
/// The address that counts for clients of the Unix socket, which have none.
const THIS_MACHINE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Binds one port on every address of `bind` (separated by spaces). With port 0, the first address gets a
/// free port, and the others get the same port.
///
/// An address that the machine does not have is skipped if a `-` stands before it, as in Redis. So is a
/// missing IPv6 address if an earlier address was bound. If `bind` has IPv4 addresses as well, IPv6 sockets
/// take no connections of IPv4. Must run within a runtime.
///
/// # Errors
/// If an address cannot be resolved or bound, or if all are skipped.
pub(crate) fn bind(
    bind: &str,
    (setting, port): (&str, u16),
    backlog: u32,
) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners: Vec<std::net::TcpListener> = Vec::new();
    let words = bind.split_whitespace();
    let hosts: Vec<(&str, bool)> = words.map(split_optional).collect();
    let has_ipv4 = hosts.iter().any(|(host, _)| !host.contains(':'));
    for (host, is_optional) in hosts {
        let port = match listeners.first() {
            Some(first) => first.local_addr()?.port(),
            None => port,
        };
        let looked_up = (host, port).to_socket_addrs();
        // An unknown host is a wrong value of the setting.
        let refused = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let address = looked_up.map_err(|error| refused(format!("cannot look up '{host}': {error}")))?.next();
        let address = address.ok_or_else(|| refused(format!("'{host}' is not an address")))?;
        let may_lack = is_optional || (address.is_ipv6() && !listeners.is_empty());
        match bind_one(address, has_ipv4, backlog) {
            Ok(listener) => listeners.push(listener),
            Err(error) if may_lack && no_such_address(&error) => {}
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::AddrInUse => format!(
                        "; another server uses this port: stop it, or choose another port with --{setting}"
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        "; this machine has no such address: 'bind' takes its own, or 0.0.0.0 for all".into()
                    }
                    io::ErrorKind::PermissionDenied if address.port() < PRIVILEGED_END => {
                        format!("; ports below 1024 are for root: choose another port with --{setting}")
                    }
                    _ => String::new(),
                };
                return Err(io::Error::new(
                    error.kind(),
                    format!("cannot listen on {address}: {error}{hint}"),
                ));
            }
        }
    }
    if listeners.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on: set 'bind'"));
    }
    Ok(listeners)
}

fn no_such_address(error: &io::Error) -> bool {
    // A kernel without IPv6 returns EAFNOSUPPORT.
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// Splits a word of `bind` into the address, and whether the machine may lack that address.
fn split_optional(word: &str) -> (&str, bool) {
    word.strip_prefix('-').map_or((word, false), |address| (address, true))
}

fn bind_one(address: SocketAddr, only_v6: bool, backlog: u32) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    if address.is_ipv6() && only_v6 {
        SockRef::from(&socket).set_only_v6(true)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)?.into_std()
}

/// Admits connections of the Redis protocol, after a handshake if there is one, and hands them to the
/// workers.
#[derive(Clone)]
pub(crate) struct Reception {
    pub(crate) access: Arc<Access>,
    pub(crate) workers: Vec<Mailbox>,
    pub(crate) log: Arc<AttachedLog>,
    pub(crate) next: Arc<RoundRobin>,
}

impl Reception {
    /// Hands a connection to a worker, or turns it away.
    fn receive(&self, stream: std::net::TcpStream, peer: SocketAddr, session: Option<Box<Session>>) {
        if let Ok(local) = stream.local_addr() {
            self.admit(stream, (peer, local), session, None);
        }
    }

    /// As [`Reception::receive`], from a Unix socket.
    pub(crate) fn receive_unix(&self, stream: std::os::unix::net::UnixStream, unix: UnixPeer) {
        // A worker reads, writes and shuts down; these calls are the same for all stream sockets.
        let stream = std::net::TcpStream::from(OwnedFd::from(stream));
        self.admit(stream, (THIS_MACHINE, THIS_MACHINE), None, Some(unix));
    }

    fn admit(
        &self,
        mut stream: std::net::TcpStream,
        (peer, local): (SocketAddr, SocketAddr),
        session: Option<Box<Session>>,
        unix: Option<UnixPeer>,
    ) {
        let (place, arrival) = match self.access.admit(&peer) {
            Ok(admitted) => admitted,
            Err(error) => return turn_away(&mut stream, session, &error_line(&error)),
        };
        let admitted = Admitted { stream, session, peer, local, unix, place, arrival, on_behalf_of: None };
        worker_for_one_more(&self.workers, &self.next, &self.log).send(WorkerOrder::Connect(admitted));
    }
}

/// The worker for a new connection: the next one in turn that answers. A worker may write to the log itself,
/// one worker at a time. While the disk does not answer such a write, that worker serves nobody, so it is
/// passed over.
pub(crate) fn worker_for_one_more<'w>(
    workers: &'w [Mailbox],
    turns: &RoundRobin,
    log: &AttachedLog,
) -> &'w Mailbox {
    let is_slow = log.get().is_some_and(|log| log.flight_us() > SLOW_WRITE_US);
    &workers[turns.take_one_of(workers.len(), |worker| !(is_slow && workers[worker].is_writing()))]
}

/// Sends the error to a refused client, as far as the socket accepts it at once, and does no further work for
/// that client.
fn turn_away(stream: &mut std::net::TcpStream, session: Option<Box<Session>>, line: &[u8]) {
    match session {
        Some(mut session) => session.dismiss(stream, line),
        None => _ = stream.write(line),
    }
}

/// Accepts connections until the runtime ends; at a door for TLS, encrypted connections.
pub(crate) async fn accept(listener: TcpListener, reception: Reception, tls: Option<TlsDoor>) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(target: "server", %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let Ok(stream) = stream.into_std() else { continue };
        match &tls {
            None => reception.receive(stream, peer, None),
            Some(door) => {
                let reception = reception.clone();
                let then: Then = Box::new(move |stream, session| {
                    reception.receive(stream, peer, Some(Box::new(session)));
                });
                door.begin(stream, peer, then).await;
            }
        }
    }
}

/// Chooses among a number of threads in turn.
#[derive(Default)]
pub(crate) struct RoundRobin(std::sync::atomic::AtomicUsize);

impl RoundRobin {
    pub(crate) fn take(&self, count: usize) -> usize {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % count
    }

    /// As [`RoundRobin::take`], but passes over threads that are not `free`, unless no thread is free.
    fn take_one_of(&self, count: usize, free: impl Fn(usize) -> bool) -> usize {
        let next = self.take(count);
        (next..next + count).map(|turn| turn % count).find(|thread| free(*thread)).unwrap_or(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_nobody_knows_is_a_wrong_setting() {
        let error = bind("..", ("port", 0), 1).expect_err("no host");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }

    #[test]
    fn a_thread_that_is_not_free_is_passed_over() {
        let turns = RoundRobin::default();
        let taken =
            |count, busy| (0..4).map(|_| turns.take_one_of(count, |it| it != busy)).collect::<Vec<_>>();
        assert_eq!(taken(2, 0), [1, 1, 1, 1]);
        assert_eq!(taken(2, 9), [0, 1, 0, 1]);
        assert_eq!(taken(1, 0), [0; 4], "there is no other one");
    }

    fn hosts_of(words: &str) -> Result<Vec<String>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        let _entered = runtime.enter();
        let listeners = bind(words, ("port", 0), 1).map_err(|error| error.to_string())?;
        let hosts = listeners.iter().map(|it| it.local_addr().expect("an address").ip().to_string());
        Ok(hosts.collect())
    }

    #[test]
    fn addresses_that_may_be_missing_are_skipped() {
        // An address for documentation, which no machine has.
        assert_eq!(hosts_of("-192.0.2.1 127.0.0.1"), Ok(vec!["127.0.0.1".into()]));
        assert!(hosts_of("192.0.2.1 127.0.0.1").unwrap_err().contains("no such address"));
        assert!(hosts_of("-192.0.2.1").unwrap_err().contains("no address to listen on"));
    }

    #[test]
    fn all_addresses_of_both_families_have_one_port() {
        let hosts = hosts_of("0.0.0.0 -::").expect("one port");
        assert!(hosts == ["0.0.0.0", "::"] || hosts == ["0.0.0.0"], "without IPv6: {hosts:?}");
    }
}
