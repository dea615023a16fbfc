//! Backups of a server on one simulated disk to another disk that crashes: at any time the directory holds a
//! consistent backup.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::{Cursor, Read},
    ops::{ControlFlow, Range},
};

use documents::{
    Documents, Due, EditRequest, History, Limits, Listener, NewDocument, Rev, Step as Compacting,
};
use env::{
    Clock, Prng, SimClock, SimDisk, SimEntropy,
    sim::{CrashMode, FaultPlan, SimDiskOptions},
};
use keyspace::{AccessClock, DbId, Digest, Freed, KeyOp, Keyspace, Value, slot_of};
use lsn::Lsn;
use prng::sweep::spread_at_least;
use recovery::{offline::Place, snapshot_task::GENERATIONS};
use storage::{Appender, CopyPlan, Log, LogOptions, Pin};

use super::*;
use crate::{
    chain_digits,
    fetch::RemoteError,
    refuse_incomplete,
    restore::{Target, restore, write_snapshot},
    view,
};

const DATA: &str = "/data";
const DEST: &str = "/backup";
const RESTORED: &str = "/restored";
const START_MS: u64 = 1_700_000_000_000;
/// Larger than one block of the log, 4096 bytes.
const VALUE_BYTES: usize = 5000;

fn new_disk(seed: u64) -> Arc<SimDisk> {
    SimDisk::new(SimDiskOptions { seed, ..Default::default() })
}

fn place<'a>(disk: Arc<dyn Disk>, dir: &'a str, entropy: &'a SimEntropy) -> Place<'a> {
    let options = LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        unwritten_bytes_max: 16 << 10,
        appenders_max: 1,
        ..LogOptions::default()
    };
    let clock = Arc::new(SimClock::new(START_MS));
    Place { disk, clock, entropy, dir: Path::new(dir), options, appliers: 0 }
}

/// The digest of the keys, and the documents of each database.
type Content = (Digest, BTreeMap<String, Vec<String>>);

fn documents_of(documents: &Documents) -> BTreeMap<String, Vec<String>> {
    let dump = |db: &Arc<documents::Database>| {
        let snapshot = db.snapshot();
        let rows = snapshot.changes(0, documents::Direction::Ascending).map(|row| {
            let row = row.unwrap();
            let info = snapshot.document(&row.id).unwrap().unwrap();
            let bodies: Vec<_> = info.revs.leaves().map(|(_, leaf)| snapshot.body(leaf).unwrap()).collect();
            format!("{row:?} {bodies:?}")
        });
        (db.name().to_string(), rows.collect())
    };
    documents.all().iter().map(dump).collect()
}

/// A server with keys and documents.
struct Server {
    disk: Arc<SimDisk>,
    entropy: SimEntropy,
    clock: Arc<SimClock>,
    keyspace: Keyspace,
    documents: Arc<Documents>,
    revs: RefCell<BTreeMap<(String, String), Rev>>,
    log: Log,
    appender: RefCell<Appender>,
    /// The offered files, and the content at the time of the offer.
    offered: RefCell<BTreeMap<String, Vec<u8>>>,
    at_offer: RefCell<Option<Content>>,
    pin: RefCell<Option<Pin>>,
    sent: Cell<u64>,
    /// Whether the server is silent for long before its offer.
    is_slow: Cell<bool>,
    /// The connection breaks after this many bytes.
    sent_max: Cell<u64>,
}

impl Server {
    fn new(seed: u64) -> Server {
        Server::on(new_disk(seed), seed)
    }

    /// A server on the data directory of a disk.
    fn on(disk: Arc<SimDisk>, seed: u64) -> Server {
        let entropy = SimEntropy::new(seed);
        let nobody: Listener = Arc::new(|_| {});
        let data = Path::new(DATA);
        let documents =
            recovery::opening::open(disk.clone(), data, Arc::new(SimEntropy::new(seed)), None, nobody)
                .unwrap();
        let (keyspace, recovery) = place(disk.clone(), DATA, &entropy).load(&|_, _, _| {}).unwrap();
        let clock = Arc::new(SimClock::new(START_MS));
        let log = recovery.finish(clock.clone()).unwrap();
        let appender = log.appender().into();
        Server {
            disk,
            entropy,
            clock,
            keyspace,
            documents: Arc::new(documents),
            revs: RefCell::default(),
            log,
            appender,
            offered: RefCell::default(),
            at_offer: RefCell::default(),
            pin: RefCell::default(),
            sent: Cell::new(0),
            is_slow: Cell::new(false),
            sent_max: Cell::new(u64::MAX),
        }
    }

