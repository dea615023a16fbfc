//! INFO: the fields that existing tools parse, and a section specific to Sheaf.

use std::{fmt::Write, path::Path, sync::atomic::Ordering::Relaxed};

use access::Reason;
use commands::{REDIS_VERSION, rows};
use engine::{clients::Paused, replication::LinkState};
use keyspace::Keyspace;
use lsn::Lsn;
use pubsub::Kind;
use settings::Key;

use crate::{inventory::Figures, parts::Parts, read_only::ReadOnly, supervisor};

type Section = fn(&Parts, &Figures, &mut String);

/// (name, title, shown by default, renderer), in the order of Redis.
const SECTIONS: [(&str, &str, bool, Section); 13] = [
    ("server", "Server", true, server),
    ("clients", "Clients", true, clients),
    ("memory", "Memory", true, memory),
    ("persistence", "Persistence", true, persistence),
    ("stats", "Stats", true, stats),
    ("replication", "Replication", true, replication),
    ("cpu", "CPU", true, cpu),
    ("commandstats", "Commandstats", false, commandstats),
    ("log", "Log", true, log),
    ("errorstats", "Errorstats", true, errorstats),
    ("latencystats", "Latencystats", false, latencystats),
    ("cluster", "Cluster", true, cluster),
    ("keyspace", "Keyspace", true, keyspace),
];

/// Returns the text of the given lower-case sections, or of the default sections if none is given. Also
/// returns the position that must be committed before the text is shown.
pub(crate) fn render(parts: &Parts, wanted: &[String]) -> (String, Lsn) {
    let named = |name: &str| wanted.iter().any(|it| it == name);
    let everything = named("all") || named("everything");
    let defaults = wanted.is_empty() || named("default");
    let mut out = String::new();
    let (mut figures, mut seen) = (Figures::default(), Lsn::ZERO);
    let is_wanted = |name, by_default| everything || named(name) || (defaults && by_default);
    if is_wanted("memory", true) || is_wanted("keyspace", true) {
        (figures, seen) = parts.inventory.figures();
    }
    for (name, title, by_default, section) in SECTIONS {
        if is_wanted(name, by_default) {
            if !out.is_empty() {
                out += "\r\n";
            }
            out += &format!("# {title}\r\n");
            section(parts, &figures, &mut out);
        }
    }
    (out, seen)
}

/// Appends `name:value` lines. Writing to a string cannot fail.
macro_rules! fields {
    ($out:ident, $($name:literal: $value:expr,)*) => {
        $(let _ = write!($out, concat!($name, ":{}\r\n"), $value);)*
    };
}

fn server(parts: &Parts, _: &Figures, out: &mut String) {
    let uptime_s = parts.clock.unix_ms().saturating_sub(parts.startup.started_unix_ms) / 1000;
    let executable = std::env::current_exe().unwrap_or_default();
    let config_file = parts.config.file().unwrap_or(Path::new(""));
    let settings = parts.config.current();
    let hz = settings.inert().find(|(name, _)| *name == "hz").map_or("10", |(_, value)| value);
    fields!(out,
        "redis_version": REDIS_VERSION,
        "redis_git_sha1": if parts.startup.commit.is_empty() { "00000000" } else { parts.startup.commit },
        "redis_git_dirty": 0,
        "redis_build_id": if parts.startup.commit.is_empty() { "0" } else { parts.startup.commit },
        "redis_mode": if parts.config.hot().emulates_cluster() { "cluster" } else { "standalone" },
        "sheaf_version": env!("CARGO_PKG_VERSION"),
        "os": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "arch_bits": usize::BITS,
        "monotonic_clock": "POSIX clock_gettime",
        "multiplexing_api": "epoll",
        "process_id": std::process::id(),
        "process_supervised": if supervisor::is_there() { "systemd" } else { "no" },
        "run_id": parts.startup.run_id,
        "tcp_port": parts.startup.redis_port.get().copied().unwrap_or(0),
        "server_time_usec": parts.clock.unix_ms() * 1000,
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s / 86_400,
        // These fields have the value that CONFIG GET shows; nothing here runs at this rate.
        "hz": hz,
        "configured_hz": hz,
        "executable": executable.display(),
        "config_file": config_file.display(),
        "io_threads_active": u8::from(parts.startup.workers > 1),
        "workers": parts.startup.workers,
    );
    let listeners = parts.startup.listeners.iter().filter(|(_, addresses)| !addresses.is_empty());
    if let Some(path) = &parts.startup.unix_socket {
        let _ = write!(out, "listener{}:name=unix,bind={path}\r\n", listeners.clone().count());
    }
    for (index, (name, addresses)) in listeners.enumerate() {
        let bind: String = addresses.iter().map(|address| format!("bind={},", address.ip())).collect();
        let _ = write!(out, "listener{index}:name={name},{bind}port={}\r\n", addresses[0].port());
    }
}

