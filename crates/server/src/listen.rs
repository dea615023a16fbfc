//! Listening: accepts connections and hands them to the workers in turn.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use tokio::net::{TcpListener, TcpSocket};

use crate::{
    access::Access,
    connection::error_line,
    mailbox::{Mailbox, WorkerOrder},
};

/// Pause after a failed accept; the usual cause is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
                let hint = if error.kind() == io::ErrorKind::AddrInUse {
                    "; another server uses this port: stop it or choose another port"
                } else {
                    ""
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

/// Accepts until the runtime ends.
pub(crate) async fn accept(
    listener: TcpListener,
    access: Arc<Access>,
    workers: Vec<Mailbox>,
    next: Arc<RoundRobin>,
) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(target: "server", %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = match access.admit(&peer) {
            Ok(place) => place,
            Err(error) => {
                // The error is sent only as far as the socket accepts it at once: a refused client gets no
                // further work.
                let _ = stream.try_write(&error_line(&error));
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        if let (Ok(local), Ok(stream)) = (stream.local_addr(), stream.into_std()) {
            let worker = next.take(workers.len());
            workers[worker].send(WorkerOrder::Connect { stream, peer, local, place });
        }
    }
}

/// Chooses workers in turn. All listeners share one `RoundRobin`, and clients over HTTP another one.
#[derive(Default)]
pub(crate) struct RoundRobin(std::sync::atomic::AtomicUsize);

impl RoundRobin {
    pub(crate) fn take(&self, count: usize) -> usize {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % count
    }
}
