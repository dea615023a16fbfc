//! The role of a server among others, and its copy on disk: the product's own rules and file.

use std::{path::Path, sync::Arc};

use engine::replication::Address;
use env::{Disk, SimDisk, SimEntropy};
use recovery::replication_state::{ReplicationState, find};
use replication::{Follow, Role};

use super::node::{Failure, Order};

/// The directory of `replication.json`, apart from the data, which a copy replaces.
const DIR: &str = "/member";

pub(super) struct Member {
    disk: Arc<SimDisk>,
    standing: ReplicationState,
    role: Role<Address>,
}

/// The address that a server follows by this order. A server that is held follows an address without a
/// server.
fn address(order: Order) -> Option<Address> {
    let host = match order {
        Order::Lead => return None,
        Order::Follow(leader) => format!("server-{leader}"),
        Order::Hold => "held".into(),
    };
    Some(Address { host, port: 6379 })
}

impl Member {
    /// Reads the role on disk. The order is the setting of a server that starts for the first time; any other
    /// server receives an order to follow as soon as it is up.
    pub(super) fn start(
        disk: &Arc<SimDisk>,
        order: Order,
        awaits_acks: bool,
        entropy: &SimEntropy,
    ) -> Result<Member, Failure> {
        let failed = |error: std::io::Error| Failure::Disk(error.to_string());
        disk.create_dir_all(Path::new(DIR)).map_err(failed)?;
        let is_first = find(&**disk, Path::new(DIR), "").map_err(failed)?.is_none();
        let setting = address(order).filter(|_| is_first).map_or(String::new(), |leader| leader.to_string());
        let standing = ReplicationState::load(&**disk, Path::new(DIR), &setting, entropy).map_err(failed)?;
        let role = Role::start(standing.remembered(), awaits_acks);
        let mut member = Member { disk: disk.clone(), standing, role };
        member.obey(order)?;
        Ok(member)
    }

    pub(super) fn role(&self) -> &Role<Address> {
        &self.role
    }

    /// Changes the role; persists it if the second value that `change` returns is true.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Role<Address>) -> (T, bool),
    ) -> Result<T, Failure> {
        let (outcome, is_news) = change(&mut self.role);
        if is_news {
            self.standing.remember(self.role.remembered());
            let stored = self.standing.store(&*self.disk, Path::new(DIR));
            stored.map_err(|error| Failure::Disk(error.to_string()))?;
        }
        Ok(outcome)
    }

    /// A hand-over has succeeded: this server follows the one that the order names, which leads now.
    pub(super) fn hand_over(&mut self, order: Order) -> Result<(), Failure> {
        let Some(leader) = address(order) else { return Ok(()) };
        self.change(|role| (role.hand_over(leader), true))
    }

    /// Receives an order to follow another server, or to be held.
    pub(super) fn obey(&mut self, order: Order) -> Result<(), Failure> {
        let Some(leader) = address(order) else { return Ok(()) };
        self.change(|role| {
            let follow = role.follow(leader);
            ((), follow != Follow::Already)
        })
    }
}
