//! Carries TLS connections between servers (`tls-replication`), and gives the code that uses them plain
//! sockets.
//!
//! ```text
//! replication, votes: one end <-> pair of sockets <-> thread "tls-links": session <-> the other server
//! ```
//!
//! A tunnel only carries bytes; it does not decide who may follow or vote. Replication and votes block, wait
//! with timeouts, and break sockets from other threads. A pair of sockets supports all of that as a TCP
//! connection does, so their code is the same with TLS and without.
//!
//! Invariants
//! - A tunnel ends as a whole: when one end closes, the other one closes, too.
//! - A tunnel keeps no more than one piece for each direction, the records of one write, and the buffers of
//!   the kernel. So if one side takes no bytes, the other side soon cannot send any.

use std::{io, net::TcpStream, os::unix::net::UnixStream, thread, time::Duration};

use tls::{ClientFiles, Connector, Session};
use tokio::{
    io::{AsyncWriteExt, copy, split},
    sync::mpsc,
    task::{LocalSet, spawn_local},
    time::timeout,
};

/// The longest time for sending the last record, which tells the other side that nothing more comes.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Carries connections until it is dropped.
pub(crate) struct Tunnels(mpsc::UnboundedSender<Order>);

/// An order to the thread. The number of queued orders is bounded by the number of connections between
/// servers.
enum Order {
    /// Carry this connection to the other end of `near`.
    Carry { stream: TcpStream, session: Box<Session>, near: UnixStream },
    /// Shake hands first, and report the outcome.
    Begin {
        stream: TcpStream,
        session: Box<Session>,
        near: UnixStream,
        limit: Duration,
        done: std::sync::mpsc::Sender<Result<(), String>>,
    },
}

impl Tunnels {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the OS refuses the thread or its runtime.
    pub(crate) fn start() -> io::Result<Tunnels> {
        let (sender, mut orders) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let serve = async move {
            while let Some(order) = orders.recv().await {
                spawn_local(carry_out(order));
            }
        };
        let run = move || LocalSet::new().block_on(&runtime, serve);
        thread::Builder::new().name("tls-links".into()).spawn(run)?;
        Ok(Tunnels(sender))
    }

    /// Carries a connection whose handshake is over. Returns the plain end.
    ///
    /// # Errors
    /// If the OS refuses the two sockets between this server and the thread.
    pub(crate) fn carry(&self, stream: TcpStream, session: Box<Session>) -> io::Result<TcpStream> {
        let (own, near) = UnixStream::pair()?;
        let _ = self.0.send(Order::Carry { stream, session, near });
        Ok(plain(own))
    }

    /// Shakes hands with the server at the other end of `stream`, which must prove to be `host`. Returns the
    /// plain end. Blocks for `limit` at most.
    ///
    /// # Errors
    /// The reason why there is no encrypted connection, in words.
    pub(crate) fn begin(
        &self,
        stream: TcpStream,
        host: &str,
        files: &ClientFiles,
        limit: Duration,
    ) -> Result<TcpStream, String> {
        let connector = Connector::new(files).map_err(|error| error.to_string())?;
        let session = Box::new(connector.connect(host).map_err(|error| error.to_string())?);
        let (own, near) = UnixStream::pair().map_err(|error| error.to_string())?;
        let (done, finished) = std::sync::mpsc::channel();
        let _ = self.0.send(Order::Begin { stream, session, near, limit, done });
        finished.recv().unwrap_or(Err("this server stops".into()))?;
        Ok(plain(own))
    }
}

/// One end of a pair of sockets as a `TcpStream`. That works because reading, writing, timeouts and shutting
/// down are the same for all stream sockets.
fn plain(end: UnixStream) -> TcpStream {
    TcpStream::from(std::os::fd::OwnedFd::from(end))
}

async fn carry_out(order: Order) {
    match order {
        Order::Carry { stream, session, near } => {
            if let Ok(stream) = register(stream) {
                carry(stream, *session, near).await;
            }
        }
        Order::Begin { stream, mut session, near, limit, done } => {
            let shaken = match register(stream) {
                Err(error) => Err(error.to_string()),
                Ok(stream) => match timeout(limit, tls::handshake(&stream, &mut session)).await {
                    Ok(Ok(())) => Ok(stream),
                    Ok(Err(error)) => Err(format!("TLS: {}", tls::reason_of(&error))),
                    Err(_) => Err("TLS: the handshake took too long".into()),
                },
            };
            let stream = match shaken {
                Ok(stream) => stream,
                Err(reason) => {
                    let _ = done.send(Err(reason));
                    return;
                }
            };
            if done.send(Ok(())).is_ok() {
                carry(stream, *session, near).await;
            }
        }
    }
}

fn register(stream: TcpStream) -> io::Result<tokio::net::TcpStream> {
    stream.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(stream)
}

async fn carry(stream: tokio::net::TcpStream, session: Session, near: UnixStream) {
    if near.set_nonblocking(true).is_err() {
        return;
    }
    let Ok(mut near) = tokio::net::UnixStream::from_std(near) else { return };
    let (mut from_near, mut to_near) = near.split();
    let (mut from_far, mut to_far) = split(tls::Stream::new(stream, session));
    tokio::select! {
        _ = copy(&mut from_near, &mut to_far) => {}
        _ = copy(&mut from_far, &mut to_near) => {}
    }
    let _ = timeout(GOODBYE_TIMEOUT, to_far.shutdown()).await;
}
