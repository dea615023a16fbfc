//! The socket of a client of HTTP, plain or encrypted.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
};

use tls::Session;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A socket that is passed to the thread which serves it; with a session, after its handshake.
pub(crate) struct HttpSocket {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) session: Option<Box<Session>>,
}

pub(crate) enum HttpStream {
    Plain(TcpStream),
    Tls(Box<tls::Stream>),
}

impl couch::Socket for HttpSocket {
    type Stream = HttpStream;

    fn register(self) -> io::Result<HttpStream> {
        let stream = TcpStream::from_std(self.stream)?;
        Ok(match self.session {
            None => HttpStream::Plain(stream),
            Some(session) => HttpStream::Tls(Box::new(tls::Stream::new(stream, *session))),
        })
    }

    fn is_encrypted(stream: &HttpStream) -> bool {
        matches!(stream, HttpStream::Tls(_))
    }

    fn unacknowledged(stream: &HttpStream) -> Box<dyn Fn() -> u64> {
        // The function gets a descriptor of its own: the stream is mutably borrowed while it is served.
        let socket = stream.as_fd().try_clone_to_owned();
        let bytes = |socket: &OwnedFd| env::socket::unacknowledged_bytes(socket).unwrap_or(0);
        Box::new(move || socket.as_ref().map_or(0, bytes))
    }
}

impl AsFd for HttpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            HttpStream::Plain(stream) => stream.as_fd(),
            HttpStream::Tls(stream) => stream.socket().as_fd(),
        }
    }
}

/// Calls the same method of either stream.
macro_rules! of_either {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match $stream.get_mut() {
            HttpStream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            HttpStream::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for HttpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        of_either!(self, poll_read(cx, buffer))
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        of_either!(self, poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_either!(self, poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, poll_shutdown(cx))
    }
}
