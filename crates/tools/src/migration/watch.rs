//! Asks the source for its replication offset, once a second on a separate connection, to compute the lag and
//! the end of the copy.
//!
//! The copy also works if the source does not report its offset (INFO may be forbidden).

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};
use wire::Value;

use super::{address::Address, peer::Peer};

const PERIOD: Duration = Duration::from_secs(1);

/// The results of the queries so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PollResults {
    /// The number of queries that were answered or failed.
    pub(super) times: u64,
    /// The offset returned by the last query, if any.
    pub(super) offset: Option<u64>,
}

pub(super) struct Watch {
    seen: watch::Receiver<PollResults>,
    wanted: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Watch {
    pub(super) fn start(source: Address) -> Watch {
        let (sender, seen) = watch::channel(PollResults::default());
        let wanted = Arc::new(Notify::new());
        let task = tokio::spawn(ask_again_and_again(source, sender, wanted.clone()));
        Watch { seen, wanted, task }
    }

    pub(super) fn seen(&self) -> PollResults {
        *self.seen.borrow()
    }

    /// Waits for the next result. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Has the next query made at once.
    pub(super) fn ask_now(&self) {
        self.wanted.notify_one();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask_again_and_again(source: Address, seen: watch::Sender<PollResults>, wanted: Arc<Notify>) {
    let mut peer = None;
    loop {
        let offset = ask(&source, &mut peer).await;
        seen.send_modify(|seen| *seen = PollResults { times: seen.times + 1, offset });
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = wanted.notified() => {}
        }
    }
}

async fn ask(source: &Address, peer: &mut Option<Peer>) -> Option<u64> {
    let mut connected = match peer.take() {
        Some(peer) => peer,
        None => Peer::open("source", source).await.ok()?,
    };
    let reply = connected.ask(&["INFO", "replication"]).await.ok()?;
    *peer = Some(connected);
    match reply {
        Value::Bulk(text) | Value::Verbatim { text, .. } => offset_in(&String::from_utf8_lossy(&text)),
        _ => None,
    }
}

fn offset_in(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_a_line_of_info() {
        assert_eq!(offset_in("# Replication\r\nrole:master\r\nmaster_repl_offset:42\r\nx:1\r\n"), Some(42));
        assert_eq!(offset_in("# Replication\r\nrole:master\r\n"), None);
    }
}
