//! Facts about this start of the server.

use std::{net::SocketAddr, path::PathBuf, sync::OnceLock};

use env::HeldDisk;

/// Each field is set once: most when the server starts, the others soon after.
pub(crate) struct StartupInfo {
    pub(crate) dir: PathBuf,
    /// The disk with the locked directory. Changes to files fail once the lock is lost.
    pub(crate) disk: HeldDisk,
    pub(crate) workers: usize,
    /// Whether consecutive commands on one key may be merged (`log-merge`).
    pub(crate) merges: bool,
    pub(crate) started_unix_ms: u64,
    pub(crate) run_id: String,
    /// The commit of the binary; empty if it is not known.
    pub(crate) commit: &'static str,
    /// The memory that the process used beside the data when it began to serve: the program, its threads and
    /// buffers.
    pub(crate) beside_data_bytes: OnceLock<u64>,
    /// The plain port, or, if there is none, the port of TLS. Set as soon as the server listens.
    pub(crate) redis_port: OnceLock<u16>,
    /// The addresses of the Redis protocol, by kind.
    pub(crate) listeners: [(&'static str, Vec<SocketAddr>); 3],
    /// The path of the Unix socket, if there is one.
    pub(crate) unix_socket: Option<String>,
}
