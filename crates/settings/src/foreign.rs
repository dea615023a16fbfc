//! Advice about settings and flags of Redis, Valkey and CouchDB: what replaces each of them here.
//!
//! The table answers people and changes nothing: names that mean the same here are
//! [`ALIASES`](super::ALIASES).

use crate::OPTIONS;

/// Names, as in the other server's configuration (without `--`, and `-` for `_`), and the advice for each.
static FOREIGN: &[(&[&str], &str)] = &[
    (
        &["appendonly", "appendfilename", "appenddirname"],
        "every write is in the log; --durability says when it is on disk",
    ),
    (
        &["appendfsync", "no-appendfsync-on-rewrite"],
        "use --durability: `strict` or `commit` for always, `interval` for everysec, `none` for no",
    ),
    (
        &["save", "stop-writes-on-bgsave-error", "auto-aof-rewrite-percentage", "auto-aof-rewrite-min-size"],
        "every write is in the log; --snapshot-log-bytes and --snapshot-interval-seconds say when it is shortened",
    ),
    (&["dbfilename"], "`sheaf import FILE --dir DIR` reads an RDB file, once"),
    (&["daemonize", "supervised"], "the server stays in the foreground: start it as a service, or with `&`"),
    (&["pidfile"], "the process id is in sheaf.lock in the data directory"),
    (
        &["syslog-enabled"],
        "log lines go to standard error, which a service manager keeps, or to the file of --logfile",
    ),
    (&["unixsocketgroup"], "the socket has the group of the process; use --unixsocketperm MODE"),
    (&["replicaof", "slaveof"], "use --replica-of HOST:PORT"),
    (&["primaryuser"], "use --masteruser NAME"),
    (&["primaryauth"], "use --masterauth PASSWORD, or --masterauth-file FILE"),
    (
        &["repl-backlog-size", "repl-backlog-ttl"],
        "use --replica-retention-bytes and --replica-retention-seconds",
    ),
    (&["replica-read-only", "slave-read-only"], "a replica always refuses writes"),
    (
        &["cluster-enabled", "cluster-config-file", "cluster-node-timeout"],
        "use --group NAME for failover; --cluster-emulation yes serves clients that speak only CLUSTER",
    ),
    (
        &["sentinel"],
        "members of a group choose their leader: --group NAME, --join HOST:PORT; --sentinel-port answers clients of sentinels",
    ),
    (
        &["tls-key-file-pass", "tls-client-key-file-pass"],
        "keys have no passphrase: `openssl pkey` removes it, and the mode of the file protects the key",
    ),
    (&["tls-cluster"], "members of a group talk to each other over TLS with --tls-replication yes"),
    (
        &["tls-client-cert-file", "tls-client-key-file"],
        "a server shows other servers its own certificate: --tls-cert-file, for servers and clients",
    ),
    (
        &[
            "tls-ciphers",
            "tls-ciphersuites",
            "tls-prefer-server-ciphers",
            "tls-dh-params-file",
            "tls-session-caching",
            "tls-session-cache-size",
            "tls-session-cache-timeout",
        ],
        "there is nothing to set: leave it out. --tls-protocols chooses the versions",
    ),
    (
        &["rename-command"],
        "commands keep their names; users decide who may run them (ACL SETUSER app ... -config -flushall)",
    ),
    (&["user"], "use ACL SETUSER, whose users are kept with the data, or such lines in --aclfile FILE"),
    (&["io-threads", "io-threads-do-reads"], "use --workers THREADS; without it, there is one per core"),
    (&["loadmodule"], "there are no modules; documents and channels are part of the server"),
    (&["include"], "there is one file of settings, in TOML: --config FILE"),
    (&["lua-time-limit"], "use --busy-reply-threshold MILLISECONDS"),
    (
        &["activedefrag", "hz", "lazyfree-lazy-eviction", "rdbcompression"],
        "there is nothing to set: leave it out",
    ),
    (&["host", "bind-address"], "use --bind ADDRESSES"),
    (&["admins", "require-valid-user"], "use --admin-user NAME and --admin-password PASSWORD"),
    (&["database-dir", "view-index-dir", "data-dir"], "use --dir DIR"),
    (&["enable-cors"], "use --cors yes, and --cors-origins for the origins"),
    (&["origins"], "use --cors-origins ORIGINS"),
    (&["couch-ini", "ini"], "use --config FILE, in TOML"),
];

/// The advice for a name of another server's configuration; `None` for other names. Some names are settings
/// here as well (`save`, `appendonly`): for these, call this only if their value was refused.
pub fn instead_of(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    FOREIGN.iter().find(|(names, _)| names.contains(&&*name)).map(|(_, answer)| *answer)
}

/// As [`instead_of`], for a client. Where the advice names the flag of a setting that clients can change,
/// this names CONFIG SET instead of the flag.
pub(crate) fn for_client(name: &str) -> Option<String> {
    let answer = instead_of(name)?;
    let mut mutable: Vec<&str> = OPTIONS.iter().filter(|it| it.mutable).map(|it| it.name).collect();
    // If one name is the beginning of another, the longer one is replaced first.
    mutable.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
    let said = |text: String, name: &&str| text.replace(&format!("--{name}"), &format!("CONFIG SET {name}"));
    Some(mutable.iter().fold(answer.into(), said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_that_an_answer_names_is_a_setting() {
        let others = ["config", "dir"];
        for (names, answer) in FOREIGN {
            for flag in answer.split("--").skip(1) {
                let flag =
                    flag.split(|letter: char| letter != '-' && !letter.is_alphanumeric()).next().unwrap();
                let is_known = OPTIONS.iter().any(|option| option.name == flag) || others.contains(&flag);
                assert!(is_known, "{names:?}: --{flag}");
            }
        }
    }

    #[test]
    fn names_have_one_answer_in_any_spelling() {
        let mut names: Vec<&str> = FOREIGN.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(instead_of("bind_address"), instead_of("BIND-ADDRESS"));
        assert_eq!(
            instead_of("io-threads"),
            Some("use --workers THREADS; without it, there is one per core")
        );
        assert_eq!(instead_of("port"), None);
    }
}
