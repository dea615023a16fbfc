//! The table of settings. Adding one: a key, a row, and a reason in the change that does it.

use super::value::Kind;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its key; its discriminant is the position in the table.
    pub key: Key,
    /// Its name everywhere: flag, environment (`SHEAF_` and upper case), file, CONFIG.
    pub name: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// Its default, as text.
    pub default: &'static str,
    /// Whether CONFIG SET may change it.
    pub mutable: bool,
    /// Whether it belongs to the data: the log of a group of servers has it, and those who follow take it from there.
    pub of_data: bool,
    /// One sentence for `--help` and the file.
    pub doc: &'static str,
}

macro_rules! settings {
    ($($key:ident $name:literal $kind:expr, $default:literal, $mutability:ident, $doc:literal;)*) => {
        /// Names a setting in code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Key {
            $(#[doc = $doc] $key,)*
        }

        /// All settings.
        pub static OPTIONS: &[Setting] = &[
            $(Setting {
                key: Key::$key,
                name: $name,
                kind: $kind,
                default: $default,
                mutable: !matches!(Mutability::$mutability, Mutability::Fixed),
                of_data: matches!(Mutability::$mutability, Mutability::OfData),
                doc: $doc,
            },)*
        ];
    };
}

enum Mutability {
    /// A restart changes it.
    Fixed,
    /// CONFIG SET changes it.
    Mutable,
    /// CONFIG SET of the leader changes it for all who have its data.
    OfData,
}

impl Setting {
    /// Whether its value is not shown to anybody who has not asked for it.
    pub fn is_secret(&self) -> bool {
        matches!(self.key, Key::Requirepass | Key::AdminPassword | Key::Masterauth)
    }
}

