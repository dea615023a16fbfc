//! A client: one connection, one request at a time, sent and received in pieces.

use std::collections::BTreeMap;

use env::Prng;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{
    ledger::{DOCUMENTS, Document, Ledger},
    reply::{self, Reply},
    request::Request,
};
use crate::Violation;

/// A request without a whole reply.
struct Pending {
    request: Request,
    changed: Vec<Document>,
    /// The oldest versions that the reply may show.
    floors: BTreeMap<Document, usize>,
}

pub(super) struct HttpClient {
    owner: usize,
    stream: DuplexStream,
    pending: Option<Pending>,
    /// The bytes of the request that were not sent yet.
    unsent: Vec<u8>,
    received: Vec<u8>,
    cookie: Option<String>,
    /// The cookie of a session that the client has ended: the server must refuse it.
    ended_cookie: Option<String>,
    has_database: bool,
    /// Whether the server has failed to write: its machine is about to stop.
    has_failed: bool,
    log_ins: u64,
    next_number: u64,
}

impl HttpClient {
    pub(super) fn new(owner: usize, stream: DuplexStream) -> HttpClient {
        HttpClient {
            owner,
            stream,
            pending: None,
            unsent: Vec::new(),
            received: Vec::new(),
            cookie: None,
            ended_cookie: None,
            has_database: owner > 0,
            has_failed: false,
            log_ins: 0,
            next_number: 0,
        }
    }

    /// Has this client create the database, once it has logged in.
    pub(super) fn create_database(&mut self) {
        self.has_database = false;
    }

    pub(super) fn has_database(&self) -> bool {
        self.has_database
    }

    pub(super) fn log_ins(&self) -> u64 {
        self.log_ins
    }

    /// The documents of a change without a reply.
    pub(super) fn in_flight(&self) -> Option<&[Document]> {
        self.pending.as_ref().map(|pending| &*pending.changed)
    }

    /// Sends a part of a request, and takes a part of the reply bytes that have arrived.
    ///
    /// # Errors
    /// If the reply is wrong, or the connection was closed.
    pub(super) async fn exchange(&mut self, ledger: &mut Ledger, prng: &mut Prng) -> Result<(), Violation> {
        if self.has_failed {
            return Ok(());
        }
        if self.pending.is_none() {
            self.begin(ledger, prng);
        }
        let bytes = self.unsent.len().min(1 + prng.below(4_000) as usize);
        let sent = tokio::select! {
            biased;
            sent = self.stream.write(&self.unsent[..bytes]) => sent.unwrap_or(0),
            // The socket is full.
            () = std::future::ready(()) => 0,
        };
        self.unsent.drain(..sent);
        let mut piece = vec![0; 1 + prng.below(4_000) as usize];
        let taken = tokio::select! {
            biased;
            read = self.stream.read(&mut piece) => read.unwrap_or(0),
            () = std::future::ready(()) => return Ok(()),
        };
        if taken == 0 {
            return Err(Violation::Protocol(format!("client {} was disconnected", self.owner)));
        }
        self.received.extend_from_slice(&piece[..taken]);
        let Some(reply) = reply::take(&mut self.received)? else { return Ok(()) };
        let pending =
            self.pending.take().ok_or_else(|| Violation::Protocol("a reply without a request".into()))?;
        self.answered(pending, reply, ledger)
    }

    /// Begins the next request: chooses and encodes it, and tells the ledger which versions it sends.
    fn begin(&mut self, ledger: &mut Ledger, prng: &mut Prng) {
        let request = if self.cookie.is_none() && self.ended_cookie.is_some() {
            Request::WhoAmI
        } else if self.cookie.is_none() {
            Request::LogIn
        } else if !self.has_database {
            Request::CreateDatabase
        } else {
            self.choose(ledger, prng)
        };
        let cookie = self.cookie.as_deref().or(self.ended_cookie.as_deref());
        self.unsent = request.encode(cookie, ledger);
        let (changed, floors) = (request.changed(), ledger.floors());
        match &request {
            Request::Put(document, version) => ledger.sends(*document, version.clone()),
            Request::Bulk(edits) => {
                edits.iter().for_each(|(document, version)| ledger.sends(*document, version.clone()));
            }
            _ => {}
        }
        self.pending = Some(Pending { request, changed, floors });
    }

