//! Settings of Redis and Valkey that have no meaning here.
//!
//! Tools read and set these settings. CONFIG SET, and files and flags of Redis, give values to them, which
//! are forgotten when the server stops. No file of TOML and no variable sets them. For some of them,
//! [`instead_of`](super::instead_of) has advice.
//!
//! Invariants
//! - No name here is the name of a setting or a further name ([`ALIASES`](super::ALIASES)).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::bytes::parse_bytes;

/// One setting without a meaning.
#[derive(Debug)]
pub struct InertSetting {
    /// The present name of the setting in Redis or Valkey.
    pub name: &'static str,
    /// Another name, mostly an older one; empty for none.
    pub alias: &'static str,
    kind: InertKind,
    /// The default value, as CONFIG GET shows it.
    pub default: &'static str,
    /// Whether CONFIG SET may change the setting.
    pub mutable: bool,
}

#[derive(Debug, Clone, Copy)]
enum InertKind {
    /// `yes` or `no`, in any case.
    Switch,
    /// A number in a range.
    Integer(i64, i64),
    /// A number that is brought into the range.
    Clamped(i64, i64),
    /// Bytes in a range, with units.
    Memory(i64, i64),
    /// Bytes with units, or a percentage (`5%`).
    MemoryOrPercent,
    /// One of these words is the value.
    Choice(&'static [&'static str]),
    /// The value is a list of some of these words.
    Words(&'static [&'static str]),
    /// One line of text, which is kept unchanged.
    Text,
    /// The name of a file or directory (the field says which), without `/`. Only `dbfilename` may be empty.
    NameOf(&'static str),
    /// Letters, digits and the characters of the first field. The second field is the reason for a refusal.
    Letters(&'static str, &'static str),
    /// Empty, or an address of this version of IP.
    Address(u8),
    /// This many numbers from -2000 to 2000.
    Scores(usize),
    /// Percentages from 0 to 100.
    Percentiles,
    /// The first field is the only accepted value. The second field is the reason for a refusal.
    Only(&'static str, &'static str),
}

use InertKind::{
    Address, Choice, Clamped, Integer, Letters, Memory, MemoryOrPercent, NameOf, Only, Percentiles, Scores,
    Switch, Text, Words,
};

const INT_MAX: i64 = i32::MAX as i64;
const UINT_MAX: i64 = u32::MAX as i64;
const SHUTDOWN_WORDS: InertKind = Words(&["default", "save", "nosave", "now", "force"]);
const PROTECTED: InertKind = Choice(&["no", "yes", "local"]);
const FACILITIES: InertKind =
    Choice(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]);

const fn mutable(name: &'static str, kind: InertKind, default: &'static str) -> InertSetting {
    InertSetting { name, alias: "", kind, default, mutable: true }
}

const fn fixed(name: &'static str, kind: InertKind, default: &'static str) -> InertSetting {
    InertSetting { name, alias: "", kind, default, mutable: false }
}

/// A mutable setting with another name.
const fn renamed(
    name: &'static str,
    alias: &'static str,
    kind: InertKind,
    default: &'static str,
) -> InertSetting {
    InertSetting { name, alias, kind, default, mutable: true }
}

