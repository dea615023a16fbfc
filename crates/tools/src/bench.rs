//! `sheaf bench`: measures a server, by default one of its own on this machine, in about a minute.
//!
//! ```text
//! a server of its own in a temporary directory, or --url -> each case for its share of the time -> a table
//! ```
//!
//! The command is a self-test, not a comparison of servers: the client runs on the same cores as the server
//! that it starts, and takes its part of them. `bench/` compares servers.
//!
//! Invariants
//! - At the end, the directory or the keys of the run are removed, if that is possible.
//! - The command writes only keys that begin with the name of the run, which is random. It writes to a server
//!   that holds keys only if told.

mod case;
mod latencies;
mod own_server;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use env::machine::{self, FileSystemKind};

use self::{
    case::{CASES, Load, Measured},
    own_server::OwnServer,
};
use crate::{
    disk_sync::{self, rank, shown},
    interruption::interruption,
    migration::address::Address,
};

/// The server to measure, and the duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A running server; without one, a server is started and ended.
    pub address: Option<Address>,
    /// The file with the password of the running server.
    pub password_file: Option<PathBuf>,
    /// Whether the running server is measured even if it holds keys.
    pub beside_keys: bool,
    /// The directory in which the started server gets its own directory.
    pub dir: PathBuf,
    /// The time for all cases together, in seconds.
    pub seconds: u64,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The own server cannot be started or ended, or the disk for it cannot be measured.
    #[error("cannot run a server in {}: {reason}", dir.display())]
    OwnServer {
        /// The directory of the server, or the one in which it was to be made.
        dir: PathBuf,
        /// The error, or the last line of the server's log.
        reason: String,
    },
    /// The server cannot be reached, or the connection to it was lost.
    #[error("{address}: {reason}")]
    Connection {
        /// Host and port of the server.
        address: String,
        /// The error, in words.
        reason: String,
    },
    /// The server refuses the commands.
    #[error("{address} refuses: {text}")]
    Refused {
        /// Host and port of the server.
        address: String,
        /// The error reply of the server, with advice if there is any.
        text: String,
    },
    /// The server holds keys.
    #[error(
        "{address} holds keys: its clients would feel the load, and above maxmemory it may evict keys. --beside-keys \
         measures it all the same"
    )]
    HoldsKeys {
        /// Host and port of the server.
        address: String,
    },
    /// The password cannot be read.
    #[error("cannot read the password in {}: {source}", path.display())]
    Password {
        /// The path of the password file.
        path: PathBuf,
        /// An error of the operating system, or the fault of the first line of the file.
        source: io::Error,
    },
    /// Ctrl-C or SIGTERM has interrupted the run.
    #[error("interrupted")]
    Interrupted,
    /// Another operation of the operating system failed.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// Measures, and prints a line as each case ends. A closed standard output ends the run.
///
/// # Errors
/// [`BenchError`].
pub fn run(options: &Options) -> Result<(), BenchError> {
    match measured(options) {
        Err(BenchError::Os(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended,
    }
}

fn measured(options: &Options) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Some(address) = &options.address else {
        let disk = disk_line(&options.dir)?;
        let server = OwnServer::start(&options.dir)?;
        tell(&format!("a server of its own in {}; it is removed afterwards\n", server.dir().display()))?;
        tell(&disk)?;
        let measured = runtime.block_on(measure(server.address(), false, options.seconds));
        server.end()?;
        measured?;
        return Ok(tell("\nThe client, one thread, has taken its part of the same cores.\n")?);
    };
    let mut address = address.clone();
    if let Some(path) = &options.password_file {
        let read = settings::read_password(path);
        address.password = Some(read.map_err(|source| BenchError::Password { path: path.clone(), source })?);
    }
    tell(&format!(
        "the server at {address}; its other load counts, the network, and that the client is one thread\n"
    ))?;
    runtime.block_on(measure(&address, options.beside_keys, options.seconds))
}

/// A line with the latency of the disk, for which the writes wait.
fn disk_line(dir: &Path) -> Result<String, BenchError> {
    let refused = |error: io::Error| BenchError::OwnServer { dir: dir.into(), reason: error.to_string() };
    let mut latencies = disk_sync::measure(dir).map_err(refused)?;
    latencies.sort_unstable();
    let is_in_memory = machine::file_system(dir).is_ok_and(|found| found.kind == FileSystemKind::Memory);
    let remark = if is_in_memory {
        ", in memory: no disk is written. Name a directory on a disk with --dir"
    } else {
        ""
    };
    let figure = |percent| rank(&latencies, percent).map_or_else(String::new, shown);
    Ok(format!("disk: a durable write of 4 KiB takes {} (p50), {} (p99){remark}\n", figure(50), figure(99)))
}

/// Runs the cases until all are done or the run is interrupted, and removes the keys.
async fn measure(address: &Address, beside_keys: bool, seconds: u64) -> Result<(), BenchError> {
    let load = Load::new(address.clone());
    let server = load.server().await?;
    if server.holds_keys && !beside_keys {
        return Err(BenchError::HoldsKeys { address: address.to_string() });
    }
    tell(&format!("durability: {}\n", server.durability.as_deref().unwrap_or("the server does not tell")))?;
    let ended = tokio::select! {
        ended = cases(&load, seconds) => ended,
        interrupted = interruption() => interrupted.map_err(Into::into).and(Err(BenchError::Interrupted)),
    };
    let removed = load.remove_keys().await;
    if let (Err(_), Err(error)) = (&ended, &removed) {
        // The failure of a case is returned, because it says more.
        tell(&format!("the keys of this run stay in the server: {error}\n"))?;
    }
    ended.and(removed)
}

async fn cases(load: &Load, seconds: u64) -> Result<(), BenchError> {
    tell(&format!("\n{:<36}{:>12}{:>12}{:>12}{:>12}\n", "", "per second", "p50", "p99", "slowest"))?;
    let each_us = seconds * 1_000_000 / CASES.len() as u64;
    for case in CASES {
        let Measured { operations, us, latencies } = load.run(case, each_us).await?;
        let rate = grouped(operations * 1_000_000 / us.max(1));
        let of = |percent| shown(latencies.quantile_us(percent));
        tell(&format!("{:<36}{rate:>12}{:>12}{:>12}{:>12}\n", case.name, of(50), of(99), of(100)))?;
    }
    Ok(())
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn tell(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