fn clients(parts: &Parts, _: &Figures, out: &mut String) {
    let pause = parts.clients.pause().at(&*parts.clock);
    fields!(out,
        "connected_clients": parts.clients.count(),
        "cluster_connections": 0,
        "maxclients": parts.config.hot().clients_max(),
        "blocked_clients": parts.clients.blocked(),
        "total_blocking_keys": parts.data.interests.awaited_keys(),
        "total_blocking_keys_on_nokey": parts.data.interests.keys_awaited_for_removal(),
        "watching_clients": parts.clients.watching(),
        "total_watched_keys": parts.data.interests.watched_keys(),
        "paused_reason": if pause.is_some() { "client_command" } else { "none" },
        "paused_actions": match pause.map(|pause| pause.paused) {
            None => "none",
            Some(Paused::Writes) => "write",
            Some(Paused::All) => "all",
        },
        "paused_timeout_milliseconds": pause.map_or(0, |pause| pause.left_ms),
        "pubsub_clients": parts.clients.subscribed(),
        "tracking_clients": parts.data.interests.tracking().totals().clients,
    );
}

fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..1_048_576 => format!("{:.2}K", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2}M", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2}G", bytes as f64 / 1_073_741_824.0),
    }
}

fn memory(parts: &Parts, figures: &Figures, out: &mut String) {
    let settings = parts.config.current();
    let dataset = parts.data.keyspace.bytes();
    let (used, rss) = (dataset + Keyspace::FIXED_BYTES, env::process::rss_bytes());
    let (peak, total) = (env::process::peak_rss_bytes(), env::process::memory_total_bytes());
    let limit = settings.integer(Key::Maxmemory);
    let (vm, (scripts, script_bytes)) = (parts.data.stats.vm_bytes(), parts.scripts.figures());
    let clients = parts.clients.memory_bytes();
    // On a server with little data, most of the memory is the program, its threads and buffers. That part
    // must not count as fragmentation.
    let beside_data = parts.startup.beside_data_bytes.get().copied().unwrap_or(rss);
    let accounted = beside_data + dataset + clients + vm;
    fields!(out,
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": rss,
        "used_memory_rss_human": human(rss),
        "used_memory_peak": peak,
        "used_memory_peak_human": human(peak),
        "used_memory_peak_perc": percent(used, peak),
        "used_memory_overhead": Keyspace::FIXED_BYTES,
        "used_memory_startup": Keyspace::FIXED_BYTES,
        "used_memory_dataset": dataset,
        "used_memory_dataset_perc": percent(dataset, used - Keyspace::FIXED_BYTES),
        "total_system_memory": total,
        "total_system_memory_human": human(total),
        "used_memory_lua": vm,
        "used_memory_vm_eval": vm,
        "used_memory_lua_human": human(vm),
        "used_memory_scripts_eval": script_bytes,
        "number_of_cached_scripts": scripts,
        "used_memory_vm_total": vm,
        "used_memory_vm_total_human": human(vm),
        "used_memory_scripts": script_bytes,
        "used_memory_scripts_human": human(script_bytes),
        "maxmemory": limit,
        "maxmemory_human": human(limit),
        "maxmemory_policy": settings.text(Key::MaxmemoryPolicy),
        "number_of_functions": figures.functions,
        "number_of_libraries": figures.libraries,
        "mem_cluster_links": 0,
        "mem_clients_normal": clients,
        "mem_fragmentation_ratio": format!("{:.2}", rss as f64 / accounted.max(1) as f64),
        "mem_fragmentation_bytes": rss as i64 - accounted as i64,
        "mem_allocator": "mimalloc",
        "active_defrag_running": 0,
        "lazyfree_pending_objects": parts.freed.pending.load(Relaxed),
        "lazyfreed_objects": parts.freed.freed.load(Relaxed),
    );
}

/// A percentage as Redis shows it.
fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    format!("{:.2}%", share * 100.0)
}

