//! The intervals and timeouts of a connection between a leader and a replica.

/// The interval of heartbeats while a leader has nothing to ship.
pub const HEARTBEAT_MS: u64 = 250;
/// A peer that has sent nothing for this long is taken for dead.
pub const SILENCE_MS: u64 = 5_000;
/// The longest interval of acknowledgements while data flows.
pub const ACK_BUSY_MS: u64 = 100;
/// The interval of acknowledgements without data.
pub const ACK_IDLE_MS: u64 = 1_000;

const _: () = assert!(HEARTBEAT_MS * 4 < SILENCE_MS && ACK_IDLE_MS * 4 < SILENCE_MS);