/// All settings without a meaning, by topic.
pub static INERT: &[InertSetting] = &[
    // The process.
    mutable("hz", Clamped(1, 500), "10"),
    mutable("dynamic-hz", Switch, "yes"),
    mutable("activerehashing", Switch, "yes"),
    mutable("active-expire-effort", Integer(1, 10), "1"),
    mutable("crash-log-enabled", Switch, "yes"),
    mutable("crash-memcheck-enabled", Switch, "yes"),
    mutable("oom-score-adj", Choice(&["no", "yes", "relative", "absolute"]), "no"),
    mutable("oom-score-adj-values", Scores(3), "0 200 800"),
    mutable("proc-title-template", Text, "{title} {listen-addr} {server-mode}"),
    mutable("shutdown-timeout", Integer(0, INT_MAX), "10"),
    mutable("shutdown-on-sigint", SHUTDOWN_WORDS, "default"),
    mutable("shutdown-on-sigterm", SHUTDOWN_WORDS, "default"),
    mutable("ignore-warnings", Text, ""),
    mutable("locale-collate", Text, ""),
    mutable("hide-user-data-from-log", Switch, "no"),
    mutable("jemalloc-bg-thread", Switch, "yes"),
    fixed("io-threads", Integer(1, 128), "1"),
    fixed("io-threads-do-reads", Switch, "no"),
    fixed("always-show-logo", Switch, "no"),
    fixed("daemonize", Switch, "no"),
    fixed("supervised", Choice(&["upstart", "systemd", "auto", "no"]), "no"),
    fixed("pidfile", Text, ""),
    fixed("syslog-enabled", Switch, "no"),
    fixed("syslog-ident", Text, "redis"),
    fixed("syslog-facility", FACILITIES, "local0"),
    fixed("set-proc-title", Switch, "yes"),
    fixed("disable-thp", Switch, "yes"),
    InertSetting { alias: "server-cpulist", ..fixed("server_cpulist", Text, "") },
    InertSetting { alias: "bio-cpulist", ..fixed("bio_cpulist", Text, "") },
    InertSetting { alias: "aof-rewrite-cpulist", ..fixed("aof_rewrite_cpulist", Text, "") },
    InertSetting { alias: "bgsave-cpulist", ..fixed("bgsave_cpulist", Text, "") },
    mutable("extended-redis-compatibility", Switch, "no"),
    mutable("log-timestamp-format", Choice(&["legacy", "iso8601", "milliseconds"]), "legacy"),
    mutable("availability-zone", Text, ""),
    fixed("hash-seed", Text, ""),
    fixed("enable-protected-configs", PROTECTED, "no"),
    fixed("enable-module-command", PROTECTED, "no"),
    // Connections.
    mutable("bind-source-addr", Text, ""),
    mutable("max-new-connections-per-cycle", Integer(1, 1000), "10"),
    mutable("max-new-tls-connections-per-cycle", Integer(1, 1000), "1"),
    mutable("maxmemory-clients", MemoryOrPercent, "0"),
    mutable("tcp-keepalive-probes", Integer(0, INT_MAX), "3"),
    mutable("prefetch-batch-max-size", Integer(0, 128), "16"),
    fixed("mptcp", Switch, "no"),
    fixed("rdma-bind", Text, ""),
    fixed("rdma-port", Integer(0, 65535), "0"),
    fixed("rdma-rx-size", Integer(65536, 16_777_216), "1048576"),
    fixed("rdma-completion-vector", Integer(-1, INT_MAX), "-1"),
    fixed("socket-mark-id", Integer(0, UINT_MAX), "0"),
    // Memory.
    mutable("maxmemory-eviction-tenacity", Integer(0, 100), "10"),
    mutable("lfu-log-factor", Integer(0, INT_MAX), "10"),
    mutable("lfu-decay-time", Integer(0, INT_MAX), "1"),
    mutable("lazyfree-lazy-eviction", Switch, "no"),
    mutable("lazyfree-lazy-expire", Switch, "no"),
    mutable("lazyfree-lazy-server-del", Switch, "no"),
    mutable("lazyfree-lazy-user-del", Switch, "no"),
    mutable("lazyfree-lazy-user-flush", Switch, "no"),
    mutable("list-compress-depth", Integer(0, INT_MAX), "0"),
    mutable("stream-node-max-bytes", Memory(0, i64::MAX), "4096"),
    mutable("stream-node-max-entries", Integer(0, i64::MAX), "100"),
    mutable("activedefrag", Switch, "no"),
    mutable("active-defrag-cycle-us", Integer(0, 100_000), "500"),
    mutable("active-defrag-cycle-min", Integer(1, 99), "1"),
    mutable("active-defrag-cycle-max", Integer(1, 99), "25"),
    mutable("active-defrag-threshold-lower", Integer(0, 1000), "10"),
    mutable("active-defrag-threshold-upper", Integer(0, 1000), "100"),
    mutable("active-defrag-max-scan-fields", Integer(1, i64::MAX), "1000"),
    mutable("active-defrag-ignore-bytes", Memory(1, i64::MAX), "104857600"),
    // Files: the log is the persistence.
    mutable("stop-writes-on-bgsave-error", Switch, "yes"),
    mutable("rdbcompression", Switch, "yes"),
    mutable("rdb-del-sync-files", Switch, "no"),
    mutable("rdb-save-incremental-fsync", Switch, "yes"),
    mutable("sanitize-dump-payload", Choice(&["no", "yes", "clients"]), "no"),
    mutable("aof-load-truncated", Switch, "yes"),
    mutable("aof-use-rdb-preamble", Switch, "yes"),
    mutable("aof-timestamp-enabled", Switch, "no"),
    mutable("aof-disable-auto-gc", Switch, "no"),
    mutable("aof-rewrite-incremental-fsync", Switch, "yes"),
    mutable("no-appendfsync-on-rewrite", Switch, "no"),
    mutable("auto-aof-rewrite-percentage", Integer(0, INT_MAX), "100"),
    mutable("auto-aof-rewrite-min-size", Memory(0, i64::MAX), "67108864"),
    mutable("rdb-version-check", Choice(&["strict", "relaxed"]), "strict"),
    fixed("rdbchecksum", Switch, "yes"),
    fixed("dbfilename", NameOf("filename"), "dump.rdb"),
    fixed("appendfilename", NameOf("filename"), "appendonly.aof"),
    fixed("appenddirname", NameOf("dirname"), "appendonlydir"),
    // Diagnosis.
    mutable("latency-tracking", Switch, "yes"),
    mutable("latency-tracking-info-percentiles", Percentiles, "50 99 99.9"),
    mutable("commandlog-request-larger-than", Integer(-1, i64::MAX), "1048576"),
    mutable("commandlog-large-request-max-len", Integer(0, i64::MAX), "128"),
    mutable("commandlog-reply-larger-than", Integer(-1, i64::MAX), "1048576"),
    mutable("commandlog-large-reply-max-len", Integer(0, i64::MAX), "128"),
    // Replicas.
    renamed("replica-read-only", "slave-read-only", Only("yes", "a replica always refuses writes"), "yes"),
    renamed("replica-serve-stale-data", "slave-serve-stale-data", Switch, "yes"),
    renamed("replica-ignore-maxmemory", "slave-ignore-maxmemory", Switch, "yes"),
    renamed("replica-lazy-flush", "slave-lazy-flush", Switch, "no"),
    renamed("replica-priority", "slave-priority", Integer(0, INT_MAX), "100"),
    renamed("replica-announce-ip", "slave-announce-ip", Text, ""),
    renamed("replica-announce-port", "slave-announce-port", Integer(0, 65535), "0"),
    mutable("replica-announced", Switch, "yes"),
    mutable("replica-ignore-disk-write-errors", Switch, "no"),
    mutable("repl-timeout", Integer(1, INT_MAX), "60"),
    mutable("repl-disable-tcp-nodelay", Switch, "no"),
    mutable("repl-diskless-sync", Switch, "yes"),
    mutable("repl-diskless-sync-delay", Integer(0, INT_MAX), "5"),
    mutable("repl-diskless-sync-max-replicas", Integer(0, INT_MAX), "0"),
    mutable("repl-diskless-load", Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled"),
    mutable("repl-backlog-size", Memory(1, i64::MAX), "1048576"),
    mutable("repl-backlog-ttl", Integer(0, i64::MAX), "3600"),
    mutable("propagation-error-behavior", Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore"),
    mutable("replica-full-sync-buffer-limit", Memory(0, i64::MAX), "0"),
    mutable("dual-channel-replication-enabled", Switch, "no"),
    fixed("repl-mptcp", Switch, "no"),
    // Clusters.
    fixed("cluster-enabled", Switch, "no"),
    fixed("cluster-config-file", Text, "nodes.conf"),
    fixed("cluster-port", Integer(0, 65535), "0"),
    mutable("cluster-node-timeout", Integer(0, i64::MAX), "15000"),
    mutable("cluster-require-full-coverage", Switch, "yes"),
    renamed("cluster-replica-no-failover", "cluster-slave-no-failover", Switch, "no"),
    renamed("cluster-replica-validity-factor", "cluster-slave-validity-factor", Integer(0, INT_MAX), "10"),
    mutable("cluster-allow-reads-when-down", Switch, "no"),
    mutable("cluster-allow-pubsubshard-when-down", Switch, "yes"),
    mutable("cluster-allow-replica-migration", Switch, "yes"),
    mutable("cluster-migration-barrier", Integer(0, INT_MAX), "1"),
    mutable("cluster-announce-ip", Letters(".:-_", "cluster-announce-ip contains invalid character"), ""),
    mutable(
        "cluster-announce-hostname",
        Letters("-.", "Hostnames may only contain alphanumeric characters, hyphens or dots"),
        "",
    ),
    mutable(
        "cluster-announce-human-nodename",
        Letters("-._", "Announced human node name contained invalid character"),
        "",
    ),
    mutable("cluster-announce-port", Integer(0, 65535), "0"),
    mutable("cluster-announce-bus-port", Integer(0, 65535), "0"),
    mutable("cluster-announce-tls-port", Integer(0, 65535), "0"),
    mutable("cluster-announce-client-ipv4", Address(4), ""),
    mutable("cluster-announce-client-ipv6", Address(6), ""),
    mutable("cluster-announce-client-port", Integer(0, 65535), "0"),
    mutable("cluster-announce-client-tls-port", Integer(0, 65535), "0"),
    mutable("cluster-blacklist-ttl", Integer(0, i64::MAX), "60"),
    mutable("cluster-compatibility-sample-ratio", Integer(0, 100), "0"),
    mutable("cluster-config-save-behavior", Choice(&["sync", "best-effort"]), "sync"),
    fixed("cluster-databases", Integer(1, INT_MAX), "1"),
    mutable("cluster-manual-failover-timeout", Integer(1, INT_MAX), "5000"),
    mutable("cluster-slot-migration-log-max-len", Integer(0, i64::MAX), "1000"),
    mutable("slot-migration-max-failover-repl-bytes", Memory(-1, i64::MAX), "0"),
    mutable("cluster-slot-stats-enabled", Switch, "no"),
    mutable("cluster-link-sendbuf-limit", Memory(0, i64::MAX), "0"),
    mutable("cluster-preferred-endpoint-type", Choice(&["ip", "hostname", "unknown-endpoint"]), "ip"),
];

/// The setting with this name or other name, ignoring case, and its position in [`INERT`].
pub fn inert_named(name: &str) -> Option<(usize, &'static InertSetting)> {
    let is_it = |it: &&InertSetting| {
        it.name.eq_ignore_ascii_case(name) || (!it.alias.is_empty() && it.alias.eq_ignore_ascii_case(name))
    };
    INERT.iter().enumerate().find(|(_, it)| is_it(it))
}

impl InertSetting {
    /// The value as CONFIG GET will show it.
    ///
    /// # Errors
    /// The reason in the words of Redis.
    pub(super) fn parse(&self, text: &str) -> Result<String, String> {
        match self.kind {
            NameOf(what) if text.contains('/') => {
                Err(format!("{} can't be a path, just a {what}", self.name))
            }
            // Redis accepts an empty `dbfilename`, the name of its snapshot.
            NameOf(_) if text.is_empty() && self.name != "dbfilename" => {
                Err(format!("{} can't be empty", self.name))
            }
            kind => kind.parse(text),
        }
    }
}

impl InertKind {
    fn parse(self, text: &str) -> Result<String, String> {
        match self {
            Switch => {
                let word = ["yes", "no"].into_iter().find(|word| word.eq_ignore_ascii_case(text));
                word.map(Into::into).ok_or_else(|| "argument must be 'yes' or 'no'".into())
            }
            Integer(min, max) => within(parse_integer(text)?, min, max),
            Clamped(min, max) => Ok(parse_integer(text)?.clamp(min, max).to_string()),
            Memory(min, max) => within(parse_memory(text, "argument must be a memory value")?, min, max),
            MemoryOrPercent => parse_memory_or_percent(text),
            Choice(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                word.map(|word| (*word).into()).ok_or_else(|| one_of(words))
            }
            Words(words) => {
                let given: Vec<String> = text.split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
                let all_known = given.iter().all(|word| words.contains(&&**word));
                if given.is_empty() || !all_known { Err(one_of(words)) } else { Ok(given.join(" ")) }
            }
            Text | NameOf(_) if text.contains(['\n', '\r', '\0']) => Err("must be one line".into()),
            Text | NameOf(_) => Ok(text.into()),
            Letters(others, reason) => {
                let fits = |letter: char| letter.is_ascii_alphanumeric() || others.contains(letter);
                if text.chars().all(fits) { Ok(text.into()) } else { Err(reason.into()) }
            }
            Address(family) => parse_address(text, family),
            Scores(count) => parse_scores(text, count),
            Percentiles => parse_percentiles(text),
            Only(value, reason) => {
                if text.eq_ignore_ascii_case(value) {
                    Ok(value.into())
                } else {
                    Err(reason.into())
                }
            }
        }
    }
}

fn one_of(words: &[&str]) -> String {
    format!("argument(s) must be one of the following: {}", words.join(", "))
}

fn parse_integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "argument couldn't be parsed into an integer".into())
}

