//! The server as the CouchDB front sees it: implements the interfaces of [`couch::Host`].

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

use couch::{Account, Attempt, Fault, Feeds, Host, LogIn, Progress, Store, TrustedIssuers};
use parking_lot::RwLockReadGuard;
use recovery::progress::LoadProgress;
use settings::{Key, NotStored, Settings};

use super::{redis::RedisClients, tools::ServerTools};
use crate::{
    access::Access,
    attached_log::AttachedLog,
    config::Config,
    group::GroupHandle,
    parts::Parts,
    read_only::ReadOnly,
    replication::{Node, handle::ReplicationHandle},
};

/// The interfaces of this server.
pub(super) fn host(parts: &Arc<Parts>, store: Arc<OnceLock<Store>>, feeds: Arc<Feeds>) -> Host {
    Host {
        clock: parts.clock.clone(),
        entropy: parts.data.entropy.clone(),
        config: parts.config.clone(),
        access: parts.access.clone(),
        status: Arc::new(Status {
            progress: parts.progress.clone(),
            log: parts.log.clone(),
            replication: parts.replication.clone(),
        }),
        store,
        feeds,
        compaction: parts.compactor.clone(),
        replication: parts.replication.clone(),
        group: Arc::new(GroupHandle(parts.group.clone())),
        acks: parts.node.clone(),
        redis: Arc::new(RedisClients::new(parts.clone())),
        traffic: parts.traffic.clone(),
        tools: Arc::new(ServerTools { parts: parts.clone() }),
        access_log: Some(parts.access_log.clone()),
        traces: Some(parts.traces.clone()),
    }
}

impl couch::HttpSettings for Config {
    fn current(&self) -> RwLockReadGuard<'_, Settings> {
        Config::current(self)
    }

    fn set_and_keep(&self, key: Key, value: Option<&str>) -> Result<(), NotStored> {
        Config::set_and_keep(self, key, value)
    }

    fn connections_max(&self) -> u64 {
        self.hot().http_clients_max()
    }
}

impl couch::Accounts for Access {
    fn trusts_this_machine(&self) -> bool {
        Access::trusts_this_machine(self)
    }

    fn has_admins(&self) -> bool {
        self.has_http_admins()
    }

    fn account(&self, name: &str) -> Option<Account> {
        self.http_account(name)
    }

    fn log_in(&self, attempt: &Attempt<'_>) -> LogIn {
        self.log_in_over_http(attempt)
    }

    fn trusted_issuers(&self) -> TrustedIssuers {
        self.issuers.current()
    }

    fn note_refused(&self, address: IpAddr) {
        self.note_refused_token(address);
    }

    fn note_request(&self, client: SocketAddr, user: &str, request: (&str, &str), succeeded: bool) {
        Access::note_request(self, client, user, request, succeeded);
    }
}

impl couch::Acks for Node {
    fn timeout_ms(&self) -> Option<u64> {
        self.ack_timeout_ms()
    }

    fn timed_out(&self) {
        self.acks_timed_out(1);
    }
}

struct Status {
    progress: Arc<LoadProgress>,
    log: Arc<AttachedLog>,
    replication: Arc<ReplicationHandle>,
}

impl couch::Status for Status {
    fn loading(&self) -> Option<Progress> {
        let loading = self.progress.loading()?;
        let (bytes, total_bytes) = self.progress.bytes();
        Some(Progress { percent: loading.percent, eta_seconds: loading.eta_seconds, bytes, total_bytes })
    }

    fn fault(&self) -> Option<Fault> {
        let log = self.log.serving(&self.progress);
        let fault = ReadOnly::of(log, &*self.replication).filter(|reason| reason.is_fault())?;
        Some(Fault { name: fault.name(), reason: fault.reason(log) })
    }
}
