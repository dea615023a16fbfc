//! MEMORY: usage, statistics and diagnosis.

use access::Category;
use engine::{CommandError, Context, Flags, KeyUsage, Keys, Needs, Row, host::MemoryFigures};
use keyspace::{DbId, Keyspace};
use wire::{Aggregate, Args, number::parse_i64};

use super::{HELP, ROW, memory_text};

pub(super) const ROWS: [Row; 6] = [
    Row {
        name: "memory|doctor",
        arity: 2,
        flags: Flags::NONE,
        since: "4.0.0",
        summary: "Explains problems of memory usage and possible remedies.",
        handler: doctor,
        ..ROW
    },
    Row { name: "memory|help", since: "4.0.0", ..HELP },
    Row {
        name: "memory|malloc-stats",
        arity: 2,
        flags: Flags::NONE,
        since: "4.0.0",
        summary: "Shows the report of the allocator.",
        handler: malloc_stats,
        ..ROW
    },
    Row {
        name: "memory|purge",
        arity: 2,
        flags: Flags::NONE,
        since: "4.0.0",
        complexity: "O(N) where N is the memory in use; a few milliseconds per gigabyte, on every worker.",
        summary: "Gives memory that is free back to the operating system.",
        handler: purge,
        ..ROW
    },
    Row {
        name: "memory|stats",
        arity: 2,
        // MEMORY STATS counts the keys of all slots.
        flags: Flags::READS_ALL,
        since: "4.0.0",
        summary: "Shows the memory usage by purpose.",
        handler: stats,
        ..ROW
    },
    Row {
        name: "memory|usage",
        needs: Needs::each(KeyUsage::EXISTENCE).without(&[Category::Keyspace]),
        arity: -3,
        flags: Flags::READONLY,
        keys: Keys::Range { first: 2, last: 2, step: 1 },
        since: "4.0.0",
        summary: "Replies with the exact memory of a key and its value in bytes; SAMPLES is ignored.",
        syntax: "key [SAMPLES count]",
        handler: usage,
        ..ROW
    },
];

/// `MEMORY USAGE key [SAMPLES count]`
fn usage(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut options = args.skip(3).iter();
    while let Some(option) = options.next() {
        let count = options.next().filter(|_| option.eq_ignore_ascii_case(b"samples"));
        let count = parse_i64(count.ok_or(CommandError::Syntax)?).ok_or(CommandError::NotAnInteger)?;
        if count < 0 {
            return Err(CommandError::Syntax);
        }
    }
    match cx.unit.peek(cx.session.db, args.at(2)) {
        Some(entry) => cx.reply.count(entry.allocated_bytes()),
        None => cx.reply.null(),
    }
    Ok(())
}

/// `MEMORY PURGE`
fn purge(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.host.process.release_unused_memory();
    cx.reply.ok();
    Ok(())
}

/// `MEMORY MALLOC-STATS`
fn malloc_stats(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    cx.reply.verbatim(*b"txt", cx.host.process.allocator_report().as_bytes());
    Ok(())
}

/// `MEMORY DOCTOR`
fn doctor(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let text = memory_text::diagnosis(&Usage::gather(cx), &cx.host.config.memory_limits());
    cx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// The memory usage of the server; sizes are in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// The memory of the process, the machine and the ring of the log.
    pub(super) figures: MemoryFigures,
    /// Keys, values and their indexes.
    pub(super) data: u64,
    /// The clients: their entries in the list of clients, and their buffers.
    pub(super) clients: u64,
    /// The number of clients.
    pub(super) client_count: u64,
}

impl Usage {
    fn gather(cx: &Context<'_, '_>) -> Usage {
        let clients = &cx.host.clients;
        Usage {
            figures: cx.host.process.memory_figures(),
            data: cx.keyspace.bytes(),
            clients: clients.memory_bytes(),
            client_count: clients.count() as u64,
        }
    }

    /// The memory of an empty server: the slots and the ring of the log.
    pub(super) fn fixed(&self) -> u64 {
        Keyspace::FIXED_BYTES + self.figures.log_buffer_bytes
    }

    /// All accounted memory.
    pub(super) fn used(&self) -> u64 {
        self.fixed() + self.data + self.clients
    }

