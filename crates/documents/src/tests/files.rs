//! Databases with files: layers over a tree, recovery, and crashes and failures at their I/Os: at every one
//! if there is time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use env::sim::{CrashMode, FaultKind, FaultPlan, SimDiskOptions};
use env::{Disk, SimDisk};
use lsn::Lsn;
use prng::sweep::spread;
use proptest::prelude::*;

use super::history::{Step, recount, run, step};
use super::kit::*;
use crate::*;

const DIR: &str = "/data/documents";

pub(crate) fn disk() -> Arc<SimDisk> {
    SimDisk::new(SimDiskOptions::default())
}

#[derive(Debug, Clone)]
enum Move {
    Step(Step),
    Save,
    Reopen,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![8 => step().prop_map(Move::Step), 2 => Just(Move::Save), 1 => Just(Move::Reopen)];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #[test]
    fn saved_documents_read_as_those_in_memory(moves in moves()) {
        let disk = disk();
        let mut kit = Kit::open(&disk, &[]).expect("empty");
        kit.create("db").expect("created");
        let mut held = Vec::new();
        for one in &moves {
            let db = kit.documents.database("db").expect("there");
            held.push((dump(&db.snapshot()), db.snapshot()));
            match one {
                Move::Step(step) => run(&kit, &db, step),
                Move::Save => kit.save().expect("a good disk"),
                Move::Reopen => {
                    let log = kit.log.lock().expect("whole").clone();
                    disk.crash(CrashMode::LoseAll);
                    held.clear();
                    kit = Kit::open(&disk, &log).expect("files and log fit");
                }
            }
            let snapshot = kit.documents.database("db").expect("there").snapshot();
            prop_assert_eq!(recount(&snapshot), snapshot.info().sums);
            for since in 0..=snapshot.update_seq() + 1 {
                let rows = snapshot.changes(since, Direction::Ascending).count() as u64;
                prop_assert_eq!(snapshot.pending(since), Ok(rows), "behind {}", since);
            }
        }
        for (dumped, snapshot) in &held {
            prop_assert_eq!(&dump(snapshot), dumped);
        }
        prop_assert_eq!(kit.dump(), kit.replica().dump());
    }
}

