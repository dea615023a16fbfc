//! The socket of a client, as the front uses it: TCP or TLS, or the memory of a simulation.

use std::io;

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

    /// Whether the connection is encrypted.
    fn is_encrypted(_stream: &Self::Stream) -> bool {
        false
    }

    /// A function that returns how many sent bytes the client has not acknowledged; 0 if that is unknown.
    fn unacknowledged(stream: &Self::Stream) -> Box<dyn Fn() -> u64>;
}
