//! TLS: certificates, and encrypted connections of servers and clients.
//!
//! ```text
//! ServerPolicy (names files) -> Loaded (their contents) -> Acceptor -> Session of each connection
//!                               ^ replaced as a whole when a file or a setting changes
//! bytes of a socket -> Session::receive -> plain bytes
//! plain bytes -> Session::encrypt -> Session::write_to -> socket
//! ```
//!
//! Only this crate knows rustls. It reads files with certificates and keys, judges the certificate of the
//! other side, and turns bytes of a socket into bytes of a protocol and back. Threads, listeners and limits
//! on connections are in the crate `server`. This crate does not judge users: it only reads the name in a
//! certificate.
//!
//! Invariants
//! - An [`Acceptor`] always has a complete, consistent set of files. A set that cannot be loaded changes
//!   nothing. A connection keeps the set with which it began.
//! - Whatever a peer sends, no call panics. A peer that breaks the protocol gets an alert, and its
//!   [`Session`] cannot be used any more.
//! - The memory of a session is bounded. It holds at most an incomplete record or handshake message, the
//!   plain bytes that one [`Session::read_from`] leaves, and about [`UNSENT_BYTES_MAX`] of unwritten records.

#![forbid(unsafe_code)]

mod acceptor;
mod certificate;
mod client;
mod error;
mod files;
mod policy;
mod session;
mod stream;
#[cfg(test)]
mod testing;

pub use acceptor::{Acceptor, Loaded};
pub use client::{ClientFiles, ClientIdentity, Connector};
pub use error::LoadError;
pub use policy::{ClientCertificates, ServerPolicy, Versions};
pub use session::{RECORD_BYTES_MAX, Session, UNSENT_BYTES_MAX};
pub use stream::{Stream, advised, handshake, reason_of};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The implementation of the cryptographic algorithms.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
