//! Documents over HTTP, as CouchDB's clients write and read them; the requests are the same for every server.
//!
//! Each task creates a database, fills it, measures, and checks its final content. The tasks do not test the
//! protocol: they use only requests common to all servers.
//!
//! Invariants
//! - Every response is checked: status, id and revision of each document. A wrong or missing one is a
//!   failure.

pub mod answer;
mod bulk;
mod client;
mod compaction;
mod corpus;
mod exchange;
mod load;
mod pull;
mod put;
mod random;
mod reading;
mod revisions;
mod rows;
mod scan;

use std::net::SocketAddr;

use clap::{ArgMatches, Command};
use serde_json::{Value, json};

use crate::{
    documents::{
        bulk::Bulk,
        client::Client,
        compaction::{Compactor, FeedReader},
        corpus::{Corpus, Ids},
        load::{Load, Work},
        put::{Put, Puts},
        random::Random,
        reading::Reading,
        revisions::Revisions,
        scan::Scan,
    },
    failure::Failure,
    latency::Latencies,
    process::Process,
};

/// The database of a run, which must not exist before.
const DATABASE: &str = "bench";
/// Number of connections that fill the database.
const FILLERS: usize = 4;
const FILL_BATCH: u64 = 1000;
/// Number of documents read back at the end.
const SAMPLES: u64 = 20;

/// The expected content of the database, from the server's confirmations.
#[derive(Debug)]
pub struct Store {
    /// The generator of the documents.
    pub corpus: Corpus,
    /// The revision of each confirmed document.
    pub revisions: Revisions,
}

impl Store {
    /// A database that has no documents yet.
    pub fn new(corpus: Corpus) -> Store {
        Store { corpus, revisions: Revisions::default() }
    }

    /// Whether `document` is the one with this number, in its confirmed revision.
    fn holds(&self, number: u64, document: &Value) -> bool {
        let Some(rev) = self.revisions.get(number) else { return false };
        let mut expected = Vec::new();
        self.corpus.write(number, rev.number - 1, "", &mut expected);
        let Ok(Value::Object(expected)) = serde_json::from_slice(&expected) else { return false };
        document["_rev"] == rev.to_string() && expected.iter().all(|(name, value)| document[name] == *value)
    }

    /// Checks that the server has as many documents as it has confirmed, and compares some of them.
    fn check(&self, client: &mut Client) -> Result<(), Failure> {
        let (expected, found) = (self.revisions.confirmed(), client.expect(200, "GET", "", b"")?);
        if found["doc_count"] != expected {
            return Err(Failure::Wrong(format!("{} documents of {expected}", found["doc_count"])));
        }
        let mut random = Random::default();
        for _ in 0..SAMPLES {
            let number = random.below(self.revisions.len());
            let document = client.expect(200, "GET", &format!("/{}", self.corpus.ids.id(number)), b"")?;
            if !self.holds(number, &document) {
                return Err(Failure::Wrong(format!("document {number}: {document}")));
            }
        }
        Ok(())
    }
}

/// The parameters of all tasks.
struct Bench<'a> {
    address: SocketAddr,
    process: Process,
    options: &'a ArgMatches,
}

/// The command-line definitions of the tasks of [`run`].
pub fn commands() -> [Command; 5] {
    let put = common("put", "PUT of one document per request")
        .arg(crate::positive("connections", "100", "Connections that write"))
        .arg(crate::flag("updates", "Those that are there, not new ones"))
        .arg(crate::flag("compact", "Compact meanwhile, again and again, and read the feed"))
        .arg(crate::seconds());
    let bulk = common("bulk", "_bulk_docs of new documents")
        .arg(crate::positive("connections", "4", "Connections that write"))
        .arg(crate::positive("batch", "1000", "Documents of a request"))
        .arg(crate::seconds());
    let changes = common("changes", "_changes from the beginning, streamed");
    let all_docs = common("all-docs", "_all_docs, streamed");
    let pull = common("pull", "What PouchDB asks for when it pulls everything");
    [put, bulk, changes, all_docs, pull]
}

fn common(name: &'static str, about: &'static str) -> Command {
    crate::common(name, about)
        .arg(crate::positive("bytes", "1024", "Bytes of a document"))
        .arg(crate::number("filled", "0", "Documents that are there before"))
        .arg(crate::flag("sequential", "Their ids ascend"))
}

