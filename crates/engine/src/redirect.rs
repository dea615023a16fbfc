//! Sends clients of a cluster to the leader (`cluster-emulation`): MOVED, as a node of Redis Cluster replies
//! it. All slots belong to the leader.
//!
//! A command that names neither a key nor a shard channel is not redirected.

use keyspace::slot_of;
use wire::Args;

use crate::{
    CommandError, Flags, Host, Keys, Row, Session,
    replication::{NO_LEADER, RoleView},
};

/// The error of a write on a server that clients see as the leader, but that takes no writes. Clients of a
/// cluster try again after this error.
const HANDING_OVER: CommandError =
    CommandError::Text("CLUSTERDOWN The lead is being handed over to another server. Try again.");

/// The error for a command with keys or shard channels on a server that takes no writes; `None`: the command
/// is not sent elsewhere.
#[cold]
pub(crate) fn redirect(row: &Row, args: Args<'_>, session: &Session, host: &Host) -> Option<CommandError> {
    let key = match row.keys {
        // Messages of shard channels stay on the server where they are published.
        Keys::ShardChannels { .. } => Some(1),
        keys => first_key(keys, args),
    };
    let key = args.get(key?)?;
    let reads_here = session.reads_replica
        && !row.flags.has(Flags::WRITE)
        && !matches!(row.keys, Keys::ShardChannels { .. });
    if reads_here {
        return None;
    }
    match host.replication.role() {
        // During elections and hand-overs the leader is not known.
        RoleView::Replica { leader, .. } if leader.port == 0 => Some(CommandError::Text(NO_LEADER)),
        RoleView::Replica { leader, .. } => {
            Some(CommandError::Composed(format!("MOVED {} {leader}", slot_of(key).get())))
        }
        RoleView::Leader { .. } if row.flags.has(Flags::WRITE) => Some(HANDING_OVER),
        RoleView::Leader { .. } => None,
    }
}

fn first_key(keys: Keys, args: Args<'_>) -> Option<usize> {
    let mut first = None;
    keys.for_each(args, |index| _ = first.get_or_insert(index));
    first
}
