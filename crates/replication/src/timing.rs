//! The intervals between a leader and a replica.

/// Interval of heartbeats while a leader ships nothing.
pub const HEARTBEAT_MS: u64 = 250;
/// Silence after which either side takes the connection for dead.
pub const SILENCE_MS: u64 = 5_000;
/// Longest interval of acks while data flow.
pub const ACK_BUSY_MS: u64 = 100;
/// Interval of acks without data.
pub const ACK_IDLE_MS: u64 = 1_000;

const _: () = assert!(HEARTBEAT_MS * 4 < SILENCE_MS && ACK_IDLE_MS * 4 < SILENCE_MS);
