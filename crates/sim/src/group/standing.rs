//! The role of a member, and the part of it on its disk (`replication.json`).

use std::{path::Path, sync::Arc};

use engine::replication::Address;
use env::{SimDisk, SimEntropy};
use recovery::replication_state::ReplicationState;
use replication::{ReplicaId, Role};

use crate::cluster::node::Failure;

pub(super) struct Standing {
    disk: Arc<SimDisk>,
    state: ReplicationState,
    role: Role<Address>,
}

impl Standing {
    /// The role of a member that starts: a replica of nobody.
    pub(super) fn start(disk: &Arc<SimDisk>, dir: &Path, entropy: &SimEntropy) -> Result<Standing, Failure> {
        let state = ReplicationState::load(&**disk, dir, "", entropy).map_err(failed)?;
        let role = Role::start_member(state.remembered());
        Ok(Standing { disk: disk.clone(), state, role })
    }

    pub(super) fn role(&self) -> &Role<Address> {
        &self.role
    }

    pub(super) fn replica_id(&self) -> ReplicaId {
        self.state.replica_id()
    }

    /// Changes the role; persists it first if the second value that `change` returns is true.
    pub(super) fn change<T>(
        &mut self,
        dir: &Path,
        change: impl FnOnce(&mut Role<Address>) -> (T, bool),
    ) -> Result<T, Failure> {
        let mut changed = self.role.clone();
        let (outcome, is_news) = change(&mut changed);
        if is_news {
            self.state.remember(changed.remembered());
            self.state.store(&*self.disk, dir).map_err(failed)?;
        }
        self.role = changed;
        Ok(outcome)
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Disk(error.to_string())
}
