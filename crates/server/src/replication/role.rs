//! Changes of this server's role. Those that must outlive this incarnation are in `replication.json` before
//! they have an effect that others see.

use std::sync::atomic::Ordering::SeqCst;

use engine::replication::Address;
use env::RealDisk;
use lsn::Lsn;
use replication::{Confirmed, Role};
use storage::Log;

use super::Node;

impl Node {
    /// Whether this incarnation runs as a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.role.lock().is_replica()
    }

    /// Whether clients see a replica.
    pub(crate) fn is_shown_as_replica(&self) -> bool {
        self.role.lock().is_shown_as_replica()
    }

    /// Changes the role. If the second value that `change` returns is true, the change is persisted first.
    ///
    /// # Errors
    /// If it cannot be persisted: the role is as before.
    pub(super) fn change_role<T>(
        &self,
        change: impl FnOnce(&mut Role<Address>) -> (T, bool),
    ) -> Result<T, String> {
        let mut role = self.role.lock();
        let mut changed = role.clone();
        let (outcome, is_news) = change(&mut changed);
        if is_news {
            self.remember(&changed)?;
        }
        let is_demoted = role.leads() && !changed.leads();
        *role = changed;
        self.is_read_only.store(role.is_read_only(), SeqCst);
        self.is_deposed.store(is_deposed(&role), SeqCst);
        self.is_handing_over.store(role.is_handing_over(), SeqCst);
        self.unconfirmed.store(role.unconfirmed().get(), SeqCst);
        drop(role);
        if is_demoted {
            self.end_waits();
        }
        Ok(outcome)
    }

    /// Ends the waits of commands that began to wait while this server led: the event for which they wait may
    /// never come. Commands that begin to wait now see the new role themselves.
    fn end_waits(&self) {
        if let Some(interests) = self.interests.get() {
            interests.end_waits();
        }
        self.waits.fail_flushed();
    }

    /// Changes the role without persisting the change, which the next start of the server then does not know.
    pub(super) fn change_role_here<T>(&self, change: impl FnOnce(&mut Role<Address>) -> T) -> T {
        self.change_role(|role| (change(role), false)).expect("nothing is persisted")
    }

    /// Logs a line if a command has given this server another role than the setting `replica-of`, which it
    /// was started with.
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

    /// Whether no leader has confirmed the log here yet: its tail may be cut.
    pub(crate) fn is_stale(&self) -> bool {
        self.unconfirmed() > Lsn::ZERO
    }

    /// Processes the commit position of the leader. Returns whether all data may be shown.
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
        self.role.lock().leader().cloned()
    }

    /// Persists an epoch before anything in it is acknowledged.
    pub(super) fn saw_epoch(&self, log: &Log, epoch: u32) -> Result<(), String> {
        log.note_epoch(epoch).map_err(|error| error.to_string())?;
        self.change_role(|role| ((), role.saw_epoch(epoch)))
    }

    /// Forgets the epochs of this group. The log here is about to be replaced by that of another group, whose
    /// leader such an epoch would fence.
    ///
    /// # Errors
    /// If `replication.json` cannot be written.
    pub(crate) fn forget_epochs(&self) -> Result<(), String> {
        self.change_role(|role| ((), role.forget_epochs()))
    }

    fn remember(&self, role: &Role<Address>) -> Result<(), String> {
        let mut standing = self.standing.lock();
        standing.remember(role.remembered());
        standing
            .store(&RealDisk, &self.dir)
            .map_err(|error| format!("cannot write replication.json: {error}"))
    }

    /// Fences this server: another leads in a higher epoch, so nothing more is written here.
    pub(super) fn fence(&self, epoch: u32) {
        if self.is_restarting() {
            return;
        }
        let fence = |role: &mut Role<Address>| {
            let is_news = role.fence(epoch);
            (is_news, is_news)
        };
        let (is_news, unsaved) = match self.change_role(fence) {
            Ok(is_news) => (is_news, None),
            // Fenced all the same, as long as this process lives.
            Err(error) => (self.change_role_here(|role| role.fence(epoch)), Some(error)),
        };
        if !is_news {
            return;
        }
        tracing::error!(
            target: "replication", epoch,
            "another server leads in a higher epoch: this one refuses writes and reads from now on. Have it follow the \
             other (REPLICAOF host port), or lead after all (REPLICAOF NO ONE)"
        );
        if let Some(error) = unsaved {
            tracing::error!(
                target: "replication", error,
                "cannot save that another server leads: after a restart this server takes writes again"
            );
        }
    }
}

/// Whether a server in this role has given up the lead although clients see a leader.
pub(super) fn is_deposed(role: &Role<Address>) -> bool {
    !role.leads() && !role.is_shown_as_replica()
}
