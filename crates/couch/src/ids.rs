//! Ids that this server gives: UUIDs, the name of its node, update sequences with their database.

use documents::DbId;

use crate::Host;

/// The name of the only node.
pub(super) const NODE: &str = "nonode@nohost";

/// 128 bits of randomness in hexadecimal.
pub(super) fn new_uuid(host: &Host) -> String {
    format!("{:016x}{:016x}", host.random_u64(), host.random_u64())
}

/// Formats an update sequence with the id of its database, so that a later database of the same name is
/// detected.
pub(super) fn seq_text(seq: u64, db: DbId) -> String {
    format!("{seq}-{db}")
}