    fn append(&self, payload: &[u8]) -> Lsn {
        self.clock.advance_ms(1000);
        let mut appender = self.appender.borrow_mut();
        let pending = appender.reserve(payload).unwrap();
        let lsn = pending.lsn();
        pending.publish();
        lsn
    }

    fn put(&self, key: u64, byte: u8) {
        let (key, value) = (format!("key {key}"), vec![byte; VALUE_BYTES]);
        let (db, key, value) = (DbId::ZERO, key.as_bytes(), Value::String(&value));
        let effect = KeyOp::Put { value, expire_at_ms: None }.on(db, key);
        let mut payload = Vec::new();
        effect.encode_into(&mut payload);
        let mut slot = self.keyspace.lock(slot_of(key));
        slot.apply(&effect, AccessClock::default(), &mut Freed::new());
        let lsn = self.append(&payload);
        slot.set_last_lsn(lsn);
        drop(slot);
        self.flush();
    }

    fn flush(&self) {
        self.log.flush_all().unwrap();
        while self.log.prepare_segment().unwrap() == storage::Prepare::Made {}
    }

    fn append_documents(&self, change: &[u8]) -> Lsn {
        let mut payload = Vec::new();
        keyspace::encode_documents_into(change, &mut payload);
        let lsn = self.append(&payload);
        self.flush();
        lsn
    }

    fn create(&self, name: &str) {
        let mut catalog = self.documents.lock();
        let Ok(change) = catalog.create(name) else { return };
        catalog.commit(self.append_documents(&change));
    }

    fn delete(&self, name: &str) {
        let mut catalog = self.documents.lock();
        let Ok(change) = catalog.delete(name) else { return };
        catalog.commit(self.append_documents(&change));
        self.revs.borrow_mut().retain(|(db, _), _| db != name);
    }

    fn edit(&self, name: &str, number: u64, filling: u64) {
        self.create(name);
        let id = format!("document {number}");
        let text = format!("{{\"filling\": \"{}\"}}", filling.to_string().repeat(300));
        let document = NewDocument::parse(text.as_bytes(), &Limits::default()).unwrap();
        let key = (name.to_string(), id.clone());
        let parent = self.revs.borrow().get(&key).copied();
        let request = EditRequest::new(id.as_str().into(), document, true, |_| None).unwrap();
        let request = EditRequest { history: History::Parent(parent), ..request };
        let db = self.documents.database(name).unwrap();
        let mut writer = db.lock().unwrap();
        let rev = writer.edit(request).unwrap();
        let change = writer.change().unwrap().unwrap();
        writer.commit(self.append_documents(&change));
        self.revs.borrow_mut().insert(key, rev);
    }

    fn save(&self) {
        let due = Due { now_ms: 0, upto: self.log.durable_lsn(), everything: true };
        self.documents.checkpoint(&due, &mut |_| true).unwrap();
    }

    /// Compacts a database, which then has another file.
    fn compact(&self, name: &str) {
        let Ok(db) = self.documents.database(name) else { return };
        let Some(mut compaction) = self.documents.begin_compaction(&db).unwrap() else { return };
        loop {
            match compaction.step().unwrap() {
                Compacting::Done => break,
                Compacting::More => {}
                Compacting::Blocked => self.save(),
            }
        }
        self.put(1000, 1);
        self.save();
    }

    fn take_snapshot(&self) {
        self.put(1001, 2);
        self.save();
        write_snapshot(
            &place(self.disk.clone(), DATA, &self.entropy),
            &self.log,
            &self.keyspace,
            &|_, _, _| {},
        )
        .unwrap();
        storage::retain_snapshots(&*self.disk, Path::new(DATA), &self.log, GENERATIONS).unwrap();
    }

    fn content(&self) -> Content {
        (self.keyspace.digest(), documents_of(&self.documents))
    }