/// Runs a task and returns its figures.
pub fn run(
    task: &str,
    address: SocketAddr,
    process: Process,
    options: &ArgMatches,
) -> Result<Value, Failure> {
    let bench = Bench { address, process, options };
    let store = bench.fill()?;
    match task {
        "put" => bench.put(store),
        "bulk" => bench.bulk(store),
        "pull" => bench.read(|client| Ok((pull::run(client, &store)?, None))),
        _ => {
            let scan = if task == "changes" { Scan::Changes } else { Scan::AllDocs };
            bench.read(|client| {
                let (rows, grown_bytes) = scan::run(client, &store, scan, process)?;
                Ok((rows, Some(grown_bytes)))
            })
        }
    }
}

impl Bench<'_> {
    fn count(&self, name: &str) -> u64 {
        self.options.get_one::<u64>(name).copied().unwrap_or(0)
    }

    fn fill(&self) -> Result<Store, Failure> {
        Client::connect(self.address)?.expect(201, "PUT", "", b"")?;
        let ids = if self.options.get_flag("sequential") { Ids::Sequential } else { Ids::Random };
        let store = Store::new(Corpus::new(ids, self.count("bytes") as usize));
        let bulk = Bulk::new(store, FILLERS, FILL_BATCH, self.count("filled"));
        Ok(Load::begin(self.address, FILLERS, bulk)?.run_out()?.store)
    }

    fn put(&self, store: Store) -> Result<Value, Failure> {
        let connections = self.count("connections") as usize;
        let put = if self.options.get_flag("updates") { Put::Updates } else { Put::New };
        if put == Put::Updates && store.revisions.len() < connections as u64 {
            return Err(Failure::Impossible("fewer documents (--filled) than connections that update them"));
        }
        let beside = if self.options.get_flag("compact") {
            Some((FeedReader::begin(self.address, &store)?, Compactor::begin(self.address)))
        } else {
            None
        };
        let (puts, mut figures) = self.measure(connections, Puts::new(store, put, connections))?;
        let compactions = beside.map(|(reader, compactor)| Ok::<_, Failure>((reader, compactor.end()?)));
        puts.store.check(&mut Client::connect(self.address)?)?;
        if let Some((reader, (completed, seconds))) = compactions.transpose()? {
            reader.end(&puts.store)?;
            figures["compactions"] = completed.into();
            figures["compaction_s"] = seconds.into();
        }
        Ok(figures)
    }

    fn bulk(&self, store: Store) -> Result<Value, Failure> {
        let connections = self.count("connections") as usize;
        let bulk = Bulk::new(store, connections, self.count("batch"), u64::MAX);
        let (bulk, figures) = self.measure(connections, bulk)?;
        bulk.store.check(&mut Client::connect(self.address)?)?;
        Ok(figures)
    }

    fn measure<W: Work>(&self, connections: usize, work: W) -> Result<(W, Value), Failure> {
        let seconds = self.options.get_one::<f64>("seconds").copied().unwrap_or(0.0);
        let mut load = Load::begin(self.address, connections, work)?;
        load.turn_for(seconds / 4.0)?;
        load.latencies = Latencies::default();
        let before = Reading::take(self.address, self.process, load.documents)?;
        load.turn_for(seconds)?;
        let after = Reading::take(self.address, self.process, load.documents)?;
        let mut figures = after.since(&before);
        figures["p50_ms"] = load.latencies.quantile_ms(0.5).into();
        figures["p99_ms"] = load.latencies.quantile_ms(0.99).into();
        Ok((load.finish()?, figures))
    }

    /// Measures reads by one client; `work` returns the number of documents, and the growth of the server's
    /// memory.
    fn read(
        &self,
        work: impl FnOnce(&mut Client) -> Result<(u64, Option<u64>), Failure>,
    ) -> Result<Value, Failure> {
        let before = Reading::take(self.address, self.process, 0)?;
        let (documents, grown_bytes) = work(&mut Client::connect(self.address)?)?;
        let mut figures = Reading::take(self.address, self.process, documents)?.since(&before);
        if let Some(grown_bytes) = grown_bytes {
            figures["rss_growth_mb"] = json!(grown_bytes as f64 / 1e6);
        }
        Ok(figures)
    }
}
