//! Load beside the writers: repeated compaction, and a reader of the feed that must not miss a change.

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use env::{Clock, RealClock};
use serde_json::Value;

use crate::{
    documents::{
        DATABASE, Store,
        client::Client,
        corpus::Ids,
        revisions::Rev,
        scan::{ChangeRow, seq_number},
    },
    failure::Failure,
};

/// The period of checking whether a compaction is complete.
const LOOK: Duration = Duration::from_millis(20);
const HEARTBEAT_MS: u64 = 1000;
/// The document that marks the end of the feed.
const END: &str = "end";

/// Compacts the database repeatedly on another thread.
pub struct Compactor {
    is_to_end: Arc<AtomicBool>,
    thread: JoinHandle<Result<(u64, f64), Failure>>,
}

impl Compactor {
    /// Starts the first compaction.
    pub fn begin(address: SocketAddr) -> Compactor {
        let is_to_end = Arc::new(AtomicBool::new(false));
        let thread = {
            let is_to_end = is_to_end.clone();
            thread::spawn(move || compact_until(&mut Client::connect(address)?, &is_to_end))
        };
        Compactor { is_to_end, thread }
    }

    /// Waits for the running compaction. Returns the number of compactions, and the mean duration in seconds.
    pub fn end(self) -> Result<(u64, f64), Failure> {
        self.is_to_end.store(true, Ordering::Relaxed);
        join(self.thread)
    }
}

fn compact_until(client: &mut Client, is_to_end: &AtomicBool) -> Result<(u64, f64), Failure> {
    let (mut completed, mut taken_us) = (0, 0);
    while completed == 0 || !is_to_end.load(Ordering::Relaxed) {
        let begun_us = RealClock.monotonic_us();
        client.expect(202, "POST", "/_compact", b"{}")?;
        // Servers without `compact_running` reply only when the compaction is complete.
        while client.expect(200, "GET", "", b"")?["compact_running"] == true {
            thread::sleep(LOOK);
        }
        completed += 1;
        taken_us += RealClock.monotonic_us() - begun_us;
        thread::sleep(LOOK);
    }
    Ok((completed, taken_us as f64 / 1e6 / completed as f64))
}

/// Reads the continuous feed from the present end on.
pub struct FeedReader {
    thread: JoinHandle<Result<Vec<u32>, Failure>>,
    address: SocketAddr,
}

impl FeedReader {
    /// Starts behind the present end of the feed.
    pub fn begin(address: SocketAddr, store: &Store) -> Result<FeedReader, Failure> {
        let info = Client::connect(address)?.expect(200, "GET", "", b"")?;
        let feed = Feed {
            ids: store.corpus.ids,
            numbers: vec![0; store.revisions.len() as usize],
            last_seq: seq_number(&info["update_seq"].to_string())?,
            has_ended: false,
        };
        let since = match &info["update_seq"] {
            Value::String(seq) => seq.clone(),
            seq => seq.to_string(),
        };
        Ok(FeedReader { thread: thread::spawn(move || read_feed(address, &since, feed)), address })
    }

    /// Checks that the feed had these revisions, or later ones of the same documents.
    pub fn end(self, store: &Store) -> Result<(), Failure> {
        Client::connect(self.address)?.expect(201, "PUT", &format!("/{END}"), b"{\"end\":true}")?;
        let seen = join(self.thread)?;
        for (number, seen) in (0..).zip(&seen) {
            let confirmed = store.revisions.get(number).map_or(0, |rev| rev.number);
            if confirmed > 1 && *seen != confirmed {
                let wrong = format!("document {number}: revision {seen} in the feed, {confirmed} confirmed");
                return Err(Failure::Wrong(wrong));
            }
        }
        Ok(())
    }
}

/// The changes received from a feed.
struct Feed {
    ids: Ids,
    /// By document: the number of the last received revision.
    numbers: Vec<u32>,
    last_seq: u64,
    has_ended: bool,
}

impl Feed {
    fn take(&mut self, line: &[u8]) -> Result<(), Failure> {
        let wrong = || Failure::Wrong(format!("in the feed: {}", String::from_utf8_lossy(line)));
        let row: ChangeRow<'_> = serde_json::from_slice(line).map_err(|_| wrong())?;
        let seq = seq_number(row.seq.get())?;
        if seq <= self.last_seq {
            return Err(wrong());
        }
        self.last_seq = seq;
        if row.id == END {
            self.has_ended = true;
            return Ok(());
        }
        let number = self.ids.number(row.id).ok_or_else(wrong)?;
        let rev = row.changes.first().and_then(|leaf| leaf.rev.parse::<Rev>().ok()).ok_or_else(wrong)?;
        match self.numbers.get_mut(number as usize) {
            Some(last) if *last < rev.number => *last = rev.number,
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

fn read_feed(address: SocketAddr, since: &str, mut feed: Feed) -> Result<Vec<u32>, Failure> {
    let path = format!("/{DATABASE}/_changes?feed=continuous&since={since}&heartbeat={HEARTBEAT_MS}");
    Client::connect(address)?.stream("GET", &path, b"", |body| {
        let Some(end) = memchr::memrchr(b'\n', body) else { return Ok(ControlFlow::Continue(())) };
        let lines = body[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.into_iter().try_for_each(|line| feed.take(line))?;
        body.drain(..=end);
        Ok(if feed.has_ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if feed.has_ended { Ok(feed.numbers) } else { Err(Failure::Wrong("the feed ended by itself".to_owned())) }
}

fn join<T>(thread: JoinHandle<Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64, number: u64, rev: u32) -> String {
        format!(
            r#"{{"seq":"{seq}-0a","id":"{}","changes":[{{"rev":"{rev}-{rev:032x}"}}]}}"#,
            Ids::Random.id(number)
        )
    }

    fn feed() -> Feed {
        Feed { ids: Ids::Random, numbers: vec![0; 3], last_seq: 10, has_ended: false }
    }

    #[test]
    fn revisions_may_be_passed_over_but_come_in_order() {
        let mut feed = feed();
        for (seq, number, rev) in [(11, 0, 2), (13, 2, 2), (17, 0, 5)] {
            feed.take(line(seq, number, rev).as_bytes()).unwrap();
        }
        assert_eq!((feed.numbers, feed.last_seq), (vec![5, 0, 2], 17));
    }

    #[test]
    fn repeated_late_and_unknown_rows_are_errors() {
        let mut feed = feed();
        feed.take(line(12, 0, 2).as_bytes()).unwrap();
        for (seq, number, rev) in [(12, 1, 2), (11, 1, 2), (13, 0, 2), (14, 3, 2)] {
            assert!(feed.take(line(seq, number, rev).as_bytes()).is_err(), "{seq} {number} {rev}");
        }
        assert!(feed.take(b"{\"last_seq\":12}").is_err());
    }
}