    /// Does one random operation.
    fn act(&self, prng: &mut Prng) {
        let name = ["a", "b", "c"][prng.below(3) as usize];
        match prng.below(20) {
            0..8 => self.put(prng.below(60), prng.below(256) as u8),
            8..15 => self.edit(name, prng.below(12), prng.below(1000)),
            15 | 16 => self.save(),
            17 => self.compact(name),
            18 => self.take_snapshot(),
            _ if prng.below(4) == 0 => self.delete(name),
            _ => {}
        }
    }

    /// Backs up to a disk; returns the bytes reused and copied.
    fn back_up(&self, disk: &Arc<SimDisk>) -> Result<(u64, u64), BackupError> {
        self.back_up_telling(disk, &|_| {})
    }

    fn back_up_telling(
        &self,
        disk: &Arc<SimDisk>,
        tell: &dyn Fn(Notice<'_>),
    ) -> Result<(u64, u64), BackupError> {
        let disk: Arc<dyn Disk> = disk.clone();
        disk.create_dir_all(Path::new(DEST)).map_err(os("create", Path::new(DEST)))?;
        let show = |_, done, total| {
            assert!(done <= total);
            Ok(())
        };
        let copying = Copying { disk: &disk, dir: Path::new(DEST), origin: self, tell, show: &show };
        let copied = copying.run(Onto::Backup)?;
        assert!(self.pin.borrow().is_none(), "the session was ended");
        Ok((copied.reused_bytes, copied.copied_bytes))
    }
}

impl Origin for Server {
    fn begin(&self, session: &str, resume: Option<u64>, is_silent: &dyn Fn()) -> Result<Offer, RemoteError> {
        (0..2 * u8::from(self.is_slow.get())).for_each(|_| is_silent());
        let planned = self.documents.plan_copy().unwrap();
        let saved = self.documents.saved_lsn();
        let log = &self.log;
        let plan_from = |begin: Lsn| {
            log.plan_copy(begin, planned.is_some()).unwrap().filter(|_| saved.is_none_or(|it| it >= begin))
        };
        let newest = || plan_from(snapshot::list_begins(&*self.disk, Path::new(DATA)).unwrap()[0]);
        let plan = resume.and_then(|begin| plan_from(Lsn::new(begin))).or_else(newest).unwrap();
        let mut offered = BTreeMap::new();
        let mut files = Vec::new();
        let mut offer = |name: String, bytes: Vec<u8>| {
            files.push(OfferedFile { name: name.clone(), bytes: bytes.len() as u64 });
            offered.insert(name, bytes);
        };
        for file in &plan.files {
            let bytes = self.disk.read_file(&Path::new(DATA).join(&file.name)).unwrap();
            offer(file.name.clone(), bytes[..file.bytes as usize].to_vec());
        }
        if let Some(planned) = planned {
            for file in planned.files {
                let mut bytes = vec![0; file.bytes as usize];
                file.file.read_exact_at(&mut bytes, 0).unwrap();
                offer(format!("documents/{}", file.name), bytes);
            }
            offer(format!("documents/{}", planned.catalog_name), planned.catalog);
        }
        offer(CopyPlan::CONTROL_NAME.into(), plan.control);
        *self.offered.borrow_mut() = offered;
        *self.at_offer.borrow_mut() = Some(self.content());
        *self.pin.borrow_mut() = Some(plan.pin);
        Ok(Offer {
            session: session.into(),
            log_id: log.id().iter().map(|byte| format!("{byte:02x}")).collect(),
            begin_lsn: plan.begin_lsn.get(),
            end_lsn: plan.end_lsn.get(),
            end_chain: log.chain_at(plan.end_lsn).unwrap().map(chain_digits),
            end_unix_ms: self.clock.unix_ms(),
            files,
        })
    }