/// A history with all kinds of rows that a file has, and with several saves.
pub(crate) fn history(kit: &Kit) -> Result<(), StoreError> {
    let a = kit.create("a").expect("created");
    let big = "b".repeat(3000);
    let mut last = Vec::new();
    for n in 0..40 {
        let body = format!(r#"{{"n":{n},"text":"{big}","_attachments":{{"f":{{"data":"aGVsbG8="}}}}}}"#);
        last.push(kit.edit(&a, put(&format!("doc{n}"), &body)).expect("new"));
    }
    kit.save()?;
    let b = kit.create("b").expect("created");
    for (n, rev) in last.iter().enumerate().take(20) {
        let keep = r#"{"again":true,"_attachments":{"f":{"stub":true}}}"#;
        kit.edit(&a, update(&format!("doc{n}"), *rev, keep)).expect("a leaf");
        kit.edit(&b, put(&format!("doc{n}"), "{}")).expect("new");
    }
    kit.edit(&a, delete("doc30", last[30])).expect("a leaf");
    kit.write(&a, |writer| writer.purge("doc31", &[last[31]])).expect("a leaf");
    kit.write(&a, |writer| writer.put_local("x", None, Bytes::from(big.clone()))).expect("new");
    kit.write(&a, |writer| writer.put_local("y", None, "{}".into())).expect("new");
    let upload = kit.write(&a, Writer::begin_upload).expect("begun");
    kit.write(&a, |writer| writer.put_chunk(upload, "chunk".into())).expect("taken");
    kit.save()?;
    kit.write(&a, |writer| writer.set_revs_limit(7)).expect("a limit");
    kit.write(&a, |writer| writer.set_security("{}".into())).expect("an object");
    kit.write(&a, |writer| writer.remove_local("y")).expect("there");
    let source = AttachmentSource::Upload {
        content_type: "a/b".into(),
        upload,
        length: 5,
        digest: Digest::of(b"chunk"),
        revpos: None,
    };
    let attachments = vec![AttachmentRequest { name: "g".into(), source }];
    kit.edit(&a, EditRequest { attachments, ..put("uploaded", "{}") }).expect("new");
    kit.delete("b").expect("there");
    kit.create("b").expect("the name is free");
    kit.save()?;
    kit.edit(&a, replicated("doc1", &format!(r#"{{"_rev":"5-{}"}}"#, hex(5)))).expect("never a conflict");
    kit.save()
}

/// Recovers from the disk and the log, and compares the result with a replica of the whole log.
pub(crate) fn recovered(disk: &Arc<SimDisk>, log: &[(Lsn, Vec<u8>)], what: &str) -> Kit {
    let kit = Kit::open(disk, log).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(kit.dump(), kit.replica().dump(), "{what}");
    kit
}

#[test]
fn a_crash_at_any_io_loses_nothing() {
    let whole = disk();
    history(&Kit::open(&whole, &[]).expect("empty")).expect("a good disk");
    let ios = whole.io_count();
    assert!(ios > 40, "{ios}");
    for at in spread(ios) {
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random, CrashMode::Random] {
            let disk = disk();
            disk.reseed(at * 31 + 1);
            disk.set_fault_plan(FaultPlan { crash_at_io: Some(at), ..FaultPlan::default() });
            let log = match Kit::open(&disk, &[]) {
                Err(_) => Vec::new(),
                Ok(kit) => {
                    history(&kit).expect_err("it crashes");
                    kit.log.lock().expect("whole").clone()
                }
            };
            disk.crash(mode);
            let kit = recovered(&disk, &log, &format!("crash at {at}, {mode:?}"));
            kit.save().expect("it goes on");
            recovered(&disk, &kit.log.lock().expect("whole").clone(), &format!("after the crash at {at}"));
        }
    }
}

#[test]
fn a_failure_of_any_io_is_told_and_takes_nothing_from_readers() {
    let whole = disk();
    history(&Kit::open(&whole, &[]).expect("empty")).expect("a good disk");
    for at in spread(whole.io_count()) {
        for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite] {
            let disk = disk();
            disk.set_fault_plan(FaultPlan { fail_io: Some((at, kind)), ..FaultPlan::default() });
            let Ok(kit) = Kit::open(&disk, &[]) else { continue };
            // The history may succeed: some failures, such as a failure to drop a cache, have no effect.
            let _ = history(&kit);
            assert_eq!(kit.dump(), kit.replica().dump(), "readers after failure {at}");
            let log = kit.log.lock().expect("whole").clone();
            drop(kit);
            disk.crash(CrashMode::Random);
            recovered(&disk, &log, &format!("{kind:?} at {at}"));
        }
    }
}

/// Asserts that everything can be saved after the faults have ended, and that only files in the catalog
/// remain.
pub(crate) fn assert_saves_again(disk: &Arc<SimDisk>, kit: &Kit, what: &str) {
    disk.set_fault_plan(FaultPlan::default());
    // The first call saves the frozen layer, the second one the later changes.
    (0..2).for_each(|_| kit.save().unwrap_or_else(|error| panic!("{what}: {error}")));
    assert_eq!(kit.documents.dirty_bytes(), 0, "{what}");
    let plan = kit.documents.plan_copy().expect("readable");
    let named = plan.map_or(Vec::new(), |plan| plan.files.into_iter().map(|file| file.name).collect());
    let mut there = disk.list(Path::new(DIR)).expect("a directory");
    there.retain(|name| name.ends_with(".tree"));
    assert_eq!(there, named, "{what}");
}

#[test]
fn a_failed_save_succeeds_once_the_disk_works_again() {
    let whole = disk();
    history(&Kit::open(&whole, &[]).expect("empty")).expect("a good disk");
    for at in spread(whole.io_count()) {
        for (kind, sticky) in
            [(FaultKind::Eio, false), (FaultKind::Enospc, true), (FaultKind::ShortWrite, false)]
        {
            let disk = disk();
            disk.set_fault_plan(FaultPlan { fail_io: Some((at, kind)), sticky, ..FaultPlan::default() });
            let Ok(kit) = Kit::open(&disk, &[]) else { continue };
            if history(&kit).is_err() {
                // A database that is created and deleted while nothing can be saved.
                let short = kit.create("short").expect("created");
                kit.edit(&short, put("x", "{}")).expect("new");
                let _ = kit.save();
                kit.delete("short").expect("there");
            }
            assert_saves_again(&disk, &kit, &format!("{kind:?} at {at}"));
            let log = kit.log.lock().expect("whole").clone();
            drop(kit);
            disk.crash(CrashMode::LoseAll);
            recovered(&disk, &log, &format!("after {kind:?} at {at}"));
        }
    }
}

#[test]
fn no_file_is_removed_that_a_catalog_names_whose_write_failed() {
    let fresh = || {
        let disk = disk();
        let kit = Kit::open(&disk, &[]).expect("empty");
        let db = kit.create("db").expect("created");
        kit.edit(&db, put("x", "{}")).expect("new");
        kit.save().expect("a good disk");
        let short = kit.create("short").expect("created");
        kit.edit(&short, put("x", "{}")).expect("new");
        (disk, kit)
    };
    let (whole, kit) = fresh();
    let begin = whole.io_count();
    kit.save().expect("a good disk");
    for at in begin..whole.io_count() {
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll] {
            let (disk, kit) = fresh();
            disk.set_fault_plan(FaultPlan { fail_io: Some((at, FaultKind::Eio)), ..FaultPlan::default() });
            let _ = kit.save();
            kit.delete("short").expect("there");
            // Nothing else is due, so the new catalog equals the last one that was written without an
            // error. It must be written nevertheless if the failed write may have reached the disk.
            let due = Due { now_ms: 0, upto: kit.end(), everything: false };
            kit.documents.checkpoint(&due, &mut |_| true).expect("the disk works again");
            let log = kit.log.lock().expect("whole").clone();
            drop(kit);
            disk.crash(mode);
            recovered(&disk, &log, &format!("failure at {at}, {mode:?}"));
        }
    }
}

#[test]
fn a_save_that_found_no_room_leaves_the_room_that_there_was() {
    let disk = disk();
    let kit = Kit::open(&disk, &[]).expect("empty");
    let db = kit.create("db").expect("created");
    kit.edit(&db, put("first", "{}")).expect("new");
    kit.save().expect("a good disk");
    let before = disk.read_file(&file_of(&db)).expect("there").len();
    for n in 0..50 {
        let body = format!(r#"{{"text":"{}"}}"#, "b".repeat(100_000));
        kit.edit(&db, put(&format!("doc{n}"), &body)).expect("new");
    }
    disk.set_space_limit(Some(2 << 20));
    for _ in 0..3 {
        kit.save().expect_err("5 MB do not fit into 2 MiB");
        assert_eq!(disk.read_file(&file_of(&db)).expect("there").len(), before);
        assert_eq!(kit.dump(), kit.replica().dump());
    }
    disk.set_space_limit(None);
    assert_saves_again(&disk, &kit, "room");
    recovered(&disk, &kit.log.lock().expect("whole").clone(), "room");
}

fn file_of(db: &Database) -> PathBuf {
    Path::new(DIR).join(format!("{}-0.tree", db.id()))
}

#[test]
fn the_log_is_needed_from_the_oldest_change_that_is_not_saved() {
    let disk = disk();
    let kit = Kit::open(&disk, &[]).expect("empty");
    assert_eq!((kit.documents.saved_lsn(), kit.documents.replay_from()), (None, None));
    let (a, b) = (kit.create("a").expect("created"), kit.create("b").expect("created"));
    let rev = kit.edit(&a, put("x", "{}")).expect("new");
    let due = |now_ms, everything| Due { now_ms, upto: kit.end(), everything };
    let save = |due| kit.documents.checkpoint(&due, &mut |_| true).expect("a good disk");
    save(due(0, false));
    assert_eq!(
        kit.documents.saved_lsn(),
        Some(a.id().lsn()),
        "the catalog is saved, the documents are too young"
    );
    assert!(disk.list(Path::new(DIR)).expect("a directory").iter().all(|name| !name.ends_with(".tree")));
    assert!(kit.documents.dirty_bytes() > 0);
    save(due(DIRTY_AGE_MS_MAX, false));
    assert_eq!((kit.documents.saved_lsn(), kit.documents.dirty_bytes()), (Some(kit.end()), 0));
    kit.edit(&b, put("y", "{}")).expect("new");
    save(due(0, true));
    assert_eq!(kit.documents.saved_lsn(), Some(kit.end()));
    // Changes that the log will not commit are not written to files.
    let before = disk.read_file(&file_of(&a)).expect("there");
    kit.edit(&a, update("x", rev, "{}")).expect("a leaf");
    let refused = kit.documents.checkpoint(&due(0, true), &mut |_| false);
    assert!(matches!(refused, Err(StoreError::NotCommitted)));
    assert_eq!(disk.read_file(&file_of(&a)).expect("there"), before);
    kit.edit(&a, put("z", "{}")).expect("new");
    save(due(0, true));
    save(due(0, true));
    assert_eq!(kit.documents.saved_lsn(), Some(kit.end()));
    let log = kit.log.lock().expect("whole").clone();
    recovered(&disk, &log, "saved in two steps");
    // Only the records after `saved_lsn` are needed.
    assert_eq!(Kit::open(&disk, &log[log.len() - 1..]).expect("the files have all").dump(), kit.dump());
}

#[test]
fn files_go_back_to_where_the_log_ends() {
    let disk = disk();
    let kit = Kit::open(&disk, &[]).expect("empty");
    let a = kit.create("a").expect("created");
    let mut first_saved = None;
    for n in 0..12 {
        kit.edit(&a, put(&format!("doc{n}"), "{}")).expect("new");
        if n == 6 {
            kit.edit(&kit.create("b").expect("created"), put("x", "{}")).expect("new");
        }
        if n % 3 == 2 {
            kit.save().expect("a good disk");
            first_saved.get_or_insert(kit.end());
        }
    }
    let log = kit.log.lock().expect("whole").clone();
    let mut went_back = 0;
    for count in 1..=log.len() {
        let disk = disk.clone_state();
        disk.crash(CrashMode::LoseAll);
        let kit = Kit::open(&disk, &log[..count]).unwrap_or_else(|error| panic!("{count}: {error}"));
        assert_eq!(kit.dump(), kit.replica().dump(), "{count}");
        went_back += usize::from(Some(kit.end()) > first_saved && kit.documents.replay_from() > first_saved);
        kit.edit(&kit.documents.database("a").expect("there"), put("another", "{}")).expect("new");
        kit.save().expect("it goes on");
        recovered(&disk, &kit.log.lock().expect("whole").clone(), "another history");
    }
    assert!(went_back > 5, "{went_back}");
}

#[test]
fn a_copy_has_the_saved_state() {
    let source = disk();
    let kit = Kit::open(&source, &[]).expect("empty");
    assert!(kit.documents.plan_copy().expect("readable").is_none());
    history(&kit).expect("a good disk");
    let a = kit.documents.database("a").expect("there");
    let plan = kit.documents.plan_copy().expect("readable").expect("something was saved");
    kit.edit(&a, put("later", "{}")).expect("new");
    kit.save().expect("a good disk");
    let copy = disk();
    for CopyFile { name, bytes, file } in plan.files {
        let mut content = vec![0; bytes as usize];
        file.read_exact_at(&mut content, 0).expect("there");
        copy.write_file(&Path::new(DIR).join(name), &content);
    }
    copy.write_file(&Path::new(DIR).join(plan.catalog_name), &plan.catalog);
    recovered(&copy, &kit.log.lock().expect("whole").clone(), "a copy and the log");
}

#[test]
fn wrong_files_are_refused() {
    let saved = || {
        let disk = disk();
        let kit = Kit::open(&disk, &[]).expect("empty");
        history(&kit).expect("a good disk");
        let log = kit.log.lock().expect("whole").clone();
        let file = file_of(&kit.documents.database("a").expect("there"));
        (disk, log, file)
    };
    let catalog = Path::new(DIR).join("catalog");
    let (disk, log, _) = saved();
    disk.remove(&catalog).expect("there");
    assert!(matches!(
        Kit::open(&disk, &log),
        Err(StoreError::Damaged { what: "the catalog is missing", .. })
    ));
    let (disk, log, _) = saved();
    disk.corrupt(&catalog, 20, 1).expect("there");
    assert!(matches!(Kit::open(&disk, &log), Err(StoreError::Damaged { .. })));
    let (disk, log, file) = saved();
    disk.remove(&file).expect("there");
    assert!(matches!(Kit::open(&disk, &log), Err(StoreError::Tree(_))));
    let (disk, log, file) = saved();
    let len = disk.read_file(&file).expect("there").len() as u64;
    disk.truncate(&file, len - 1).expect("there");
    assert!(matches!(Kit::open(&disk, &log), Err(StoreError::Tree(_))), "an older checkpoint does not do");
    let (disk, log, _) = saved();
    assert!(
        matches!(Kit::open(&disk, &log[..10]), Err(StoreError::AheadOfLog { .. })),
        "what was deleted is gone"
    );
}

/// Edits documents in one change; after the first error it undoes all of them and returns the error.
fn edit_all(kit: &Kit, db: &Arc<Database>) -> Result<(), DocError> {
    kit.write(db, |writer| {
        let edits = ["a", "new", "m", "z"].into_iter().map(|id| put(id, r#"{"n":1}"#));
        let outcome = writer.prepare(edits.collect()).into_iter().find_map(Result::err);
        outcome.map_or(Ok(()), |error| {
            writer.undo();
            Err(error)
        })
    })
}

#[test]
fn an_undone_change_leaves_nothing_wherever_a_read_fails() {
    let disk = disk();
    let kit = Kit::open(&disk, &[]).expect("empty");
    let db = kit.create("db").expect("created");
    for number in 0..300 {
        kit.edit(&db, put(&format!("doc{number}"), r#"{"text":"some text that takes room"}"#)).expect("new");
    }
    kit.save().expect("a good disk");
    let log = kit.log.lock().expect("whole").clone();
    edit_all(&kit, &db).expect("a good disk");
    let expected = kit.dump();

    let path = Path::new(DIR).join(format!("{}-0.tree", db.id()));
    let len = disk.read_file(&path).expect("there").len() as u64;
    let mut failed = 0;
    for at in (0..len).step_by(509) {
        let disk = disk.clone_state();
        let kit = Kit::open(&disk, &log).expect("files and log fit");
        let db = kit.documents.database("db").expect("there");
        disk.corrupt(&path, at, 0x10).expect("there");
        let before = kit.end();
        if edit_all(&kit, &db).is_err() {
            failed += 1;
            assert_eq!(kit.end(), before, "nothing is logged");
            disk.corrupt(&path, at, 0x10).expect("there");
            edit_all(&kit, &db).expect("it can be read again");
            assert_eq!(kit.dump(), expected);
        }
    }
    assert!(failed > 0);
}