fn persistence(parts: &Parts, _: &Figures, out: &mut String) {
    let loading = parts.progress.loading();
    let (done, total) = parts.progress.bytes();
    let (snapshots, scrubber) = (parts.snapshots.figures(), parts.scrubber.figures());
    let running_s =
        snapshots.running_since_ms.map(|since| parts.clock.unix_ms().saturating_sub(since) / 1000);
    let seconds = |seconds: Option<u64>| seconds.map_or(-1, |seconds| seconds as i64);
    let status = if snapshots.last_failed { "err" } else { "ok" };
    let failed = parts.read_only().is_some_and(ReadOnly::is_failed_write);
    fields!(out, "loading": u8::from(loading.is_some()), "async_loading": 0,);
    if let Some(loading) = loading {
        fields!(out,
            "loading_start_time": parts.startup.started_unix_ms / 1000,
            "loading_total_bytes": total,
            "loading_loaded_bytes": done,
            "loading_loaded_perc": format!("{:.2}", loading.percent),
            "loading_eta_seconds": loading.eta_seconds.map_or(-1, |seconds| seconds.ceil() as i64),
        );
    }
    fields!(out,
        "loading_rows": parts.progress.rows(),
        "loading_records": parts.progress.records(),
        "loading_seconds": format!("{:.3}", parts.progress.seconds()),
        "rdb_changes_since_last_save": parts.snapshots.changes(),
        "rdb_bgsave_in_progress": u8::from(snapshots.in_progress),
        "rdb_last_save_time": snapshots.last_unix_ms / 1000,
        "rdb_last_bgsave_status": status,
        "rdb_last_bgsave_time_sec": seconds(snapshots.last_seconds),
        "rdb_current_bgsave_time_sec": seconds(running_s),
        "rdb_saves": snapshots.taken,
        "rdb_last_cow_size": parts.snapshots.copied_bytes(),
        "snapshot_bytes": snapshots.last_file_bytes,
        "snapshot_failures": snapshots.failures,
        "snapshot_written_bytes": parts.snapshots.written_bytes(),
        "scrub_in_progress": u8::from(scrubber.in_progress),
        "scrub_rounds": scrubber.rounds,
        "scrub_last_round_time": scrubber.last_round_unix_ms / 1000,
        "scrub_bytes": parts.scrubber.bytes(),
        "scrub_damaged_files": scrubber.damaged_files,
        "recovery_unconfirmed": u8::from(parts.awaits_confirmation()),
        "aof_enabled": 1,
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_write_status": if failed { "err" } else { "ok" },
        "aof_last_bgrewrite_status": status,
    );
    if let Some(log) = parts.log.get() {
        let kept = log.appended_lsn().bytes_since(log.start_lsn());
        fields!(out, "aof_current_size": kept, "aof_base_size": 0,);
    }
}

fn stats(parts: &Parts, _: &Figures, out: &mut String) {
    let stats = &parts.data.stats;
    let totals = stats.keyspace_totals();
    let tracked = parts.data.interests.tracking().totals();
    let (input, output) = parts.clients.traffic_bytes();
    let (rates, joins) = (parts.rates.per_second(), parts.node.joins());
    fields!(out,
        "total_connections_received": parts.clients.accepted(),
        "total_commands_processed": stats.total_calls(),
        "total_net_input_bytes": input,
        "total_net_output_bytes": output,
        "instantaneous_ops_per_sec": rates.calls,
        "instantaneous_input_kbps": format!("{:.2}", rates.input_kib),
        "instantaneous_output_kbps": format!("{:.2}", rates.output_kib),
        "total_error_replies": stats.errors().values().sum::<u64>(),
        "sync_full": joins.copied.load(Relaxed),
        "sync_partial_ok": joins.resumed.load(Relaxed),
        "sync_partial_err": joins.not_resumed.load(Relaxed),
        "acl_access_denied_auth": parts.config.users().counts.get(Reason::Auth),
        "acl_access_denied_cmd": parts.config.users().counts.get(Reason::Command),
        "acl_access_denied_key": parts.config.users().counts.get(Reason::Key),
        "acl_access_denied_channel": parts.config.users().counts.get(Reason::Channel),
        "rejected_connections": parts.access.rejected_connections.load(Relaxed),
        "long_units": parts.long_units.begun(),
        "expired_keys": totals.expired_keys,
        "expired_subkeys": totals.expired_fields,
        "expired_fields": totals.expired_fields,
        "evicted_keys": totals.evicted_keys,
        "evicted_clients": 0,
        "keyspace_hits": totals.keyspace_hits,
        "keyspace_misses": totals.keyspace_misses,
        "pubsub_channels": parts.data.hub.topics(Kind::Channel),
        "pubsub_patterns": parts.data.hub.topics(Kind::Pattern),
        "pubsubshard_channels": parts.data.hub.topics(Kind::Shard),
        // Nothing is forked, moved to another server key by key, or expired by a replica.
        "latest_fork_usec": 0,
        "total_forks": 0,
        "migrate_cached_sockets": 0,
        "slave_expires_tracked_keys": 0,
        "durable_channels_followers": parts.durable_channels.figures.readers.load(Relaxed),
        "durable_channels_behind": parts.durable_channels.figures.behind.load(Relaxed),
        "durable_channels_messages": parts.durable_channels.figures.messages.load(Relaxed),
        "client_output_buffer_limit_disconnections": parts.counters.slow_clients_cut.load(Relaxed),
        "login_timeouts": parts.login_timeouts(),
        "tracking_total_keys": tracked.keys,
        "tracking_total_items": tracked.items,
        "tracking_total_prefixes": tracked.prefixes,
    );
    if let Some(encryption) = &parts.encryption {
        let figures = &encryption.figures;
        let now_unix_s = (parts.clock.unix_ms() / 1000) as i64;
        fields!(out,
            "tls_handshakes": figures.handshakes.load(Relaxed),
            "tls_handshakes_failed": figures.failed.load(Relaxed),
            "tls_handshakes_unfinished": figures.unfinished.load(Relaxed),
            "tls_cert_reloads": figures.reloads.load(Relaxed),
            "tls_cert_expires_in_seconds": encryption.expires_unix_s().map_or(0, |end| end - now_unix_s),
        );
    }
}

