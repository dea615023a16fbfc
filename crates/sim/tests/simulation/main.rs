//! The whole server under crashes, failing disks and damage. See `sim` for the model and the oracle.
//!
//! A failure names its seed; `SHEAF_SIM_SEED=<seed>` repeats it, `SHEAF_SIM_SCALE=<n>` runs n times as many
//! states.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod arguments;
mod bit_rot;
mod canary;
mod channels;
mod cluster;
mod collections;
mod crash;
mod crash_in_recovery;
mod damaged_snapshots;
mod documents;
mod effects;
mod failing_disk;
mod flipped_bits;
mod forced;
mod forced_documents;
mod groups;
mod http;
mod large;
mod lives;
mod modes;
mod queues;
mod restore;
mod snapshots;
mod states;
mod unchanged;