const BYTES_ANY: Kind = Kind::Bytes { min: 0, max: u64::MAX };
const SECONDS_ANY: Kind = Kind::Integer { min: 0, max: u32::MAX as u64 };
/// More would make every edit of a packed collection slow.
const ENTRIES: Kind = Kind::Integer { min: 0, max: 32_000 };
const VALUE_BYTES: Kind = Kind::Integer { min: 0, max: 1 << 20 };
const EVICTION_POLICIES: &[&str] = &[
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

settings! {
    Dir "dir" Kind::Text, "data", Fixed, "Directory of the data; created if missing.";
    Bind "bind" Kind::Text, "127.0.0.1 ::1", Fixed, "Addresses to listen on, separated by spaces. Beyond loopback only with a password, or protected-mode no.";
    Port "port" Kind::Integer { min: 0, max: 65535 }, "6379", Fixed, "Port of the Redis protocol; 0 takes a free one.";
    HttpPort "http-port" Kind::Integer { min: 0, max: 65535 }, "5984", Fixed, "Port for HTTP: documents as in CouchDB, /_up, /metrics and backups; 0 takes a free one.";
    Workers "workers" Kind::Integer { min: 0, max: 128 }, "0", Fixed, "Threads that serve connections; 0 for one per core, at least 2.";
    Durability "durability" Kind::Choice(&["strict", "commit", "interval", "none"]), "strict", Mutable, "What an OK promises. strict: on disk, and nobody reads what is not. commit: on disk. interval: at most a second is lost by a power cut. none: the operating system decides.";
    Maxclients "maxclients" Kind::Integer { min: 1, max: 1_000_000 }, "10000", Mutable, "Connections at most.";
    Requirepass "requirepass" Kind::Text, "", Mutable, "Password that clients must give; empty for none.";
    AdminUser "admin-user" Kind::Text, "admin", Mutable, "Name of the admin over HTTP.";
    AdminPassword "admin-password" Kind::Text, "", Mutable, "Password of the admin over HTTP; empty for none. Without it and requirepass, everybody on this machine is an admin.";
    HttpHosts "http-hosts" Kind::Text, "", Mutable, "Names of this server in URLs, separated by commas, beside localhost and addresses; * for any. While clients are trusted for being on this machine (protected-mode, and no password), requests to other names are refused.";
    HttpBodyBytesMax "http-body-bytes-max" Kind::Bytes { min: 1 << 10, max: 1 << 32 }, "64mb", Mutable, "Largest body of a request over HTTP.";
    MaxDocumentSize "max-document-size" Kind::Bytes { min: 1 << 10, max: 64 << 20 }, "8000000", Mutable, "Largest document, in bytes of JSON without attachments.";
    Cors "cors" Kind::Switch, "no", Mutable, "Let pages of other origins use the server, in browsers.";
    CorsOrigins "cors-origins" Kind::Text, "", Mutable, "Which origins these are, separated by commas; * for all.";
    CorsCredentials "cors-credentials" Kind::Switch, "no", Mutable, "Let them send cookies and passwords.";
    CorsMethods "cors-methods" Kind::Text, "GET, HEAD, POST, PUT, DELETE, COPY", Mutable, "Methods they may use.";
    CorsHeaders "cors-headers" Kind::Text, "", Mutable, "Headers they may send besides those that clients of CouchDB need, separated by commas.";
    ProtectedMode "protected-mode" Kind::Switch, "yes", Mutable, "Refuse clients from other machines while there is no password.";
    LogFormat "log-format" Kind::Choice(&["text", "json"]), "text", Fixed, "Form of the server's log lines.";
    Loglevel "loglevel" Kind::Choice(&["debug", "info", "warn", "error"]), "info", Fixed, "Least important log lines to write.";
    Maxmemory "maxmemory" BYTES_ANY, "0", Mutable, "Bytes of data above which keys are evicted or writes refused; 0 for no limit.";
    MaxmemoryPolicy "maxmemory-policy" Kind::Choice(EVICTION_POLICIES), "noeviction", Mutable, "Which keys are evicted above maxmemory.";
    MaxmemorySamples "maxmemory-samples" Kind::Integer { min: 1, max: 64 }, "5", Mutable, "Keys compared for each eviction.";
    ProtoMaxBulkLen "proto-max-bulk-len" Kind::Bytes { min: 1 << 20, max: 512 << 20 }, "512mb", Mutable, "Largest string.";
    ClientQueryBufferLimit "client-query-buffer-limit" Kind::Bytes { min: 1 << 20, max: 2 << 30 }, "1gb", Mutable, "Largest command.";
    ClientOutputBufferLimit "client-output-buffer-limit" Kind::OutputLimits, "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60", Mutable, "Who leaves so much untaken is disconnected: for each class of clients (normal, slave, pubsub) a hard limit, a soft one, and the seconds for which that may be exceeded; 0 for no limit.";
    Timeout "timeout" SECONDS_ANY, "0", Mutable, "Seconds after which an idle client is disconnected; 0 for never.";
    TcpKeepalive "tcp-keepalive" SECONDS_ANY, "300", Fixed, "Seconds between probes of silent connections; 0 for none.";
    TcpBacklog "tcp-backlog" Kind::Integer { min: 1, max: 65535 }, "1024", Fixed, "Connections waiting to be accepted.";
    LogSegmentBytes "log-segment-bytes" Kind::Bytes { min: 1 << 20, max: 1 << 30 }, "64mb", Fixed, "Size of a segment of the log, a power of two; fixed when the directory is created.";
    LogMerge "log-merge" Kind::Switch, "yes", Fixed, "Merge concurrent writes into one write and sync; no syncs every write alone, for comparison.";
    SnapshotLogBytes "snapshot-log-bytes" BYTES_ANY, "64mb", Mutable, "Growth of the log after which a snapshot is taken, if it is more than the size of the last one; 0 for never.";
    SnapshotIntervalSeconds "snapshot-interval-seconds" SECONDS_ANY, "3600", Mutable, "Seconds after which a snapshot is taken if anything was written; 0 for never.";
    SnapshotRateBytes "snapshot-rate-bytes" BYTES_ANY, "200mb", Mutable, "Bytes a second that a snapshot is written with at most; 0 for no limit.";
    BackupRetentionBytes "backup-retention-bytes" BYTES_ANY, "16gb", Mutable, "Growth of the log after which a backup that is being copied is given up, because it keeps the log from being removed.";
    SnapshotCpuPercent "snapshot-cpu-percent" Kind::Integer { min: 0, max: 100 }, "10", Mutable, "Percent of the machine's CPU time that taking a snapshot, or sending one to a replica or a backup, uses at most while the server serves; 0 for no limit.";
    ScrubRateBytes "scrub-rate-bytes" BYTES_ANY, "16mb", Mutable, "Bytes a second that log and snapshots are read again with, to find damage early; 0 for never.";
    ScrubIntervalSeconds "scrub-interval-seconds" SECONDS_ANY, "86400", Mutable, "Seconds between two such rounds.";
    SlowlogLogSlowerThan "slowlog-log-slower-than" Kind::Signed { min: -1, max: i64::MAX }, "10000", Mutable, "Microseconds from which a command is kept in SLOWLOG; 0 for all commands, -1 for none.";
    SlowlogMaxLen "slowlog-max-len" Kind::Integer { min: 0, max: u32::MAX as u64 }, "128", Mutable, "Commands kept in SLOWLOG.";
    LatencyMonitorThreshold "latency-monitor-threshold" Kind::Integer { min: 0, max: u32::MAX as u64 }, "0", Mutable, "Milliseconds from which LATENCY notes an event; 0 for none.";
    ScriptMaxMemory "script-max-memory" Kind::Bytes { min: 4 << 20, max: 1 << 40 }, "256mb", Mutable, "Memory that the scripts of one worker may use.";
    ScriptMaxInstructions "script-max-instructions" Kind::Integer { min: 0, max: u64::MAX }, "0", Mutable, "Instructions of the virtual machine after which a script is ended and undone; 0 for no limit.";
    BusyReplyThreshold "busy-reply-threshold" Kind::Integer { min: 0, max: u32::MAX as u64 }, "5000", Mutable, "Milliseconds after which commands that need what a script has locked are answered with BUSY instead of waiting; 0: never.";
    ScriptRollback "script-rollback" Kind::Switch, "no", Mutable, "Undo what a script has done if it ends with an error; no leaves it, as Redis does.";
    HashMaxListpackEntries "hash-max-listpack-entries" ENTRIES, "512", Mutable, "Fields up to which a hash is packed into one piece of memory.";
    HashMaxListpackValue "hash-max-listpack-value" VALUE_BYTES, "64", Mutable, "Longest field or value of a packed hash, in bytes.";
    ListMaxListpackSize "list-max-listpack-size" Kind::Signed { min: -5, max: 32_000 }, "-2", Mutable, "Elements up to which a list is packed; -1 to -5 for 4, 8, 16, 32, 64 KiB instead.";
    SetMaxIntsetEntries "set-max-intset-entries" ENTRIES, "512", Mutable, "Members up to which a set of integers is a sorted array.";
    SetMaxListpackEntries "set-max-listpack-entries" ENTRIES, "128", Mutable, "Members up to which a set is packed.";
    SetMaxListpackValue "set-max-listpack-value" VALUE_BYTES, "64", Mutable, "Longest member of a packed set, in bytes.";
    ZsetMaxListpackEntries "zset-max-listpack-entries" ENTRIES, "128", Mutable, "Members up to which a sorted set is packed.";
    ZsetMaxListpackValue "zset-max-listpack-value" VALUE_BYTES, "64", Mutable, "Longest member of a packed sorted set, in bytes.";
    EnableDebugCommand "enable-debug-command" Kind::Choice(&["no", "local", "yes"]), "no", Fixed, "Who may run DEBUG, which is for tests: nobody, clients on this machine, everybody.";
    NotifyKeyspaceEvents "notify-keyspace-events" Kind::Events, "", Mutable, "Which events of keys are told, as letters: K and E for the channels, A for g$lshzxetd, n for new keys, m for misses; empty for none.";
    DurableChannels "durable-channels" Kind::Text, "", OfData, "Patterns of channels, separated by spaces, whose messages are kept in the log: XSUBSCRIBE reads them again; empty for none.";
    DurableChannelsRetentionBytes "durable-channels-retention-bytes" BYTES_ANY, "1gb", OfData, "Bytes of log that are kept for the messages of durable channels.";
    DurableChannelsRetentionMs "durable-channels-retention-ms" Kind::Integer { min: 0, max: u64::MAX }, "0", OfData, "Milliseconds after which messages of durable channels need not be kept any more; 0 for no limit.";
    ReplicaOf "replica-of" Kind::Text, "", Fixed, "Follow this server, as HOST:PORT: take over its log, show its data, refuse writes; `none`: lead. REPLICAOF changes that, until this setting names another.";
    Masterauth "masterauth" Kind::Text, "", Mutable, "Password of the server that is followed.";
    AckReplicas "ack-replicas" Kind::Integer { min: 0, max: 64 }, "0", OfData, "Replicas that must have a write on their disks before it is acknowledged.";
    AckTimeout "ack-timeout" SECONDS_ANY, "10", OfData, "Seconds after which a reply that waits for ack-replicas is an error (NOREPLICAS), although the write is in the log; 0 to wait for ever.";
    MinReplicasToWrite "min-replicas-to-write" Kind::Integer { min: 0, max: 64 }, "0", OfData, "Replicas without which writes are refused.";
    MinReplicasMaxLag "min-replicas-max-lag" SECONDS_ANY, "10", OfData, "Seconds after which a replica that was not heard does not count for min-replicas-to-write.";
    RelayFlushSize "relay-flush-size" Kind::Bytes { min: 1, max: 1 << 20 }, "64kb", Mutable, "Bytes of log that are sent to a replica at once, about.";
    ReplicaRetentionBytes "replica-retention-bytes" BYTES_ANY, "16gb", Mutable, "Bytes of log that are kept at most for replicas that are behind or away; one that is further behind copies everything anew.";
    ReplicaRetentionSeconds "replica-retention-seconds" SECONDS_ANY, "3600", Mutable, "Seconds for which log is kept for a replica that is away.";
    TrackingTableMaxKeys "tracking-table-max-keys" Kind::Integer { min: 0, max: u32::MAX as u64 }, "1000000", Mutable, "Keys remembered for clients that track what they read; 0 for no limit.";
    Databases "databases" Kind::Integer { min: 16, max: 16 }, "16", Fixed, "Number of databases.";
    Save "save" Kind::Choice(&[""]), "", Fixed, "Always empty: the log is the persistence.";
    Appendonly "appendonly" Kind::Choice(&["yes"]), "yes", Fixed, "Always yes: every write is in the log.";
}

/// Older names of settings, which tools still use.
pub static ALIASES: &[(&str, Key)] = &[
    ("replicaof", Key::ReplicaOf),
    ("slaveof", Key::ReplicaOf),
    ("min-slaves-to-write", Key::MinReplicasToWrite),
    ("min-slaves-max-lag", Key::MinReplicasMaxLag),
    ("hash-max-ziplist-entries", Key::HashMaxListpackEntries),
    ("hash-max-ziplist-value", Key::HashMaxListpackValue),
    ("list-max-ziplist-size", Key::ListMaxListpackSize),
    ("zset-max-ziplist-entries", Key::ZsetMaxListpackEntries),
    ("zset-max-ziplist-value", Key::ZsetMaxListpackValue),
];
