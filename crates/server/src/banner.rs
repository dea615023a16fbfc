//! The start-up banner.

use std::{
    io::{IsTerminal, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::logging;

/// The absolute path of the directory; the path as given if the working directory is unknown.
fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf())
}

/// The facts that the banner shows.
pub struct Banner<'a> {
    /// Addresses of the Redis protocol.
    pub redis: &'a [SocketAddr],
    /// Addresses of the Redis protocol over TLS.
    pub redis_tls: &'a [SocketAddr],
    /// Addresses of HTTP.
    pub http: &'a [SocketAddr],
    /// Addresses of HTTP over TLS.
    pub http_tls: &'a [SocketAddr],
    /// The data directory.
    pub dir: &'a Path,
    /// The name of the durability.
    pub durability: &'a str,
    /// The number of keys recovered from a snapshot.
    pub snapshot_keys: u64,
    /// The number of records replayed from the log.
    pub replayed_records: u64,
    /// Duration of the recovery.
    pub seconds: f64,
    /// The number of keys after the recovery.
    pub keys: u64,
    /// The number of worker threads.
    pub workers: usize,
}

impl Banner<'_> {
    /// The banner as lines.
    pub fn render(&self) -> String {
        let list = |plain: &[SocketAddr], encrypted: &[SocketAddr]| {
            let plain = plain.iter().map(SocketAddr::to_string);
            let encrypted = encrypted.iter().map(|address| format!("{address} (TLS)"));
            plain.chain(encrypted).collect::<Vec<_>>().join(", ")
        };
        let responder = match self.durability {
            "strict" => "every OK is on disk, and no client reads a write that is not",
            "commit" => "every OK is on disk",
            "interval" => "a power cut loses at most about a second",
            _ => "the operating system decides when to write",
        };
        let rate = (self.snapshot_keys + self.replayed_records) as f64 / self.seconds.max(1e-6);
        let recovered = match (self.snapshot_keys, self.replayed_records) {
            (0, 0) => "nothing to recover".to_string(),
            (0, records) => format!("{records} records in {:.2} s ({rate:.0}/s)", self.seconds),
            (keys, records) => format!(
                "{keys} keys of a snapshot and {records} records in {:.2} s ({rate:.0}/s)",
                self.seconds
            ),
        };
        format!(
            "\n  \\|/   sheaf {version}\n  \\|/   redis      {redis}\n --+--  http       {http}\n  /|\\   data       \
             {dir}\n  /|\\   durability {durability}: {responder}\n        recovered  {recovered}, {keys} keys\n        \
             workers    {workers}\n\n",
            version = env!("CARGO_PKG_VERSION"),
            redis = list(self.redis, self.redis_tls),
            http = list(self.http, self.http_tls),
            dir = self.dir.display(),
            durability = self.durability,
            keys = self.keys,
            workers = self.workers,
        )
    }

    /// Prints the banner to a terminal, and logs it as one line.
    pub(crate) fn show(&self) {
        if std::io::stderr().is_terminal() {
            // A closed terminal must not keep the server from starting.
            let _ = std::io::stderr().write_all(self.render().as_bytes());
        }
        tracing::info!(
            target: "server", redis = ?self.redis, redis_tls = ?self.redis_tls, http = ?self.http, http_tls = ?self.http_tls, dir = %absolute(self.dir).display(),
            durability = self.durability, snapshot_keys = self.snapshot_keys,
            replayed_records = self.replayed_records, seconds = logging::rounded(self.seconds, 3),
            keys = self.keys, workers = self.workers, version = env!("CARGO_PKG_VERSION"), "ready"
        );
    }
}
