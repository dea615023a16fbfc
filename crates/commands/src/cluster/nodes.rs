//! The servers that CLUSTER shows. In a group, these are the members that have data. Without a group, these
//! are this server and its replicas, or this server and its leader.

use std::net::SocketAddr;

use engine::{
    Context,
    group::{GroupView, MemberKind, MemberView},
    replication::{Address, RoleView},
};
use scripting::sha1_hex;

use crate::sentinel::{is_down, run_id};

/// A server that CLUSTER shows.
pub(super) struct Node {
    /// 40 hexadecimal digits.
    pub(super) id: String,
    pub(super) address: Address,
    pub(super) leads: bool,
    pub(super) is_self: bool,
    pub(super) is_down: bool,
    /// The node is a learner, which may still copy the data.
    pub(super) learns: bool,
    /// The end of the node's durable log. If this server is a replica without a group, its own offset is the
    /// end of the applied log. 0 if the offset is unknown.
    pub(super) offset: u64,
}

impl Node {
    /// Whether the node is not the leader and clients may read from it.
    pub(super) fn is_usable(&self) -> bool {
        !self.leads && !self.is_down && !self.learns
    }
}

/// The nodes of the cluster, with its epoch.
pub(super) struct Nodes {
    pub(super) all: Vec<Node>,
    /// The term of the group; 1 without a group.
    pub(super) epoch: u64,
}

impl Nodes {
    /// The nodes that this server knows.
    pub(super) fn seen_by(cx: &Context<'_, '_>) -> Nodes {
        match cx.host.group.view() {
            Some(group) => Nodes::of_group(&group, &cx.host.replication.role()),
            None => Nodes::of_replication(own_address(cx), cx.host.replication.role()),
        }
    }

    /// The node that leads; if the group has no leader now, the last one that this server knows. `None` if
    /// there is no such node; a witness is no node here, even if it leads.
    pub(super) fn leader(&self) -> Option<&Node> {
        self.all.iter().find(|node| node.leads)
    }

    fn of_group(group: &GroupView, role: &RoleView) -> Nodes {
        // Redis Cluster, too, shows a failed master until another one is elected.
        let before = match role {
            RoleView::Replica { leader, .. } if group.leader.is_none() => Some(leader),
            _ => None,
        };
        let node = |member: &MemberView| Node {
            id: run_id(member),
            address: member.address.clone(),
            leads: group.leader.as_ref() == Some(&member.id) || before == Some(&member.address),
            is_self: member.is_self,
            is_down: is_down(member),
            learns: member.kind == MemberKind::Learner,
            offset: member.durable.map_or(0, lsn::Lsn::get),
        };
        Nodes { all: group.with_data().map(node).collect(), epoch: group.term }
    }

    fn of_replication(own: Address, role: RoleView) -> Nodes {
        let node = |address: Address, offset: lsn::Lsn, (leads, is_self): (bool, bool)| Node {
            id: sha1_hex(address.to_string().as_bytes()),
            address,
            leads,
            is_self,
            is_down: false,
            learns: false,
            offset: offset.get(),
        };
        let all = match role {
            RoleView::Leader { end, replicas } => std::iter::once(node(own, end, (true, true)))
                .chain(replicas.into_iter().map(|it| node(it.address, it.flushed, (false, false))))
                .collect(),
            RoleView::Replica { leader, applied, .. } => {
                vec![node(leader, lsn::Lsn::ZERO, (true, false)), node(own, applied, (false, true))]
            }
        };
        Nodes { all, epoch: 1 }
    }
}

/// The address under which the client has reached this server, with the host of `group-host` if that is set.
fn own_address(cx: &Context<'_, '_>) -> Address {
    let local: Option<SocketAddr> = cx.session.client.local().parse().ok();
    let (ip, port) =
        local.map_or((String::new(), 0), |local| (local.ip().to_canonical().to_string(), local.port()));
    let given = cx.host.config.get(b"group-host").into_iter().map(|(_, host)| host).find(|it| !it.is_empty());
    Address { host: given.unwrap_or(ip), port }
}
