//! The socket of a client, as the front uses it: TCP, or the memory of a simulation.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use tokio::io::{AsyncRead, AsyncWrite};

/// A connected socket that is passed to the thread which serves it.
pub trait Socket: Sized + 'static {
    /// The socket within the event loop of its thread.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// Registers the socket with the event loop of the calling thread.
    ///
    /// # Errors
    /// If the event loop cannot take it.
    fn register(self) -> io::Result<Self::Stream>;

    /// A function that returns how many sent bytes the client has not acknowledged; 0 if that is unknown.
    fn unacknowledged(stream: &Self::Stream) -> Box<dyn Fn() -> u64>;
}

impl Socket for std::net::TcpStream {
    type Stream = tokio::net::TcpStream;

    fn register(self) -> io::Result<tokio::net::TcpStream> {
        tokio::net::TcpStream::from_std(self)
    }

    fn unacknowledged(stream: &tokio::net::TcpStream) -> Box<dyn Fn() -> u64> {
        // The function gets a descriptor of its own: the stream is mutably borrowed while it is served.
        let socket = stream.as_fd().try_clone_to_owned();
        let bytes = |socket: &OwnedFd| env::socket::unacknowledged_bytes(socket).unwrap_or(0);
        Box::new(move || socket.as_ref().map_or(0, bytes))
    }
}
