//! The end of a process whose log failed or whose directory was lost.

use std::{sync::mpsc, time::Duration};

use env::{HeldDisk, LockLost};

use super::{EXIT_DIRECTORY_LOST, EXIT_LOG_FAILED, FAIL_GRACE};
use crate::{
    logging,
    mailbox::{Mailbox, WorkerOrder},
};

/// The period at which the server checks that its directory is still there, even if it writes nothing.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Completes when the locked directory was moved, replaced or removed. Writes to the directory notice such a
/// loss themselves.
pub(super) async fn notice_loss(disk: &HeldDisk) -> LockLost {
    let mut period = tokio::time::interval(LOOK_PERIOD);
    loop {
        period.tick().await;
        if let Err(lost) = disk.verify() {
            return lost;
        }
    }
}

/// Ends the process when the log is poisoned or must not be written: waiting clients get an error first.
/// Nothing is retried.
pub(super) fn end_process(error: &dyn std::error::Error, mailboxes: &[Mailbox], disk: &HeldDisk) -> ! {
    let (done, finished) = mpsc::channel();
    for mailbox in mailboxes {
        mailbox.send(WorkerOrder::Fail(done.clone()));
    }
    drop(done);
    for _ in mailboxes {
        if finished.recv_timeout(FAIL_GRACE).is_err() {
            break;
        }
    }
    if let Err(lost) = disk.verify() {
        tracing::error!(
            target: "server", %lost,
            "stopped: no write was acknowledged since this was noticed; earlier ones are in the directory that was \
             locked: put it back, then start again"
        );
        logging::flush();
        std::process::exit(EXIT_DIRECTORY_LOST);
    }
    tracing::error!(
        target: "server", error = %error,
        "stopped: the log could not be written, the outcome of unanswered writes is unknown; everything acknowledged \
         is on disk. Check the disk, then start again"
    );
    logging::flush();
    std::process::exit(EXIT_LOG_FAILED);
}