fn within(value: i64, min: i64, max: i64) -> Result<String, String> {
    if (min..=max).contains(&value) {
        Ok(value.to_string())
    } else {
        Err(format!("argument must be between {min} and {max} inclusive"))
    }
}

fn parse_memory(text: &str, reason: &str) -> Result<i64, String> {
    let bytes = parse_bytes(text).and_then(|bytes| i64::try_from(bytes).ok());
    bytes.ok_or_else(|| reason.into())
}

fn parse_memory_or_percent(text: &str) -> Result<String, String> {
    const REASON: &str = "argument must be a memory or percent value";
    if let Some(percent) = text.strip_suffix('%') {
        let percent: u64 = percent.parse().map_err(|_| REASON)?;
        if percent > 100 {
            return Err("percentage argument must be less or equal to 100".into());
        }
        return Ok(format!("{percent}%"));
    }
    parse_memory(text, REASON).map(|bytes| bytes.to_string())
}

fn parse_address(text: &str, family: u8) -> Result<String, String> {
    let is_one = match family {
        4 => text.parse::<Ipv4Addr>().is_ok(),
        _ => text.parse::<Ipv6Addr>().is_ok(),
    };
    if is_one || text.is_empty() { Ok(text.into()) } else { Err(format!("Invalid IPv{family} address")) }
}

