//! FAILOVER: hands leadership over to a replica, without loss of data.
//!
//! ```text
//! writes stop here -> the replica has everything -> it leads (REPLICAOF NO ONE) -> this server follows it
//!        '--- timeout, or ABORT: writes resume here ---'
//! ```
//!
//! Invariants
//! - The replica is promoted only when nothing more is appended here, and the replica has everything that was
//!   appended, and in memory what is committed. With FORCE, the rest may be lost instead.
//! - "Everything" includes the batch that ends this log. This batch is written before the wait for the
//!   replica begins, so that the log here holds nothing that the new leader lacks. The thread of the log
//!   writes it, so timeout and abort have an effect also while the disk does not answer.
//! - After any failure before the promotion command is sent, this server still leads, unless another server
//!   has fenced it.
//! - If it is unknown whether the replica leads, this server takes no writes, not even after a restart: two
//!   leaders are worse than none. It leads again if a new process of the replica shows that the replica has
//!   not led ([`Unanswered`]). Until this incarnation ends or its role is changed, it asks the replica, and
//!   follows it once it leads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

use engine::replication::{Address, Failover};
use lsn::Lsn;
use replication::{
    Ends, GaveUp, Handover, HandoverStep, Role, STALL_MS, Unanswered,
    join::{Claim, Decision},
};
use storage::Log;

use super::{
    Node,
    line::{ask, ask_text, connect},
};

/// The interval at which the progress of the replica is checked.
const LOOK_PERIOD: Duration = Duration::from_millis(5);

/// The interval at which a replica that was told to lead and gave no answer is asked whether it leads.
const ASK_PERIOD: Duration = Duration::from_secs(1);

/// The timeout of a FAILOVER that gives none. Writes are refused while the FAILOVER lasts.
const TIMEOUT_MS: u64 = 60_000;

/// The longest time for which a FAILOVER waits for commands that were running when writes ended, because a
/// script may be endless. The limit is the time for which a script at a replica may delay that replica.
const COMMANDS_MS_MAX: u64 = STALL_MS;

/// The error of FAILOVER ABORT once the replica may lead.
const TOO_LATE_TO_ABORT: &str =
    "ERR FAILOVER cannot be aborted now: the replica has been told to lead, or is being told to.";

/// A FAILOVER in progress.
#[derive(Default)]
pub(super) struct Running {
    state: AtomicU8,
}

/// The first state. The state changes at most once: either an abort succeeds, or the server goes on to tell
/// the replica to lead.
const WAITING: u8 = 0;
const IN_PROGRESS: u8 = 1;
const ABORTED: u8 = 2;

impl Running {
    /// The state as INFO names it.
    pub(super) fn state(&self) -> &'static str {
        if self.state.load(SeqCst) == IN_PROGRESS { "failover-in-progress" } else { "waiting-for-sync" }
    }

    /// Aborts the handover. Returns false if it is too late: the replica may have been told to lead, or is
    /// about to be.
    fn abort(&self) -> bool {
        self.end_wait(ABORTED)
    }

    /// Notes that the replica is about to be told to lead. Returns false if the handover was aborted.
    fn proceed(&self) -> bool {
        self.end_wait(IN_PROGRESS)
    }

    fn is_aborted(&self) -> bool {
        self.state.load(SeqCst) == ABORTED
    }

    /// Changes the state from [`WAITING`] to `state`. Returns whether the state is `state` now.
    fn end_wait(&self, state: u8) -> bool {
        self.state.compare_exchange(WAITING, state, SeqCst, SeqCst).map_or_else(|now| now == state, |_| true)
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
    let Some((target, claim)) = target.map(|target| (target.address.clone(), target.claim)) else {
        return Err("ERR FAILOVER target HOST and PORT is not a replica.".into());
    };
    let handover = Arc::new(Running::default());
    // REPLICAOF looks for a hand-over while it changes the role. So REPLICAOF either sees this hand-over, or
    // this hand-over begins after that change.
    let begun = node.try_change_role_here(|role| {
        let mut current = node.handover.lock();
        if current.is_some() {
            return Err("ERR FAILOVER already in progress.".to_string());
        }
        if !role.begin_hand_over() {
            return Err(
                "ERR FAILOVER is not valid: this server takes no writes, because another one leads or may lead. REPLICAOF HOST \
                 PORT follows it, REPLICAOF NO ONE leads."
                    .to_string()
            );
        }
        *current = Some(handover.clone());
        Ok(())
    });
    begun.unwrap_or_else(|| {
        Err("ERR FAILOVER is not possible while the role of this server changes.".into())
    })?;
    // An earlier unanswered call is forgotten only once this call is accepted: until then, the replica of the
    // earlier call may still prove that it has not led.
    *node.unanswered.lock() = None;
    let thread = std::thread::Builder::new().name("failover".into());
    let (running, of_thread) = (node.clone(), handover.clone());
    let started = thread.spawn(move || {
        let ended = run(&running, &log, &of_thread, (&target, &claim), &failover);
        if let Err(reason) = ended {
            tracing::warn!(target: "replication", reason, replica = %target, "the hand-over has failed");
        }
        take(&running, &of_thread);
    });
    started.map(drop).map_err(|error| {
        node.change_role_here(|role| give_up(node, &handover, role));
        format!("ERR cannot start a thread: {error}")
    })
}

