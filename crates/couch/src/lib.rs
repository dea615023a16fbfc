//! The CouchDB front: requests of the CouchDB protocol in, changes of document databases and replies out.
//!
//! ```text
//! acceptor -> thread "http-n": connection -> route (on path segments) -> handler -> write batch -> log
//!                                         <- reply, whole or in chunks <- commit gate <- committed
//! ```
//!
//! What it is: routes, admission of requests, bodies, write batches, waits for the log, changes feeds. What
//! it is not: decisions about documents; the crate `documents` makes them, and its errors become statuses in
//! one place, `failure`. The front owns no thread and accepts no connection; the server does, and calls
//! [`serve_thread`].
//!
//! Invariants
//! - Redis clients are served by other threads: a document that a request reads from a disk holds up HTTP
//!   clients only.
//! - Bodies of requests have limits, each and all together (`body_memory`). Attachments, lists of documents
//!   and feeds are sent in chunks, which are rendered only as fast as the client takes them.
//! - A reply leaves only when the log has committed all that it shows, unless replies wait neither for the
//!   disk (durability `interval` or `none`) nor for replicas.
//! - Nothing is changed for pages of other origins that CORS does not permit: see `cross_site`.
//! - An idle connection is closed: see `idle_timer`.

#![forbid(unsafe_code)]

mod access;
mod access_log;
mod attachment;
mod body;
mod body_memory;
mod bulk;
mod changes;
mod commit_gate;
mod config;
mod connection;
mod connections;
mod cookie;
mod cors;
mod cross_site;
mod database;
mod databases;
mod document;
mod edit;
mod failure;
mod feeds;
mod front;
mod host;
mod idle_timer;
mod ids;
mod instance;
mod jwt;
mod jwt_keys;
mod listing;
mod mango;
mod noted;
mod page;
mod proxy_auth;
mod query;
mod range;
mod redis;
mod redis_limits;
mod refusal;
mod reply;
mod request;
mod request_body;
mod route;
mod security;
mod session;
mod show;
mod socket;
mod thread;
mod traces;
mod traffic;
mod unique_json;
mod unsupported;
mod upload;
mod user;
mod user_documents;
mod users;
mod write_batch;

pub use self::{
    access_log::{AccessLog, NotedRequest},
    body::Body,
    connections::{HttpOrder, serve_thread},
    cookie::is_session_cookie,
    feeds::Feeds,
    front::{ConnectionPermit, Front},
    host::{
        Account, Accounts, Acks, Answer, Attempt, Compaction, Fault, Host, HttpSettings, LogDriver, LogIn,
        Progress, Redis, Resource, Running, Status, Store, Tools, TrustedIssuers, Work,
    },
    jwt::{Jwt, JwtError, is_jwt},
    proxy_auth::ProxySecret,
    range::ByteRange,
    reply::{Reply, set_header},
    socket::Socket,
    traces::{LogWait, TraceParent, TracedRequest, Traces},
    traffic::Traffic,
};
