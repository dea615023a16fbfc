//! Document databases on a simulated disk: clients that edit, with concurrent saves and compactions, for one
//! incarnation of a server.
//!
//! ```text
//! step = one of: a client edits (a document, or several in a transaction) | a batch as from HTTP |
//!               a database is created or deleted | a flush | replies are delivered | a save |
//!               a step of a compaction | time passes
//! ```
//!
//! Commands run through the product's own conversation and executor, batches through the writers of HTTP.
//! After a crash the disk must hold the documents as of some change, no older than the last acknowledged one.
//! HTTP itself is simulated in `http`; attachments and conflicts are tested in the crate `documents`.

mod client;
mod model;

use std::{collections::VecDeque, sync::Arc};

use documents::{
    Compaction, Documents, Due, EditRequest, Limits as DocumentLimits, NewDocument, Step, StoreError,
};
use engine::conversation::{Conversation, ConversationState, Round};
use engine::{Executor, Host, Interests};
use env::{Clock, Disk, Prng, SimClock, SimDisk};
use keyspace::{Keyspace, encode_documents_into};
use lsn::Lsn;
use recovery::recover::RecoverError;
use storage::{Admission, Appender, Flush, Log};
use wire::{Limits, RequestBatch, Value};

pub use self::model::{DocumentContent, Held, documents_of};
use self::{client::Client, model::Edit};
use crate::host::session_of;
use crate::{
    Recovered, Sabotage, Violation, WorldOptions, recover_documents, sim_host, snapshotting, start::WORKERS,
};

const DATABASES: u64 = 3;
const DOCUMENTS: u64 = 8;
/// A client with this many outstanding replies sends nothing more.
const DUE_MAX: usize = 20;

/// A simulated server with document databases.
pub struct DocumentWorld {
    options: WorldOptions,
    disk: Arc<SimDisk>,
    clock: Arc<SimClock>,
    documents: Arc<Documents>,
    keyspace: Arc<Keyspace>,
    log: Log,
    appender: Appender,
    host: Host,
    executors: Vec<Executor>,
    batch: RequestBatch,
    clients: Vec<Client>,
    compaction: Option<Compaction>,
    /// The content after each change.
    states: Vec<DocumentContent>,
    /// Changes without a reply to a client, each with the index of the state after it.
    unreplied: VecDeque<(Lsn, usize)>,
    acknowledged: usize,
    saves: u64,
    compactions: u64,
    next_body: u64,
    prng: Prng,
}

impl DocumentWorld {
    /// Starts a server on an empty disk.
    ///
    /// # Errors
    /// As [`recover_documents`].
    pub fn start(
        options: WorldOptions,
        disk: Arc<SimDisk>,
        clock: Arc<SimClock>,
    ) -> Result<DocumentWorld, RecoverError> {
        let (Recovered { keyspace, log }, documents) = recover_documents(disk.clone(), &options, &clock)?;
        let (host, _) = sim_host(clock.clone(), log.clone(), WORKERS, Some(documents.clone()));
        let interests = Arc::<Interests>::default();
        let executor = |worker: usize| {
            let stats = host.stats.worker(worker);
            let mut executor =
                Executor::new(commands::table(), keyspace.clone(), interests.clone(), stats, 1);
            executor.attach(log.appender());
            executor
        };
        let executors = (0..WORKERS).map(executor).collect();
        let client =
            |index: usize| Client::new(Conversation::new(session_of(&host, index, Box::new(|_, _| {}))));
        let clients = (0..options.clients).map(client).collect();
        Ok(DocumentWorld {
            disk,
            clock,
            documents,
            keyspace,
            appender: log.appender(),
            log,
            host,
            executors,
            batch: RequestBatch::new(),
            clients,
            compaction: None,
            states: vec![DocumentContent::new()],
            unreplied: VecDeque::new(),
            acknowledged: 0,
            saves: 0,
            compactions: 0,
            next_body: 0,
            prng: Prng::new(options.seed),
            options,
        })
    }

    /// The numbers of changes, saves and compactions so far.
    pub fn done(&self) -> (usize, u64, u64) {
        (self.states.len() - 1, self.saves, self.compactions)
    }

