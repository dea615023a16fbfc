//! The cases: clients that send SET or GET, and wait for each reply or for each pipeline of them.

use std::{cell::RefCell, rc::Rc, time::Duration};

use env::{Clock, Entropy, RealClock, RealEntropy};
use prng::Prng;
use tokio::{task::LocalSet, time::timeout};
use wire::{DecodeLimits, Value};

use super::{BenchError, latencies::Latencies};
use crate::{
    client::{Client, advice, plain, with_advice},
    migration::address::Address,
};

/// Keys of a run; each case draws from all of them.
const KEYS: u64 = 10_000;
/// The size in bytes of every value that a run writes, and so of the values that GET reads.
const VALUE_BYTES: usize = 100;
/// Keys that one pipeline writes before a case of GET, or removes at the end.
const AT_ONCE: u64 = 500;
/// Silence after which the server is considered lost.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const LIMITS: DecodeLimits = DecodeLimits { bytes_max: 1 << 20, ..DecodeLimits::DEFAULT };

/// A kind of load: a command, and how many clients send it in pipelines of which length.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    verb: &'static str,
    clients: u64,
    pipeline: u64,
}

impl Case {
    const fn new(name: &'static str, verb: &'static str, clients: u64, pipeline: u64) -> Case {
        Case { name, verb, clients, pipeline }
    }
}

/// All cases, in the order in which they run.
pub(super) const CASES: &[Case] = &[
    Case::new("SET, 1 client", "SET", 1, 1),
    Case::new("SET, 50 clients", "SET", 50, 1),
    Case::new("SET, 50 clients, pipelines of 16", "SET", 50, 16),
    Case::new("GET, 1 client", "GET", 1, 1),
    Case::new("GET, 50 clients", "GET", 50, 1),
    Case::new("GET, 50 clients, pipelines of 16", "GET", 50, 16),
];

/// The figures of a case, for all its clients together.
pub(super) struct Measured {
    pub(super) operations: u64,
    pub(super) us: u64,
    /// The latencies of each reply, or of each pipeline.
    pub(super) latencies: Latencies,
}

/// The properties of the server, which are asked before the cases.
pub(super) struct Server {
    pub(super) holds_keys: bool,
    /// The value of the server's setting `durability`; `None` if the server has no such setting, as Redis, or
    /// does not tell it.
    pub(super) durability: Option<String>,
}

/// A server, and the keys of this run.
pub(super) struct Load {
    address: Address,
    name: String,
}

impl Load {
    pub(super) fn new(address: Address) -> Load {
        Load { address, name: format!("sheaf-bench:{:016x}", RealEntropy.random_u64()) }
    }

    /// Asks the server about itself.
    pub(super) async fn server(&self) -> Result<Server, BenchError> {
        let mut connection = self.connect().await?;
        let keyspace = match connection.call(&[b"INFO", b"keyspace"]).await? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
            _ => String::new(),
        };
        let durability = match connection.call(&[b"CONFIG", b"GET", b"durability"]).await {
            Ok(Value::Array(pair)) => match pair.as_slice() {
                [_, Value::Bulk(value)] => Some(plain(value)),
                _ => None,
            },
            // The user may have no right to this command.
            Ok(_) | Err(BenchError::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Server { holds_keys: keyspace.lines().any(|line| line.starts_with("db")), durability })
    }

