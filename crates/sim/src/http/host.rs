//! The server around the front of a simulation: one admin, the default settings, nothing in the background.

use std::{
    net::SocketAddr,
    os::unix::net::UnixStream,
    sync::{Arc, OnceLock},
};

use couch::{
    Account, Accounts, Acks, Answer, Attempt, Compaction, Fault, Feeds, Host, HttpSettings, LogDriver, LogIn,
    Progress, Redis, Resource, Running, Status, Store, Tools,
};
use documents::{DbId, Documents, mango::Indexes};
use engine::{CommandTable, group::NoGroup, replication::Standalone};
use env::{SimClock, SimDisk, SimEntropy};
use http::Request;
use hyper::body::Incoming;
use keyspace::Keyspace;
use lsn::Lsn;
use parking_lot::{RwLock, RwLockReadGuard};
use settings::{Key, NotStored, Settings};
use storage::Log;
use tree::NodeCache;

/// The admin as whom all clients log in, and its password.
pub(super) const ADMIN: (&str, &str) = ("root", "secret");
const INDEXES: &str = "/data/documents/indexes";
const CACHE_BYTES: u64 = 64 << 10;

/// The interfaces of a simulated server.
pub(super) fn host(
    seed: u64,
    disk: &Arc<SimDisk>,
    clock: &Arc<SimClock>,
    log: &Log,
    documents: &Arc<Documents>,
    feeds: Arc<Feeds>,
) -> Host {
    let entropy = Arc::new(SimEntropy::new(seed));
    let all = documents.all();
    let databases: Vec<(DbId, Lsn)> =
        all.iter().map(|database| (database.id(), database.snapshot().last_lsn())).collect();
    let cache = NodeCache::new(CACHE_BYTES);
    let indexes = Indexes::open(disk.clone(), entropy.clone(), cache, INDEXES.into(), &databases);
    let indexes = indexes.expect("the disk has no faults yet");
    let rest = Arc::new(Rest { settings: RwLock::default() });
    let store = Store {
        documents: documents.clone(),
        indexes: Arc::new(indexes),
        keyspace: Arc::new(Keyspace::new(keyspace::Options { hash_seed: seed })),
        log: log.clone(),
        driver: rest.clone(),
    };
    Host {
        clock: clock.clone(),
        entropy,
        config: rest.clone(),
        access: rest.clone(),
        status: rest.clone(),
        store: Arc::new(OnceLock::from(store)),
        feeds,
        compaction: rest.clone(),
        replication: Arc::new(Standalone),
        group: Arc::new(NoGroup),
        acks: rest.clone(),
        redis: rest.clone(),
        traffic: Arc::default(),
        tools: rest,
        access_log: None,
        traces: None,
    }
}

/// All that never changes.
struct Rest {
    settings: RwLock<Settings>,
}

impl LogDriver for Rest {
    // A flush is a step of the world.
    fn wake_if_needed(&self) {}
}

impl HttpSettings for Rest {
    fn current(&self) -> RwLockReadGuard<'_, Settings> {
        self.settings.read()
    }

    fn set_and_keep(&self, _key: Key, _value: Option<&str>) -> Result<(), NotStored> {
        Err("a simulation cannot be configured".to_owned().into())
    }

    fn connections_max(&self) -> u64 {
        u64::MAX
    }
}

impl Accounts for Rest {
    fn trusts_this_machine(&self) -> bool {
        false
    }

    fn has_admins(&self) -> bool {
        true
    }

    fn account(&self, name: &str) -> Option<Account> {
        let admin = || Account {
            roles: vec!["_admin".into()],
            is_admin: true,
            login_digest: [0; 32],
            lsn: Lsn::ZERO,
        };
        (name == ADMIN.0).then(admin)
    }

    fn log_in(&self, attempt: &Attempt<'_>) -> LogIn {
        let account = self.account(attempt.name).filter(|_| attempt.password == ADMIN.1.as_bytes());
        account.map_or(LogIn::Wrong, LogIn::Accepted)
    }
}

impl Status for Rest {
    fn loading(&self) -> Option<Progress> {
        None
    }

    fn fault(&self) -> Option<Fault> {
        None
    }
}

impl Compaction for Rest {
    fn ask(&self, _db: DbId) {}

    fn is_to_compact(&self, _db: DbId) -> bool {
        false
    }

    fn running(&self) -> Option<Running> {
        None
    }
}

impl Acks for Rest {
    fn timeout_ms(&self) -> Option<u64> {
        None
    }

    fn timed_out(&self) {}
}

impl Redis for Rest {
    fn connect(&self, _peer: SocketAddr, _user: Option<&str>) -> Result<UnixStream, String> {
        Err("a simulation has no workers".into())
    }

    fn commands(&self) -> &'static CommandTable {
        commands::table()
    }
}

impl Tools for Rest {
    fn serves(&self, _first_segment: &str) -> Option<Resource> {
        None
    }

    fn answer(&self, _request: Request<Incoming>) -> Answer {
        unreachable!("no path is a tool's")
    }
}
