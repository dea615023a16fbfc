//! The socket of a client, plain or encrypted.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tls::{ClientFiles, Connector, handshake};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf, Ready},
    net::{TcpStream, UnixStream},
};

pub(crate) enum Stream {
    Plain(TcpStream),
    Unix(UnixStream),
    Tls(Box<tls::Stream>),
}

/// Whether `host` is the path of a Unix socket: no host name has a slash.
pub(crate) fn is_path(host: &str) -> bool {
    host.contains('/')
}

impl Stream {
    /// Connects to a server, encrypted if `tls` is given.
    ///
    /// # Errors
    /// The reason, in words.
    pub(super) async fn connect(host: &str, port: u16, tls: Option<&ClientFiles>) -> Result<Stream, String> {
        if is_path(host) {
            return UnixStream::connect(host).await.map(Stream::Unix).map_err(|error| error.to_string());
        }
        let session = tls.map(|files| Connector::new(files)?.connect(host)).transpose();
        let session = session.map_err(|error| error.to_string())?;
        let socket = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        socket.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(mut session) = session else { return Ok(Stream::Plain(socket)) };
        let shaken = handshake(&socket, &mut session).await;
        shaken.map_err(|error| format!("TLS: {}", tls::advised(&tls::reason_of(&error))))?;
        Ok(Stream::Tls(Box::new(tls::Stream::new(socket, session))))
    }

    /// Sends all of `bytes`.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.write_all(bytes).await,
            Stream::Unix(socket) => socket.write_all(bytes).await,
            Stream::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Waits for bytes and appends them to `buffer`. Returns the number of bytes; 0 at the end of the stream.
    pub(super) async fn read_buf(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read_buf(buffer).await,
            Stream::Unix(socket) => socket.read_buf(buffer).await,
            Stream::Tls(stream) => stream.read_buf(buffer).await,
        }
    }

    /// As [`Stream::read_buf`], but `WouldBlock` if nothing has arrived.
    pub(super) fn try_read_buf(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.try_read_buf(buffer),
            Stream::Unix(socket) => socket.try_read_buf(buffer),
            Stream::Tls(stream) => {
                // There is room for the plain bytes of a record, because the socket would not become ready
                // for bytes that are left in the session.
                let mut room = [0; tls::RECORD_BYTES_MAX];
                let mut room = ReadBuf::new(&mut room);
                now(|cx| Pin::new(stream.as_mut()).poll_read(cx, &mut room))?;
                buffer.extend_from_slice(room.filled());
                Ok(room.filled().len())
            }
        }
    }

    /// Waits until the socket is ready for one of the operations in `interest`.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Stream::Plain(socket) => socket.ready(interest).await,
            Stream::Unix(socket) => socket.ready(interest).await,
            Stream::Tls(stream) => stream.socket().ready(interest).await,
        }
    }

    /// Whether bytes that were accepted wait for the socket. Then writing, even of nothing, sends them.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.session().has_unsent())
    }

    /// Accepts as many of `bytes` as there is room for. Returns their number; `WouldBlock` without room.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.try_write(bytes),
            Stream::Unix(socket) => socket.try_write(bytes),
            Stream::Tls(stream) => now(|cx| Pin::new(stream.as_mut()).poll_write(cx, bytes)),
        }
    }
}

/// The result of a poll at this moment; `WouldBlock` if it is pending.
fn now<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>) -> io::Result<T> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}
