//! Metrics of the build and the process. The metrics of the process have the names that all client libraries
//! of Prometheus use.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::gauge;
use crate::startup_info::StartupInfo;

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, startup: &StartupInfo) -> fmt::Result {
    let (name, help) = ("sheaf_build_info", "1, with version and commit of the binary");
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("commit", startup.commit)];
    ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)?;
    let cpu = env::process::cpu_time();
    let seconds = ConstCounter::new((cpu.user_us + cpu.system_us) as f64 / 1e6);
    let (name, help) = ("process_cpu_seconds", "user and system time of all threads");
    seconds.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
    gauge(encoder, "process_open_fds", "open descriptors", env::process::open_files())?;
    gauge(encoder, "process_max_fds", "limit of open descriptors", env::process::open_files_max())?;
    gauge(encoder, "process_resident_memory_bytes", "resident memory", env::process::rss_bytes())?;
    let help = "when the process started, in seconds since 1970";
    gauge(encoder, "process_start_time_seconds", help, startup.started_unix_ms / 1000)
}
