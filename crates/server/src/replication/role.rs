//! Changes of this server's role, each remembered in `replication.json` before it has an effect that others
//! see.

use std::sync::atomic::Ordering::SeqCst;

use engine::replication::Address;
use env::RealDisk;
use lsn::Lsn;
use replication::{Confirmed, Role as NodeRole};
use storage::Log;

use super::Node;

impl Node {
    /// Whether this incarnation runs as a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.role.lock().leader().is_some()
    }

    /// Changes the role; persists it if the second value that `change` returns is true.
    pub(super) fn change_role<T>(
        &self,
        change: impl FnOnce(&mut NodeRole<Address>) -> (T, bool),
    ) -> (T, Result<(), String>) {
        let mut role = self.role.lock();
        let (outcome, is_news) = change(&mut role);
        self.is_read_only.store(role.is_read_only(), SeqCst);
        self.unconfirmed.store(role.unconfirmed().get(), SeqCst);
        let remembered = if is_news { self.remember(&role) } else { Ok(()) };
        (outcome, remembered)
    }

    pub(super) fn set_read_only(&self, is_read_only: bool) {
        let _ = self.change_role(|role| (role.set_read_only(is_read_only), false));
    }

    pub(super) fn unconfirmed(&self) -> Lsn {
        Lsn::new(self.unconfirmed.load(SeqCst))
    }

    pub(super) fn is_stale(&self) -> bool {
        self.unconfirmed() > Lsn::ZERO
    }

    /// Processes the commit position of the leader. Returns whether all data may be shown.
    pub(super) fn confirm(&self, committed: Lsn) -> Result<bool, String> {
        let (confirmed, remembered) = self.change_role(|role| role.confirm(committed));
        if confirmed == Confirmed::Now {
            tracing::info!(target: "replication", %committed, "the leader has committed all of the log here: its data is shown");
            self.settle_waits();
        }
        remembered.map(|()| confirmed != Confirmed::NotYet)
    }

    pub(super) fn leader_address(&self) -> Option<Address> {
        self.role.lock().leader().cloned()
    }

    /// Persists an epoch before anything in it is acknowledged.
    pub(super) fn saw_epoch(&self, log: &Log, epoch: u32) -> Result<(), String> {
        log.note_epoch(epoch).map_err(|error| error.to_string())?;
        self.change_role(|role| ((), role.saw_epoch(epoch))).1
    }

    pub(super) fn remember(&self, role: &NodeRole<Address>) -> Result<(), String> {
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
        let (led, remembered) = self.change_role(|role| {
            let led = role.fence(epoch);
            (led, led)
        });
        if !led {
            return;
        }
        tracing::error!(
            target: "replication", epoch,
            "another server leads in a higher epoch: this one refuses writes and reads from now on. Have it follow the \
             other (REPLICAOF host port), or lead after all (REPLICAOF NO ONE)"
        );
        if let Err(error) = remembered {
            tracing::error!(target: "replication", error, "a restart will have forgotten that");
        }
    }
}