/// Aborts the handover in progress: writes resume before the call returns, unless the role of this server is
/// being saved; then they resume soon after.
pub(super) fn abort(node: &Node) -> Result<(), String> {
    let Some(handover) = node.handover.lock().clone() else {
        return Err("ERR No failover in progress.".into());
    };
    if !handover.abort() {
        return Err(TOO_LATE_TO_ABORT.into());
    }
    node.try_change_role_here(|role| give_up(node, &handover, role));
    Ok(())
}

/// Ends a handover before the replica was told to lead: this server leads on. Does nothing if the handover
/// has ended already; another one may be in progress by now.
fn give_up(node: &Node, handover: &Arc<Running>, role: &mut Role<Address>) {
    if take(node, handover) {
        role.give_up_hand_over();
    }
}

/// Notes that this handover is not in progress any more. Returns whether it was.
fn take(node: &Node, handover: &Arc<Running>) -> bool {
    node.handover.lock().take_if(|current| Arc::ptr_eq(current, handover)).is_some()
}

fn run(
    node: &Node,
    log: &Log,
    handover: &Arc<Running>,
    (target, claim): (&Address, &Claim),
    failover: &Failover,
) -> Result<(), String> {
    tracing::info!(target: "replication", replica = %target, "handing over: writes end here");
    let until_ms = node.now_ms().saturating_add(failover.timeout_ms.unwrap_or(TIMEOUT_MS));
    let commands_until_ms = until_ms.min(node.now_ms().saturating_add(COMMANDS_MS_MAX));
    let gives_up = || node.now_ms() >= commands_until_ms || gave_up(node, handover).is_some();
    // While writers are still active, nothing can be handed over, not even by force.
    let waited = if node.wait_for_rounds(&gives_up) {
        wait_for(node, log, handover, target, failover.force, until_ms)
    } else if let Some(reason) = gave_up(node, handover) {
        Err(reason.to_string())
    } else {
        Err("a script or a command that takes long did not end in time (SCRIPT KILL, FUNCTION KILL)".into())
    };
    let led = waited.and_then(|()| {
        if !handover.proceed() {
            return Err(GaveUp::Aborted.to_string());
        }
        connect(target, &node.introduction(), |_| Ok(()))
    });
    let mut replica = match led {
        Ok(replica) => replica,
        Err(reason) => {
            node.change_role_here(|role| give_up(node, handover, role));
            return Err(reason);
        }
    };
    // From here on the replica may lead, even if no answer arrives, or this process ends.
    let epoch = log.epoch();
    let yielded = node.change_role(|role| {
        let yields = role.yield_to_replica(epoch);
        (yields, yields)
    });
    if !yielded.as_ref().is_ok_and(|yields| *yields) {
        node.change_role_here(|role| give_up(node, handover, role));
        return Err(yielded.err().unwrap_or_else(|| GaveUp::Fenced.to_string()));
    }
    // The call is noted before the replica is told to lead, because the replica may restart before the
    // connection is found broken.
    *node.unanswered.lock() =
        claim.process.map(|process| Unanswered { replica: claim.replica, process, epoch });
    let answer = ask(&mut replica, &["REPLICAOF".into(), "NO".into(), "ONE".into()]);
    if answer.is_ok() {
        *node.unanswered.lock() = None;
    }
    match answer {
        Ok(answer) if answer.starts_with("+OK") => {}
        Ok(refused) => {
            node.change_role(|role| (role.resume(epoch), true))?;
            return Err(format!("the replica refuses to lead: {refused}"));
        }
        Err(error) => {
            tracing::warn!(
                target: "replication", error, replica = %target,
                "it is not known whether the replica leads now, so this server takes no writes. It asks the replica, and follows it \
                 once it leads. If ROLE at the replica still says slave, have this one lead (REPLICAOF NO ONE)"
            );
            // The hand-over ends here, so that an operator may decide, too.
            take(node, handover);
            drop(replica);
            follow_once_it_leads(node, log, target);
            return Ok(());
        }
    }
    node.change_role(|role| (role.hand_over(target.clone()), true))?;
    tracing::info!(target: "replication", leader = %target, "handed over");
    node.request_restart();
    Ok(())
}

