//! Publishing at full rate to channels with listeners, while other connections subscribe and unsubscribe.
//!
//! ```text
//! connect, subscribe | warm up | measure | stop publishing; all published messages must arrive
//! ```

use mio::Events;
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    latency::Latencies,
    traffic::{EVENTS, Plan, Traffic},
};

/// Runs the measurement and returns its figures. Faulty messages are a failure.
pub fn run(plan: Plan) -> Result<Value, Failure> {
    let mut traffic = Traffic::connect(plan)?;
    let mut events = Events::with_capacity(EVENTS);
    traffic.listen(&mut events)?;
    traffic.begin()?;
    traffic.turn_for(&mut events, plan.seconds / 4.0)?;
    traffic.latencies = Latencies::default();
    traffic.ledger.delays = Latencies::default();
    let before = traffic.reading()?;
    traffic.turn_for(&mut events, plan.seconds)?;
    let after = traffic.reading()?;
    let (p50_ms, p99_ms) = (traffic.latencies.quantile_ms(0.5), traffic.latencies.quantile_ms(0.99));
    let delay_p99_ms = traffic.ledger.delays.quantile_ms(0.99);
    traffic.finish(&mut events)?;

    let elapsed_s = (after.at_us - before.at_us) as f64 / 1e6;
    let (publishes, deliveries) = (after.publishes - before.publishes, after.deliveries - before.deliveries);
    let server_cpu_us = (after.server_cpu_s - before.server_cpu_s) * 1e6;
    Ok(json!({
        "publishes_s": publishes as f64 / elapsed_s,
        "deliveries_s": deliveries as f64 / elapsed_s,
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "delay_p99_ms": (deliveries > 0).then_some(delay_p99_ms),
        "cpu_us_per_publish": server_cpu_us / publishes.max(1) as f64,
        "cpu_us_per_delivery": (deliveries > 0).then(|| server_cpu_us / deliveries as f64),
        "server_share": server_cpu_us / 1e6 / elapsed_s,
        "client_share": (after.own_cpu_s - before.own_cpu_s) / elapsed_s,
        "churn_s": (plan.churn_per_s > 0).then(|| (after.churned - before.churned) as f64 / elapsed_s),
        "given_up": (plan.slow > 0).then(|| traffic.given_up()),
        "rss_peak_mb": plan.process.rss_peak_bytes()? as f64 / 1e6,
        "checked": traffic.ledger.deliveries,
        "faults": 0,
    }))
}
