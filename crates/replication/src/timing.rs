//! When something is due between a leader and a replica.

/// A leader that has nothing to ship says so this often.
pub const HEARTBEAT_MS: u64 = 250;
/// Who has heard nothing of the other for so long takes the connection to be dead.
pub const SILENCE_MS: u64 = 5_000;
/// While data flows, a replica says at least this often how far it is.
pub const ACK_BUSY_MS: u64 = 100;
/// Without data, it says so this often.
pub const ACK_IDLE_MS: u64 = 1_000;

const _: () = assert!(HEARTBEAT_MS * 4 < SILENCE_MS && ACK_IDLE_MS * 4 < SILENCE_MS);
