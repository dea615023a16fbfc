//! Metrics for Prometheus, read from the counters of the server's parts at the moment of the scrape.
//!
//! Names start with `sheaf_`, except for the names that every process has (`process_`). Units are base units.
//! Labels come from closed sets (such as families and outcomes) or are addresses of replicas; labels never
//! come from keys.

mod exposition;
mod process;

use std::{fmt, sync::Arc, sync::atomic::Ordering::Relaxed};

use access::Reason;
use commands::rows;
use engine::{Family, RowTotals, replication::LinkState};
use lsn::Lsn;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use pubsub::Kind;
use settings::Key;
use storage::{Histogram, LogStats};

pub(crate) use self::exposition::Exposition;
use crate::{
    group::GroupFigures,
    parts::Parts,
    read_only::ReadOnly,
    replication::{ReplicaFigures, figures::Figures},
};

/// All metrics as text, in OpenMetrics.
pub(crate) fn render(parts: &Arc<Parts>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { parts: parts.clone() }));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

struct Scrape {
    parts: Arc<Parts>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        process::encode(&mut encoder, &self.parts.startup)?;
        self.encode_server(&mut encoder)?;
        self.encode_traffic(&mut encoder)?;
        self.encode_commands(&mut encoder)?;
        if let Some(log) = self.parts.log.get() {
            encode_log(&mut encoder, log)?;
        }
        if let Some(figures) = self.parts.group.figures() {
            encode_group(&mut encoder, &figures)?;
        }
        encode_replication(&mut encoder, &self.parts.node.figures())
    }
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = ConstCounter::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = ConstGauge::new(value as i64);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// Encodes a histogram. Multiplying its observations by `unit` gives base units.
fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    histogram: &Histogram,
    unit: f64,
) -> fmt::Result {
    let mut below = 0;
    let buckets: Vec<(f64, u64)> = histogram
        .cumulative()
        .map(|(bound, total)| {
            let own = total - below;
            below = total;
            (bound.map_or(f64::INFINITY, |bound| bound as f64 * unit), own)
        })
        .collect();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(histogram.sum() as f64 * unit, below, &buckets, None)
}

impl Scrape {
    fn encode_server(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let parts = &*self.parts;
        let totals = parts.data.stats.keyspace_totals();
        let keys: u64 = parts.inventory.committed_figures().keys.iter().map(|(_, keys, _)| keys).sum();
        let uptime_ms = parts.clock.unix_ms().saturating_sub(parts.startup.started_unix_ms);
        counter(
            encoder,
            "sheaf_ack_timeouts",
            "replies that were errors because too few replicas had acknowledged within ack-timeout",
            parts.node.ack_timeouts(),
        )?;
        gauge(encoder, "sheaf_clients", "connections", parts.clients.count() as u64)?;
        gauge(
            encoder,
            "sheaf_clients_blocked",
            "clients that wait in a blocking command",
            parts.clients.blocked() as u64,
        )?;
        let help = "connections that are possible (maxclients, or what the limit of open files allows)";
        gauge(encoder, "sheaf_clients_max", help, parts.config.hot().clients_max())?;
        counter(
            encoder,
            "sheaf_long_units",
            "scripts and commands that took long and ran on a thread of their own",
            parts.long_units.begun(),
        )?;
        counter(
            encoder,
            "sheaf_connections_accepted",
            "connections served since the start",
            parts.clients.accepted(),
        )?;
        counter(
            encoder,
            "sheaf_connections_rejected",
            "connections refused",
            parts.access.rejected_connections.load(Relaxed),
        )?;
        self.encode_denials(encoder)?;
        counter(encoder, "sheaf_evicted_keys", "keys evicted to make room", totals.evicted_keys)?;
        counter(encoder, "sheaf_expired_keys", "keys removed after their expiry", totals.expired_keys)?;
        gauge(encoder, "sheaf_keys", "keys in all databases", keys)?;
        counter(
            encoder,
            "sheaf_keyspace_events",
            "keyspace events published (notify-keyspace-events)",
            parts.counters.key_events.load(Relaxed),
        )?;
        counter(encoder, "sheaf_keyspace_hits", "reads of keys that exist", totals.keyspace_hits)?;
        counter(encoder, "sheaf_keyspace_misses", "reads of keys that do not exist", totals.keyspace_misses)?;
        self.encode_channels(encoder)?;
        gauge(
            encoder,
            "sheaf_loading",
            "1 while the log is being recovered",
            u64::from(parts.progress.loading().is_some()),
        )?;
        gauge(
            encoder,
            "sheaf_memory_data_bytes",
            "memory of keys, values and tables",
            parts.data.keyspace.bytes(),
        )?;
        gauge(
            encoder,
            "sheaf_memory_max_bytes",
            "maxmemory, the limit of keys, values and tables; 0: none",
            parts.config.current().integer(Key::Maxmemory),
        )?;
        gauge(
            encoder,
            "sheaf_memory_resident_bytes",
            "resident memory of the process",
            env::process::rss_bytes(),
        )?;
        self.encode_encryption(encoder)?;
        self.encode_read_only(encoder)?;
        self.encode_scrubber(encoder)?;
        self.encode_snapshots(encoder)?;
        self.encode_documents(encoder)?;
        gauge(encoder, "sheaf_uptime_seconds", "seconds since the start", uptime_ms / 1000)
    }