    /// The resident memory that is explained. As in INFO, the program, its threads and buffers do not count
    /// as fragmentation.
    pub(super) fn explained(&self) -> u64 {
        self.figures.beside_data_bytes.max(self.fixed()) + self.data + self.clients
    }
}

/// `MEMORY STATS`: the fields of Redis that apply, and zeros where tools expect a field. The allocator does
/// not say which part of its pages is in use, so the pages count as full. The whole difference to the
/// resident memory is shown as `allocator-rss`; `fragmentation` is as in INFO.
fn stats(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let usage = Usage::gather(cx);
    let index = cx.keyspace.index_bytes();
    let MemoryFigures { resident_bytes, resident_bytes_max, log_buffer_bytes, .. } = usage.figures;
    let keys: u64 = DbId::all().map(|db| cx.unit.keys_len(db)).sum();
    let expiring: u64 = DbId::all().map(|db| cx.keyspace.expiring_len(db)).sum();
    let index_bytes = index.tables.iter().sum::<u64>() + index.expiry;
    let overhead = usage.fixed() + usage.clients + index_bytes;
    let dataset = usage.data.saturating_sub(index_bytes);
    let (used, net) = (usage.used(), usage.used() - usage.fixed());
    let dbs: Vec<DbId> = DbId::all().filter(|db| cx.unit.keys_len(*db) > 0).collect();

    let map = cx.reply.begin_deferred();
    let mut fields = Fields { cx, count: 0 };
    fields.bytes("peak.allocated", resident_bytes_max);
    fields.bytes("total.allocated", used);
    fields.bytes("startup.allocated", usage.fixed());
    fields.bytes("replication.backlog", 0);
    fields.bytes("clients.slaves", 0);
    fields.bytes("clients.normal", usage.clients);
    fields.bytes("cluster.links", 0);
    fields.bytes("aof.buffer", log_buffer_bytes);
    fields.bytes("lua.caches", 0);
    fields.bytes("functions.caches", 0);
    for db in dbs {
        let expires = part(index.expiry, fields.cx.keyspace.expiring_len(db), expiring);
        fields.name(&format!("db.{}", db.get()));
        fields.cx.reply.map(3);
        let mut parts = Fields { cx: fields.cx, count: 0 };
        parts.bytes("overhead.hashtable.main", index.tables[db.index()]);
        parts.bytes("overhead.hashtable.expires", expires);
        parts.bytes("overhead.hashtable.slot-to-keys", 0);
    }
    fields.bytes("overhead.total", overhead);
    fields.bytes("keys.count", keys);
    fields.bytes("keys.bytes-per-key", net.checked_div(keys).unwrap_or(0));
    fields.bytes("dataset.bytes", dataset);
    fields.number("dataset.percentage", ratio(dataset, net) * 100.0);
    fields.number("peak.percentage", ratio(resident_bytes, resident_bytes_max) * 100.0);
    fields.bytes("allocator.allocated", used);
    fields.bytes("allocator.active", used);
    fields.bytes("allocator.resident", resident_bytes);
    fields.number("allocator-fragmentation.ratio", 1.0);
    fields.bytes("allocator-fragmentation.bytes", 0);
    fields.number("allocator-rss.ratio", ratio(resident_bytes, used));
    fields.difference("allocator-rss.bytes", resident_bytes, used);
    fields.number("rss-overhead.ratio", 1.0);
    fields.bytes("rss-overhead.bytes", 0);
    fields.number("fragmentation", ratio(resident_bytes, usage.explained()));
    fields.difference("fragmentation.bytes", resident_bytes, usage.explained());
    let count = fields.count;
    cx.reply.end_deferred(map, Aggregate::Map, count);
    Ok(())
}

/// Writes the pairs of a map and counts them.
struct Fields<'c, 'a, 'k> {
    cx: &'c mut Context<'a, 'k>,
    count: usize,
}

impl Fields<'_, '_, '_> {
    fn name(&mut self, name: &str) {
        self.cx.reply.bulk(name.as_bytes());
        self.count += 1;
    }

    fn bytes(&mut self, name: &str, bytes: u64) {
        self.name(name);
        self.cx.reply.integer(bytes as i64);
    }

    fn difference(&mut self, name: &str, more: u64, less: u64) {
        self.name(name);
        self.cx.reply.integer(more as i64 - less as i64);
    }

    /// Writes a number with two digits after the point. More digits would mean nothing.
    fn number(&mut self, name: &str, number: f64) {
        self.name(name);
        self.cx.reply.double((number * 100.0).round() / 100.0);
    }
}

