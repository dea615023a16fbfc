//! SLOWLOG: the last commands whose durations reached a threshold, with shortened arguments.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use wire::Args;

use crate::{Row, clients::Client, shown_args::shown_args};

/// The maximum number of arguments kept of one command. If there are more, the last one kept says how many
/// are omitted.
const ARGS_MAX: usize = 32;
/// The maximum bytes kept of one argument.
const ARG_BYTES_MAX: usize = 128;

/// A command that was slow.
#[derive(Debug, PartialEq, Eq)]
pub struct SlowEntry {
    /// Grows with every entry; continues after the log is emptied.
    pub id: u64,
    /// When the command ended, unix seconds, as in Redis.
    pub unix_s: u64,
    /// The duration of the command, in microseconds.
    pub usec: u64,
    /// The arguments of the command, shortened.
    pub args: Vec<Vec<u8>>,
    /// The address of the client.
    pub peer: String,
    /// The name of the client; empty for none.
    pub client_name: String,
}

/// The newest slow commands, and the threshold.
#[derive(Debug)]
pub struct SlowLog {
    /// The threshold in microseconds; if it is negative, nothing is logged.
    slower_than_us: AtomicI64,
    entries_max: AtomicU64,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    next_id: u64,
    /// The entries, the newest first.
    entries: VecDeque<Arc<SlowEntry>>,
}

impl Default for SlowLog {
    fn default() -> Self {
        SlowLog { slower_than_us: 10_000.into(), entries_max: 128.into(), list: Mutex::default() }
    }
}

impl SlowLog {
    /// Logs commands that take `slower_than_us` or longer (negative: none), and keeps the newest
    /// `entries_max`. If no command is to be logged, the entries so far stay, as in Redis 8 and Valkey.
    pub fn configure(&self, slower_than_us: i64, entries_max: u64) {
        self.slower_than_us.store(slower_than_us, Relaxed);
        self.entries_max.store(entries_max, Relaxed);
        if slower_than_us >= 0 && entries_max > 0 {
            self.list.lock().entries.truncate(entries_max as usize);
        }
    }

    pub(crate) fn slower_than_us(&self) -> i64 {
        self.slower_than_us.load(Relaxed)
    }

    /// Logs a command that has just ended, if it reached the threshold. `now_ms` is called only then.
    #[inline]
    pub fn ran(
        &self,
        usec: u64,
        row: &'static Row,
        args: Args<'_>,
        client: &Client,
        now_ms: impl FnOnce() -> u64,
    ) {
        if u64::try_from(self.slower_than_us()).is_ok_and(|slow| usec >= slow) {
            self.add(usec, row, args, client, now_ms());
        }
    }

    #[cold]
    fn add(&self, usec: u64, row: &'static Row, args: Args<'_>, client: &Client, now_ms: u64) {
        let entries_max = self.entries_max.load(Relaxed) as usize;
        if entries_max == 0 {
            return;
        }
        let args = shortened(row, args);
        let client_name = client.labels().name.as_str().to_string();
        let peer = client.peer().to_string();
        let mut list = self.list.lock();
        let id = list.next_id;
        list.next_id += 1;
        let entry = SlowEntry { id, unix_s: now_ms / 1000, usec, args, peer, client_name };
        list.entries.push_front(Arc::new(entry));
        list.entries.truncate(entries_max);
    }

    /// The newest entries, at most `count`.
    pub fn newest(&self, count: usize) -> Vec<Arc<SlowEntry>> {
        self.list.lock().entries.iter().take(count).cloned().collect()
    }

    /// The number of entries that are kept now.
    pub fn len(&self) -> usize {
        self.list.lock().entries.len()
    }

    /// Whether no entry is kept now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all entries (SLOWLOG RESET); ids go on.
    pub fn reset(&self) {
        self.list.lock().entries.clear();
    }
}

fn shortened(row: &'static Row, args: Args<'_>) -> Vec<Vec<u8>> {
    let kept = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut out: Vec<Vec<u8>> = shown_args(row, args).take(kept).map(shortened_arg).collect();
    if kept < args.len() {
        out.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    out
}

fn shortened_arg(arg: &[u8]) -> Vec<u8> {
    match arg.get(..ARG_BYTES_MAX) {
        Some(head) if head.len() < arg.len() => {
            [head, format!("... ({} more bytes)", arg.len() - head.len()).as_bytes()].concat()
        }
        _ => arg.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use wire::OwnedArgs;

    use super::*;
    use crate::{
        clients::{Clients, tests::connected},
        row::samples,
    };

    const START_MS: u64 = 1_700_000_000_000;

    fn parse(line: &str) -> OwnedArgs {
        line.split_whitespace().collect()
    }

    #[test]
    fn only_slow_commands_are_kept_and_the_oldest_is_dropped() {
        let (log, client) = (SlowLog::default(), Clients::new().register(connected("127.0.0.1:52001")));
        let row = samples::table().resolve(b"get").expect("a row");
        let ran = |usec, line: &str| log.ran(usec, row, parse(line).as_args(), &client, || START_MS);
        log.configure(100, 2);
        ran(99, "get a");
        assert!(log.is_empty());
        ran(100, "get b");
        ran(300, "get c");
        ran(200, "get d");
        let seen: Vec<_> =
            log.newest(9).iter().map(|entry| (entry.id, entry.usec, entry.args.len())).collect();
        assert_eq!(seen, [(2, 200, 2), (1, 300, 2)]);
        assert_eq!(log.newest(1).len(), 1);
        log.reset();
        ran(100, "get e");
        assert_eq!(log.newest(9)[0].id, 3, "ids are never used again");
        log.configure(-1, 2);
        ran(u64::MAX, "get f");
        log.configure(0, 0);
        ran(1, "get g");
        assert_eq!(log.len(), 1);
        log.configure(0, 1);
        ran(0, "get h");
        assert_eq!(log.newest(9)[0].args[1], b"h");
    }

    #[test]
    fn a_smaller_limit_drops_the_oldest_at_once() {
        let (log, client) = (SlowLog::default(), Clients::new().register(connected("127.0.0.1:52001")));
        let row = samples::table().resolve(b"get").expect("a row");
        log.configure(0, 10);
        (0..10).for_each(|usec| log.ran(usec, row, parse("get a").as_args(), &client, || START_MS));
        for (slower_than_us, entries_max, left) in [(1_000_000, 5, 5), (-1, 3, 5), (0, 0, 5), (10_000, 3, 3)]
        {
            log.configure(slower_than_us, entries_max);
            assert_eq!(log.len(), left, "{slower_than_us} {entries_max}");
        }
        assert_eq!(log.newest(9)[0].usec, 9);
    }

    #[test]
    fn arguments_are_shortened() {
        let row = samples::table().resolve(b"mset").expect("a row");
        let shown = |line: String| shortened(row, parse(&line).as_args());
        let all = shown(format!("mset {}", "x ".repeat(31)));
        assert_eq!((all.len(), &all[31][..]), (32, &b"x"[..]));
        let cut = shown(format!("mset {}", "x ".repeat(32)));
        assert_eq!((cut.len(), &cut[31][..]), (32, &b"... (2 more arguments)"[..]));
        let long = shown(format!("mset {} {}", "y".repeat(128), "y".repeat(150)));
        assert_eq!(long[1], "y".repeat(128).as_bytes());
        assert_eq!(long[2], format!("{}... (22 more bytes)", "y".repeat(128)).as_bytes());
    }
}