    /// Encodes bytes of the Redis protocol, connections and responses of HTTP, and spans of traces.
    fn encode_traffic(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (received, sent) = self.parts.clients.traffic_bytes();
        let help = "bytes received from clients of the Redis protocol";
        counter(encoder, "sheaf_network_received_bytes", help, received)?;
        let help = "bytes sent to clients of the Redis protocol";
        counter(encoder, "sheaf_network_sent_bytes", help, sent)?;
        let traffic = &self.parts.traffic;
        gauge(encoder, "sheaf_http_connections", "connections of HTTP", traffic.connections())?;
        let traces = self.parts.traces.figures();
        let help = "spans of traces that the collector has taken";
        counter(encoder, "sheaf_trace_spans_sent", help, traces.sent)?;
        let help = "spans of traces that were dropped: the collector is away, too slow, or has refused them";
        counter(encoder, "sheaf_trace_spans_dropped", help, traces.dropped)?;
        let (name, help) = ("sheaf_http_responses", "responses of HTTP by class of status");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (class, count) in traffic.responses() {
            ConstCounter::new(count).encode(metric.encode_family(&[("status", class)])?)?;
        }
        Ok(())
    }

    /// The figures of TLS; none without a door for TLS.
    fn encode_encryption(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(encryption) = &self.parts.encryption else { return Ok(()) };
        let figures = &encryption.figures;
        let help = "unix time at which the certificate of the server expires";
        let end = encryption.expires_unix_s().unwrap_or(0).max(0) as u64;
        gauge(encoder, "sheaf_tls_certificate_expires_timestamp_seconds", help, end)?;
        let help = "times that changed certificates were put in force";
        counter(encoder, "sheaf_tls_certificate_reloads", help, figures.reloads.load(Relaxed))?;
        let help = "handshakes of TLS that succeeded";
        counter(encoder, "sheaf_tls_handshakes", help, figures.handshakes.load(Relaxed))?;
        let help = "handshakes of TLS that failed or took too long";
        counter(encoder, "sheaf_tls_handshakes_failed", help, figures.failed.load(Relaxed))?;
        let help = "handshakes of TLS that go on";
        gauge(encoder, "sheaf_tls_handshakes_unfinished", help, figures.unfinished.load(Relaxed))
    }

