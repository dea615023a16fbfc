//! Test utilities: documents with a log that is a list, and short constructors for requests.

use std::sync::{Arc, Mutex};

use env::{SimDisk, SimEntropy};
use lsn::Lsn;
use tree::{NodeCache, Written};

use crate::*;

/// Documents, the log of all their changes, and the notices sent to the listener.
pub(crate) struct Kit {
    pub(crate) documents: Arc<Documents>,
    pub(crate) log: Mutex<Vec<(Lsn, Vec<u8>)>>,
    pub(crate) notices: Arc<Mutex<Vec<Notice>>>,
}

impl Kit {
    pub(crate) fn new() -> Kit {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let told = notices.clone();
        let documents =
            Documents::in_memory(Arc::new(move |notice| told.lock().expect("whole").push(notice)));
        Kit { documents: Arc::new(documents), log: Mutex::default(), notices }
    }

    /// Recovers from the files on a disk and a log.
    pub(crate) fn open(disk: &Arc<SimDisk>, log: &[(Lsn, Vec<u8>)]) -> Result<Kit, StoreError> {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let told = notices.clone();
        let listener: Listener = Arc::new(move |notice| told.lock().expect("whole").push(notice));
        let end = log.last().map(|(lsn, _)| *lsn);
        let documents = Arc::new(Documents::open(shelf(disk), end, listener)?);
        let replay_from = documents.replay_from().unwrap_or(Lsn::ZERO);
        for (lsn, change) in log.iter().filter(|(lsn, _)| *lsn > replay_from) {
            documents.apply(change, *lsn)?;
        }
        Ok(Kit { documents, log: Mutex::new(log.to_vec()), notices })
    }

    /// Saves all pending changes.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
        self.documents.checkpoint(&Due { now_ms: 0, upto: self.end(), everything: true }, &mut |_| true)
    }

    pub(crate) fn end(&self) -> Lsn {
        self.log.lock().expect("whole").last().map_or(Lsn::ZERO, |(lsn, _)| *lsn)
    }

    /// The contents of all databases, as text.
    pub(crate) fn dump(&self) -> Vec<(String, Vec<String>)> {
        let all = self.documents.all();
        all.iter().map(|db| (format!("{} {}", db.name(), db.id()), dump(&db.snapshot()))).collect()
    }

    /// Documents in memory with a database named `db`.
    pub(crate) fn with_database() -> (Kit, Arc<Database>) {
        let kit = Kit::new();
        let db = kit.create("db").expect("created");
        (kit, db)
    }

    pub(crate) fn create(&self, name: &str) -> Result<Arc<Database>, DocError> {
        let mut catalog = self.documents.lock();
        let change = catalog.create(name)?;
        catalog.commit(self.append(change));
        self.documents.database(name)
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), DocError> {
        let mut catalog = self.documents.lock();
        let change = catalog.delete(name)?;
        catalog.commit(self.append(change));
        Ok(())
    }

    /// Runs one writer on a database, and commits its change.
    pub(crate) fn write<R>(&self, db: &Arc<Database>, write: impl FnOnce(&mut Writer) -> R) -> R {
        let mut writer = db.lock().expect("there");
        let result = write(&mut writer);
        // If a file could not be read, nothing has changed, and `result` has the error.
        if let Ok(Some(change)) = writer.change() {
            writer.commit(self.append(change));
        }
        result
    }

    pub(crate) fn edit(&self, db: &Arc<Database>, request: EditRequest) -> Result<Rev, DocError> {
        self.write(db, |writer| writer.edit(request))
    }

    fn append(&self, change: Vec<u8>) -> Lsn {
        let mut log = self.log.lock().expect("whole");
        let lsn = log.last().map_or(Lsn::ZERO, |(lsn, _)| *lsn).advance(8 + change.len() as u64);
        log.push((lsn, change));
        lsn
    }

    /// A replica that has applied the whole log.
    pub(crate) fn replica(&self) -> Kit {
        let replica = Kit::new();
        for (lsn, change) in self.log.lock().expect("whole").iter() {
            replica.documents.apply(change, *lsn).expect("a change that fits");
        }
        replica
    }
}

