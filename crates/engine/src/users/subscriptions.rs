//! Closes connections after a change of users. The connections of deleted users are closed, and so are
//! connections that listen to a channel, or to MONITOR, which their user may no longer use.

use std::sync::Arc;

use access::ChannelUse;
use pubsub::{Kind, Local};

use super::{Principal, UserSet};
use crate::{Session, audit::AUDIT_CHANNEL, clients::Clients};

/// Closes the connections of users that are gone, and has the workers review the subscriptions of users that
/// have changed.
pub(super) fn review(before: &UserSet, now: &UserSet, clients: &Clients) {
    for client in clients.all() {
        let user = client.user();
        match now.get(&user) {
            // A client whose connection is closing already still gets its reply.
            None if !client.is_closing() => client.kill(),
            None => {}
            Some(known) if is_another(before.get(&user), known) && !client.is_closing() => client.kill(),
            Some(known) if !before.is_same(&user, known) => client.review(),
            Some(_) => {}
        }
    }
}

/// Whether the user `before` was deleted, and another user has the name now.
fn is_another(before: Option<&Arc<Principal>>, now: &Principal) -> bool {
    before.is_some_and(|before| before.has_record() && before.user.birth != now.user.birth)
}

/// Whether the user of a session may use all subscriptions of the session, and MONITOR if it is on.
pub fn may_listen(users: &UserSet, channels: &Local, session: &Session) -> bool {
    if session.subscriber.is_none() && session.monitoring.is_none() {
        return true;
    }
    let Some(principal) = users.get(session.login.name()) else { return false };
    if session.monitoring.is_some_and(|command| !principal.rights.allow(command)) {
        return false;
    }
    let Some(subscriber) = session.subscriber else { return true };
    let may_use = |kind: Kind| {
        let is_pattern = kind == Kind::Pattern;
        let names = channels.names(subscriber, kind);
        names.iter().all(|name| principal.rights.allow_subscription(ChannelUse { name, is_pattern }))
    };
    // Only administrators may read the audit.
    let reads_audit = channels.names(subscriber, Kind::Log).iter().any(|name| **name == *AUDIT_CHANNEL);
    if reads_audit && !principal.is_admin {
        return false;
    }
    principal.rights.are_unrestricted() || Kind::ALL.into_iter().all(may_use)
}