    fn encode_channels(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let parts = &*self.parts;
        for (name, help, kind) in [
            ("sheaf_pubsub_channels", "channels with subscribers by name", Kind::Channel),
            ("sheaf_pubsub_patterns", "patterns with subscribers", Kind::Pattern),
            ("sheaf_pubsub_shard_channels", "shard channels with subscribers", Kind::Shard),
        ] {
            gauge(encoder, name, help, parts.data.hub.topics(kind) as u64)?;
        }
        let (figures, floor) = (&parts.durable_channels.figures, parts.durable_channels.retention.floor());
        for (name, help, value) in [
            ("sheaf_durable_channels_followers", "clients that read durable channels", &figures.readers),
            ("sheaf_durable_channels_behind", "those of them that have not caught up", &figures.behind),
        ] {
            gauge(encoder, name, help, value.load(Relaxed))?;
        }
        let handed = figures.messages.load(Relaxed);
        counter(encoder, "sheaf_durable_channels_messages", "messages from the log sent to clients", handed)?;
        let end = parts.log.get().map_or(Lsn::ZERO, storage::Log::durable_lsn);
        let kept = end.get().saturating_sub(floor.unwrap_or(end).get());
        gauge(encoder, "sheaf_durable_channels_log_bytes", "log kept for durable channels", kept)?;
        counter(
            encoder,
            "sheaf_slow_clients_disconnected",
            "clients that left too much unsent",
            parts.counters.slow_clients_cut.load(Relaxed),
        )?;
        let help =
            "clients that did not log in in time, and logins that were refused because too many waited";
        counter(encoder, "sheaf_login_timeouts", help, parts.login_timeouts())
    }

    fn encode_read_only(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = ("sheaf_read_only", "1 while no writes are taken for this reason");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let holds = self.parts.read_only();
        for reason in ReadOnly::ALL {
            let gauge = ConstGauge::new(i64::from(holds == Some(reason)));
            gauge.encode(metric.encode_family(&[("reason", reason.name())])?)?;
        }
        Ok(())
    }

    fn encode_scrubber(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (scrubber, figures) = (&self.parts.scrubber, self.parts.scrubber.figures());
        counter(encoder, "sheaf_scrub_bytes", "bytes of log and snapshots read again", scrubber.bytes())?;
        counter(encoder, "sheaf_scrub_damaged_files", "files found damaged", figures.damaged_files)?;
        gauge(
            encoder,
            "sheaf_scrub_last_round_timestamp_seconds",
            "when the last round over log and snapshots ended, 0 before the first",
            figures.last_round_unix_ms / 1000,
        )?;
        counter(encoder, "sheaf_scrub_rounds", "rounds over log and snapshots", figures.rounds)
    }

    fn encode_snapshots(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (snapshots, now_ms) = (&self.parts.snapshots, self.parts.clock.unix_ms());
        let figures = snapshots.figures();
        let age_s = now_ms.saturating_sub(figures.last_unix_ms) / 1000;
        gauge(
            encoder,
            "sheaf_snapshot_age_seconds",
            "age of the newest snapshot, or uptime without one",
            age_s,
        )?;
        gauge(encoder, "sheaf_snapshot_bytes", "size of the newest snapshot", figures.last_file_bytes)?;
        let running = u64::from(figures.in_progress);
        gauge(encoder, "sheaf_snapshot_in_progress", "1 while a snapshot is taken", running)?;
        counter(encoder, "sheaf_snapshot_failures", "snapshots that failed", figures.failures)?;
        counter(encoder, "sheaf_snapshots", "snapshots taken", figures.taken)?;
        gauge(
            encoder,
            "sheaf_snapshot_copied_bytes",
            "bytes that the last snapshot copied because they were about to change",
            snapshots.copied_bytes(),
        )?;
        let written = snapshots.written_bytes();
        counter(encoder, "sheaf_snapshot_written_bytes", "bytes written to snapshots", written)
    }

    fn encode_documents(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(documents) = self.parts.documents.get() else { return Ok(()) };
        let (documents, saver) = (&documents, &self.parts.saver);
        let (databases, unsaved) = (documents.all().len() as u64, documents.dirty_bytes());
        gauge(encoder, "sheaf_document_databases", "document databases", databases)?;
        let help = "bytes of documents that are in memory and in the log, and not in their files yet, about";
        gauge(encoder, "sheaf_document_unsaved_bytes", help, unsaved)?;
        counter(
            encoder,
            "sheaf_document_save_failures",
            "failed attempts to save documents",
            saver.failures(),
        )?;
        let Some(written) = documents.written() else { return Ok(()) };
        let help = "writes to files of documents, compaction included";
        counter(encoder, "sheaf_document_tree_writes", help, written.writes())?;
        let help = "bytes written to files of documents, compaction included";
        counter(encoder, "sheaf_document_tree_bytes", help, written.bytes())
    }

