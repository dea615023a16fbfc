//! Listening: accepts connections and hands them to the workers in turn.

use std::{
    io::{self, IoSlice, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use tls::Session;
use tokio::net::{TcpListener, TcpSocket};

use crate::{
    access::Access,
    connection::error_line,
    handshakes::{Then, TlsDoor},
    mailbox::{Admitted, Mailbox, UnixPeer, WorkerOrder},
};

/// Pause after a failed accept; the usual cause is a lack of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// From this port on, every user may listen.
const PRIVILEGED_END: u16 = 1024;
/// The address of clients that have none.
const THIS_MACHINE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Binds one port on every address of `bind` (separated by spaces). With port 0, the first address gets a
/// free port and the others the same one. An IPv6 address that the machine does not have is skipped, unless
/// it is the first. Must run within a runtime.
///
/// # Errors
/// If an address cannot be resolved or bound.
pub(crate) fn bind(bind: &str, port: u16, backlog: u32) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners: Vec<std::net::TcpListener> = Vec::new();
    for host in bind.split_whitespace() {
        let port = match listeners.first() {
            Some(first) => first.local_addr()?.port(),
            None => port,
        };
        let looked_up = (host, port).to_socket_addrs();
        let unknown =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot look up '{host}': {error}"));
        let address = looked_up.map_err(unknown)?.next();
        let address = address.ok_or_else(|| io::Error::other(format!("'{host}' is not an address")))?;
        match bind_one(address, backlog) {
            Ok(listener) => listeners.push(listener),
            Err(error) if address.is_ipv6() && no_such_address(&error) && !listeners.is_empty() => {}
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "; another server uses this port: stop it or choose another port"
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        "; this machine has no such address: 'bind' takes its own, or 0.0.0.0 for all"
                    }
                    io::ErrorKind::PermissionDenied if address.port() < PRIVILEGED_END => {
                        "; ports below 1024 are for root: choose another port"
                    }
                    _ => "",
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
    // EAFNOSUPPORT: a kernel without IPv6.
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

fn bind_one(address: SocketAddr, backlog: u32) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
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
        let place = match self.access.admit(&peer) {
            Ok(place) => place,
            Err(error) => return turn_away(&mut stream, session, &error_line(&error)),
        };
        let admitted = Admitted { stream, session, peer, local, unix, place, on_behalf_of: None };
        self.workers[self.next.take(self.workers.len())].send(WorkerOrder::Connect(admitted));
    }
}

/// Sends the error only as far as the socket accepts it at once: a refused client gets no further work.
fn turn_away(stream: &mut std::net::TcpStream, session: Option<Box<Session>>, line: &[u8]) {
    let Some(mut session) = session else {
        let _ = stream.write(line);
        return;
    };
    if session.encrypt(&[IoSlice::new(line)]).is_ok() {
        session.close();
        let _ = session.write_to(stream);
    }
}

/// Accepts until the runtime ends; at a door for TLS, encrypted connections.
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
}
