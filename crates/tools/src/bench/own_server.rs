//! A server for the benchmark alone: this binary, in a new directory, on ports that are free.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    thread::JoinHandle,
};

use env::{Disk, Entropy, RealDisk, RealEntropy};

use super::BenchError;
use crate::migration::address::Address;

/// The server. When this is dropped, the server is killed, and its directory is removed.
pub(super) struct OwnServer {
    child: Child,
    dir: PathBuf,
    address: Address,
    /// Reads the server's log, so that the server never waits for a reader.
    reader: Option<JoinHandle<()>>,
}

impl OwnServer {
    /// Starts the server, and waits until it is ready.
    pub(super) fn start(parent: &Path) -> Result<OwnServer, BenchError> {
        let dir = parent.join(format!("sheaf-bench-{:016x}", RealEntropy.random_u64()));
        let refused = |reason: String| BenchError::OwnServer { dir: dir.clone(), reason };
        RealDisk.create_dir_all(&dir).map_err(|error| refused(error.to_string()))?;
        let started = spawn(&dir).map_err(|error| refused(error.to_string()));
        let mut child = started.inspect_err(|_| remove(&dir))?;
        let log = BufReader::new(child.stderr.take().expect("it was asked for"));
        let address = Address { host: "127.0.0.1".into(), port: 0, user: None, password: None, tls: None };
        let mut server = OwnServer { child, dir: dir.clone(), address, reader: None };
        let (port, rest) = ready(log).map_err(refused)?;
        server.address.port = port;
        let read = move || rest.lines().map_while(Result::ok).for_each(drop);
        server.reader = Some(std::thread::Builder::new().spawn(read)?);
        Ok(server)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Ends the server, and removes its directory.
    pub(super) fn end(mut self) -> Result<(), BenchError> {
        self.stop();
        match self.dir.exists() {
            false => Ok(()),
            true => Err(BenchError::OwnServer {
                dir: self.dir.clone(),
                reason: "its directory cannot be removed".into(),
            }),
        }
    }

    fn stop(&mut self) {
        // The server's data is of no use, so the server need not end in order. A server that has ended
        // already is not there to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
        remove(&self.dir);
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if self.dir.exists() {
            self.stop();
        }
    }
}

/// Removes the directory. [`OwnServer::end`] reports an error if the directory stays.
fn remove(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
}

fn spawn(dir: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // Settings of another server must not reach this one.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SHEAF_")) {
        command.env_remove(name);
    }
    command
        .env_remove("NOTIFY_SOCKET")
        .arg("--dir")
        .arg(dir)
        .args(["--bind", "127.0.0.1", "--port", "0", "--http-port", "0"])
        .args(["--log-format", "json", "--loglevel", "info"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// Reads the log up to the line that says that the server is ready. Returns the port in that line, and the
/// log.
fn ready(mut log: BufReader<ChildStderr>) -> Result<(u16, BufReader<ChildStderr>), String> {
    let mut line = String::new();
    let mut last = "it has written no log".to_owned();
    loop {
        line.clear();
        if log.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
            return Err(last);
        }
        if let Some(port) = port_of(&line) {
            return Ok((port, log));
        }
        line.trim_end().clone_into(&mut last);
    }
}

/// The port in the line `ready`.
fn port_of(line: &str) -> Option<u16> {
    let entry: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = &entry["fields"];
    if fields["message"] != "ready" {
        return None;
    }
    let shown = fields["redis"].to_string();
    let (_, port) = shown.split_once("127.0.0.1:")?;
    port.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_that_of_the_line_that_says_ready() {
        let ready =
            r#"{"level":"INFO","fields":{"message":"ready","redis":"[127.0.0.1:4711]"},"target":"server"}"#;
        assert_eq!(port_of(ready), Some(4711));
        let list = ready.replace("\"[127.0.0.1:4711]\"", "[\"127.0.0.1:4711\"]");
        assert_eq!(port_of(&list), Some(4711));
        assert_eq!(port_of(&ready.replace("ready", "stopping")), None);
        assert_eq!(port_of("sheaf: no"), None);
    }
}