    /// The denials that ACL LOG and INFO show.
    fn encode_denials(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "calls that users had no right to, by what was denied, and failed logins (auth)";
        let mut metric = encoder.encode_descriptor("sheaf_denied", help, None, MetricType::Counter)?;
        for reason in Reason::ALL {
            let value = self.parts.config.users().counts.get(reason);
            ConstCounter::new(value).encode(metric.encode_family(&[("reason", reason.name())])?)?;
        }
        Ok(())
    }

    fn encode_commands(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let stats = &self.parts.data.stats;
        let name = "sheaf_commands";
        let mut metric =
            encoder.encode_descriptor(name, "commands by family and outcome", None, MetricType::Counter)?;
        for family in Family::ALL {
            let (mut ok, mut failed, mut rejected) = (0, 0, 0);
            for (index, _) in rows().iter().enumerate().filter(|(_, row)| row.family == family) {
                let RowTotals { calls, failed: errors, rejected: refusals, .. } = stats.totals(index);
                ok += calls - errors;
                failed += errors;
                rejected += refusals;
            }
            for (outcome, value) in [("ok", ok), ("failed", failed), ("rejected", rejected)] {
                let labels = [("family", family.name()), ("outcome", outcome)];
                ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        self.encode_durations(encoder)
    }

    /// The durations that LATENCY HISTOGRAM shows, by family.
    fn encode_durations(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let stats = &self.parts.data.stats;
        let help =
            "time to execute commands, by family: of a sample of the calls, without the wait for the disk";
        let name = "sheaf_command_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for family in Family::ALL {
            let (mut usec, mut count, mut buckets) = (0, 0, Vec::new());
            for (index, _) in rows().iter().enumerate().filter(|(_, row)| row.family == family) {
                let histogram = stats.histogram(index);
                usec += stats.totals(index).usec;
                count += histogram.count();
                buckets.resize(histogram.buckets().count(), (f64::INFINITY, 0));
                for (bucket, (bound_us, calls)) in buckets.iter_mut().zip(histogram.buckets()) {
                    *bucket = (bound_us as f64 / 1e6, bucket.1 + calls);
                }
            }
            // Longer durations are in the last bucket.
            if let Some((bound, _)) = buckets.last_mut() {
                *bound = f64::INFINITY;
            }
            let labels = [("family", family.name())];
            let mut of_family = metric.encode_family(&labels)?;
            of_family.encode_histogram::<NoLabelSet>(usec as f64 / 1e6, count, &buckets, None)?;
        }
        Ok(())
    }
}

fn encode_group(encoder: &mut DescriptorEncoder<'_>, figures: &GroupFigures) -> fmt::Result {
    gauge(encoder, "sheaf_group_term", "term of this member", figures.term)?;
    gauge(encoder, "sheaf_group_leader", "1 while this server leads its group", figures.leads.into())?;
    let help = "1 while this member knows a leader";
    gauge(encoder, "sheaf_group_leader_known", help, figures.knows_leader.into())?;
    gauge(encoder, "sheaf_group_members", "members of the group", figures.members as u64)?;
    gauge(encoder, "sheaf_group_voters", "members whose votes count", figures.voters as u64)?;
    let help = "elections that this server has won since it last started or restarted within the process";
    counter(encoder, "sheaf_group_elections_won", help, figures.elections_won)?;
    let help = "messages and connections between members that were refused since then: damaged, of another group, of another version";
    counter(encoder, "sheaf_group_messages_refused", help, figures.refused)?;
    let help = "messages of members in an earlier term since then";
    counter(encoder, "sheaf_group_messages_outdated", help, figures.outdated)?;
    let seconds = ConstCounter::new(figures.leaderless_us as f64 / 1e6);
    let (name, help) =
        ("sheaf_group_leaderless_seconds", "time in which this member has known no leader since then");
    seconds.encode(encoder.encode_descriptor(name, help, None, seconds.metric_type())?)?;
    histogram(
        encoder,
        "sheaf_group_quorum_seconds",
        "time from a batch being on this leader's disk to a majority having it",
        figures.votes.quorum_us(),
        1e-6,
    )
}

fn encode_replication(encoder: &mut DescriptorEncoder<'_>, figures: &Figures) -> fmt::Result {
    let help = "1 while INFO and ROLE name this server a master";
    gauge(encoder, "sheaf_replication_leader", help, figures.is_leader.into())?;
    gauge(encoder, "sheaf_replication_epoch", "epoch of the log", figures.epoch.into())?;
    let replicas = &figures.replicas;
    gauge(encoder, "sheaf_replication_replicas", "replicas that are connected", replicas.len() as u64)?;
    let help = "replicas that are connected and are Redis or Valkey servers, and tools that speak like one";
    gauge(encoder, "sheaf_replication_redis_replicas", help, figures.redis_replicas as u64)?;
    for (name, help, value) in [
        (
            "sheaf_replication_replica_lag_bytes",
            "log that a replica has not applied",
            (|end, replica| replica.acked.lag_bytes(end)) as fn(Lsn, &ReplicaFigures) -> u64,
        ),
        (
            "sheaf_replication_replica_flushed_lsn",
            "position up to which a replica's log is on disk",
            |_, replica| replica.acked.flushed.get(),
        ),
    ] {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for replica in replicas {
            let gauge = ConstGauge::new(value(figures.end, replica) as i64);
            gauge.encode(metric.encode_family(&[("replica", replica.address.to_string())])?)?;
        }
    }
    let Some(leader) = &figures.leader else { return Ok(()) };
    let is_up = u64::from(leader.link == LinkState::Connected);
    gauge(encoder, "sheaf_replication_link_up", "1 while the leader is followed", is_up)?;
    gauge(
        encoder,
        "sheaf_replication_applied_lsn",
        "position up to which data is shown",
        leader.applied.get(),
    )?;
    for (name, help, lag) in [
        (
            "sheaf_replication_lag_bytes",
            "committed log that is not applied",
            leader.lag_bytes.map(|bytes| bytes as f64),
        ),
        (
            "sheaf_replication_lag_seconds",
            "age of the shown data at most",
            leader.lag_ms.map(|lag_ms| lag_ms as f64 / 1000.0),
        ),
    ] {
        // 0 would be wrong here, because 0 is the lag of a replica that has everything.
        let lag = ConstGauge::new(lag.unwrap_or(f64::NAN));
        lag.encode(encoder.encode_descriptor(name, help, None, lag.metric_type())?)?;
    }
    Ok(())
}

fn encode_log(encoder: &mut DescriptorEncoder<'_>, log: &storage::Log) -> fmt::Result {
    let stats: &LogStats = log.stats();
    let (appended, durable) = (log.appended_lsn(), log.durable_lsn());
    gauge(encoder, "sheaf_log_appended_lsn", "position after the last record", appended.get())?;
    histogram(
        encoder,
        "sheaf_log_batch_records",
        "records merged into one batch",
        &stats.batch_records,
        1.0,
    )?;
    counter(encoder, "sheaf_log_batches", "batches written", stats.batches.load(Relaxed))?;
    counter(encoder, "sheaf_log_bytes", "bytes written, padding included", stats.bytes.load(Relaxed))?;
    gauge(encoder, "sheaf_log_durable_lsn", "position that survives a power cut", durable.get())?;
    histogram(
        encoder,
        "sheaf_log_flush_seconds",
        "time to write a batch and make it durable",
        &stats.flush_us,
        1e-6,
    )?;
    gauge(
        encoder,
        "sheaf_log_parked_bytes",
        "bytes of records whose replies wait for the disk",
        appended.get().saturating_sub(durable.get()),
    )?;
    counter(encoder, "sheaf_log_records", "records written", stats.records.load(Relaxed))?;
    counter(encoder, "sheaf_log_segments_created", "segments created", stats.segments_created.load(Relaxed))?;
    counter(
        encoder,
        "sheaf_log_segments_recycled",
        "segments recycled",
        stats.segments_recycled.load(Relaxed),
    )?;
    counter(encoder, "sheaf_log_syncs", "times the log was made durable", stats.syncs.load(Relaxed))
}
