//! MONITOR: the clients that are shown commands, and the lines they get.
//!
//! The lines of a round are gathered and published together, the lines of a long round in several parts. So a
//! monitor may see the commands of several workers in another order than that in which they ran. A line shows
//! a request, not the effect of the request: no gate holds it back. A monitor that reads too slowly is
//! disconnected by the limit on pushed bytes ([`PUSHED_BYTES_MAX`](crate::clients::PUSHED_BYTES_MAX)). If all
//! monitors together leave more than [`UNSENT_BYTES_MAX`] unsent, the slowest of them are disconnected.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use lsn::Lsn;
use parking_lot::Mutex;

use super::Client;

const UNSENT_BYTES_MAX: u64 = 64 << 20;

/// The clients that are shown commands.
#[derive(Debug, Default)]
pub struct Monitors {
    count: AtomicUsize,
    clients: Mutex<Vec<Arc<Client>>>,
}

impl Monitors {
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Shows commands to this client from now on.
    pub fn add(&self, client: &Arc<Client>) {
        let mut clients = self.clients.lock();
        clients.push(client.clone());
        self.count.store(clients.len(), Relaxed);
    }

    /// Stops showing commands to this client.
    pub fn remove(&self, id: u64) {
        let mut clients = self.clients.lock();
        clients.retain(|client| client.id() != id);
        self.count.store(clients.len(), Relaxed);
    }

    /// Sends lines to all monitors.
    pub fn publish(&self, lines: &[u8]) {
        let lines: Arc<[u8]> = lines.into();
        let clients = self.clients.lock();
        clients.iter().for_each(|client| client.push(lines.clone(), Lsn::ZERO));
        loop {
            let served = clients.iter().filter(|client| !client.is_killed());
            if served.clone().map(|client| client.pushed_unsent_bytes()).sum::<u64>() <= UNSENT_BYTES_MAX {
                return;
            }
            let Some(slowest) = served.max_by_key(|client| client.pushed_unsent_bytes()) else { return };
            slowest.disconnect_slow();
        }
    }
}

/// Appends the line of a command: `+1339518083.107000 [0 127.0.0.1:60866] "keys" "*"`.
pub(crate) fn append_line<'a>(
    out: &mut Vec<u8>,
    now_ms: u64,
    db: u8,
    peer: &str,
    args: impl Iterator<Item = &'a [u8]>,
) {
    let mut head = String::with_capacity(64);
    // Writing to a string cannot fail.
    let _ = write!(head, "+{}.{:03}000 [{db} {peer}]", now_ms / 1000, now_ms % 1000);
    out.extend_from_slice(head.as_bytes());
    for arg in args {
        out.extend_from_slice(b" \"");
        arg.iter().for_each(|&byte| append_escaped(out, byte));
        out.push(b'"');
    }
    out.extend_from_slice(b"\r\n");
}

fn append_escaped(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'\\' | b'"' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x07 => b'a',
        0x08 => b'b',
        b' '..=b'~' => return out.push(byte),
        _ => {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            return out.extend_from_slice(&[b'\\', b'x', DIGITS[high], DIGITS[low]]);
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Clients, Connected};

    #[test]
    fn monitors_with_the_most_unsent_bytes_are_disconnected_first() {
        let (clients, monitors) = (Clients::new(), Monitors::default());
        let connect = |_| {
            let (peer, local) = ("127.0.0.1:50001".to_string(), "127.0.0.1:6379".to_string());
            clients.register(Connected {
                peer,
                peer_uid: None,
                local,
                fd: 8,
                now_ms: 0,
                signaller: Box::new(|_, _| {}),
            })
        };
        let all: Vec<_> = (0..10).map(connect).collect();
        all.iter().for_each(|client| monitors.add(client));
        let lines = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            monitors.publish(&lines);
            // The monitor at index 3 takes all its bytes.
            all[3].pushed_taken(lines.len() as u64);
            let served = all.iter().filter(|client| !client.is_killed());
            assert!(served.map(|client| client.pushed_unsent_bytes()).sum::<u64>() <= UNSENT_BYTES_MAX);
        }
        let served: Vec<usize> = (0..10).filter(|&index| !all[index].is_killed()).collect();
        assert_eq!(served, [3]);
    }

    #[test]
    fn a_line_is_quoted_as_redis_does() {
        let mut out = Vec::new();
        let args: [&[u8]; 3] = [b"SET", b"a \\\"'", b"\x00\x07\x08\t\n\r\x1f~\x7f\xff"];
        append_line(&mut out, 1_700_000_000_007, 3, "127.0.0.1:5", args.into_iter());
        let expected = "+1700000000.007000 [3 127.0.0.1:5] \"SET\" \"a \\\\\\\"'\" \
                        \"\\x00\\a\\b\\t\\n\\r\\x1f~\\x7f\\xff\"\r\n";
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
    }
}