/// The share of `whole` that corresponds to `count` of `all`; 0 if `all` is 0.
fn part(whole: u64, count: u64, all: u64) -> u64 {
    (u128::from(whole) * u128::from(count)).checked_div(all.into()).unwrap_or(0) as u64
}

/// The ratio, or 1 if `of` is 0.
pub(super) fn ratio(bytes: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { bytes as f64 / of as f64 }
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use super::*;
    use crate::testing::{TestServer, check};

    #[test]
    fn the_memory_of_a_key_is_exact() {
        let mut server = TestServer::new();
        server.check(&[("memory usage a", "nil"), ("set a 1", "+OK")]);
        let before = server.executor.keyspace().bytes();
        let value = "x".repeat(10_000);
        server.run(&format!("set a {value}"));
        let grown = server.executor.keyspace().bytes() - before;
        let Value::Integer(bytes) = server.value("MEMORY USAGE a") else { panic!("a number") };
        assert!((10_000..10_000 + 2_600).contains(&bytes), "{bytes}");
        assert!((bytes - 16..bytes).contains(&(grown as i64)), "{bytes} {grown}");
        server.check(&[
            ("memory usage a samples 0", &format!(":{bytes}")),
            ("select 1", "+OK"),
            ("memory usage a", "nil"),
        ]);
    }

    #[test]
    fn shares_have_two_digits() {
        let mut server = TestServer::new();
        server.run("set a 1");
        let Value::Array(fields) = server.value("memory stats") else { panic!("pairs") };
        let name = Value::Bulk(b"dataset.percentage".to_vec());
        let found = fields.windows(2).find(|pair| pair[0] == name);
        let Some([_, Value::Bulk(share)]) = found else { panic!("a number") };
        let digits = share.split(|byte| *byte == b'.').nth(1).unwrap_or_default();
        assert!(digits.len() <= 2, "{share:?}");
    }

    #[test]
    fn invalid_calls_are_refused() {
        check(&[
            ("memory usage a samples", "-ERR syntax error"),
            ("memory usage a samples -1", "-ERR syntax error"),
            ("memory usage a foo 1", "-ERR syntax error"),
            ("memory usage a samples x", "-ERR value is not an integer or out of range"),
            ("memory usage a samples 5 samples 0", "nil"),
            ("memory usage", "-ERR wrong number of arguments for 'memory|usage' command"),
            ("memory foo", "-ERR unknown subcommand 'foo'. Try MEMORY HELP."),
            ("memory stats x", "-ERR wrong number of arguments for 'memory|stats' command"),
        ]);
    }

    #[test]
    fn the_host_gives_memory_back_and_reports() {
        let mut server = TestServer::new();
        server.check(&[("memory purge", "+OK"), ("memory malloc-stats", "\"allocator\"")]);
        assert_eq!(*server.host.asked.lock(), ["release_unused_memory"]);
    }

    #[test]
    fn the_parts_make_up_the_whole() {
        let mut server = TestServer::new();
        for line in ["set a 1", "set b 1 px 5000", "select 3", "set c 1", "hello 3"] {
            server.run(line);
        }
        let Value::Map(fields) = server.value("memory stats") else { panic!("a map") };
        let field = |name: &str| {
            let found = fields.iter().find(|(field, _)| *field == Value::Bulk(name.into()));
            found.map(|(_, value)| value.clone()).unwrap_or_else(|| panic!("no {name}"))
        };
        let number = |name: &str| match field(name) {
            Value::Integer(number) => number as u64,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!((number("keys.count"), number("startup.allocated")), (3, Keyspace::FIXED_BYTES + 4096));
        assert_eq!(number("overhead.total") + number("dataset.bytes"), number("total.allocated"));
        assert!(matches!(field("db.3"), Value::Map(parts) if parts.len() == 3));
        assert!(!fields.iter().any(|(field, _)| *field == Value::Bulk(b"db.1".into())));
        let Value::Map(parts) = field("db.0") else { panic!("a map") };
        assert!(parts.iter().take(2).all(|(_, value)| matches!(value, Value::Integer(1..))), "{parts:?}");
        assert_eq!(field("peak.percentage"), Value::Double(50.0));
    }
}