/// Asks the replica that was told to lead and gave no answer until it leads, then follows it. Ends early if
/// the role of this server is changed in another way, or its incarnation ends.
fn follow_once_it_leads(node: &Node, log: &Log, target: &Address) {
    let (log_id, own_epoch) = (hex::encode(log.id()), log.epoch());
    while !node.is_restarting() && node.role().is_fenced() {
        std::thread::sleep(ASK_PERIOD);
        let answer = connect(target, &node.introduction(), |_| Ok(()))
            .and_then(|mut replica| ask_text(&mut replica, &["INFO".into(), "replication".into()]));
        let Some(epoch) = answer.ok().and_then(|info| epoch_of_leader(&info, &log_id, own_epoch)) else {
            continue;
        };
        let followed = node.change_role(|role| {
            let follows = role.follow_successor(target.clone(), epoch);
            (follows, follows)
        });
        match followed {
            Ok(true) => {
                *node.unanswered.lock() = None;
                tracing::info!(target: "replication", leader = %target, epoch, "the replica leads: handed over");
                return node.request_restart();
            }
            Ok(false) => return,
            Err(error) => tracing::error!(target: "replication", error, "cannot save that the replica leads"),
        }
    }
}

/// The epoch in which the server with this INFO leads the log `log_id`; `None` unless it leads that log in a
/// higher epoch than `epoch`.
fn epoch_of_leader(info: &str, log_id: &str, epoch: u32) -> Option<u32> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let leads = field("role")? == "master" && field("replication_fenced_by_epoch")? == "0";
    let is_same_log = field("master_replid")?.starts_with(log_id);
    let its_epoch: u32 = field("replication_epoch")?.parse().ok()?;
    (leads && is_same_log && its_epoch > epoch).then_some(its_epoch)
}

/// Evaluates the claim of a replica that was told to lead and gave no answer. The claim may show that the
/// replica has not led.
pub(super) fn note_claim(node: &Node, claim: &Claim, decision: &Decision) {
    let mut unanswered = node.unanswered.lock();
    let Some(told) = *unanswered else { return };
    let Some(has_led) = told.has_led(claim, decision) else { return };
    // The claim has settled whether the replica has led. If it has, this server goes on asking it.
    *unanswered = None;
    if has_led {
        return;
    }
    match node.change_role(|role| (role.resume(told.epoch), true)) {
        Ok(()) => {
            tracing::warn!(target: "replication", replica = %claim.replica, "the replica that was told to lead has not led, and was started again: this server leads on");
        }
        Err(error) => tracing::error!(target: "replication", error, "cannot save that this server leads on"),
    }
}

