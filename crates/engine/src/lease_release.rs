//! The release of the leases of a disconnected client.

use crate::{
    Executor, Host, Session,
    unit::{LockPolicy, Locks},
};

impl Executor {
    /// Releases the leases of a disconnected client, as one record, within a round. Returns `false` if the
    /// caller must try again, because the log or a slot is not available at the moment.
    pub fn release_leases(&mut self, session: &mut Session, host: &Host) -> bool {
        if !session.holds_leases() {
            return true;
        }
        match self.admit_write(0) {
            Ok(true) if !self.rules.read_only => {}
            Ok(false) => return false,
            // The server takes no writes, or its log refuses them: the remaining leases end at their
            // deadlines.
            Ok(true) | Err(_) => {
                session.leases.clear();
                return true;
            }
        }
        let slots = session.leases.slots();
        let released = self.run_own(
            host,
            |keyspace| Locks::slots(keyspace, slots, LockPolicy(host)),
            |unit| session.leases.release(unit),
        );
        released.is_ok()
    }
}