    fn choose(&mut self, ledger: &Ledger, prng: &mut Prng) -> Request {
        let owner = self.owner;
        let own = |number: usize| Document { owner, number };
        match prng.below(100) {
            0..45 => {
                let document = own(prng.below(DOCUMENTS as u64) as usize);
                Request::Put(document, self.version(document, ledger, prng))
            }
            45..65 => {
                let first = prng.below(DOCUMENTS as u64 - 1) as usize;
                let edit = |number| (own(number), self.version(own(number), ledger, prng));
                Request::Bulk((first..DOCUMENTS).map(edit).collect())
            }
            65..87 => {
                let all: Vec<Document> = ledger.all().collect();
                Request::Get(all[prng.below(all.len() as u64) as usize])
            }
            87..97 => Request::Changes,
            _ => Request::LogOut,
        }
    }

    /// The next version of a document: a body, or a deletion.
    fn version(&mut self, document: Document, ledger: &Ledger, prng: &mut Prng) -> Option<Value> {
        if ledger.is_there(document) && prng.chance(15) {
            return None;
        }
        self.next_number += 1;
        let padding = if prng.chance(5) { 9_000 } else { prng.below(300) };
        Some(json!({ "n": self.next_number, "padding": "x".repeat(padding as usize) }))
    }

    fn answered(&mut self, pending: Pending, reply: Reply, ledger: &mut Ledger) -> Result<(), Violation> {
        let Reply { status, cookie, body } = reply;
        let Pending { request, changed, floors } = pending;
        if status >= 500 {
            // The change may have happened: it stays in flight.
            self.has_failed = true;
            self.pending = Some(Pending { request, changed, floors });
            return Ok(());
        }
        let wrong =
            |request: &Request| Violation::Protocol(format!("{request:?} was answered {status} {body}"));
        match cookie {
            Some(empty) if empty.is_empty() => {}
            Some(cookie) => self.cookie = Some(cookie),
            None => {}
        }
        match (&request, status) {
            (Request::LogIn, 200) => {
                self.ended_cookie = None;
                self.log_ins += 1;
                self.cookie.is_some().then_some(()).ok_or_else(|| wrong(&request))
            }
            (Request::LogOut, 200) => {
                self.ended_cookie = self.cookie.take();
                Ok(())
            }
            (Request::WhoAmI, 200) if body["userCtx"]["name"].is_null() => {
                self.ended_cookie = None;
                Ok(())
            }
            // The session is over: the client was idle for too long. Nothing happened.
            (_, 401) => {
                self.cookie = None;
                changed.into_iter().for_each(|document| ledger.takes_back(document));
                Ok(())
            }
            (Request::CreateDatabase, 201) => {
                self.has_database = true;
                Ok(())
            }
            (Request::Put(document, _), 200 | 201) => {
                ledger.acknowledges(*document, body["rev"].as_str().unwrap_or_default())
            }
            (Request::Bulk(edits), 201) => {
                let rows = body
                    .as_array()
                    .filter(|rows| rows.len() == edits.len())
                    .ok_or_else(|| wrong(&request))?;
                edits.iter().zip(rows).try_for_each(|((document, _), row)| {
                    ledger.acknowledges(*document, row["rev"].as_str().unwrap_or_default())
                })
            }
            (Request::Get(document), 200) => {
                let mut shown = body;
                let rev = shown["_rev"].as_str().unwrap_or_default().to_string();
                let members =
                    shown.as_object_mut().ok_or_else(|| Violation::Protocol("no document".into()))?;
                members.retain(|name, _| !name.starts_with('_'));
                ledger.shows(*document, &rev, Some(&shown), floors[document])
            }
            (Request::Get(document), 404) => ledger.shows_nothing(*document, floors[document]),
            (Request::Changes, 200) => self.changes(&body, &floors, ledger),
            _ => Err(wrong(&request)),
        }
    }

    /// Checks that a feed has every document that had been acknowledged or shown when the client asked for
    /// the feed.
    fn changes(
        &self,
        body: &Value,
        floors: &BTreeMap<Document, usize>,
        ledger: &mut Ledger,
    ) -> Result<(), Violation> {
        let mut missing = floors.clone();
        for row in body["results"].as_array().into_iter().flatten() {
            let document = row["id"].as_str().and_then(|id| ledger.of_id(id));
            let document = document.ok_or_else(|| Violation::Protocol(format!("a stranger's row: {row}")))?;
            let floor = missing.remove(&document);
            let floor = floor.ok_or_else(|| Violation::Protocol(format!("{document:?} comes twice")))?;
            ledger.shows(document, row["changes"][0]["rev"].as_str().unwrap_or_default(), None, floor)?;
        }
        match missing.iter().find(|(_, floor)| **floor > 0) {
            Some((document, floor)) => {
                let text = format!("a feed lacks {document:?}, of which version {floor} was shown before");
                Err(Violation::Protocol(text))
            }
            None => Ok(()),
        }
    }
}
