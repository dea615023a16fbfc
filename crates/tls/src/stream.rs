//! An encrypted connection on a socket of tokio: its handshake, and a stream of plain bytes.
//!
//! Invariant: a stream keeps no more than one incomplete record, the plain bytes of one read, and the records
//! of one write.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::Session;

/// A socket for the synchronous calls of a session. A read or write that would have to wait returns
/// `WouldBlock`.
struct Ready<'a>(&'a TcpStream);

impl Read for Ready<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Ready<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shakes hands. Afterwards both sides may send. The caller must limit the time.
///
/// # Errors
/// If the other side is not trusted, speaks no TLS, or has gone. Unless it has gone, an alert was sent to it,
/// as far as the socket took the alert.
pub async fn handshake(socket: &TcpStream, session: &mut Session) -> io::Result<()> {
    loop {
        while session.has_unsent() {
            match session.write_to(&mut Ready(socket)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable().await?,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        if !session.is_handshaking() {
            return Ok(());
        }
        match session.read_from(&mut Ready(socket)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.readable().await?,
            Err(error) => {
                // This sends the alert, which tells the other side the reason.
                let _ = session.write_to(&mut Ready(socket));
                return Err(error);
            }
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
        }
    }
}

/// The reason why a handshake or a session failed, in words for a log.
pub fn reason_of(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (inner, error.kind()) {
        (Some(rustls::Error::InvalidMessage(_)), _) => "the other side speaks no TLS".into(),
        (Some(rustls::Error::NoCertificatesPresented), _) => "the client shows no certificate".into(),
        (Some(error), _) => error.to_string(),
        (None, ErrorKind::UnexpectedEof) => "the other side has closed the connection".into(),
        (None, _) => error.to_string(),
    }
}

/// Adds advice for the operator of a client to the reason why the client has no session.
pub fn advised(reason: &str) -> String {
    let advice = match reason {
        _ if reason.contains("UnknownIssuer") => {
            ". Name the certificates of the authority of the server with --cacert FILE"
        }
        _ if reason.contains("not valid for name") => {
            ". Use a name that the certificate has, or give it with --sni NAME"
        }
        _ => "",
    };
    format!("{reason}{advice}")
}

/// An encrypted connection as a stream of plain bytes.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    session: Session,
    has_said_goodbye: bool,
}

impl Stream {
    /// The stream of a socket and its session, whose handshake is over.
    pub fn new(socket: TcpStream, session: Session) -> Stream {
        Stream { socket, session, has_said_goodbye: false }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Writes records until none waits.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.has_unsent() {
            match self.session.write_to(&mut Ready(&self.socket)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(self.why_ended(error))),
                Ok(_) => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Why the connection has ended: the alert that the other side sent before, or the error of the write.
    fn why_ended(&mut self, error: io::Error) -> io::Error {
        match self.session.read_from(&mut Ready(&self.socket)) {
            Err(alert) if alert.kind() == ErrorKind::InvalidData => alert,
            _ => error,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let taken = match self.session.take(buffer.initialize_unfilled()) {
                // An earlier read has met the end of the socket without a `close_notify`.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                taken => taken?,
            };
            buffer.advance(taken);
            if taken > 0 || buffer.remaining() == 0 || self.session.is_closed() {
                return Poll::Ready(Ok(()));
            }
            let Stream { socket, session, .. } = &mut *self;
            match session.read_from(&mut Ready(socket)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_read_ready(cx))?;
                }
                Err(error) => {
                    let Stream { socket, session, .. } = &mut *self;
                    let _ = session.write_to(&mut Ready(socket));
                    return Poll::Ready(Err(error));
                }
                // The socket has ended without a `close_notify`; perhaps a third party has cut the
                // connection. The reader sees the end of the stream.
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_unsent(cx))?;
        let count = self.session.encrypt(pieces)?;
        // Bytes that the socket does not take now leave with the next write, flush or shutdown.
        if let Poll::Ready(Err(error)) = self.poll_unsent(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_said_goodbye {
            self.has_said_goodbye = true;
            self.session.close();
        }
        ready!(self.poll_unsent(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::testing::begin;

    /// A runtime of one thread.
    fn on_a_runtime(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(test);
    }

    async fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(connecting, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[test]
    fn more_than_any_buffer_holds_passes_both_ways() {
        on_a_runtime(async {
            let ((mut client, mut server), (near, far)) = (begin("stream"), sockets().await);
            tokio::try_join!(handshake(&near, &mut client), handshake(&far, &mut server)).unwrap();
            let (client, server) = (Stream::new(near, client), Stream::new(far, server));
            let (mut client_reads, mut client_writes) = tokio::io::split(client);
            let (mut server_reads, mut server_writes) = tokio::io::split(server);
            let sent: Vec<u8> = (0..4 << 20_u32).map(|number| (number >> 3) as u8).collect();
            let echo = async {
                tokio::io::copy(&mut server_reads, &mut server_writes).await.unwrap();
                server_writes.shutdown().await.unwrap();
            };
            let write = async {
                client_writes.write_all(&sent).await.unwrap();
                client_writes.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let (_, (), ()) = tokio::join!(client_reads.read_to_end(&mut received), echo, write);
            assert!(received == sent, "{} bytes", received.len());
        });
    }

    #[test]
    fn a_stream_that_was_cut_stays_at_its_end() {
        on_a_runtime(async {
            let ((mut client, mut server), (mut near, far)) = (begin("cut"), sockets().await);
            tokio::try_join!(handshake(&near, &mut client), handshake(&far, &mut server)).unwrap();
            near.shutdown().await.unwrap();
            let mut server = Stream::new(far, server);
            for _ in 0..2 {
                assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
            }
        });
    }

    #[test]
    fn who_speaks_something_else_or_leaves_gets_no_session() {
        on_a_runtime(async {
            for said in
                [&b"*1\r\n$4\r\nPING\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", b""]
            {
                let ((_, mut server), (mut near, far)) = (begin("garbage"), sockets().await);
                near.write_all(said).await.unwrap();
                near.shutdown().await.unwrap();
                let reason = reason_of(&handshake(&far, &mut server).await.unwrap_err());
                let wanted = match said {
                    b"" => "the other side has closed the connection",
                    _ => "the other side speaks no TLS",
                };
                assert_eq!(reason, wanted, "{said:?}");
            }
        });
    }
}
