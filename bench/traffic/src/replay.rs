//! Replay of durable channels from the log: one connection gets the messages of many publishers from the
//! beginning.

use mio::Events;
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    listener::From,
    traffic::{EVENTS, Plan, Traffic},
};

/// Publishes at least `messages` messages to the channels of the plan; then one listener receives all of
/// them.
pub fn run(plan: Plan, messages: u64) -> Result<Value, Failure> {
    let mut traffic = Traffic::connect(plan)?;
    let mut events = Events::with_capacity(EVENTS);
    traffic.begin()?;
    traffic.turn_until_published(&mut events, messages)?;
    traffic.finish(&mut events)?;
    traffic.add_listener(From::LogStart)?;
    let before = traffic.reading()?;
    traffic.listen(&mut events)?;
    traffic.finish(&mut events)?;
    let after = traffic.reading()?;
    let elapsed_s = (after.at_us - before.at_us) as f64 / 1e6;
    Ok(json!({
        "replayed_s": after.deliveries as f64 / elapsed_s,
        "cpu_us_per_delivery": (after.server_cpu_s - before.server_cpu_s) * 1e6 / after.deliveries.max(1) as f64,
        "client_share": (after.own_cpu_s - before.own_cpu_s) / elapsed_s,
        "checked": after.deliveries,
        "faults": 0,
    }))
}
