//! The table of settings. A new setting needs a key, a row, and a justification in its commit.

use super::{
    ConfigError,
    value::{Kind, Value},
};

/// One setting: its names, its values, and its documentation.
#[derive(Debug)]
pub struct Setting {
    /// The key of the setting; the discriminant is the position in the table.
    pub key: Key,
    /// The setting's name in all sources: flag, environment (`SHEAF_` and upper case), file, CONFIG.
    pub name: &'static str,
    /// The group in which help and documentation show the setting.
    pub group: Group,
    /// The name of a value in help, which says its type or unit, such as `BYTES`, or lists all values.
    pub value: &'static str,
    /// The type and the range of the accepted values.
    pub kind: Kind,
    /// The default value, as text.
    pub default: &'static str,
    /// Whether CONFIG SET may change the setting.
    pub mutable: bool,
    /// Whether the setting belongs to the data: it is stored in the log, and replicas take it from there.
    pub of_data: bool,
    /// The description for `--help`; it begins with the [`summary`](Setting::summary).
    pub doc: &'static str,
}

/// A group of settings that are shown together. The groups are shown in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The directory and the process.
    Start,
    /// Settings of the log, of snapshots and of backups.
    Durability,
    /// The contents of the memory, and their forms.
    Memory,
    /// Settings about the rights of clients.
    Access,
    /// Settings about addresses and connections.
    Network,
    /// Settings of TLS.
    Encryption,
    /// Settings of replicas and of groups of servers.
    Replication,
    /// Settings about documents and HTTP.
    Documents,
    /// Settings about channels and events.
    Messages,
    /// Settings about scripts and functions in Lua.
    Scripts,
    /// Limits of sizes and numbers.
    Limits,
    /// Logs, traces and other diagnosis.
    Diagnosis,
    /// Settings of Redis that have only one value here.
    Fixed,
}

impl Group {
    /// The heading of the group in help and documentation.
    pub const fn title(self) -> &'static str {
        match self {
            Group::Start => "Start",
            Group::Durability => "Durability",
            Group::Memory => "Memory",
            Group::Access => "Access",
            Group::Network => "Network",
            Group::Encryption => "Encryption",
            Group::Replication => "Replication",
            Group::Documents => "Documents",
            Group::Messages => "Messages",
            Group::Scripts => "Scripts",
            Group::Limits => "Limits",
            Group::Diagnosis => "Diagnosis",
            Group::Fixed => "With one value, for tools",
        }
    }
}