fn parse_scores(text: &str, count: usize) -> Result<String, String> {
    let scores: Vec<&str> = text.split_ascii_whitespace().collect();
    if scores.len() != count {
        return Err("wrong number of arguments".into());
    }
    let is_score = |text: &&str| text.parse().is_ok_and(|score: i64| (-2000..=2000).contains(&score));
    if scores.iter().all(is_score) {
        Ok(scores.join(" "))
    } else {
        Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into())
    }
}

fn parse_percentiles(text: &str) -> Result<String, String> {
    const NAME: &str = "latency-tracking-info-percentiles";
    let mut shown = Vec::new();
    for text in text.split_ascii_whitespace() {
        let value: f64 = text.parse().map_err(|_| format!("Invalid {NAME} parameters"))?;
        if !(0.0..=100.0).contains(&value) {
            return Err(format!("{NAME} parameters should sit between [0.0,100.0]"));
        }
        shown.push(value.to_string());
    }
    Ok(shown.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALIASES, OPTIONS};

    fn inert(name: &str) -> &'static InertSetting {
        inert_named(name).expect("a name of Redis").1
    }

    #[test]
    fn no_name_has_two_meanings() {
        let mut names: Vec<&str> = INERT.iter().flat_map(|it| [it.name, it.alias]).collect();
        names.retain(|name| !name.is_empty());
        names.extend(OPTIONS.iter().map(|it| it.name).chain(ALIASES.iter().map(|(alias, _)| *alias)));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_default_is_a_value() {
        for it in INERT {
            assert_eq!(it.kind.parse(it.default).as_deref(), Ok(it.default), "{}", it.name);
        }
    }

    #[test]
    fn every_name_is_in_the_documentation() {
        let page = include_str!("../../../docs/compatibility.md");
        for it in INERT {
            for name in [it.name, it.alias].into_iter().filter(|name| !name.is_empty()) {
                assert!(page.contains(&format!("`{name}`")), "{name}");
            }
        }
    }

    #[test]
    fn values_are_taken_and_refused_as_in_redis() {
        for (name, text, shown) in [
            ("dynamic-hz", "NO", Ok("no")),
            ("dynamic-hz", "1", Err("argument must be 'yes' or 'no'")),
            ("hz", "1000", Ok("500")),
            ("hz", "x", Err("argument couldn't be parsed into an integer")),
            ("active-expire-effort", "11", Err("argument must be between 1 and 10 inclusive")),
            ("maxmemory-clients", "5%", Ok("5%")),
            ("maxmemory-clients", "101%", Err("percentage argument must be less or equal to 100")),
            ("maxmemory-clients", "-1%", Err("argument must be a memory or percent value")),
            ("oom-score-adj", "Relative", Ok("relative")),
            (
                "repl-diskless-load",
                "maybe",
                Err("argument(s) must be one of the following: disabled, on-empty-db, swapdb"),
            ),
            ("shutdown-on-sigterm", "NOSAVE now", Ok("nosave now")),
            ("oom-score-adj-values", "1 2", Err("wrong number of arguments")),
            (
                "oom-score-adj-values",
                "1 2 9999",
                Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000."),
            ),
            ("latency-tracking-info-percentiles", "50.0 99.9", Ok("50 99.9")),
            (
                "latency-tracking-info-percentiles",
                "101",
                Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
            ),
            ("dbfilename", "a/b", Err("dbfilename can't be a path, just a filename")),
            ("appenddirname", "a/b", Err("appenddirname can't be a path, just a dirname")),
            ("appendfilename", "", Err("appendfilename can't be empty")),
            ("dbfilename", "a.rdb", Ok("a.rdb")),
            ("slave-read-only", "yes", Ok("yes")),
            ("replica-read-only", "no", Err("a replica always refuses writes")),
            (
                "cluster-announce-hostname",
                "a b",
                Err("Hostnames may only contain alphanumeric characters, hyphens or dots"),
            ),
            ("cluster-announce-client-ipv4", "::1", Err("Invalid IPv4 address")),
            ("cluster-announce-client-ipv6", "::1", Ok("::1")),
        ] {
            let parsed = inert(name).parse(text);
            assert_eq!(parsed.as_deref().map_err(String::as_str), shown, "{name} {text}");
        }
    }
}