fn replication(parts: &Parts, _: &Figures, out: &mut String) {
    let figures = parts.node.figures();
    let role = if figures.is_leader { "master" } else { "slave" };
    fields!(out, "role": role,);
    if let Some(group) = parts.group.figures() {
        fields!(out,
            "group_name": group.name,
            "group_term": group.term,
            "group_leader_known": u8::from(group.knows_leader),
            "group_members": group.members,
            "group_voters": group.voters,
            "group_elections_won": group.elections_won,
            "group_messages_refused": group.refused,
        );
    }
    if let Some(leader) = &figures.leader {
        fields!(out,
            "master_host": leader.address.host,
            "master_port": leader.address.port,
            "master_link_status": if leader.link == LinkState::Connected { "up" } else { "down" },
            "master_last_io_seconds_ago": if leader.link == LinkState::Connected { leader.silent_seconds as i64 } else { -1 },
            "master_sync_in_progress": u8::from(leader.link == LinkState::Copying),
            "slave_read_repl_offset": figures.end,
            "slave_repl_offset": leader.applied,
            "slave_committed_offset": leader.committed,
        );
        if leader.link == LinkState::Copying {
            let (done, total) = leader.copied;
            fields!(out,
                "master_sync_total_bytes": total,
                "master_sync_read_bytes": done,
                "master_sync_left_bytes": total.saturating_sub(done),
                "master_sync_perc": format!("{:.2}", 100.0 * done as f64 / total.max(1) as f64),
            );
        }
        if let Some(seconds) = leader.down_seconds {
            fields!(out, "master_link_down_since_seconds": seconds,);
        }
        if let Some(lag_ms) = leader.lag_ms {
            fields!(out, "slave_lag_seconds": format!("{:.3}", lag_ms as f64 / 1000.0),);
        }
        fields!(out, "slave_priority": 100, "slave_read_only": 1, "replica_announced": 1,);
    }
    if figures.leader.is_none() && role == "slave" {
        // This is a member of a group that knows no leader, or a server that is about to lead. Tools read
        // these fields of every replica.
        fields!(out, "master_host": "", "master_port": 0, "master_link_status": "down",);
    }
    let redis = parts.node.redis.all();
    fields!(out, "connected_slaves": figures.replicas.len() + redis.len(),);
    if let Some(good) = figures.good_replicas {
        fields!(out, "min_slaves_good_slaves": good,);
    }
    for (index, replica) in figures.replicas.iter().enumerate() {
        let (address, acked) = (&replica.address, &replica.acked);
        let lag = acked.silent_ms(figures.now_ms) / 1000;
        let _ = write!(
            out,
            "slave{index}:ip={},port={},state=online,offset={},lag={lag},applied={}\r\n",
            address.host, address.port, acked.flushed, acked.applied,
        );
    }
    for (index, replica) in redis.iter().enumerate() {
        let index = figures.replicas.len() + index;
        let lag = figures.now_ms.saturating_sub(replica.heard_ms.load(Relaxed)) / 1000;
        let _ = write!(
            out,
            "slave{index}:ip={},port={},state={},offset={},lag={lag},kind=redis\r\n",
            replica.address.host,
            replica.address.port,
            replica.state(),
            replica.acks.lock().lsn(),
        );
    }
    fields!(out,
        // Empty: writes are acknowledged.
        "read_only_reason": parts.read_only().map_or("", ReadOnly::name),
        "master_failover_state": figures.failover_state,
        // Tools expect 40 digits.
        "master_replid": format!("{:0<40}", figures.log_id),
        "master_replid2": "0".repeat(40),
        "master_repl_offset": figures.end,
        "second_repl_offset": -1,
        "repl_backlog_active": 1,
        "repl_backlog_size": figures.end.bytes_since(figures.start.min(figures.end)),
        "repl_backlog_first_byte_offset": figures.start,
        "repl_backlog_histlen": figures.end.bytes_since(figures.start.min(figures.end)),
        "replication_epoch": figures.epoch,
        "replication_fenced_by_epoch": figures.fenced_by,
    );
}

