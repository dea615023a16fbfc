//! Changes of this server's role. A change that must outlive this incarnation is in `replication.json` before
//! it has an effect that others see. The one exception is a fence: it is in force at once, since it only
//! takes rights away.
//!
//! Changes wait for each other, and for the disk. Readers of the role wait for neither.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use ::membership::Votes;
use consensus::Leadership;
use engine::{UNCONFIRMED, replication::Address};
use env::RealDisk;
use lsn::Lsn;
use recovery::replication_state::ReplicationState;
use replication::{Confirmed, Follow, Role};
use storage::{Log, STALLED_US};

use super::{NOT_WHILE_HANDING_OVER, Node, handle::OF_GROUP};

impl Node {
    /// The role in force.
    pub(super) fn role(&self) -> Arc<Role<Address>> {
        self.role.read().clone()
    }

    /// Whether this incarnation runs as a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.role().is_replica()
    }

    /// Whether clients see this server as a replica. A leader of a group that is silent while it waits for
    /// its disk counts as a replica that knows no leader: another member may have replaced it.
    pub(crate) fn is_shown_as_replica(&self) -> bool {
        let leads_group = |votes: &Arc<Votes>| matches!(votes.leadership(), Leadership::Leads { .. });
        self.role().is_shown_as_replica() || !self.votes.as_ref().is_none_or(leads_group)
    }

    /// Changes the role. If the second value that `change` returns is true, the change is persisted before it
    /// is in force.
    ///
    /// # Errors
    /// If the change cannot be persisted: the role is then as before.
    pub(super) fn change_role<T>(
        &self,
        change: impl FnOnce(&mut Role<Address>) -> (T, bool),
    ) -> Result<T, String> {
        let mut standing = self.standing.lock();
        let mut changed = Role::clone(&self.role());
        let (outcome, is_news) = change(&mut changed);
        if is_news {
            self.remember(&mut standing, &changed)?;
        }
        self.put_in_force(changed);
        Ok(outcome)
    }

    /// As [`Node::change_role_here`], but does not wait for another change: `None` if another change is being
    /// made.
    pub(super) fn try_change_role_here<T>(&self, change: impl FnOnce(&mut Role<Address>) -> T) -> Option<T> {
        let _standing = self.standing.try_lock()?;
        let mut changed = Role::clone(&self.role());
        let outcome = change(&mut changed);
        self.put_in_force(changed);
        Some(outcome)
    }

    /// Follows `leader` from now on, as an operator has ordered. Waits for the disk.
    ///
    /// # Errors
    /// If this server cannot follow `leader`, or the change cannot be persisted: the whole text of the error
    /// reply.
    pub(super) fn begin_to_follow(&self, leader: &Address) -> Result<Follow, String> {
        if self.votes.is_some() {
            return Err(OF_GROUP.into());
        }
        if self.log().is_some_and(Log::is_frozen) {
            return Err(UNCONFIRMED.into());
        }
        if self.is_reached_at(leader) {
            return Err(format!("ERR {leader} is this server itself"));
        }
        let follow = self.change_role(|role| {
            // A hand-over that begins after this change finds that this server leads no more.
            if self.handover.lock().is_some() {
                return (Err(NOT_WHILE_HANDING_OVER.to_string()), false);
            }
            let follow = role.follow(leader.clone());
            (Ok(follow), follow != Follow::Already)
        });
        let follow = follow.map_err(|error| format!("ERR {error}"))??;
        if follow != Follow::Already {
            tracing::info!(target: "replication", %leader, "this server is to follow another");
        }
        Ok(follow)
    }

    /// Whether a write of a file to the disk has taken so long that a write of the log would count as
    /// stalled. These files hold the role, the part of this server in its group, and settings.
    pub(crate) fn awaits_disk(&self) -> bool {
        self.writes.oldest_us() > STALLED_US
    }

    /// Runs `write`, which writes a file of the data directory. While it takes too long,
    /// [`Node::awaits_disk`] is true.
    pub(crate) fn during_write<T>(&self, write: impl FnOnce() -> T) -> T {
        self.writes.during(write)
    }

    /// Makes this role the one in force; `standing` is locked.
    fn put_in_force(&self, role: Role<Address>) {
        let role = Arc::new(role);
        let before = std::mem::replace(&mut *self.role.write(), role.clone());
        self.is_read_only.store(role.is_read_only(), SeqCst);
        self.is_deposed.store(is_deposed(&role), SeqCst);
        self.is_handing_over.store(role.is_handing_over(), SeqCst);
        self.unconfirmed.store(role.unconfirmed().get(), SeqCst);
        if before.leads() && !role.leads() {
            self.end_waits();
        }
    }

    /// Ends the waits of commands that began to wait while this server led, because the event for which they
    /// wait may never come. Commands that begin to wait now see the new role themselves.
    fn end_waits(&self) {
        if let Some(interests) = self.interests.get() {
            interests.end_waits();
        }
        self.waits.fail_flushed();
    }

    /// Changes the role without persisting the change, so the next start of the server does not know of it.
    pub(super) fn change_role_here<T>(&self, change: impl FnOnce(&mut Role<Address>) -> T) -> T {
        self.change_role(|role| (change(role), false)).expect("nothing is persisted")
    }

    /// Logs a line if a command has given this server another role than the setting `replica-of`, with which
    /// the server was started.
    pub(crate) fn report_overridden_setting(&self) {
        let Some(named) = self.standing.lock().overridden() else { return };
        let follows = self.leader_address();
        tracing::warn!(
            target: "replication", replica_of = %named, follows = follows.as_ref().map(tracing::field::display),
            "this server was promoted, or told to follow another one, since replica-of was set, and keeps that role: start it \
             without replica-of. To have it follow that server after all: REPLICAOF {} {}", named.host, named.port
        );
    }

    pub(super) fn unconfirmed(&self) -> Lsn {
        Lsn::new(self.unconfirmed.load(SeqCst))
    }

    /// Whether no leader has confirmed the log here yet, so that its tail may be cut.
    pub(crate) fn is_stale(&self) -> bool {
        self.unconfirmed() > Lsn::ZERO
    }

    /// Evaluates the commit position of the leader. Returns whether all data may be shown.
    pub(super) fn confirm(&self, committed: Lsn) -> Result<bool, String> {
        let confirmed = self.change_role(|role| role.confirm(committed))?;
        if confirmed == Confirmed::Now {
            if !self.is_witness() {
                tracing::info!(target: "replication", committed = committed.get(), "the leader has committed all of the log here: its data is shown");
            }
            self.settle_waits();
        }
        Ok(confirmed != Confirmed::NotYet)
    }

    /// The value of `replica-of` that names the present role; `set` is the value that was set.
    pub(crate) fn shown_replica_of(&self, set: &str) -> String {
        match self.leader_address() {
            Some(leader) => leader.to_string(),
            None if set == "none" => set.into(),
            None => String::new(),
        }
    }

    pub(super) fn leader_address(&self) -> Option<Address> {
        self.role().leader().cloned()
    }

    /// Persists an epoch; called before anything in that epoch is acknowledged.
    pub(super) fn saw_epoch(&self, log: &Log, epoch: u32) -> Result<(), String> {
        self.writes.during(|| log.note_epoch(epoch)).map_err(|error| error.to_string())?;
        self.change_role(|role| ((), role.saw_epoch(epoch)))
    }

    /// Forgets the epochs that this server has seen. The log here is about to be replaced by the log of
    /// another group, whose leader such an epoch would fence.
    ///
    /// # Errors
    /// If `replication.json` cannot be written.
    pub(crate) fn forget_epochs(&self) -> Result<(), String> {
        self.change_role(|role| ((), role.forget_epochs()))
    }

    fn remember(&self, standing: &mut ReplicationState, role: &Role<Address>) -> Result<(), String> {
        let mut changed = standing.clone();
        changed.remember(role.remembered());
        self.writes
            .during(|| changed.store(&RealDisk, &self.dir))
            .map_err(|error| format!("cannot write replication.json: {error}"))?;
        *standing = changed;
        Ok(())
    }

    /// Fences this server, because another one leads in a higher epoch: nothing more is written here.
    pub(super) fn fence(&self, epoch: u32) {
        if self.is_restarting() {
            return;
        }
        let mut standing = self.standing.lock();
        let mut fenced = Role::clone(&self.role());
        if !fenced.fence(epoch) {
            return;
        }
        // The fence is in force as long as this process lives, even if it cannot be saved.
        self.put_in_force(fenced.clone());
        tracing::error!(
            target: "replication", epoch,
            "another server leads in a higher epoch: this one refuses writes and reads from now on. Have it follow the \
             other (REPLICAOF host port), or lead after all (REPLICAOF NO ONE)"
        );
        if let Err(error) = self.remember(&mut standing, &fenced) {
            tracing::error!(
                target: "replication", error,
                "cannot save that another server leads: after a restart this server takes writes again"
            );
        }
    }
}

/// Whether a server in this role has given up its leadership although clients still see a leader.
pub(super) fn is_deposed(role: &Role<Address>) -> bool {
    !role.leads() && !role.is_shown_as_replica()
}