    fn read(&self, _: &Offer, name: &str, range: Range<u64>) -> Result<Box<dyn Read>, RemoteError> {
        assert!(self.pin.borrow().is_some(), "a session is open");
        let mut bytes = self.offered.borrow()[name][range.start as usize..range.end as usize].to_vec();
        bytes.truncate((self.sent_max.get() - self.sent.get()).min(bytes.len() as u64) as usize);
        self.sent.set(self.sent.get() + bytes.len() as u64);
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn end(&self, _: &Offer) {
        self.pin.borrow_mut().take();
    }
}

/// The content of a backup, verified as by `sheaf check`, and restored.
fn held(disk: &Arc<SimDisk>) -> (Manifest, Content) {
    let (dir, entropy) = (Path::new(DEST), SimEntropy::new(9));
    refuse_incomplete(&**disk, dir).unwrap();
    // On a clone of the disk, so that the restored directory does not affect the next call.
    let disk = disk.clone_state();
    let (seen, manifest) = view(disk.clone(), dir).unwrap();
    let manifest = manifest.expect("a backup");
    manifest.check(&*disk, dir, |_, _| {}).unwrap();
    let log = storage::check(seen.clone(), dir, |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(log.tail.end.get(), manifest.end_lsn);
    let snapshots = snapshot::check(&*seen, dir, |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(snapshots.len(), 1);
    snapshots.into_iter().for_each(|snapshot| _ = snapshot.outcome.unwrap());
    let damage = |what| panic!("{what}");
    documents::check(&*seen, &documents::directory(dir), damage, |_, _| {}).unwrap();
    let known_until_ms = Some(manifest.end_unix_ms);
    restore(&place(seen, DEST, &entropy), known_until_ms, Path::new(RESTORED), Target::End, &|_, _, _| {})
        .unwrap();
    let (keyspace, _) = place(disk.clone(), RESTORED, &entropy).load(&|_, _, _| {}).unwrap();
    let nobody: Listener = Arc::new(|_| {});
    let random = Arc::new(SimEntropy::new(2));
    let documents = recovery::opening::open(disk, Path::new(RESTORED), random, None, nobody).unwrap();
    (manifest, (keyspace.digest(), documents_of(&documents)))
}

/// Checks that the directory has exactly the files of the manifest, with their lengths, and the manifest.
fn assert_nothing_else(disk: &SimDisk, manifest: &Manifest) {
    let mut found = Vec::new();
    for below in ["", "documents", "snapshots"] {
        let names = disk.list(&Path::new(DEST).join(below)).unwrap_or_default();
        found.extend(names.into_iter().map(|name| Path::new(below).join(name)));
    }
    let mut wanted: Vec<_> = manifest.files.iter().map(|file| PathBuf::from(file.stored())).collect();
    wanted.push("backup.json".into());
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted);
    for file in &manifest.files {
        assert_eq!(disk.read_file(&Path::new(DEST).join(file.stored())).unwrap().len() as u64, file.bytes);
    }
}

/// A server with some history.
fn grown(seed: u64) -> Server {
    let server = Server::new(seed);
    for number in 0..60 {
        server.put(number, number as u8);
        server.edit(["a", "b"][number as usize % 2], number % 10, number);
    }
    server.take_snapshot();
    for number in 0..20 {
        server.put(number, 7);
        server.edit("a", number % 10, 1000 + number);
    }
    server.save();
    server
}

/// Makes the changes between two backups. With `snapshots`, the server no longer has the snapshot of the
/// first backup afterwards.
fn go_on(server: &Server, snapshots: bool) {
    for number in 0..5 {
        server.put(number, 99);
        server.edit("a", number, 2000 + number);
    }
    server.save();
    server.edit("new", 1, 1);
    server.compact("b");
    server.delete("b");
    server.create("b");
    if snapshots {
        server.take_snapshot();
        server.take_snapshot();
    }
    server.edit("a", 3, 5000);
    server.put(3, 100);
}

#[test]
fn increments_copy_new_bytes_only_and_hold_the_whole_data() {
    for seed in 0..12 {
        let (server, disk, mut prng) = (Server::new(seed), new_disk(seed), Prng::new(seed));
        server.take_snapshot();
        for made in 0..8 {
            (0..prng.below(60)).for_each(|_| server.act(&mut prng));
            let before = server.sent.get();
            let (reused, copied) = server.back_up(&disk).unwrap();
            let (manifest, content) = held(&disk);
            assert_eq!(content, server.content(), "seed {seed}, backup {made}");
            assert_eq!(manifest.increments, made);
            assert_eq!(reused + copied, manifest.bytes());
            // In addition, the end of the existing data is compared.
            let compared = manifest.files.len() as u64 * SEAL_BYTES;
            assert!(server.sent.get() - before <= copied + compared);
            assert_nothing_else(&disk, &manifest);
        }
    }
}

#[test]
fn little_is_copied_when_little_has_changed() {
    let (server, disk) = (grown(1), new_disk(1));
    let (reused, copied) = server.back_up(&disk).unwrap();
    assert!(reused == 0 && copied > 500_000, "{copied}");
    let first = copied;
    server.put(1, 1);
    server.edit("a", 1, 3333);
    server.save();
    let (reused, copied) = server.back_up(&disk).unwrap();
    assert!(reused >= first - 1000 && copied < 60_000, "{reused} {copied} of {first}");
    // Only control file and catalog have changed.
    let (reused, copied) = server.back_up(&disk).unwrap();
    assert!(copied < 1000, "{reused} {copied}");
    // Compaction creates a new file.
    server.compact("a");
    server.back_up(&disk).unwrap();
    let (manifest, content) = held(&disk);
    assert!(manifest.files.iter().any(|file| file.name.ends_with("-1.tree")));
    assert_eq!(content, server.content());
    assert_nothing_else(&disk, &manifest);
}

/// At any crash point the directory holds the earlier or the later backup, and the same command completes it.
#[test]
fn a_crash_at_any_io_of_an_increment_leaves_the_earlier_or_the_later_backup() {
    for snapshots in [false, true] {
        let (server, complete) = (grown(2), new_disk(2));
        server.back_up(&complete).unwrap();
        let earlier = held(&complete).1;
        go_on(&server, snapshots);
        let later = server.content();
        assert_ne!(earlier, later);
        let (before, first_io) = (complete.clone_state(), complete.io_count());
        server.back_up(&complete).unwrap();
        let (manifest, content) = held(&complete);
        assert_eq!(content, later);
        assert_nothing_else(&complete, &manifest);
        let ios = complete.io_count() - first_io;
        let (mut crashed, mut old, mut new) = (0, 0, 0);
        for crash_at_io in spread_at_least(20, ios).map(|io| first_io + io) {
            crashed += 1;
            for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
                let disk = before.clone_state();
                disk.reseed(crash_at_io);
                disk.set_fault_plan(FaultPlan { crash_at_io: Some(crash_at_io), ..FaultPlan::default() });
                let died = server.back_up(&disk);
                assert!(died.is_err(), "io {crash_at_io}");
                server.pin.borrow_mut().take();
                disk.crash(mode);
                disk.set_fault_plan(FaultPlan::default());
                let (manifest, content) = held(&disk);
                let is_new = manifest.increments == 1;
                assert_eq!(content == later, is_new, "io {crash_at_io}, {mode:?}");
                assert_eq!(content == earlier, !is_new, "io {crash_at_io}, {mode:?}");
                *(if is_new { &mut new } else { &mut old }) += 1;
                // Data that was not durable may be found damaged; it is then removed.
                let completed = server.back_up(&disk).or_else(|error| match error {
                    BackupError::Damaged(_) | BackupError::Unverified(_) => server.back_up(&disk),
                    other => Err(other),
                });
                completed.unwrap();
                let (manifest, content) = held(&disk);
                assert_eq!(content, later, "io {crash_at_io}, {mode:?}");
                assert_nothing_else(&disk, &manifest);
            }
        }
        // With a crash at every I/O, more than 60 crashes leave the earlier backup and more than 10 the later
        // one. If only some I/Os are tried, these numbers are smaller in proportion.
        assert!(old * ios > 60 * crashed && new * ios > 10 * crashed, "{old} old, {new} new of {crashed}");
    }
}

#[test]
fn a_connection_that_breaks_leaves_the_earlier_backup_and_is_gone_on_with() {
    let (server, disk) = (grown(3), new_disk(3));
    server.back_up(&disk).unwrap();
    let earlier = held(&disk).1;
    go_on(&server, true);
    let complete = disk.clone_state();
    let sent = server.sent.get();
    server.back_up(&complete).unwrap();
    let needed = server.sent.get() - sent;
    server.sent.set(0);
    let mut breaks = 0;
    // Each attempt gets further.
    for sent_max in (1..).map(|number: u64| number * needed / 7) {
        server.sent_max.set(server.sent.get() + sent_max.min(needed / 3));
        match server.back_up(&disk) {
            Ok(_) => break,
            Err(BackupError::Interrupted(_)) => breaks += 1,
            Err(other) => panic!("{other}"),
        }
        server.pin.borrow_mut().take();
        assert_eq!(held(&disk).1, earlier);
    }
    assert!((3..30).contains(&breaks), "{breaks}");
    let (manifest, content) = held(&disk);
    assert_eq!(content, server.content());
    assert_nothing_else(&disk, &manifest);
}

#[test]
fn a_damaged_file_of_the_backup_is_reported_and_copied_again() {
    let (server, intact) = (grown(4), new_disk(4));
    server.back_up(&intact).unwrap();
    let manifest = held(&intact).0;
    go_on(&server, false);
    for (number, file) in manifest.files.iter().enumerate() {
        if is_replaced(&file.name) {
            continue;
        }
        for place in [0, file.bytes / 2, file.bytes - 1] {
            let disk = intact.clone_state();
            let path = Path::new(DEST).join(&file.name);
            if number % 3 == 2 {
                disk.truncate(&path, place).unwrap();
            } else {
                disk.corrupt(&path, place, 4).unwrap();
            }
            let told = RefCell::new(Vec::new());
            server.back_up_telling(&disk, &|notice| told.borrow_mut().push(notice.to_string())).unwrap();
            assert!(matches!(&told.borrow()[..], [one] if one.contains(&file.name)), "{told:?}");
            let (manifest, content) = held(&disk);
            assert_eq!(content, server.content(), "{} at {place}", file.name);
            assert_nothing_else(&disk, &manifest);
        }
    }
}

#[test]
fn a_backup_of_another_history_is_refused_and_stays_as_it_is() {
    let (server, disk) = (grown(5), new_disk(5));
    let set_back = {
        server.save();
        server.disk.clone_state()
    };
    let refuse = |other: &Server, disk: &Arc<SimDisk>| {
        let (manifest, content) = held(disk);
        let error = other.back_up(disk).unwrap_err();
        assert_eq!(held(disk), (manifest.clone(), content));
        (error, manifest)
    };
    server.put(1, 1);
    server.back_up(&disk).unwrap();

    let (error, manifest) = refuse(&grown(6), &disk);
    assert!(matches!(error, BackupError::OtherServer { .. }), "{error}");
    assert_nothing_else(&disk, &manifest);

    set_back.crash(CrashMode::LoseAll);
    let behind = Server::on(set_back, 5);
    let (error, manifest) = refuse(&behind, &disk);
    assert!(matches!(error, BackupError::Behind { .. }), "{error}");
    assert_nothing_else(&disk, &manifest);
    // The server that was set back continues differently.
    (0..20).for_each(|number| behind.put(number, 200));
    let (error, _) = refuse(&behind, &disk);
    assert!(matches!(error, BackupError::Diverged { .. }), "{error}");
    // The original server continues in the same directory.
    server.put(2, 2);
    server.back_up(&disk).unwrap();
    let (manifest, content) = held(&disk);
    assert_eq!(content, server.content());
    assert_nothing_else(&disk, &manifest);
}

#[test]
fn names_of_files_of_a_copy() {
    for name in [
        "control",
        "log-0000000000000000.seg",
        "snapshots/snap-0000000000000000.0.part",
        "snapshots/snap-0000000000000000.manifest",
        "documents/1000-0.tree",
        "documents/catalog",
    ] {
        assert!(is_of_copy(name) && is_stored_by_copies(name), "{name}");
        assert!(!is_of_copy(&format!("{name}.3")) && is_stored_by_copies(&format!("{name}.3")), "{name}");
        assert!(
            !is_stored_by_copies(&format!("{name}.x")) && !is_stored_by_copies(&format!("{name}.3.3")),
            "{name}"
        );
    }
    for name in [
        "backup.json",
        "sheaf.lock",
        "backup-unfinished",
        "notes.txt",
        "documents/../control",
        "/etc/passwd",
        "documents/a/b.tree",
        "other/x.tree",
        "",
    ] {
        assert!(!is_of_copy(name) && !is_stored_by_copies(name), "{name}");
    }
}

#[test]
fn a_server_that_has_to_take_a_snapshot_first_is_waited_for_aloud() {
    let (server, disk) = (grown(5), new_disk(5));
    server.is_slow.set(true);
    let told = RefCell::new(Vec::new());
    server.back_up_telling(&disk, &|notice| told.borrow_mut().push(notice.to_string())).unwrap();
    assert!(matches!(&told.borrow()[..], [one] if one.contains("a snapshot first")), "{told:?}");
}
