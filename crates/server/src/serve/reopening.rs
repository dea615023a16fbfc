//! The wait for room on the disk before a restart within the process. Such a restart replaces files: without
//! room the process would end, and nobody might start it again. A server that replicates has a reserve
//! ([`env::reserve`]) for the restart, which is released if the disk is full.
//!
//! During the wait, a member takes no part in its group and refuses writes, and reads unless `stale-reads` is
//! on. A member that has led also closes the connections of its clients again and again. A stop in order ends
//! the wait.

use std::{sync::Arc, time::Duration};

use env::RealDisk;
use storage::{Error, Log};

use crate::{
    mailbox::{Mailbox, WorkerOrder},
    replication::Node,
};

/// The period at which the wait checks whether there is room.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Completes when a restart within the process was requested and the disk has room for it.
pub(super) async fn requested(node: &Arc<Node>, log: &Log, mailboxes: &[Mailbox]) {
    node.restart_requested().await;
    let mut has_waited = false;
    while let Err(error) = look_for_room(node, log, has_waited).await {
        if !has_waited {
            has_waited = true;
            tracing::error!(
                target: "server", %error,
                "this server has to restart within its process, and waits until its disk has room for that; it takes no part meanwhile"
            );
            node.begin_to_wait_for_restart();
        }
        if node.has_led() {
            // A client that has read or written here gets no more replies, not even refusals of writes, so
            // that it looks for the new leader.
            mailboxes.iter().for_each(|mailbox| mailbox.send(WorkerOrder::HangUp));
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
    if has_waited {
        tracing::info!(target: "server", "the disk has room again");
    }
}

/// Fails if the disk has no room. Other errors do not delay the restart. But once the restart has waited
/// (`has_waited`), they do not end the wait either: it ends only when there is room.
async fn look_for_room(node: &Arc<Node>, log: &Log, has_waited: bool) -> Result<(), Error> {
    // The part of the log that the restart cuts off is kept in a file, which needs room.
    let kept_bytes = node.diverged_at().map_or(0, |at| log.appended_lsn().get().saturating_sub(at.get()));
    let (log, dir) = (log.clone(), node.dir().to_path_buf());
    let look = move || match log.require_room_to_reopen(kept_bytes) {
        Err(error) if error.is_disk_full() && env::reserve::release(&RealDisk, &dir) => {
            log.require_room_to_reopen(kept_bytes)
        }
        looked => looked,
    };
    match tokio::task::spawn_blocking(look).await {
        Ok(Err(error)) if has_waited || error.is_disk_full() => Err(error),
        _ => Ok(()),
    }
}