macro_rules! settings {
    ($($key:ident $name:literal $group:ident $value:literal $kind:expr, $default:literal, $mutability:ident, $doc:literal;)*) => {
        /// Identifies a setting in code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Key {
            $(#[doc = $doc] $key,)*
        }

        /// All settings.
        pub static OPTIONS: &[Setting] = &[
            $(Setting {
                key: Key::$key,
                name: $name,
                group: Group::$group,
                value: $value,
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
    /// Only a restart can change the setting.
    Fixed,
    /// CONFIG SET can change the setting.
    Mutable,
    /// CONFIG SET on the leader changes the setting for the leader and its replicas.
    OfData,
}

impl Setting {
    /// Whether the setting's value is a password, which is not shown in messages.
    pub fn is_secret(&self) -> bool {
        matches!(self.key, Key::Requirepass | Key::AdminPassword | Key::Masterauth)
    }

    /// The beginning of the setting's description, up to the first full stop, semicolon or colon.
    pub fn summary(&self) -> &'static str {
        let end = [". ", "; ", ": "].iter().filter_map(|stop| self.doc.find(stop)).min();
        end.map_or(self.doc.trim_end_matches('.'), |end| &self.doc[..end])
    }

    /// The names of the values, if [`Setting::value`] does not list them.
    pub fn unlisted_names(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Choice(names) if !self.value.contains(names[0]) => names,
            _ => &[],
        }
    }

    /// Parses a value. If the text sets only a part, as for [`Kind::OutputLimits`], the rest is taken from
    /// `old`.
    ///
    /// # Errors
    /// As [`Setting::parse`].
    pub fn parse_over(&self, text: &str, old: &Value) -> Result<Value, ConfigError> {
        let Value::OutputLimits(limits) = old else { return self.parse(text) };
        let parsed = limits.parse_over(text).map(Value::OutputLimits);
        parsed.map_err(|reason| self.invalid(text, reason))
    }

    /// Parses a value.
    ///
    /// # Errors
    /// If the text is not a value of this kind, or out of range.
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        self.kind.parse(text).map_err(|reason| self.invalid(text, reason))
    }

    fn invalid(&self, text: &str, reason: String) -> ConfigError {
        let value = if self.is_secret() { "(not shown)" } else { text };
        ConfigError::Invalid { name: self.name, value: value.into(), reason }
    }
}

const BYTES_ANY: Kind = Kind::Bytes { min: 0, max: u64::MAX };
const SECONDS_ANY: Kind = Kind::Integer { min: 0, max: u32::MAX as u64 };
/// A number of entries, in the range of Redis;
/// [`Settings::packed_limits`](super::Settings::packed_limits) lowers large values.
const ENTRIES: Kind = Kind::Integer { min: 0, max: i64::MAX as u64 };
const VALUE_BYTES: Kind = Kind::Bytes { min: 0, max: i64::MAX as u64 };
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
    Dir "dir" Start "DIR" Kind::Text, "data", Fixed, "Directory of the data; created if missing.";
    Bind "bind" Network "ADDRESSES" Kind::Text, "127.0.0.1 ::1", Fixed, "Addresses to listen on. Spaces separate several; one behind a `-` may be missing. Without a password, clients of other machines are refused (protected-mode).";
    Port "port" Network "PORT" Kind::Integer { min: 0, max: 65535 }, "6379", Fixed, "Port of the Redis protocol; 0 for any free port, or, with tls-port or unixsocket, for none.";
    HttpPort "http-port" Network "PORT" Kind::Integer { min: 0, max: 65535 }, "5984", Fixed, "Port of HTTP: documents as in CouchDB, /_up, /metrics and backups; 0 for any free port, or, with http-tls-port, for none.";
    Workers "workers" Start "THREADS" Kind::Integer { min: 0, max: 128 }, "0", Fixed, "Threads that serve connections; 0 for one per core and at least 2.";
    Durability "durability" Durability "strict|commit|interval|none" Kind::Choice(&["strict", "commit", "interval", "none"]), "strict", Mutable, "The meaning of an OK. strict: the write is on disk, and no client reads a write that is not. commit: the write is on disk. interval: a power cut loses at most a second. none: the operating system decides.";
    Maxclients "maxclients" Limits "CONNECTIONS" Kind::Integer { min: 1, max: 1_000_000 }, "10000", Mutable, "Maximum number of connections.";
    Requirepass "requirepass" Access "PASSWORD" Kind::Text, "", Mutable, "Password of the user default; empty for none. Given at a start, it has no effect once ACL SETUSER has changed that user.";
    RequirepassFile "requirepass-file" Access "FILE" Kind::Text, "", Fixed, "File whose first line is requirepass: flags and variables are seen by others on the machine.";
    AdminUser "admin-user" Access "NAME" Kind::Text, "admin", Mutable, "Name of the admin over HTTP.";
    AdminPassword "admin-password" Access "PASSWORD" Kind::Text, "", Mutable, "Password of the admin over HTTP; empty for none. Without it and requirepass, every client on this machine is an admin.";
    AdminPasswordFile "admin-password-file" Access "FILE" Kind::Text, "", Fixed, "File whose first line is admin-password.";
    HttpHosts "http-hosts" Access "HOSTS" Kind::Text, "", Mutable, "Host names of this server in URLs, separated by commas, in addition to localhost and IP addresses; * for any. Without a password (protected-mode), requests with other host names are refused.";
    HttpBodyBytesMax "http-body-bytes-max" Documents "BYTES" Kind::Bytes { min: 1 << 10, max: 1 << 32 }, "64mb", Mutable, "Largest body of a request over HTTP.";
    MaxDocumentSize "max-document-size" Documents "BYTES" Kind::Bytes { min: 1 << 10, max: 64 << 20 }, "8000000", Mutable, "Largest document, as JSON. Attachments do not count.";
    Cors "cors" Access "yes|no" Kind::Switch, "no", Mutable, "Let web pages of other origins use the server.";
    CorsOrigins "cors-origins" Access "ORIGINS" Kind::Text, "", Mutable, "Origins that `cors` permits, separated by commas; * for all.";
    CorsCredentials "cors-credentials" Access "yes|no" Kind::Switch, "no", Mutable, "Let pages of cors-origins send cookies and passwords.";
    CorsMethods "cors-methods" Access "METHODS" Kind::Text, "GET, HEAD, POST, PUT, DELETE, COPY", Mutable, "Methods that pages of cors-origins may use.";
    CorsHeaders "cors-headers" Access "HEADERS" Kind::Text, "", Mutable, "Headers that pages of cors-origins may send in addition to those of CouchDB's clients, separated by commas.";
    Aclfile "aclfile" Access "FILE" Kind::Text, "", Fixed, "File of users, for ACL LOAD and ACL SAVE. A leader whose data have no users reads it when it starts.";
    AclPubsubDefault "acl-pubsub-default" Access "allchannels|resetchannels" Kind::Choice(&["allchannels", "resetchannels"]), "resetchannels", Mutable, "Channels of new users: all of them, or none.";
    AcllogMaxLen "acllog-max-len" Access "ENTRIES" Kind::Integer { min: 0, max: 1 << 20 }, "128", Mutable, "Entries of ACL LOG, at most.";
    Audit "audit" Access "yes|no" Kind::Switch, "no", OfData, "Write down what administrators do, and logins that fail, in the log: the durable channel __sheaf__:audit, which sheaf tail --audit follows.";
    HttpSessionTimeout "http-session-timeout" Access "SECONDS" Kind::Integer { min: 10, max: 31_536_000 }, "600", Mutable, "Seconds after which a session over HTTP ends, if no request has renewed its cookie.";
    HttpSessionSameSite "http-session-same-site" Access "strict|lax|none" Kind::Choice(&["strict", "lax", "none"]), "strict", Mutable, "Whether browsers send the cookie of a session for pages of other sites: never, for links to this server, or always. `none` needs TLS, and cors-origins says which sites may change anything.";
    HttpRequireValidUser "http-require-valid-user" Access "yes|no" Kind::Switch, "no", Mutable, "Answer requests over HTTP only to users who have logged in, except for logging in and /_up.";
    JwtKeysFile "jwt-keys-file" Access "FILE" Kind::Text, "", Mutable, "File of the keys that verify JSON Web Tokens over HTTP, with the lines of CouchDB's section jwt_keys: hmac:KID = BASE64, rsa:KID = PEM, ec:KID = PEM. Without it, no token is accepted. It is read again with SIGHUP and CONFIG SET.";
    JwtRequiredClaims "jwt-required-claims" Access "CLAIMS" Kind::Text, "exp", Mutable, "Claims that a token must have, separated by commas: exp, nbf, iat, kid, typ, {iss, \"VALUE\"}, {aud, \"VALUE\"}.";
    JwtRolesClaimPath "jwt-roles-claim-path" Access "PATH" Kind::Text, "_couchdb\\.roles", Mutable, "Claim with the roles of the user; points lead into objects, a backslash stands before a point in a name.";
    ProxyAuthSecretFile "proxy-auth-secret-file" Access "FILE" Kind::Text, "", Mutable, "File whose first line is the secret of a proxy that authenticates users over HTTP: X-Auth-CouchDB-UserName, -Roles, -Token. Without it, these headers mean nothing.";
    UsersPublicFields "users-public-fields" Access "FIELDS" Kind::Text, "", Mutable, "Members of documents in _users that all users may read, separated by commas.";
    ProtectedMode "protected-mode" Access "yes|no" Kind::Switch, "yes", Mutable, "Refuse clients of other machines while no password is set.";
    LogFormat "log-format" Diagnosis "text|json" Kind::Choice(&["text", "json"]), "text", Fixed, "Format of the server's log lines.";
    Loglevel "loglevel" Diagnosis "debug|info|warn|error" Kind::Choice(&["debug", "info", "warn", "error"]), "info", Mutable, "Lowest level of log lines to write.";
    Logfile "logfile" Diagnosis "FILE" Kind::Text, "", Mutable, "File that log lines are appended to, in a directory that exists; empty for standard error. SIGHUP, and every change of a setting, opens it again: rename it, then send the signal. While the server runs, only names that end in .log can be set.";
    HttpAccessLog "http-access-log" Diagnosis "FILE" Kind::Text, "", Mutable, "File that gets a line for each request over HTTP (time, address, user, method, path, status, bytes, milliseconds), as logfile does; empty for none.";
    OtelEndpoint "otel-endpoint" Diagnosis "URL" Kind::HttpUrl, "", Fixed, "Collector of OpenTelemetry that gets traces (OTLP over HTTP), such as http://127.0.0.1:4318; empty for none.";
    OtelSampleRatio "otel-sample-ratio" Diagnosis "SHARE" Kind::Share, "0.01", Mutable, "Share of commands and requests over HTTP that are traced, from 0 to 1. Requests with a traceparent follow it instead. Above 0.03 every command is timed, which costs a pipelined client some speed.";
    OtelServiceName "otel-service-name" Diagnosis "NAME" Kind::Text, "sheaf", Fixed, "Name of this service in traces.";
    Maxmemory "maxmemory" Memory "BYTES" BYTES_ANY, "0", Mutable, "Bytes of data above which keys are evicted or writes are refused; 0 for no limit.";
    MaxmemoryPolicy "maxmemory-policy" Memory "POLICY" Kind::Choice(EVICTION_POLICIES), "noeviction", Mutable, "Choice of the keys to evict above maxmemory.";
    MaxmemorySamples "maxmemory-samples" Memory "KEYS" Kind::Integer { min: 1, max: 64 }, "5", Mutable, "Keys compared for each eviction.";
    ProtoMaxBulkLen "proto-max-bulk-len" Limits "BYTES" Kind::Bytes { min: 1 << 20, max: 512 << 20 }, "512mb", Mutable, "Largest string.";
    ClientQueryBufferLimit "client-query-buffer-limit" Limits "BYTES" Kind::Bytes { min: 1 << 20, max: 2 << 30 }, "1gb", Mutable, "Largest command.";
    ClientOutputBufferLimit "client-output-buffer-limit" Limits "LIMITS" Kind::OutputLimits, "normal 256mb 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60", Mutable, "Disconnect clients whose unsent output exceeds a limit. For each class of clients (normal, slave, pubsub): a hard limit, a soft limit, and the seconds for which the soft limit may be exceeded; 0 for no limit. At the hard limit a normal client waits, and is disconnected if it then reads nothing for 10 s while it sends commands.";
    Timeout "timeout" Network "SECONDS" SECONDS_ANY, "0", Mutable, "Seconds after which an idle client is disconnected; 0 for never.";
    TcpKeepalive "tcp-keepalive" Network "SECONDS" SECONDS_ANY, "300", Fixed, "Seconds between probes of silent connections; 0 for none.";
    TcpBacklog "tcp-backlog" Network "CONNECTIONS" Kind::Integer { min: 1, max: 65535 }, "1024", Fixed, "Maximum number of connections that wait to be accepted.";
    Unixsocket "unixsocket" Network "PATH" Kind::Text, "", Fixed, "Path of a Unix socket of the Redis protocol, for processes on this machine; empty for none.";
    Unixsocketperm "unixsocketperm" Network "MODE" Kind::Text, "", Fixed, "Mode of that socket, in octal digits such as 770: who may write to it may connect. Empty for the mode of new files.";
    TlsPort "tls-port" Encryption "PORT" Kind::Integer { min: 0, max: 65535 }, "0", Fixed, "Port of the Redis protocol over TLS; 0 for none.";
    HttpTlsPort "http-tls-port" Encryption "PORT" Kind::Integer { min: 0, max: 65535 }, "0", Fixed, "Port of HTTP over TLS; 0 for none.";
    TlsCertFile "tls-cert-file" Encryption "FILE" Kind::Text, "", Mutable, "Certificate of this server, in PEM, followed by those between it and its authority. It is read again when it changes.";
    TlsKeyFile "tls-key-file" Encryption "FILE" Kind::Text, "", Mutable, "Key of that certificate, in PEM, without a passphrase.";
    TlsCaCertFile "tls-ca-cert-file" Encryption "FILE" Kind::Text, "", Mutable, "Certificates, in PEM, of the authorities that sign those of clients.";
    TlsCaCertDir "tls-ca-cert-dir" Encryption "DIR" Kind::Text, "", Mutable, "Directory of files with certificates of such authorities.";
    TlsAuthClients "tls-auth-clients" Encryption "yes|no|optional" Kind::Choice(&["yes", "no", "optional"]), "yes", Mutable, "Whether clients show certificates. yes: they must. optional: one that is shown must be valid. no: they are not asked.";
    TlsAuthClientsUser "tls-auth-clients-user" Encryption "off|CN" Kind::Choice(&["off", "CN"]), "off", Mutable, "CN: a client whose certificate has the name of a user as its common name is that user, without a password, and no password logs in as a nopass user other than default.";
    HttpTlsAuthClients "http-tls-auth-clients" Encryption "yes|no|optional" Kind::Choice(&["yes", "no", "optional"]), "no", Mutable, "Whether clients of HTTP show certificates, as tls-auth-clients says of those of Redis. Nobody is logged in by one.";
    TlsReplication "tls-replication" Encryption "yes|no" Kind::Switch, "no", Fixed, "Replicas, members of a group and copies from a leader use TLS, and nothing else: the ports that servers tell each other are tls-port and http-tls-port. tls-ca-cert-file signs the certificates of all servers.";
    TlsProtocols "tls-protocols" Encryption "VERSIONS" Kind::Text, "", Mutable, "Versions of TLS, separated by spaces: TLSv1.2, TLSv1.3; empty for both.";
    LogSegmentBytes "log-segment-bytes" Durability "BYTES" Kind::BytesPowerOfTwo { min: 1 << 20, max: 1 << 30 }, "64mb", Fixed, "Size of a segment of the log, a power of two; fixed when the directory is created.";
    LogMerge "log-merge" Durability "yes|no" Kind::Switch, "yes", Fixed, "Merge concurrent writes into one write and sync; `no`: one sync for each write, or pipelined run of writes to one key, for comparison.";
    SnapshotLogBytes "snapshot-log-bytes" Durability "BYTES" BYTES_ANY, "64mb", Mutable, "Growth of the log after which a snapshot is taken, if the growth exceeds the size of the last snapshot; 0 for never.";
    SnapshotIntervalSeconds "snapshot-interval-seconds" Durability "SECONDS" SECONDS_ANY, "3600", Mutable, "Seconds after which a snapshot is taken if anything was written; 0 for never.";
    SnapshotRateBytes "snapshot-rate-bytes" Durability "BYTES" BYTES_ANY, "200mb", Mutable, "Maximum bytes per second at which a snapshot is written; 0 for no limit.";
    BackupRetentionBytes "backup-retention-bytes" Durability "BYTES" BYTES_ANY, "16gb", Mutable, "Cancel a backup when the log has grown by this much since it began.";
    SnapshotCpuPercent "snapshot-cpu-percent" Durability "PERCENT" Kind::Integer { min: 0, max: 100 }, "10", Mutable, "Maximum percentage of the machine's CPU time for taking a snapshot, or sending one to a replica or a backup; 0 for no limit.";
    ScrubRateBytes "scrub-rate-bytes" Durability "BYTES" BYTES_ANY, "16mb", Mutable, "Bytes per second at which the scrubber reads log and snapshots again to find damage early; 0 for never.";
    ScrubIntervalSeconds "scrub-interval-seconds" Durability "SECONDS" SECONDS_ANY, "86400", Mutable, "Seconds between two passes of the scrubber.";
    SlowlogLogSlowerThan "slowlog-log-slower-than" Diagnosis "MICROSECONDS" Kind::Signed { min: -1, max: i64::MAX }, "10000", Mutable, "Microseconds above which a command is kept in SLOWLOG; 0 for all commands, -1 for none.";
    SlowlogMaxLen "slowlog-max-len" Diagnosis "COMMANDS" Kind::Integer { min: 0, max: u32::MAX as u64 }, "128", Mutable, "Commands kept in SLOWLOG.";
    LatencyMonitorThreshold "latency-monitor-threshold" Diagnosis "MILLISECONDS" Kind::Integer { min: 0, max: u32::MAX as u64 }, "0", Mutable, "Milliseconds above which LATENCY records an event; 0 for none.";
    ScriptMaxMemory "script-max-memory" Scripts "BYTES" Kind::Bytes { min: 4 << 20, max: 1 << 40 }, "256mb", Mutable, "Memory that the scripts of one worker may use.";
    ScriptMaxInstructions "script-max-instructions" Scripts "INSTRUCTIONS" Kind::Integer { min: 0, max: u64::MAX }, "0", Mutable, "Instructions after which a script is stopped and undone; 0 for no limit.";
    BusyReplyThreshold "busy-reply-threshold" Scripts "MILLISECONDS" Kind::Integer { min: 0, max: u32::MAX as u64 }, "5000", Mutable, "Milliseconds after which commands that need keys locked by a script get BUSY instead of waiting; 0 for never.";
    ScriptRollback "script-rollback" Scripts "yes|no" Kind::Switch, "no", Mutable, "Undo the changes of a script that ends with an error; `no`: keep them, as Redis does.";
    HashMaxListpackEntries "hash-max-listpack-entries" Memory "FIELDS" ENTRIES, "512", Mutable, "Maximum fields of a hash that is packed into one allocation, at most 32000.";
    HashMaxListpackValue "hash-max-listpack-value" Memory "BYTES" VALUE_BYTES, "64", Mutable, "Longest field or value of a packed hash, at most 1 MiB.";
    ListMaxListpackSize "list-max-listpack-size" Memory "ELEMENTS" Kind::Signed { min: i32::MIN as i64, max: i32::MAX as i64 }, "-2", Mutable, "Maximum elements of a packed list, at most 32000; -1 to -5 for 4, 8, 16, 32, 64 KiB instead.";
    SetMaxIntsetEntries "set-max-intset-entries" Memory "MEMBERS" ENTRIES, "512", Mutable, "Maximum members of a set of integers that is kept as a sorted array, at most 32000.";
    SetMaxListpackEntries "set-max-listpack-entries" Memory "MEMBERS" ENTRIES, "128", Mutable, "Maximum members of a packed set, at most 32000.";
    SetMaxListpackValue "set-max-listpack-value" Memory "BYTES" VALUE_BYTES, "64", Mutable, "Longest member of a packed set, at most 1 MiB.";
    ZsetMaxListpackEntries "zset-max-listpack-entries" Memory "MEMBERS" ENTRIES, "128", Mutable, "Maximum members of a packed sorted set, at most 32000.";
    ZsetMaxListpackValue "zset-max-listpack-value" Memory "BYTES" VALUE_BYTES, "64", Mutable, "Longest member of a packed sorted set, at most 1 MiB.";
    HllSparseMaxBytes "hll-sparse-max-bytes" Memory "BYTES" BYTES_ANY, "3000", Mutable, "Length up to which a HyperLogLog keeps the sparse encoding.";
    EnableDebugCommand "enable-debug-command" Access "no|local|yes" Kind::Choice(&["no", "local", "yes"]), "no", Fixed, "Clients that may run DEBUG, which is for tests. no: nobody; local: clients that connect through a loopback address; yes: everybody.";
    NotifyKeyspaceEvents "notify-keyspace-events" Messages "LETTERS" Kind::Events, "", Mutable, "Keyspace events to publish, as letters: K and E for the channels, A for g$lshzxetd, n for new keys, m for misses; empty for none.";
    DurableChannels "durable-channels" Messages "PATTERNS" Kind::Text, "", OfData, "Patterns of durable channels, separated by spaces: their messages are in the log, and XSUBSCRIBE replays them; empty for none.";
    DurableChannelsRetentionBytes "durable-channels-retention-bytes" Messages "BYTES" BYTES_ANY, "1gb", OfData, "Bytes of log kept for messages of durable channels.";
    DurableChannelsRetentionMs "durable-channels-retention-ms" Messages "MILLISECONDS" Kind::Integer { min: 0, max: u64::MAX }, "0", OfData, "Milliseconds for which messages of durable channels are kept; 0 for no limit.";
    ReplicaOf "replica-of" Replication "HOST:PORT" Kind::Text, "", Fixed, "Follow this server, as HOST:PORT: copy its log, show its data, refuse writes; `none`: lead. REPLICAOF overrides it until this setting changes.";
    Group "group" Replication "NAME" Kind::Text, "", Fixed, "Belong to this group of servers, which chooses its leader by votes. Without join, a directory that belongs to no group founds it and keeps its data; `none`: leave the group.";
    Join "join" Replication "HOST:PORT" Kind::Text, "", Fixed, "Join the group through this member, at the first start. Restarts do not need it.";
    Witness "witness" Replication "yes|no" Kind::Switch, "no", Fixed, "Join as a witness, at the first start: a voter that keeps the log and no data, so a small machine will do. Restarts do not need it.";
    GroupHost "group-host" Replication "HOST" Kind::Text, "", Fixed, "Host under which other members and clients reach this server; empty for the first address of bind.";
    StaleReads "stale-reads" Replication "yes|no" Kind::Switch, "no", Mutable, "Let a member of a group that knows no leader, or a leader without a majority, show committed data, however old; `no`: such reads are refused, or wait.";
    HttpRedirect "http-redirect" Replication "yes|no" Kind::Switch, "no", Mutable, "Answer writes of documents at a member of a group that follows with 307 and the address of the leader, instead of 503.";
    SentinelPort "sentinel-port" Replication "PORT" Kind::Integer { min: 0, max: 65535 }, "0", Fixed, "Another port of the Redis protocol, for clients that look for sentinels at a fixed port; 0 for none.";
    ClusterEmulation "cluster-emulation" Replication "yes|no" Kind::Switch, "no", Mutable, "Answer CLUSTER as a cluster of one shard, for clients that speak only that, and send them to the leader (MOVED).";
    Masterauth "masterauth" Replication "PASSWORD" Kind::Text, "", Mutable, "Password with which this server logs in to its leader and to other members of its group; empty for none.";
    Masteruser "masteruser" Replication "NAME" Kind::Text, "", Mutable, "User as which this server logs in with masterauth; empty for the user default.";
    MasterauthFile "masterauth-file" Replication "FILE" Kind::Text, "", Fixed, "File whose first line is masterauth.";
    AckReplicas "ack-replicas" Replication "REPLICAS" Kind::Integer { min: 0, max: 64 }, "0", OfData, "Replicas that must have a write on disk before it is acknowledged.";
    AckTimeout "ack-timeout" Replication "SECONDS" SECONDS_ANY, "10", OfData, "Seconds after which a reply that waits for ack-replicas becomes an error (NOREPLICAS), although the write is in the log; in a group, after which the leader refuses writes while no majority takes its log. 0 to wait without limit.";
    MinReplicasToWrite "min-replicas-to-write" Replication "REPLICAS" Kind::Integer { min: 0, max: 64 }, "0", OfData, "Minimum number of replicas that were heard within min-replicas-max-lag; with fewer, writes are refused.";
    MinReplicasMaxLag "min-replicas-max-lag" Replication "SECONDS" SECONDS_ANY, "10", OfData, "Seconds after which a silent replica does not count for min-replicas-to-write.";
    RelayFlushSize "relay-flush-size" Replication "BYTES" Kind::Bytes { min: 1, max: 1 << 20 }, "64kb", Mutable, "Approximate bytes of log sent to a replica at once.";
    ReplicaRetentionBytes "replica-retention-bytes" Replication "BYTES" BYTES_ANY, "16gb", Mutable, "Maximum bytes of log kept for replicas that are behind or disconnected; a replica further behind copies everything again.";
    ReplicaRetentionSeconds "replica-retention-seconds" Replication "SECONDS" SECONDS_ANY, "3600", Mutable, "Seconds for which log is kept for a disconnected replica.";
    ReplPingReplicaPeriod "repl-ping-replica-period" Replication "SECONDS" Kind::Integer { min: 1, max: i32::MAX as u64 }, "10", Mutable, "Seconds after which a replica that is a Redis or Valkey server gets a ping, if nothing else was sent to it: less than the repl-timeout of the replica.";
    TrackingTableMaxKeys "tracking-table-max-keys" Limits "KEYS" Kind::Integer { min: 0, max: u32::MAX as u64 }, "1000000", Mutable, "Maximum keys remembered for CLIENT TRACKING; 0 for no limit.";
    Databases "databases" Fixed "16" Kind::Integer { min: 16, max: 16 }, "16", Fixed, "Number of databases.";
    Save "save" Fixed "\"\"" Kind::Choice(&[""]), "", Fixed, "Always empty: the log is the persistence.";
    Appendonly "appendonly" Fixed "yes" Kind::Choice(&["yes"]), "yes", Fixed, "Always yes: every write is in the log.";
}

/// Further names of settings: names that they have, or had, in Redis or Valkey.
pub static ALIASES: &[(&str, Key)] = &[
    ("replicaof", Key::ReplicaOf),
    ("slaveof", Key::ReplicaOf),
    ("min-slaves-to-write", Key::MinReplicasToWrite),
    ("min-slaves-max-lag", Key::MinReplicasMaxLag),
    ("repl-ping-slave-period", Key::ReplPingReplicaPeriod),
    ("hash-max-ziplist-entries", Key::HashMaxListpackEntries),
    ("hash-max-ziplist-value", Key::HashMaxListpackValue),
    ("list-max-ziplist-size", Key::ListMaxListpackSize),
    ("zset-max-ziplist-entries", Key::ZsetMaxListpackEntries),
    ("zset-max-ziplist-value", Key::ZsetMaxListpackValue),
    ("lua-time-limit", Key::BusyReplyThreshold),
    ("primaryauth", Key::Masterauth),
    ("primaryuser", Key::Masteruser),
    ("commandlog-execution-slower-than", Key::SlowlogLogSlowerThan),
    ("commandlog-slow-execution-max-len", Key::SlowlogMaxLen),
];
