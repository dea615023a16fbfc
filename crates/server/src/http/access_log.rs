//! The access log of HTTP: a line for each request, in the file of `http-access-log`.
//!
//! ```text
//! threads "http-n": line -> queue, or dropped and counted -> thread "access-log" -> file
//! ```
//!
//! Invariants
//! - A thread that serves clients never waits for the file: if the queue is full, lines are dropped, and a
//!   warning says how many.
//! - While the log is off, a request costs one load of a flag.

use std::{
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use couch::NotedRequest;
use env::LineFile;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use recovery::unix_time;
use settings::{Key, Settings};

use crate::logging;

/// The maximum number of lines that wait for the file.
const LINES_MAX: usize = 4096;
/// The approximate maximum number of bytes in one write to the file.
const WRITE_BYTES: usize = 64 << 10;
/// Fields of a text line are separated by spaces, so spaces within a user's name or a target are escaped.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'"');
const ESCAPED_TARGET: &AsciiSet = &CONTROLS.add(b' ').add(b'"');
/// Stands for a user or a status if there is none.
const NONE: &str = "-";

/// The access log.
#[derive(Default)]
pub(crate) struct AccessLog {
    is_on: AtomicBool,
    is_json: AtomicBool,
    lines: Mutex<Option<SyncSender<String>>>,
    file: Arc<Mutex<Option<Arc<LineFile>>>>,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Takes over the settings: opens the file, again if it is the same, or ends the log.
    pub(crate) fn configure(&self, settings: &Settings) {
        self.is_json.store(settings.text(Key::LogFormat) == "json", Relaxed);
        match logging::open(settings, Key::HttpAccessLog) {
            Ok(None) => self.close(),
            Ok(file) => {
                *self.file.lock() = file.map(Arc::new);
                self.open();
            }
            Err(reason) => {
                tracing::warn!(target: "server", reason, "requests are logged into the earlier file, if there is one");
            }
        }
    }

    fn open(&self) {
        let mut lines = self.lines.lock();
        if lines.is_some() {
            return;
        }
        let (sender, receiver) = sync_channel(LINES_MAX);
        let (file, lost) = (self.file.clone(), self.lost.clone());
        let write = move || write_lines(&receiver, &file, &lost);
        match thread::Builder::new().name("access-log".into()).spawn(write) {
            Ok(_) => {
                *lines = Some(sender);
                self.is_on.store(true, Relaxed);
            }
            Err(error) => {
                tracing::warn!(target: "server", %error, "no thread for the access log: it stays off")
            }
        }
    }

    /// Ends the log; lines in the queue are still written.
    pub(crate) fn close(&self) {
        self.is_on.store(false, Relaxed);
        *self.lines.lock() = None;
    }
}

impl couch::AccessLog for AccessLog {
    fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    fn note(&self, request: &NotedRequest<'_>) {
        let line = if self.is_json.load(Relaxed) { json(request) } else { text(request) };
        let full = self.lines.lock().as_ref().map(|lines| lines.try_send(line));
        if let Some(Err(TrySendError::Full(_))) = full {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Writes lines until the log is closed and the queue is empty.
fn write_lines(lines: &Receiver<String>, file: &Mutex<Option<Arc<LineFile>>>, lost: &AtomicU64) {
    let mut buffer = String::new();
    while let Ok(line) = lines.recv() {
        buffer.push_str(&line);
        while buffer.len() < WRITE_BYTES
            && let Ok(line) = lines.try_recv()
        {
            buffer.push_str(&line);
        }
        // The lock is not held during the write, because the file may be slow.
        let file = file.lock().clone();
        let written = file.map_or(Ok(()), |file| (&*file).write_all(buffer.as_bytes()));
        let failed = u64::from(written.is_err()) * buffer.lines().count() as u64;
        buffer.clear();
        let lost = lost.swap(0, Relaxed) + failed;
        if lost > 0 {
            tracing::warn!(target: "server", lost, "requests are missing in the access log: its disk is too slow, or full");
        }
    }
}

/// A text line: `TIME ADDRESS USER METHOD TARGET STATUS BYTES MILLISECONDS`.
fn text(request: &NotedRequest<'_>) -> String {
    let time = unix_time::shown(request.began_unix_ms);
    let user = match request.user {
        "" => NONE.into(),
        user => utf8_percent_encode(user, ESCAPED).to_string(),
    };
    let status = request.status.map_or(NONE.into(), |status| status.to_string());
    let target = utf8_percent_encode(request.target, ESCAPED_TARGET);
    let NotedRequest { client, method, bytes, .. } = request;
    format!("{time} {client} {user} {method} {target} {status} {bytes} {:.3}\n", milliseconds(request))
}

/// A line with the fields of [`text`] as an object of JSON; a missing user or status is null.
fn json(request: &NotedRequest<'_>) -> String {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        timestamp: String,
        client: SocketAddr,
        user: Option<&'a str>,
        method: &'a str,
        target: &'a str,
        status: Option<u16>,
        bytes: u64,
        ms: f64,
    }
    let line = Line {
        timestamp: unix_time::shown(request.began_unix_ms),
        client: request.client,
        user: Some(request.user).filter(|user| !user.is_empty()),
        method: request.method,
        target: request.target,
        status: request.status,
        bytes: request.bytes,
        ms: milliseconds(request),
    };
    // Texts and numbers can always be written as JSON.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

fn milliseconds(request: &NotedRequest<'_>) -> f64 {
    request.duration_us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use couch::AccessLog as _;

    use super::*;

    fn request(user: &str) -> NotedRequest<'_> {
        NotedRequest {
            began_unix_ms: 1_700_000_000_123,
            client: "127.0.0.1:5000".parse().unwrap(),
            user,
            method: "GET",
            target: "/db/a%20b?limit=1",
            status: Some(200),
            bytes: 12,
            duration_us: 1500,
        }
    }

    #[test]
    fn a_line_has_eight_fields_whatever_its_user_is_called() {
        assert_eq!(
            text(&request("a b\n\"%")),
            "2023-11-14T22:13:20.123Z 127.0.0.1:5000 a%20b%0A%22%25 GET /db/a%20b?limit=1 200 12 1.500\n"
        );
        let early = NotedRequest { status: None, ..request("") };
        let words: Vec<String> = text(&early).split_whitespace().map(str::to_owned).collect();
        assert_eq!((words.len(), words[2].as_str(), words[5].as_str()), (8, "-", "-"));
    }

    #[test]
    fn lines_of_json_have_types() {
        let line: serde_json::Value = serde_json::from_str(&json(&request("a\n\"b"))).unwrap();
        assert_eq!(line["user"], "a\n\"b");
        assert_eq!((line["status"].as_u64(), line["ms"].as_f64()), (Some(200), Some(1.5)));
        let line: serde_json::Value =
            serde_json::from_str(&json(&NotedRequest { status: None, ..request("") })).unwrap();
        assert!(line["user"].is_null() && line["status"].is_null());
    }

    #[test]
    fn a_full_queue_drops_lines_and_waits_for_nothing() {
        let log = AccessLog::default();
        // Nobody takes lines.
        let (sender, _receiver) = sync_channel(1);
        *log.lines.lock() = Some(sender);
        for _ in 0..3 {
            log.note(&request("a"));
        }
        assert_eq!(log.lost.load(Relaxed), 2);
    }
}