/// The environment of files on a disk.
pub(crate) fn shelf(disk: &Arc<SimDisk>) -> Shelf {
    let (entropy, cache) = (Arc::new(SimEntropy::new(1)), NodeCache::new(1 << 20));
    Shelf {
        disk: disk.clone(),
        dir: directory("/data".as_ref()),
        entropy,
        cache,
        written: Written::default(),
    }
}

/// A JSON text as an interactive edit (`new_edits: true`).
pub(crate) fn put(id: &str, json: &str) -> EditRequest {
    parsed(id, json, true)
}

/// A JSON text as a replicated edit (`new_edits: false`).
pub(crate) fn replicated(id: &str, json: &str) -> EditRequest {
    parsed(id, json, false)
}

fn parsed(id: &str, json: &str, new_edits: bool) -> EditRequest {
    let document = NewDocument::parse(json.as_bytes(), &Limits::default()).expect("a document");
    EditRequest::new(id.into(), document, new_edits, |_| None).expect("an edit")
}

/// An edit based on this revision.
pub(crate) fn update(id: &str, parent: Rev, body: &str) -> EditRequest {
    EditRequest { history: History::Parent(Some(parent)), ..put(id, body) }
}

/// A deletion based on this revision.
pub(crate) fn delete(id: &str, parent: Rev) -> EditRequest {
    EditRequest { deleted: true, ..update(id, parent, "{}") }
}

/// A revision whose hash is one repeated byte.
pub(crate) fn rev(number: u32, name: u8) -> Rev {
    Rev::new(number, [name; 16]).expect("not 0")
}

/// The hash of [`rev`] as text.
pub(crate) fn hex(name: u8) -> String {
    format!("{name:02x}").repeat(16)
}

/// The contents of a database for readers, as text.
pub(crate) fn dump(snapshot: &Snapshot) -> Vec<String> {
    let mut out = vec![format!("{:?} {}", snapshot.info().sums, snapshot.update_seq())];
    out.push(format!("{} {:?} {}", snapshot.revs_limit(), snapshot.security(), snapshot.info().purge_seq));
    for row in snapshot.changes(0, Direction::Ascending) {
        let row = row.expect("readable");
        out.push(format!("{row:?}"));
        let info = snapshot.document(&row.id).expect("readable").expect("in the feed");
        assert_eq!(info.change_row(), row);
        for (rev, leaf) in info.revs.leaves() {
            let body = snapshot.body(leaf).expect("readable");
            let path: Vec<Rev> = info.revs.path_of(rev).expect("a leaf").revs().collect();
            out.push(format!("  {path:?} {} {} {body:?}", leaf.deleted, leaf.seq));
            for attachment in leaf.attachments.iter() {
                let parts = snapshot.attachment(attachment, 0..u64::MAX);
                let bytes: Vec<u8> = parts.flat_map(|part| part.expect("readable")).collect();
                let Attachment { name, content_type, revpos, digest, length, .. } = attachment;
                assert_eq!((*digest, *length), (Digest::of(&bytes), bytes.len() as u64));
                out.push(format!("    {name} {content_type} {revpos} {digest:?}"));
            }
        }
    }
    let ids = |direction| {
        let infos = snapshot.all_docs(IdRange::ALL, direction);
        infos.map(|info| info.expect("readable").id.clone()).collect::<Vec<_>>()
    };
    let mut backwards = ids(Direction::Descending);
    backwards.reverse();
    assert_eq!(ids(Direction::Ascending), backwards);
    out.push(format!("{backwards:?}"));
    for id in ["x", "y", "doc00", "doc01", "doc02", "doc03"] {
        out.push(format!("{id} {:?}", snapshot.local(id).expect("readable")));
    }
    let mut rows: Vec<_> =
        snapshot.changes(u64::MAX, Direction::Descending).map(|row| row.expect("readable").seq).collect();
    rows.reverse();
    let forwards: Vec<_> =
        snapshot.changes(0, Direction::Ascending).map(|row| row.expect("readable").seq).collect();
    assert_eq!(rows, forwards);
    out
}