fn cpu(_: &Parts, _: &Figures, out: &mut String) {
    let time = env::process::cpu_time();
    fields!(out,
        "used_cpu_sys": format!("{:.6}", time.system_us as f64 / 1e6),
        "used_cpu_user": format!("{:.6}", time.user_us as f64 / 1e6),
        // There are no child processes.
        "used_cpu_sys_children": "0.000000",
        "used_cpu_user_children": "0.000000",
    );
}

fn commandstats(parts: &Parts, _: &Figures, out: &mut String) {
    for (index, row) in rows().iter().enumerate() {
        let totals = parts.data.stats.totals(index);
        if totals.calls + totals.rejected > 0 {
            let each = totals.usec as f64 / totals.calls.max(1) as f64;
            let _ = write!(
                out,
                "cmdstat_{}:calls={},usec={},usec_per_call={each:.2},rejected_calls={},failed_calls={}\r\n",
                row.name, totals.calls, totals.usec, totals.rejected, totals.failed,
            );
        }
    }
}

fn log(parts: &Parts, _: &Figures, out: &mut String) {
    let Some(log) = parts.log.get() else { return };
    let stats = log.stats();
    let syncs = stats.syncs.load(Relaxed);
    fields!(out,
        "log_durability": log.durability().name(),
        "log_epoch": log.epoch(),
        "log_reign": log.reign(),
        "log_start_lsn": log.start_lsn(),
        "log_appended_lsn": log.appended_lsn(),
        "log_written_lsn": log.written_lsn(),
        "log_durable_lsn": log.durable_lsn(),
        "log_channels_floor_lsn": parts.durable_channels.retention.floor().unwrap_or(log.durable_lsn()),
        "log_records": stats.records.load(Relaxed),
        "log_batches": stats.batches.load(Relaxed),
        "log_syncs": syncs,
        "log_records_per_sync": format!("{:.2}", stats.records.load(Relaxed) as f64 / syncs.max(1) as f64),
    );
}

fn errorstats(parts: &Parts, _: &Figures, out: &mut String) {
    for (code, count) in parts.data.stats.errors() {
        let _ = write!(out, "errorstat_{code}:count={count}\r\n");
    }
}

/// Shows the percentiles of Redis; each value is the upper bound of a bucket of LATENCY HISTOGRAM.
fn latencystats(parts: &Parts, _: &Figures, out: &mut String) {
    for (index, row) in rows().iter().enumerate() {
        let histogram = parts.data.stats.histogram(index);
        if histogram.count() > 0 {
            let [p50, p99, p99_9] = [50.0, 99.0, 99.9].map(|percent| histogram.percentile_us(percent));
            let _ = write!(
                out,
                "latency_percentiles_usec_{}:p50={p50}.000,p99={p99}.000,p99.9={p99_9}.000\r\n",
                row.name
            );
        }
    }
}

fn cluster(parts: &Parts, _: &Figures, out: &mut String) {
    fields!(out, "cluster_enabled": u8::from(parts.config.hot().emulates_cluster()),);
}

fn keyspace(_: &Parts, figures: &Figures, out: &mut String) {
    for (db, keys, expires) in &figures.keys {
        let _ = write!(out, "db{}:keys={keys},expires={expires},avg_ttl=0\r\n", db.get());
    }
}
