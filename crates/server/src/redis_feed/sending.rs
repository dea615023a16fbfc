//! Sends bytes to a replica, and limits the time without progress and the log that is pinned meanwhile.
//!
//! Invariants
//! - During a wait for the replica, or for a snapshot, it is checked about once in
//!   [`PREPARING_PERIOD`](super::PREPARING_PERIOD) whether the replica may stay. So the log pinned for its
//!   file exceeds the limit only a little.

use std::{
    io::{self, Write},
    net::TcpStream,
    sync::atomic::Ordering::{Relaxed, SeqCst},
};

use super::{SILENCE, Serving, full_sync::PINNED_LOG_BYTES_MIN};

/// Whether the other side still has the connection open. Also `true` if the other side has closed it and
/// unread bytes are left. The socket must be non-blocking.
pub(super) fn is_open(socket: &TcpStream) -> io::Result<bool> {
    match socket.peek(&mut [0]) {
        Ok(bytes) => Ok(bytes > 0),
        Err(error) if is_temporary(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether reading or writing may succeed later.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

impl Serving<'_> {
    /// Writes all bytes.
    pub(super) fn write(&self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let taken = self.write_some(bytes)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Writes as many bytes as the replica takes next. Waits until the replica takes a byte. Fails if it
    /// takes none for [`SILENCE`], or if it may not stay.
    pub(super) fn write_some(&self, bytes: &[u8]) -> Result<usize, String> {
        let began_ms = self.node.now_ms();
        loop {
            self.check()?;
            match (&self.replica.socket).write(bytes) {
                Ok(taken) => {
                    self.client.sent(taken as u64);
                    return Ok(taken);
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
            if self.node.now_ms().saturating_sub(began_ms) >= SILENCE.as_millis() as u64 {
                return Err(format!("it has taken nothing for {} s", SILENCE.as_secs()));
            }
        }
    }

    /// Fails once the replica may not stay: its connection is closed, it is silent although it has its file
    /// or needs none, or too much log is pinned for its file.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.replica.is_closed.load(SeqCst) {
            return Err("the connection was closed".into());
        }
        let pinned_bytes = self.pinned_from.get().map(|from| self.log.appended_lsn().bytes_since(from));
        if pinned_bytes > Some(self.node.redis.retained_bytes_max().max(PINNED_LOG_BYTES_MIN)) {
            return Err(
                "its file takes too long: more log than replica-retention-bytes was written meanwhile".into(),
            );
        }
        if !self.replica.has_file.load(SeqCst) {
            return Ok(());
        }
        let silent_ms = self.node.now_ms().saturating_sub(self.replica.heard_ms.load(Relaxed));
        if silent_ms > SILENCE.as_millis() as u64 {
            return Err(format!("it has said nothing for {} s", SILENCE.as_secs()));
        }
        Ok(())
    }
}