    /// Runs `steps` steps, or fewer if the machine stops.
    ///
    /// # Errors
    /// The first wrong reply.
    pub fn run(&mut self, steps: usize) -> Result<(), Violation> {
        for _ in 0..steps {
            if self.disk.has_stopped() {
                return Ok(());
            }
            let index = self.prng.below(self.clients.len() as u64) as usize;
            match self.prng.below(100) {
                0..35 => self.client_step(index)?,
                35..43 => self.batch_step()?,
                43..46 => self.catalog_step()?,
                46..66 => self.flush(),
                66..84 => self.deliver(index),
                84..90 => self.save(),
                90..97 => self.compact(),
                _ => self.clock.advance_us(self.prng.below(3_000_000)),
            }
        }
        Ok(())
    }

    /// Saves all documents, then takes a snapshot, so that earlier changes of documents are only in files.
    ///
    /// # Errors
    /// If documents cannot be saved.
    pub fn snapshot(&mut self) -> Result<(), StoreError> {
        self.log.flush_all().expect("a sound disk");
        self.save_all()?;
        let disk: Arc<dyn Disk> = self.disk.clone();
        snapshotting::take(&disk, &self.log, &self.keyspace).expect("a sound disk");
        Ok(())
    }

    /// Saves all documents.
    ///
    /// # Errors
    /// If documents cannot be saved.
    pub fn save_all(&mut self) -> Result<(), StoreError> {
        let due = Due { now_ms: 0, upto: self.log.appended_lsn(), everything: true };
        self.save_if_due(&due)
    }

    /// Closes the log, as at an orderly stop.
    ///
    /// # Errors
    /// I/O errors.
    pub fn close(&mut self) -> Result<(), storage::Error> {
        self.log.close()
    }

    /// The end of the log, which begins at 0.
    pub fn log_bytes(&self) -> u64 {
        self.log.appended_lsn().get()
    }

    /// Checks the content of a server that was started on the remaining disk.
    ///
    /// # Errors
    /// If it is not the content after some change, or if that change is older than the last acknowledged one.
    pub fn judge(&self, held: &DocumentContent) -> Result<(), Violation> {
        let (floor, executed) = (self.acknowledged, self.states.len() - 1);
        match self.states.iter().rposition(|state| state == held) {
            Some(position) if position >= floor => Ok(()),
            Some(position) => Err(Violation::Lost { position, floor, executed }),
            None => {
                let difference = format!("{held:?} is not {:?}", self.states.last());
                Err(Violation::NeverWas { floor, executed, difference })
            }
        }
    }

    fn content(&self) -> DocumentContent {
        self.states.last().cloned().unwrap_or_default()
    }

    /// The index of the state after the last change of a database.
    fn last_change(&self, name: &str) -> usize {
        let is_changed = |pair: &[DocumentContent; 2]| pair[0].get(name) != pair[1].get(name);
        self.states.array_windows().rposition(is_changed).map_or(0, |before| before + 1)
    }