    /// Runs a case for `us` microseconds.
    pub(super) async fn run(&self, case: &'static Case, us: u64) -> Result<Measured, BenchError> {
        let mut clients = Vec::new();
        for _ in 0..case.clients {
            clients.push(self.connect().await?);
        }
        if case.verb == "GET" {
            self.all_keys("SET", &[&value()]).await?;
        }
        let begin_us = RealClock.monotonic_us();
        let end_us = begin_us + us;
        let figures = Rc::<RefCell<(u64, Latencies)>>::default();
        let local = LocalSet::new();
        let running: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let (name, figures) = (self.name.clone(), figures.clone());
                local.spawn_local(client.load(case, name, end_us, figures))
            })
            .collect();
        let ended = local.run_until(async {
            for client in running {
                client.await.map_err(io_error)??;
            }
            Ok::<_, BenchError>(())
        });
        ended.await?;
        let us = RealClock.monotonic_us() - begin_us;
        let (operations, latencies) = figures.take();
        Ok(Measured { operations, us, latencies })
    }

    /// Removes the keys of this run.
    pub(super) async fn remove_keys(&self) -> Result<(), BenchError> {
        self.all_keys("DEL", &[]).await
    }

    async fn all_keys(&self, verb: &str, rest: &[&[u8]]) -> Result<(), BenchError> {
        let mut connection = self.connect().await?;
        for begin in (0..KEYS).step_by(AT_ONCE as usize) {
            let commands = (begin..(begin + AT_ONCE).min(KEYS)).map(|number| key(&self.name, number));
            connection.pipeline(verb, commands, rest).await?;
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, BenchError> {
        let address = self.address.to_string();
        let Address { host, port, tls, .. } = &self.address;
        let connected = Client::connect(host, *port, tls.as_ref(), LIMITS).await;
        let client =
            connected.map_err(|reason| BenchError::Connection { address: address.clone(), reason })?;
        let mut connection = Connection { client, address, requests: Vec::new() };
        if let Some(password) = &self.address.password {
            let user = self.address.user.as_deref().unwrap_or("default");
            connection.call(&[b"AUTH", user.as_bytes(), password.as_bytes()]).await?;
        }
        Ok(connection)
    }
}

fn io_error(error: tokio::task::JoinError) -> BenchError {
    BenchError::Os(std::io::Error::other(error))
}

fn key(name: &str, number: u64) -> Vec<u8> {
    format!("{name}:{number}").into_bytes()
}

/// Bytes that do not compress.
fn value() -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for piece in value.chunks_mut(8) {
        let random = RealEntropy.random_u64().to_le_bytes();
        piece.copy_from_slice(&random[..piece.len()]);
    }
    value
}

struct Connection {
    client: Client,
    address: String,
    /// The requests of a pipeline, as bytes.
    requests: Vec<u8>,
}

impl Connection {
    /// Sends pipelines of the case until `end_us`, and adds the operations and latencies to `figures`.
    async fn load(
        mut self,
        case: &'static Case,
        name: String,
        end_us: u64,
        figures: Rc<RefCell<(u64, Latencies)>>,
    ) -> Result<(), BenchError> {
        let value = value();
        let values: [&[u8]; 1] = [&value];
        let rest = if case.verb == "SET" { &values[..] } else { &[] };
        let mut random = Prng::new(RealEntropy.random_u64());
        loop {
            let keys = (0..case.pipeline).map(|_| key(&name, random.below(KEYS)));
            let begin_us = RealClock.monotonic_us();
            if begin_us >= end_us {
                return Ok(());
            }
            self.pipeline(case.verb, keys, rest).await?;
            let (operations, latencies) = &mut *figures.borrow_mut();
            *operations += case.pipeline;
            latencies.add(RealClock.monotonic_us() - begin_us);
        }
    }

    /// Sends a command for each key, and waits for all replies.
    async fn pipeline(
        &mut self,
        verb: &str,
        keys: impl Iterator<Item = Vec<u8>>,
        rest: &[&[u8]],
    ) -> Result<(), BenchError> {
        self.requests.clear();
        let mut awaited = 0;
        for key in keys {
            let arguments: Vec<&[u8]> =
                [verb.as_bytes(), &key].into_iter().chain(rest.iter().copied()).collect();
            wire::request::encode(&arguments, &mut self.requests);
            awaited += 1;
        }
        self.send().await?;
        for _ in 0..awaited {
            self.reply().await?;
        }
        Ok(())
    }

    /// Sends one command, and waits for its reply.
    async fn call(&mut self, arguments: &[&[u8]]) -> Result<Value, BenchError> {
        self.requests.clear();
        wire::request::encode(arguments, &mut self.requests);
        self.send().await?;
        self.reply().await
    }

    async fn send(&mut self) -> Result<(), BenchError> {
        let sent = timeout(SILENCE_MAX, self.client.send_bytes(&self.requests)).await;
        sent.map_err(|_| self.silent())?.map_err(|error| self.lost(error.to_string()))
    }

    /// The next reply. An error reply is an error.
    async fn reply(&mut self) -> Result<Value, BenchError> {
        loop {
            match self.client.next_value().map_err(|reason| self.lost(reason))? {
                Some(Value::Error(text)) => {
                    let text = plain(&text);
                    let text = with_advice(&text, advice(&text));
                    return Err(BenchError::Refused { address: self.address.clone(), text });
                }
                Some(value) => return Ok(value),
                None => {
                    let received = timeout(SILENCE_MAX, self.client.receive()).await;
                    received.map_err(|_| self.silent())?.map_err(|error| self.lost(error.to_string()))?;
                }
            }
        }
    }

    fn silent(&self) -> BenchError {
        self.lost(format!("the server has been silent for {} s", SILENCE_MAX.as_secs()))
    }

    fn lost(&self, reason: String) -> BenchError {
        BenchError::Connection { address: self.address.clone(), reason }
    }
}