/// The reason why the hand-over has ended early, if it has.
fn gave_up(node: &Node, handover: &Running) -> Option<GaveUp> {
    if handover.is_aborted() {
        Some(GaveUp::Aborted)
    } else if !node.role().is_handing_over() {
        // Another server leads, and has fenced this one.
        Some(GaveUp::Fenced)
    } else {
        None
    }
}

/// Ends the log here, durably, once no writer is active. Fails when `gives_up` returns true, for example
/// because the disk does not answer: this server then leads on.
pub(super) fn end_log(log: &Log, gives_up: &dyn Fn() -> bool) -> Result<(), String> {
    let request = log.request_end();
    while !log.has_ended(request).map_err(|error| error.to_string())? {
        if gives_up() {
            return Err("the disk of this server did not write the end of its log in time".into());
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    Ok(())
}

/// Waits until the log here has ended, and the replica has everything that was appended here and has applied
/// the committed part. Fails at an abort, if this server is fenced, and at the timeout. With FORCE it
/// succeeds at the timeout if the log has ended, and the rest is lost.
fn wait_for(
    node: &Node,
    log: &Log,
    handover: &Running,
    target: &Address,
    forces: bool,
    until_ms: u64,
) -> Result<(), String> {
    let gives_up = || node.now_ms() >= until_ms || gave_up(node, handover).is_some();
    end_log(log, &gives_up)
        .map_err(|reason| gave_up(node, handover).map_or(reason, |gave_up| gave_up.to_string()))?;
    let machine = Handover::new(Some(until_ms), forces);
    loop {
        let replica = node.leader.replicas().into_iter().find(|replica| replica.address == *target);
        let ends = Ends { appended: log.appended_lsn(), committed: node.commit_lsn() };
        let acked = replica.map(|replica| replica.acked);
        match machine.step(node.now_ms(), ends, acked, gave_up(node, handover)) {
            HandoverStep::Promote => {
                warn_of_loss(ends.appended, acked.map(|acked| acked.flushed), target);
                return Ok(());
            }
            HandoverStep::GiveUp(reason) => return Err(reason.to_string()),
            HandoverStep::Wait => std::thread::sleep(LOOK_PERIOD),
        }
    }
}

/// Logs a warning if a replica is about to be told to lead by force without a part of the log.
fn warn_of_loss(end: Lsn, flushed: Option<Lsn>, replica: &Address) {
    match flushed {
        Some(flushed) if flushed >= end => {}
        Some(flushed) => tracing::warn!(
            target: "replication", %replica, lost_bytes = end.get() - flushed.get(),
            "FORCE: the replica is told to lead without the end of the log, and acknowledged writes there are lost"
        ),
        None => tracing::warn!(
            target: "replication", %replica,
            "FORCE: the replica is told to lead though it is not connected; acknowledged writes that it lacks are lost"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_either_aborts_or_proceeds() {
        let handover = Running::default();
        assert!(handover.abort() && handover.abort() && handover.is_aborted());
        assert!(!handover.proceed(), "the operator was told that it is aborted");
        let handover = Running::default();
        assert!(handover.proceed());
        assert!(!handover.abort() && !handover.is_aborted());
        assert_eq!(handover.state(), "failover-in-progress");
    }
    #[test]
    fn only_a_leader_of_this_log_in_a_higher_epoch_is_followed() {
        let info = |role, log, epoch, fenced_by| {
            format!(
                "# Replication\r\nrole:{role}\r\nmaster_replid:{log}00000000\r\nreplication_epoch:{epoch}\r\n\
                 replication_fenced_by_epoch:{fenced_by}\r\n"
            )
        };
        assert_eq!(epoch_of_leader(&info("master", "aa", 9, 0), "aa", 8), Some(9));
        let others =
            [("slave", "aa", 9, 0), ("master", "bb", 9, 0), ("master", "aa", 8, 0), ("master", "aa", 9, 10)];
        for (role, log, epoch, fenced_by) in others {
            let info = info(role, log, epoch, fenced_by);
            assert_eq!(epoch_of_leader(&info, "aa", 8), None, "{info}");
        }
        assert_eq!(epoch_of_leader("role:master\r\n", "aa", 8), None);
    }
}
