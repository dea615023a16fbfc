//! The tips of COMMAND INFO: properties of the replies of a command, and the servers to which clients of a
//! cluster send the command.
//!
//! Commands that Redis 8.2 has, too, have the same tips as there;
//! `tests/differential/test_command_info.py` compares them.

/// Each tip, and the commands that have it, in the order of their names.
static TIPS: &[(&str, &[&str])] = &[
    (
        "nondeterministic_output",
        &[
            "client|info",
            "client|list",
            "cluster|getkeysinslot",
            "cluster|info",
            "cluster|nodes",
            "cluster|shards",
            "cluster|slots",
            "dump",
            "function|stats",
            "hpttl",
            "hrandfield",
            "hscan",
            "httl",
            "info",
            "lastsave",
            "latency|doctor",
            "latency|graph",
            "latency|histogram",
            "latency|history",
            "latency|latest",
            "memory|doctor",
            "memory|malloc-stats",
            "memory|stats",
            "object|encoding",
            "object|freq",
            "object|idletime",
            "object|refcount",
            "pttl",
            "randomkey",
            "scan",
            "slowlog|get",
            "slowlog|len",
            "spop",
            "srandmember",
            "sscan",
            "time",
            "ttl",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xinfo|consumers",
            "xpending",
            "xtrim",
            "zrandmember",
            "zscan",
        ],
    ),
    (
        "nondeterministic_output_order",
        &[
            "command",
            "command|docs",
            "command|info",
            "command|list",
            "function|list",
            "hgetall",
            "hkeys",
            "hvals",
            "keys",
            "module|list",
            "sdiff",
            "sinter",
            "smembers",
            "sunion",
        ],
    ),
    (
        "request_policy:all_nodes",
        &[
            "acl|deluser",
            "acl|save",
            "acl|setuser",
            "client|setinfo",
            "client|setname",
            "config|resetstat",
            "config|rewrite",
            "config|set",
            "latency|doctor",
            "latency|graph",
            "latency|histogram",
            "latency|history",
            "latency|latest",
            "latency|reset",
            "script|flush",
            "script|load",
            "slowlog|get",
            "slowlog|len",
            "slowlog|reset",
        ],
    ),
    (
        "request_policy:all_shards",
        &[
            "dbsize",
            "flushall",
            "flushdb",
            "function|delete",
            "function|flush",
            "function|kill",
            "function|load",
            "function|restore",
            "function|stats",
            "info",
            "keys",
            "memory|doctor",
            "memory|malloc-stats",
            "memory|purge",
            "memory|stats",
            "ping",
            "randomkey",
            "script|exists",
            "script|kill",
            "wait",
            "waitaof",
        ],
    ),
    ("request_policy:multi_shard", &["del", "exists", "mget", "mset", "touch", "unlink"]),
    ("request_policy:special", &["scan"]),
    ("response_policy:agg_logical_and", &["script|exists"]),
    ("response_policy:agg_min", &["wait", "waitaof"]),
    (
        "response_policy:agg_sum",
        &["dbsize", "del", "exists", "latency|reset", "slowlog|len", "touch", "unlink"],
    ),
    (
        "response_policy:all_succeeded",
        &[
            "acl|deluser",
            "acl|save",
            "acl|setuser",
            "client|setinfo",
            "client|setname",
            "config|resetstat",
            "config|rewrite",
            "config|set",
            "flushall",
            "flushdb",
            "function|delete",
            "function|flush",
            "function|load",
            "function|restore",
            "memory|purge",
            "mset",
            "ping",
            "script|flush",
            "script|load",
            "slowlog|reset",
        ],
    ),
    ("response_policy:one_succeeded", &["function|kill", "script|kill"]),
    (
        "response_policy:special",
        &[
            "function|stats",
            "info",
            "latency|doctor",
            "latency|graph",
            "latency|histogram",
            "latency|history",
            "latency|latest",
            "memory|doctor",
            "memory|malloc-stats",
            "memory|stats",
            "randomkey",
            "scan",
        ],
    ),
];

/// The tips of a command or subcommand (`container|sub`).
pub(super) fn of(name: &str) -> impl Iterator<Item = &'static str> + use<'_> {
    TIPS.iter().filter(move |(_, names)| names.contains(&name)).map(|(tip, _)| *tip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tips_are_of_commands_that_exist() {
        for (tip, names) in TIPS {
            assert!(names.is_sorted(), "{tip}");
            for name in *names {
                assert!(crate::rows().iter().any(|row| row.name == *name), "{tip}: {name}");
            }
        }
        assert_eq!(
            of("mset").collect::<Vec<_>>(),
            ["request_policy:multi_shard", "response_policy:all_succeeded"]
        );
        assert_eq!(of("get").count(), 0);
    }
}