    fn edit(&mut self) -> Edit {
        let database = format!("db{}", self.prng.below(DATABASES));
        let id = format!("doc{}", self.prng.below(DOCUMENTS));
        let held = self.states.last().and_then(|content| content.get(&database)?.get(&id)).cloned();
        // Some edits ignore the existing document, or name a revision that never existed.
        let parent = held.filter(|_| self.prng.chance(90)).map(|held| held.rev);
        let parent = parent.or_else(|| self.prng.chance(5).then(|| format!("3-{:032x}", 7)));
        self.next_body += 1;
        let padding = if self.prng.chance(5) { 9_000 } else { self.prng.below(300) };
        let body = format!(r#"{{"n":{},"padding":"{}"}}"#, self.next_body, "x".repeat(padding as usize));
        let body = (parent.is_none() || self.prng.chance(85)).then_some(body);
        Edit { database, id, parent, body }
    }

    /// Edits of different documents, so that no edit depends on the reply to another.
    fn edits(&mut self, count_max: u64) -> Vec<Edit> {
        let mut edits: Vec<Edit> = Vec::new();
        for _ in 0..1 + self.prng.below(count_max) {
            let edit = self.edit();
            if edits.iter().all(|other| (&other.database, &other.id) != (&edit.database, &edit.id)) {
                edits.push(edit);
            }
        }
        edits
    }

    fn client_step(&mut self, index: usize) -> Result<(), Violation> {
        let is_idle =
            self.clients[index].state == ConversationState::Idle && self.clients[index].sent.is_empty();
        let mut input = Vec::new();
        if is_idle {
            if self.clients[index].due.len() >= DUE_MAX {
                return Ok(());
            }
            let is_transaction = self.prng.chance(40);
            let edits = self.edits(if is_transaction { 4 } else { 1 });
            let frame = |word: &[u8]| is_transaction.then(|| vec![word.to_vec()]);
            let requests =
                frame(b"MULTI").into_iter().chain(edits.iter().map(Edit::words)).chain(frame(b"EXEC"));
            requests.for_each(|words| wire::request::encode(&words, &mut input));
            let client = &mut self.clients[index];
            (client.sent, client.is_transaction) = (edits, is_transaction);
        }
        let client = &mut self.clients[index];
        let mut round = Round {
            executor: &mut self.executors[index % WORKERS],
            batch: &mut self.batch,
            host: &self.host,
            now_ms: self.clock.unix_ms(),
            limits: Limits::DEFAULT,
            flush_alone: None,
            is_congested: false,
        };
        client.state = if is_idle {
            client.conversation.receive(&input, &mut round)
        } else {
            client.conversation.resume(&mut round)
        };
        drop(self.executors[index % WORKERS].take_freed());
        self.look_at_replies(index)
    }

    /// Checks the replies once all of them have arrived.
    fn look_at_replies(&mut self, index: usize) -> Result<(), Violation> {
        let client = &mut self.clients[index];
        client.take_new_replies()?;
        let count = if client.is_transaction { client.sent.len() + 2 } else { 1 };
        if client.sent.is_empty() || client.replies.len() < count {
            return Ok(());
        }
        let (edits, mut replies) = (std::mem::take(&mut client.sent), std::mem::take(&mut client.replies));
        let answers = match (client.is_transaction, replies.pop()) {
            (true, Some(Value::Array(answers))) => answers,
            (_, last) => last.into_iter().collect(),
        };
        // A refusal shows nothing of the content.
        let position = if answers.iter().any(is_refusal) { 0 } else { self.executed(&edits, answers)? };
        let client = &mut self.clients[index];
        client.due.push_back((client.replied_bytes, position));
        Ok(())
    }

    /// Applies executed edits and checks their replies. Returns the index of the state that the replies show.
    fn executed(&mut self, edits: &[Edit], answers: Vec<Value>) -> Result<usize, Violation> {
        let mut content = self.content();
        for (edit, answer) in edits.iter().zip(answers) {
            edit.apply(&mut content, text_of(answer)?)?;
        }
        if self.states.last() == Some(&content) {
            // Nothing changed: the replies show the last changes of their databases, and nothing else.
            return Ok(edits.iter().map(|edit| self.last_change(&edit.database)).max().unwrap_or(0));
        }
        self.states.push(content);
        Ok(self.states.len() - 1)
    }

    /// Edits several documents of one database in one change, as HTTP merges concurrent updates.
    fn batch_step(&mut self) -> Result<(), Violation> {
        let edits = self.edits(6);
        let Some(name) = edits.first().map(|edit| edit.database.clone()) else { return Ok(()) };
        let Ok(database) = self.documents.database(&name) else { return Ok(()) };
        if self.log.admit(1 << 15) != Admission::Go {
            return Ok(());
        }
        let Ok(mut writer) = database.lock() else { return Ok(()) };
        let mut content = self.content();
        let edits: Vec<Edit> = edits.into_iter().filter(|edit| edit.database == name).collect();
        let requests: Vec<EditRequest> = edits.iter().map(request_of).collect();
        writer.look_up(requests.iter().map(|request| &request.id));
        for (edit, request) in edits.iter().zip(requests) {
            let answer = writer.edit(request).map(|rev| rev.to_string());
            edit.apply(&mut content, answer.map_err(|error| error.error().to_uppercase()))?;
        }
        let Ok(Some(change)) = writer.change() else { return Ok(()) };
        self.append(&change, content, |lsn| writer.commit(lsn));
        Ok(())
    }

    /// Creates or deletes a database.
    fn catalog_step(&mut self) -> Result<(), Violation> {
        if self.log.admit(1000) != Admission::Go {
            return Ok(());
        }
        let (name, mut content) = (format!("db{}", self.prng.below(DATABASES)), self.content());
        let mut writer = self.documents.lock();
        let is_there = content.contains_key(&name);
        if is_there && self.prng.chance(60) {
            return Ok(());
        }
        let change = if is_there { writer.delete(&name) } else { writer.create(&name) };
        let change = change.map_err(|error| Violation::Protocol(format!("{name}: {error}")))?;
        if is_there {
            drop(content.remove(&name))
        } else {
            drop(content.insert(name, Default::default()))
        }
        self.append(&change, content, |lsn| writer.commit(lsn));
        Ok(())
    }

    fn append(&mut self, change: &[u8], content: DocumentContent, commit: impl FnOnce(Lsn)) {
        let mut record = Vec::new();
        encode_documents_into(change, &mut record);
        // The log takes no writes any more: the machine is about to stop.
        let Ok(pending) = self.appender.reserve(&record) else { return };
        let lsn = pending.lsn();
        commit(lsn);
        pending.publish();
        self.states.push(content);
        self.unreplied.push_back((lsn, self.states.len() - 1));
    }

    /// One step of the log thread, and of the thread that prepares segments.
    fn flush(&mut self) {
        // A failure shows as replies that are never sent.
        if matches!(self.log.flush(), Ok(Flush::NeedSegment)) || self.log.needs_segment() {
            drop(self.log.prepare_segment());
        }
    }

    /// Delivers released replies to a client. A change for which no client gets a reply counts as
    /// acknowledged once it is durable.
    fn deliver(&mut self, index: usize) {
        let durable = match self.options.sabotage {
            Some(Sabotage::EarlyReplies) => Lsn::MAX,
            _ => self.log.durable_lsn(),
        };
        let client = &mut self.clients[index];
        client.conversation.outbox.release(durable);
        let bytes = client.conversation.outbox.sendable().len();
        client.conversation.outbox.consume(bytes);
        client.taken_bytes += bytes as u64;
        while let Some((_, position)) = client.due.pop_front_if(|(end, _)| *end <= client.taken_bytes) {
            self.acknowledged = self.acknowledged.max(position);
        }
        while let Some((_, position)) = self.unreplied.pop_front_if(|(lsn, _)| *lsn <= durable) {
            self.acknowledged = self.acknowledged.max(position);
        }
    }

    /// One pass of the thread that saves documents.
    fn save(&mut self) {
        let (now_ms, upto) = (self.clock.monotonic_us() / 1000, self.log.appended_lsn());
        let due = Due { now_ms, upto, everything: self.prng.chance(60) };
        self.saves += u64::from(self.save_if_due(&due).is_ok());
    }

    fn save_if_due(&self, due: &Due) -> Result<(), StoreError> {
        let log = self.log.clone();
        let mut committed = |lsn: Lsn| lsn <= log.durable_lsn() || log.make_durable(lsn).is_ok();
        let saved = self.documents.checkpoint(due, &mut committed);
        if self.documents.is_saved() {
            // The next pass tries again.
            drop(log.note_documents());
        }
        saved
    }

    /// One step of a compaction; begins one if none is running.
    fn compact(&mut self) {
        let Some(mut compaction) = self.compaction.take() else {
            let chosen = self.documents.database(&format!("db{}", self.prng.below(DATABASES)));
            self.compaction = chosen.ok().and_then(|it| self.documents.begin_compaction(&it).ok().flatten());
            return;
        };
        match compaction.step() {
            Ok(Step::Done) => self.compactions += 1,
            Ok(Step::More | Step::Blocked) => self.compaction = Some(compaction),
            // The compaction is abandoned; the old file stays in use.
            Err(_) => {}
        }
    }
}

fn request_of(edit: &Edit) -> EditRequest {
    let rev = edit.parent.as_ref().map(|rev| rev.parse().expect("a revision"));
    let mut document = match &edit.body {
        Some(body) => NewDocument::parse(body.as_bytes(), &DocumentLimits::default()).expect("JSON"),
        None => NewDocument::deletion(edit.id.as_str().into(), None),
    };
    document.rev = rev;
    EditRequest::new(edit.id.as_str().into(), document, true, |_| None).expect("an edit")
}

/// Whether a reply refuses a command because the server takes no writes now. Such a reply says nothing about
/// the content.
fn is_refusal(value: &Value) -> bool {
    const REFUSALS: [&str; 4] = ["MISCONF", "EXECABORT", "IOERR", "BUSY"];
    matches!(value, Value::Error(text) if REFUSALS.iter().any(|name| text.starts_with(name.as_bytes())))
}

/// The new revision, or the error.
fn text_of(value: Value) -> Result<Result<String, String>, Violation> {
    match value {
        Value::Bulk(rev) => Ok(Ok(String::from_utf8_lossy(&rev).into_owned())),
        Value::Error(text) => Ok(Err(String::from_utf8_lossy(&text).into_owned())),
        other => Err(Violation::Protocol(format!("an edit was answered {other:?}"))),
    }
}
