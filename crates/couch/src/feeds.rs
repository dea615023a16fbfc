//! Wake-ups for changes feeds, which wait for changes of databases on the threads that serve HTTP.
//!
//! There is a wake-up per database, one for all databases, and one for changes of rights: of users, of the
//! settings that give them rights, and of sessions. A wake-up carries no changes: a woken feed reads the
//! database again, and checks whether its user may still follow it.
//!
//! A feed that subscribes and then reads misses nothing, because [`Feeds::notify`] is called when the change
//! is in memory. An update of a database without feeds costs one look-up in a map.

use std::collections::HashMap;

use documents::{DbId, Notice};
use parking_lot::RwLock;
use tokio::sync::watch;

/// Senders without receivers are swept when the map has at least this many senders, and at least twice as
/// many as the last sweep left.
const SWEEP_MIN: usize = 64;

/// The subscriptions of changes feeds.
pub struct Feeds {
    by_database: RwLock<Subscriptions>,
    /// Counts notices of any database, while it has subscribers.
    all: watch::Sender<u64>,
    /// Changes whenever users may have lost rights, except by the security object of a database.
    rights: watch::Sender<()>,
}

struct Subscriptions {
    senders: HashMap<DbId, watch::Sender<()>>,
    sweep_at: usize,
}

impl Default for Feeds {
    fn default() -> Feeds {
        let subscriptions = Subscriptions { senders: HashMap::new(), sweep_at: SWEEP_MIN };
        let (all, rights) = (watch::Sender::new(0), watch::Sender::new(()));
        Feeds { by_database: RwLock::new(subscriptions), all, rights }
    }
}

impl Feeds {
    /// A receiver that changes with each change of the database's feed or security object, and is closed by
    /// the deletion of the database.
    pub(crate) fn subscribe(&self, db: DbId) -> watch::Receiver<()> {
        let mut subscriptions = self.by_database.write();
        let Subscriptions { senders, sweep_at } = &mut *subscriptions;
        if senders.len() >= *sweep_at {
            senders.retain(|_, sender| sender.receiver_count() > 0);
            *sweep_at = SWEEP_MIN.max(2 * senders.len());
        }
        senders.entry(db).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// A receiver that changes with each notice of any database.
    pub(crate) fn subscribe_to_all(&self) -> watch::Receiver<u64> {
        self.all.subscribe()
    }

    /// A receiver that changes when users may have lost rights.
    pub(crate) fn subscribe_to_rights(&self) -> watch::Receiver<()> {
        self.rights.subscribe()
    }

    /// Wakes all feeds: users, or settings that give rights, have changed, or a session has ended.
    pub fn note_rights(&self) {
        self.rights.send_replace(());
    }

    /// Wakes the subscribers to the notice's database, and the subscribers to all databases. It does not wait
    /// for them.
    pub fn notify(&self, notice: &Notice) {
        match notice {
            Notice::Created { .. } => {}
            Notice::Updated { db, .. } | Notice::Secured { db, .. } => {
                if let Some(sender) = self.by_database.read().senders.get(db) {
                    sender.send_replace(());
                }
            }
            Notice::Deleted { db, .. } => _ = self.by_database.write().senders.remove(db),
        }
        if self.all.receiver_count() > 0 {
            self.all.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use lsn::Lsn;

    use super::*;

    fn updated(db: DbId) -> Notice {
        Notice::Updated { db, update_seq: 1, lsn: Lsn::new(64) }
    }

    #[test]
    fn a_listener_is_woken_by_its_own_database_and_learns_of_its_end() {
        let (feeds, [a, b]) = (Feeds::default(), [8, 16].map(|lsn| DbId::new(Lsn::new(lsn))));
        let (mut of_a, mut all) = (feeds.subscribe(a), feeds.subscribe_to_all());
        feeds.notify(&updated(b));
        assert!(!of_a.has_changed().expect("it is there") && all.has_changed().expect("always"));
        feeds.notify(&updated(a));
        assert!(of_a.has_changed().expect("it is there"));
        of_a.mark_unchanged();
        feeds.notify(&Notice::Secured { db: a, lsn: Lsn::new(72) });
        assert!(of_a.has_changed().expect("it is there"), "its user may have lost the right to it");
        of_a.mark_unchanged();
        all.mark_unchanged();
        feeds.notify(&Notice::Deleted { db: a, name: "a".into(), lsn: Lsn::new(128) });
        assert!(of_a.has_changed().is_err() && all.has_changed().expect("always"));
    }

    #[test]
    fn subscriptions_that_nobody_has_any_more_are_forgotten() {
        let feeds = Feeds::default();
        let kept = feeds.subscribe(DbId::new(Lsn::new(8)));
        (2..1000).for_each(|n| drop(feeds.subscribe(DbId::new(Lsn::new(8 * n)))));
        assert!(feeds.by_database.read().senders.len() <= SWEEP_MIN);
        feeds.notify(&updated(DbId::new(Lsn::new(8))));
        assert!(kept.has_changed().expect("it is there"));
    }
}
