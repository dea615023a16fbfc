//! The state of a server before and after a measurement, and the figures from their difference.

use std::net::SocketAddr;

use env::{Clock, RealClock};
use serde_json::{Value, json};

use crate::{documents::client::Client, failure::Failure, process::Process};

/// The state at one moment.
#[derive(Debug)]
pub struct Reading {
    at_us: u64,
    documents: u64,
    server_cpu_s: f64,
    own_cpu_s: f64,
    rss_bytes: u64,
    written_bytes: u64,
    metrics: String,
}

impl Reading {
    /// Reads the state now; `documents` is the number of documents confirmed so far.
    pub fn take(address: SocketAddr, process: Process, documents: u64) -> Result<Reading, Failure> {
        // A new connection, because servers may close one that is idle during the measurement.
        let metrics = Client::connect(address)?.page("/metrics")?;
        let own = env::process::cpu_time();
        Ok(Reading {
            at_us: RealClock.monotonic_us(),
            documents,
            server_cpu_s: process.cpu_s()?,
            own_cpu_s: (own.user_us + own.system_us) as f64 / 1e6,
            rss_bytes: process.rss_bytes()?,
            written_bytes: process.written_bytes()?,
            metrics,
        })
    }

    /// The figures since `before`, per second and per document. Figures that a server does not report are
    /// null.
    pub fn since(&self, before: &Reading) -> Value {
        let elapsed_s = (self.at_us - before.at_us) as f64 / 1e6;
        let documents = (self.documents - before.documents) as f64;
        let each = |sum: f64| (documents > 0.0).then(|| sum / documents);
        let counted = |name| Some(metric(&self.metrics, name)? - metric(&before.metrics, name)?);
        let syncs = counted("sheaf_log_syncs_total").filter(|syncs| *syncs > 0.0);
        let log_bytes = counted("sheaf_log_bytes_total").and_then(each);
        let tree_bytes = counted("sheaf_document_tree_bytes_total").and_then(each);
        json!({
            "documents_s": documents / elapsed_s,
            "cpu_us_per_document": each((self.server_cpu_s - before.server_cpu_s) * 1e6),
            "documents_per_sync": syncs.map(|syncs| documents / syncs),
            "tree_writes_per_document": counted("sheaf_document_tree_writes_total").and_then(each),
            "log_tree_bytes_per_document": log_bytes.zip(tree_bytes).map(|(log, tree)| log + tree),
            "tree_bytes_per_document": tree_bytes,
            "disk_bytes_per_document": each((self.written_bytes - before.written_bytes) as f64),
            "rss_growth_mb": (self.rss_bytes as f64 - before.rss_bytes as f64) / 1e6,
            "client_share": (self.own_cpu_s - before.own_cpu_s) / elapsed_s,
        })
    }
}

/// The sum of a metric over all its labels; `None` if it is not on the page.
fn metric(page: &str, name: &str) -> Option<f64> {
    let samples = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '{']))?;
        rest.rsplit_once(' ')?.1.parse::<f64>().ok()
    });
    samples.fold(None, |sum, sample| Some(sum.unwrap_or(0.0) + sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_us: u64, documents: u64, metrics: &str) -> Reading {
        let metrics = metrics.to_owned();
        let (server_cpu_s, own_cpu_s) = (at_us as f64 / 2e6, at_us as f64 / 4e6);
        Reading {
            at_us,
            documents,
            server_cpu_s,
            own_cpu_s,
            rss_bytes: 5 << 20,
            written_bytes: at_us,
            metrics,
        }
    }

    #[test]
    fn figures_are_differences_per_unit_of_work() {
        let before = reading(1_000_000, 50, "sheaf_log_syncs_total 5\n");
        let after = reading(3_000_000, 150, "# HELP x\nsheaf_log_syncs_total 25\n");
        let figures = after.since(&before);
        assert_eq!(figures["documents_s"], 50.0);
        assert_eq!(figures["cpu_us_per_document"], 10_000.0);
        assert_eq!(figures["documents_per_sync"], 5.0);
        assert_eq!(figures["disk_bytes_per_document"], 20_000.0);
        assert_eq!(figures["client_share"], 0.25);
        assert_eq!(figures["tree_writes_per_document"], Value::Null);
    }

    #[test]
    fn a_metric_is_the_sum_over_its_labels() {
        let page = "a_total{x=\"1 2\"} 3\na_total{x=\"2\"} 4.5\na_total_more 9\n";
        assert_eq!(metric(page, "a_total"), Some(7.5));
        assert_eq!(metric(page, "a"), None);
    }
}
