//! FAILOVER: hands leadership over to a replica, without loss of data.
//!
//! ```text
//! writes stop here -> the replica has everything -> it leads (REPLICAOF NO ONE) -> this server follows it
//!        '--- timeout, or ABORT: writes resume here ---'
//! ```
//!
//! Invariants
//! - The replica is promoted only when nothing more is appended here and it has everything that was, unless
//!   FORCE allows the loss of the rest. "Everything" includes the batch that ends this log: it is written
//!   before, so that the log here holds nothing that the new leader lacks.
//! - Any failure before the promotion command is sent leaves this server leading. If it is unknown whether
//!   the replica leads, this server takes no writes, not even after a restart: two leaders are worse than
//!   none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

use engine::replication::{Address, Failover};
use replication::{GaveUp, Handover, HandoverStep};
use storage::Log;

use super::{
    Node,
    line::{ask, connect},
};

/// The interval at which the progress of the replica is checked.
const LOOK_PERIOD: Duration = Duration::from_millis(5);

/// A FAILOVER in progress.
#[derive(Default)]
pub(super) struct Running {
    aborted: AtomicBool,
    state: AtomicU8,
}

const WAITING: u8 = 0;
const IN_PROGRESS: u8 = 1;

impl Running {
    /// The state as INFO names it.
    pub(super) fn state(&self) -> &'static str {
        if self.state.load(SeqCst) == WAITING { "waiting-for-sync" } else { "failover-in-progress" }
    }
}

/// Starts the handover on its own thread.
pub(super) fn begin(node: &Arc<Node>, failover: Failover) -> Result<(), String> {
    if node.is_replica() {
        return Err("ERR FAILOVER is not valid when server is a replica.".into());
    }
    let log = node.log().ok_or("LOADING this server is starting")?.clone();
    let replicas = node.leader.replicas();
    if replicas.is_empty() {
        return Err("ERR FAILOVER requires connected replicas.".into());
    }
    let target = match &failover.to {
        Some(to) => replicas.iter().find(|replica| replica.address == *to),
        None => replicas.iter().max_by_key(|replica| replica.acked.flushed),
    };
    let Some(target) = target.map(|target| target.address.clone()) else {
        return Err("ERR FAILOVER target HOST and PORT is not a replica.".into());
    };
    let handover = Arc::new(Running::default());
    {
        let mut current = node.handover.lock();
        if current.is_some() {
            return Err("ERR FAILOVER already in progress.".into());
        }
        *current = Some(handover.clone());
    }
    let thread = std::thread::Builder::new().name("failover".into());
    let running = node.clone();
    let started = thread.spawn(move || {
        let ended = run(&running, &log, &handover, &target, &failover);
        if let Err(reason) = ended {
            tracing::warn!(target: "replication", reason, replica = %target, "the hand-over has failed");
        }
        *running.handover.lock() = None;
    });
    started.map(drop).map_err(|error| {
        *node.handover.lock() = None;
        format!("ERR cannot start a thread: {error}")
    })
}

/// Aborts the handover in progress.
pub(super) fn abort(node: &Node) -> Result<(), String> {
    match &*node.handover.lock() {
        Some(handover) if handover.state.load(SeqCst) == WAITING => {
            handover.aborted.store(true, SeqCst);
            Ok(())
        }
        _ => Err("ERR No failover in progress.".into()),
    }
}

fn run(
    node: &Node,
    log: &Log,
    handover: &Running,
    target: &Address,
    failover: &Failover,
) -> Result<(), String> {
    tracing::info!(target: "replication", replica = %target, "handing over: writes end here");
    node.set_read_only(true);
    let until_ms = failover.timeout_ms.map(|timeout_ms| node.now_ms() + timeout_ms);
    let is_over = || until_ms.is_some_and(|until_ms| node.now_ms() >= until_ms);
    let gives_up = || handover.aborted.load(SeqCst) || is_over();
    // While writers are still active, nothing can be handed over, not even by force.
    let waited = if node.wait_for_rounds(&gives_up) {
        wait_for(node, log, handover, target, failover, until_ms)
    } else if handover.aborted.load(SeqCst) {
        Err(GaveUp::Aborted.to_string())
    } else {
        Err("a script or a command that takes long did not end in time (SCRIPT KILL, FUNCTION KILL)".into())
    };
    let led = waited.and_then(|()| {
        handover.state.store(IN_PROGRESS, SeqCst);
        let password = node.master_password();
        connect(target, &password, |_| Ok(()))
    });
    let mut replica = match led {
        Ok(replica) => replica,
        Err(reason) => {
            node.set_read_only(false);
            return Err(reason);
        }
    };
    // From here on the replica may lead, even if no answer arrives, or this process ends.
    let epoch = log.epoch();
    if let Err(error) = node.change_role(|role| (role.yield_to_replica(epoch), true)).1 {
        let _ = node.change_role(|role| (role.resume(epoch), true));
        return Err(error);
    }
    let answer = ask(&mut replica, &["REPLICAOF".into(), "NO".into(), "ONE".into()]);
    match answer {
        Ok(answer) if answer.starts_with("+OK") => {}
        Ok(refused) => {
            node.change_role(|role| (role.resume(epoch), true)).1?;
            return Err(format!("the replica refuses to lead: {refused}"));
        }
        Err(error) => {
            return Err(format!(
                "it is not known whether the replica leads now ({error}), so this server takes no writes: have it follow the \
                 replica (REPLICAOF {} {}), or lead (REPLICAOF NO ONE)",
                target.host, target.port
            ));
        }
    }
    node.change_role(|role| (role.hand_over(target.clone()), true)).1?;
    tracing::info!(target: "replication", leader = %target, "handed over");
    node.request_restart();
    Ok(())
}

/// Waits until the replica has everything that was appended here.
fn wait_for(
    node: &Node,
    log: &Log,
    handover: &Running,
    target: &Address,
    failover: &Failover,
    until_ms: Option<u64>,
) -> Result<(), String> {
    log.end_for_handover().map_err(|error| error.to_string())?;
    let machine = Handover::new(until_ms, failover.force);
    loop {
        let replica = node.leader.replicas().into_iter().find(|replica| replica.address == *target);
        let flushed = replica.map(|replica| replica.acked.flushed);
        match machine.step(node.now_ms(), log.appended_lsn(), flushed, handover.aborted.load(SeqCst)) {
            HandoverStep::Promote => return Ok(()),
            HandoverStep::GiveUp(reason) => return Err(reason.to_string()),
            HandoverStep::Wait => std::thread::sleep(LOOK_PERIOD),
        }
    }
}
