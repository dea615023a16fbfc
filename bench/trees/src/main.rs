//! `trees`: benchmarks the tree files of Sheaf against redb, fjall, LMDB and SQLite; and N blocks in N writes
//! against one write.
//!
//! ```text
//! trees stores --existing 1000000 --dir DIR     each store is filled; then in each round each store in turn
//!                                               inserts batches, reads keys, scans; medians over the rounds
//! trees nodes --existing 1000000 --dir DIR      the same for Sheaf alone, with nodes of several sizes
//! trees blocks --dir DIR                        the table of COUCHDB-1023
//! ```
//!
//! Every store is durable in its own way, with the same keys, the same batches in the order of keys, and
//! caches of the same size. Written bytes are those that the kernel counts for this process. The load is that
//! of a checkpoint of documents, which does not show the other stores at their best.

mod blocks;
mod stores;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use env::{Clock, Prng, RealClock};

use stores::{Fjall, Lmdb, Redb, Sheaf, Sqlite, Store};

type Error = Box<dyn std::error::Error>;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compares the stores.
    Stores(Load),
    /// Compares node sizes.
    Nodes(Load),
    /// Compares many writes with one.
    Blocks {
        /// Directory for the files.
        #[arg(long)]
        dir: PathBuf,
    },
}

/// The load for the stores.
#[derive(Args, Clone)]
struct Load {
    /// Directory for the files; must be empty.
    #[arg(long)]
    dir: PathBuf,
    /// Entries in each store before the rounds.
    #[arg(long, default_value_t = 1_000_000)]
    existing: u64,
    /// Entries per batch.
    #[arg(long, default_value_t = 10_000)]
    batch: u64,
    /// Batches per round.
    #[arg(long, default_value_t = 5)]
    batches: u64,
    /// Bytes per value.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Keys read per round, one by one.
    #[arg(long, default_value_t = 100_000)]
    reads: u64,
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Only these stores.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// The key of an entry: pseudo-random, and the same for all stores.
fn key(number: u64) -> [u8; 16] {
    let mut prng = Prng::new(number);
    (u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64())).to_be_bytes()
}

/// The measurements of one store, one per round (`batch_ms`: one per batch).
#[derive(Default)]
struct Figures {
    batch_ms: Vec<f64>,
    written_bytes: Vec<f64>,
    cpu_ms: Vec<f64>,
    reads_per_s: Vec<f64>,
    rows_per_s: Vec<f64>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Error> {
    match Arguments::parse().command {
        Command::Blocks { dir } => blocks::compare(&dir),
        Command::Stores(load) => {
            let path = |name| load.dir.join(name);
            let mut stores: Vec<(&str, Box<dyn Store>)> = Vec::new();
            for name in ["sheaf", "redb", "fjall", "lmdb", "sqlite"] {
                if !load.only.is_empty() && !load.only.iter().any(|only| only == name) {
                    continue;
                }
                stores.push((
                    name,
                    match name {
                        "sheaf" => Box::new(Sheaf::create(&path(name), 2 << 10, 4 << 10)?),
                        "redb" => Box::new(Redb::create(&path(name))?),
                        "fjall" => Box::new(Fjall::create(&path(name))?),
                        "lmdb" => Box::new(Lmdb::create(&path(name))?),
                        _ => Box::new(Sqlite::create(&path(name))?),
                    },
                ));
            }
            compare(&load, stores)
        }
        Command::Nodes(load) => {
            let mut stores: Vec<(&str, Box<dyn Store>)> = Vec::new();
            for (name, leaf, inner) in [
                ("1 KiB / 2 KiB", 1 << 10, 2 << 10),
                ("1 KiB / 4 KiB", 1 << 10, 4 << 10),
                ("2 KiB / 2 KiB", 2 << 10, 2 << 10),
                ("2 KiB / 4 KiB", 2 << 10, 4 << 10),
                ("4 KiB / 4 KiB", 4 << 10, 4 << 10),
                ("4 KiB / 8 KiB", 4 << 10, 8 << 10),
            ] {
                let path = load.dir.join(format!("{leaf}-{inner}"));
                stores.push((name, Box::new(Sheaf::create(&path, leaf, inner)?)));
            }
            compare(&load, stores)
        }
    }
}

fn compare(load: &Load, mut stores: Vec<(&str, Box<dyn Store>)>) -> Result<(), Error> {
    let value: Vec<u8> = (0..load.value_bytes).map(|byte| byte as u8).collect();
    let mut keys: Vec<_> = (0..load.existing).map(key).collect();
    keys.sort_unstable();
    for (_, store) in &mut stores {
        store.fill(&mut keys.iter().map(|key| (&key[..], &value[..])))?;
    }
    drop(keys);
    let mut figures: Vec<_> = stores.iter().map(|_| Figures::default()).collect();
    for round in 0..load.rounds {
        for ((_, store), figures) in stores.iter_mut().zip(&mut figures) {
            run(load, round, &value, store.as_mut(), figures)?;
        }
    }
    println!("| store | batch ms | entries/s | written bytes/entry | CPU us/entry | reads/s | rows/s |");
    println!("| ----- | -------: | --------: | ------------------: | -----------: | ------: | -----: |");
    for ((name, _), figures) in stores.iter().zip(figures) {
        let batch_ms = median(figures.batch_ms);
        println!(
            "| {name} | {batch_ms:.1} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} |",
            load.batch as f64 / batch_ms * 1000.0,
            median(figures.written_bytes) / (load.batch * load.batches) as f64,
            median(figures.cpu_ms) * 1000.0 / (load.batch * load.batches) as f64,
            median(figures.reads_per_s),
            median(figures.rows_per_s),
        );
    }
    Ok(())
}

/// Runs one round on one store.
fn run(
    load: &Load,
    round: u64,
    value: &[u8],
    store: &mut dyn Store,
    figures: &mut Figures,
) -> Result<(), Error> {
    let clock = RealClock::default();
    let elapsed_s = |since: u64| (clock.monotonic_us() - since) as f64 / 1e6;
    let (bytes_before, cpu_before) = (written_bytes()?, cpu_ms()?);
    for batch in 0..load.batches {
        let first = load.existing + (round * load.batches + batch) * load.batch;
        let mut keys: Vec<_> = (first..first + load.batch).map(key).collect();
        keys.sort_unstable();
        let begin = clock.monotonic_us();
        store.insert(&keys, value)?;
        figures.batch_ms.push(elapsed_s(begin) * 1000.0);
    }
    figures.written_bytes.push(written_bytes()? - bytes_before);
    figures.cpu_ms.push(cpu_ms()? - cpu_before);
    let mut prng = Prng::new(round);
    let chosen: Vec<_> = (0..load.reads).map(|_| key(prng.below(load.existing))).collect();
    let begin = clock.monotonic_us();
    let found = store.read(&chosen)?;
    figures.reads_per_s.push(load.reads as f64 / elapsed_s(begin));
    assert_eq!(found, load.reads, "every key is there");
    let begin = clock.monotonic_us();
    let rows = store.scan()?;
    figures.rows_per_s.push(rows as f64 / elapsed_s(begin));
    assert_eq!(rows, load.existing + (round + 1) * load.batches * load.batch, "every entry is there once");
    Ok(())
}

/// Bytes that this process has sent to the block layer so far.
fn written_bytes() -> Result<f64, Error> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).ok_or("no write_bytes")?;
    Ok(line.parse()?)
}

/// CPU time of all threads of this process so far, user and kernel.
fn cpu_ms() -> Result<f64, Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().ok_or("no stat")?.split(' ').collect();
    // The fields are in clock ticks of 10 ms.
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) * 10.0)
}
