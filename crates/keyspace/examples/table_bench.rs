//! Memory per key and time per operation of the keyspace, on one thread and with the server's allocator.
//!
//! What it is: the instrument behind the load factor, the growth and the prefetching of the table.
//! What it is not: a benchmark of the server; there is no protocol and no log.
//!
//! `cargo run --release -p keyspace --example table_bench -- [keys] [operations]`
//!
//! Loads `keys` keys `k:<n>` (default 5 000 000) with values of 32 bytes. Then runs `operations` random GETs
//! and as many SETs (default 4 000 000) of existing keys, in groups of 32 as a pipelining client sends them.
//! Does so four times: without prefetching; after prefetching the slots of the whole group; then also their
//! buckets; then also the entries.

use std::hint::black_box;

use keyspace::{AccessClock, DbId, Freed, KeyHash, KeyOp, Keyspace, Options, Value};

#[global_allocator]
static ALLOCATOR: env::allocator::Allocator = env::allocator::Allocator;

const GROUP: usize = 32;
const VALUE: [u8; 32] = [b'v'; 32];
const CLOCK: AccessClock =
    AccessClock { now_ms: 1_700_000_000_000, policy: keyspace::AccessPolicy::Lru, random: 0 };

/// A key `k:<n>`, stored inline.
#[derive(Clone, Copy)]
struct Key {
    bytes: [u8; 15],
    len: u8,
}

impl Key {
    fn new(number: u64) -> Self {
        let text = format!("k:{number}");
        let mut bytes = [0; 15];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Key { bytes, len: text.len() as u8 }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// How far a group of keys is prefetched before the operations on it run. Each stage includes the ones
/// before it.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
enum Prefetch {
    Nothing,
    Slots,
    Buckets,
    Entries,
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let keys = arguments.next().unwrap_or(5_000_000);
    let operations = arguments.next().unwrap_or(4_000_000);

    let keyspace = Keyspace::new(Options { hash_seed: 7 });
    load(&keyspace, keys);
    let random: Vec<Key> = random_numbers(operations).map(|bits| Key::new(bits % keys)).collect();
    for prefetch in [Prefetch::Nothing, Prefetch::Slots, Prefetch::Buckets, Prefetch::Entries] {
        let get_ns = run(&keyspace, &random, prefetch, get);
        let set_ns = run(&keyspace, &random, prefetch, set);
        println!("GET {get_ns:6.1} ns  SET {set_ns:6.1} ns  prefetched: {prefetch:?}");
    }
    let hash_ns = time_ns(random.len(), || {
        random.iter().for_each(|key| {
            black_box(keyspace.hash(key.bytes()));
        });
    });
    println!("hash {hash_ns:.1} ns");
}

/// Fills the keyspace and prints time and memory.
fn load(keyspace: &Keyspace, keys: u64) {
    let all: Vec<Key> = (0..keys).map(Key::new).collect();
    let before = resident_bytes();
    let ns = time_ns(all.len(), || {
        all.iter().for_each(|key| set(keyspace, key, &keyspace.hash(key.bytes())));
    });
    let resident = resident_bytes() - before;
    println!("{keys} keys loaded, {ns:.0} ns each");
    println!("resident {:.1} B/key", resident as f64 / keys as f64);
    println!("accounted {:.1} B/key", keyspace.bytes() as f64 / keys as f64);
}

/// Runs `operation` on all keys, in groups that are prefetched first. Returns nanoseconds per operation.
fn run(
    keyspace: &Keyspace,
    keys: &[Key],
    prefetch: Prefetch,
    operation: impl Fn(&Keyspace, &Key, &KeyHash),
) -> f64 {
    time_ns(keys.len(), || {
        for group in keys.chunks(GROUP) {
            let mut hashes = [keyspace.hash(b""); GROUP];
            for (hash, key) in hashes.iter_mut().zip(group) {
                *hash = keyspace.hash(key.bytes());
                if prefetch >= Prefetch::Slots {
                    keyspace.prefetch_slot(hash);
                }
            }
            if prefetch >= Prefetch::Buckets {
                hashes.iter().for_each(|hash| keyspace.prefetch_bucket(DbId::ZERO, hash));
            }
            if prefetch >= Prefetch::Entries {
                hashes.iter().for_each(|hash| keyspace.prefetch_entry(DbId::ZERO, hash));
            }
            hashes.iter().zip(group).for_each(|(hash, key)| operation(keyspace, key, hash));
        }
    })
}

fn get(keyspace: &Keyspace, key: &Key, hash: &KeyHash) {
    let mut slot = keyspace.lock(hash.slot());
    let entry = slot.get_and_touch(DbId::ZERO, hash, key.bytes(), CLOCK).expect("the key was loaded");
    black_box(entry.string().map(|value| value[0]));
}

fn set(keyspace: &Keyspace, key: &Key, hash: &KeyHash) {
    let value = Value::String(&VALUE);
    let effect = KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, key.bytes());
    keyspace.lock(hash.slot()).apply_hashed(&effect, hash, CLOCK, &mut Freed::new());
}

/// Nanoseconds of processor time per operation: other processes of the machine count less than with wall
/// time.
fn time_ns(operations: usize, run: impl FnOnce()) -> f64 {
    let start = processor_time_ns();
    run();
    (processor_time_ns() - start) as f64 / operations as f64
}

fn processor_time_ns() -> u64 {
    number("/proc/thread-self/schedstat", 0)
}

fn random_numbers(count: u64) -> impl Iterator<Item = u64> {
    let mut state = 1u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// Bytes of this process in memory.
fn resident_bytes() -> u64 {
    number("/proc/self/statm", 1) * 4096
}

/// A number from a file of numbers that Linux keeps.
fn number(path: &str, index: usize) -> u64 {
    let text = std::fs::read_to_string(path).expect("Linux has this file");
    let number = text.split_whitespace().nth(index).and_then(|number| number.parse().ok());
    number.expect("a number is there")
}
