//! Compaction concurrent with writers, checkpoints and readers, and with crashes and failures at its I/Os: at
//! every one if there is time.

use std::sync::Arc;

use bytes::Bytes;
use env::sim::{CrashMode, FaultKind, FaultPlan};
use env::{Disk, SimDisk};
use prng::sweep::spread;
use proptest::prelude::*;

use super::files::{assert_saves_again, disk, history, recovered};
use super::history::{Step as Edit, run, step};
use super::kit::*;
use crate::*;

/// Runs a compaction to its end, and calls `between` before each step.
fn compact(
    kit: &Kit,
    db: &Arc<Database>,
    mut between: impl FnMut(usize) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let Some(mut compaction) = kit.documents.begin_compaction(db)? else { return Ok(()) };
    assert!(db.is_compacting() && kit.documents.begin_compaction(db)?.is_none());
    let mut percent = 0;
    for number in 0..10_000 {
        between(number)?;
        let step = compaction.step()?;
        assert!(compaction.percent() >= percent);
        percent = compaction.percent();
        if step == Step::Done {
            assert_eq!(percent, 100);
            return Ok(());
        }
    }
    panic!("it does not end");
}

/// The result of an operation that can fail only because the disk has stopped.
fn done<T>(result: Result<T, DocError>) -> Result<T, StoreError> {
    match result {
        Err(DocError::Storage(_)) => Err(StoreError::NotCommitted),
        other => Ok(other.expect("nothing is wrong with it")),
    }
}

/// Makes edits after which documents in memory have pointers into the file: conflicts, kept attachments, and
/// uploads that are saved before they are used.
fn edits_of_saved_documents(kit: &Kit, db: &Arc<Database>, number: usize) -> Result<(), StoreError> {
    let id = format!("doc{}", number % 12);
    // All leaves are looked at, because a conflicting edit (below) may have won, and it has no attachment.
    let all = db.snapshot().open_all(&id).unwrap_or_default();
    if let Some(found) = all.iter().find(|found| found.leaf().attachment("f").is_some()) {
        let keep = format!(r#"{{"number":{number},"_attachments":{{"f":{{"stub":true}}}}}}"#);
        done(kit.edit(db, update(&id, found.rev(), &keep)))?;
    }
    let conflict = format!(r#"{{"_rev":"2-{}","conflict":{number}}}"#, hex(number as u8));
    done(kit.edit(db, replicated(&format!("doc{}", number % 7), &conflict)))?;
    let upload = done(kit.write(db, Writer::begin_upload))?;
    done(kit.write(db, |writer| writer.put_chunk(upload, Bytes::from(vec![number as u8; 3000]))))?;
    if number % 2 == 1 {
        kit.save()?;
    }
    let source = AttachmentSource::Upload {
        content_type: "a/b".into(),
        upload,
        length: 3000,
        digest: Digest::of(&[number as u8; 3000]),
        revpos: None,
    };
    let attachments = vec![AttachmentRequest { name: "u".into(), source }];
    done(kit.edit(db, EditRequest { attachments, ..put(&format!("uploaded{number}"), "{}") }))?;
    if number.is_multiple_of(3)
        && let Ok(found) = db.snapshot().open("doc35", Pick::Winner)
    {
        done(kit.write(db, |writer| writer.purge("doc35", &[found.rev()])))?;
    }
    let local = format!("l{number}");
    done(kit.write(db, |writer| writer.put_local(&local, None, vec![b' '; number * 400].into())))?;
    Ok(())
}

fn compacted_history(kit: &Kit) -> Result<(), StoreError> {
    history(kit)?;
    let db = kit.documents.database("a").expect("there");
    compact(kit, &db, |number| edits_of_saved_documents(kit, &db, number))?;
    edits_of_saved_documents(kit, &db, 50)?;
    kit.save()?;
    edits_of_saved_documents(kit, &db, 51)
}

#[test]
fn a_compacted_file_has_the_live_data_only() {
    let disk = disk();
    let kit = Kit::open(&disk, &[]).expect("empty");
    let db = kit.create("db").expect("created");
    let body = "b".repeat(2000);
    let mut revs: Vec<Rev> =
        (0..50).map(|n| kit.edit(&db, put(&format!("doc{n:02}"), "{}")).expect("new")).collect();
    for turn in 0..6 {
        for (n, rev) in revs.iter_mut().enumerate() {
            let edit = update(&format!("doc{n:02}"), *rev, &format!(r#"{{"turn":{turn},"text":"{body}"}}"#));
            *rev = kit.edit(&db, edit).expect("a leaf");
        }
        kit.save().expect("a good disk");
    }
    let before = db.snapshot();
    compact(&kit, &db, |_| Ok(())).expect("a good disk");
    let (old, new) = (before.info(), db.snapshot().info());
    assert!(new.file_bytes < old.file_bytes / 4, "{old:?} {new:?}");
    assert!(new.file_bytes < new.active_bytes * 5 / 4, "{new:?}");
    assert_eq!(dump(&before), dump(&db.snapshot()), "readers of the old file go on");
    let names = || disk.list(&directory("/data".as_ref())).expect("a directory");
    let file = |generation| format!("{}-{generation}.tree", db.id());
    assert!(names().contains(&file(0)) && names().contains(&file(1)), "the catalog names the old one");
    kit.save().expect("a good disk");
    assert_eq!(names(), [file(1), "catalog".to_owned()]);
    recovered(&disk, &kit.log.lock().expect("whole").clone(), "compacted");
}

#[test]
fn a_compaction_that_is_given_up_leaves_nothing() {
    let disk = disk();
    let kit = Kit::open(&disk, &[]).expect("empty");
    history(&kit).expect("a good disk");
    let db = kit.documents.database("a").expect("there");
    let names = || disk.list(&directory("/data".as_ref())).expect("a directory");
    let before = names();
    let mut compaction = kit.documents.begin_compaction(&db).expect("readable").expect("begun");
    compaction.step().expect("a good disk");
    drop(compaction);
    assert_eq!((names(), db.is_compacting()), (before, false));
    let mut compaction = kit.documents.begin_compaction(&db).expect("readable").expect("begun again");
    kit.delete("a").expect("there");
    while compaction.step().expect("a good disk") == Step::More {}
    assert!(kit.documents.database("a").is_err());
}

/// Every step copies a bounded part, however much was written while the file was built. This also holds for
/// local documents and purges. The last step, which blocks checkpoints, copies only a small rest.
#[test]
fn no_step_writes_more_than_its_limit() {
    let disk = disk();
    let kit = Kit::open(&disk, &[]).expect("empty");
    let db = kit.create("db").expect("created");
    let body = format!(r#"{{"text":"{}"}}"#, "b".repeat(600));
    let fill = |turn: usize| {
        for number in 0..800 {
            kit.edit(&db, put(&format!("doc{turn}-{number}"), &body)).expect("new");
            let local: bytes::Bytes = vec![b' '; 700].into();
            kit.write(&db, |writer| writer.put_local(&format!("l{turn}-{number}"), None, local))
                .expect("new");
        }
        kit.save().expect("a good disk");
    };
    let purge = |turn: usize| {
        for number in (0..800).step_by(3) {
            let id = format!("doc{turn}-{number}");
            let rev = db.snapshot().open(&id, Pick::Winner).expect("there").rev();
            kit.write(&db, |writer| writer.purge(&id, &[rev])).expect("a leaf");
        }
        kit.save().expect("a good disk");
    };
    fill(0);
    let mut compaction = kit.documents.begin_compaction(&db).expect("readable").expect("begun");
    disk.enable_trace();
    // The steps of the build are not measured: they write into a buffer, which is written when it is full.
    let (mut steps, mut most_bytes, mut was_catching_up, mut traced) = (0, 0, false, 0);
    loop {
        if compaction.is_catching_up() != was_catching_up {
            was_catching_up = true;
            fill(1);
            purge(0);
            fill(2);
            traced = disk.trace().len();
        }
        let step = compaction.step().expect("a good disk");
        let trace = disk.trace();
        if was_catching_up {
            most_bytes = trace[traced..].iter().map(|io| io.len).sum::<usize>().max(most_bytes);
            steps += 1;
        }
        traced = trace.len();
        if step == Step::Done {
            break;
        }
    }
    assert!(steps > 30 && most_bytes < 400 << 10, "{steps} steps of at most {most_bytes} bytes");
    drop(compaction);
    assert_eq!(kit.dump(), kit.replica().dump());
    kit.save().expect("a good disk");
    recovered(&disk, &log_of(&kit), "compacted");
}

fn log_of(kit: &Kit) -> Vec<(lsn::Lsn, Vec<u8>)> {
    kit.log.lock().expect("whole").clone()
}

/// A compaction that fails after its file was put in place leaves a file that will be removed. The next
/// compaction must use another name: otherwise its new file would be removed under the old name.
#[test]
fn a_failed_compaction_keeps_its_name_to_itself() {
    let whole = disk();
    let kit = Kit::open(&whole, &[]).expect("empty");
    history(&kit).expect("a good disk");
    let db = kit.documents.database("a").expect("there");
    let begin = whole.io_count();
    compact(&kit, &db, |_| Ok(())).expect("a good disk");
    let ios = whole.io_count() - begin;
    let mut left_over = 0;
    for io in 0..ios {
        let disk = disk();
        let kit = Kit::open(&disk, &[]).expect("empty");
        history(&kit).expect("a good disk");
        let db = kit.documents.database("a").expect("there");
        let fail_io = Some((disk.io_count() + io, FaultKind::Eio));
        disk.set_fault_plan(FaultPlan { fail_io, ..FaultPlan::default() });
        let outcome = compact(&kit, &db, |_| Ok(()));
        let trees = || {
            let mut names = disk.list(&directory("/data".as_ref())).expect("a directory");
            names.retain(|name| name.starts_with(&db.id().to_string()) && name.ends_with(".tree"));
            names
        };
        let before = trees();
        if outcome.is_ok() || before.len() < 2 {
            continue;
        }
        left_over += 1;
        compact(&kit, &db, |_| Ok(())).expect("the disk works again");
        let new: Vec<_> = trees().into_iter().filter(|name| !before.contains(name)).collect();
        assert_eq!(new.len(), 1, "failure {io}: {before:?}");
        kit.save().expect("the disk works again");
        assert_eq!(trees(), new, "failure {io}: only the file in use stays");
        recovered(&disk, &log_of(&kit), &format!("failure {io}"));
    }
    assert!(left_over > 0, "in {ios} I/Os");
}

/// Runs the compacted history on a disk with faults; `None` if the databases could not even be opened.
fn run_on(disk: &Arc<SimDisk>, plan: FaultPlan) -> Option<Kit> {
    disk.set_fault_plan(plan);
    let kit = Kit::open(disk, &[]).ok()?;
    // The history may fail at any point; the caller checks the resulting state.
    let _ = compacted_history(&kit);
    Some(kit)
}

#[test]
fn a_crash_or_failure_at_any_io_of_a_compaction_loses_nothing() {
    let whole = disk();
    let first = Kit::open(&whole, &[]).expect("empty");
    history(&first).expect("a good disk");
    let begin = whole.io_count();
    let whole = disk();
    compacted_history(&Kit::open(&whole, &[]).expect("empty")).expect("a good disk");
    assert!(whole.io_count() > begin + 30);
    for at in spread(whole.io_count() - begin).map(|io| begin + io) {
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
            let disk = disk();
            disk.reseed(at);
            let plan = FaultPlan { crash_at_io: Some(at), ..FaultPlan::default() };
            let log = run_on(&disk, plan).map(|kit| log_of(&kit)).unwrap_or_default();
            disk.crash(mode);
            let kit = recovered(&disk, &log, &format!("crash at {at}, {mode:?}"));
            kit.save().expect("it goes on");
            recovered(&disk, &log, &format!("after the crash at {at}"));
        }
        let disk = disk();
        let plan = FaultPlan { fail_io: Some((at, FaultKind::Eio)), ..FaultPlan::default() };
        let kit = run_on(&disk, plan).expect("it fails later");
        assert_eq!(kit.dump(), kit.replica().dump(), "readers after failure {at}");
        if at % 2 == 0 {
            assert_saves_again(&disk, &kit, &format!("failure at {at}"));
        }
        let log = log_of(&kit);
        drop(kit);
        disk.crash(CrashMode::Random);
        recovered(&disk, &log, &format!("failure at {at}"));
    }
}

proptest! {
    #[test]
    fn feeds_go_on_while_a_file_is_compacted(
        before in proptest::collection::vec(step(), 1..30),
        between in proptest::collection::vec((step(), any::<bool>()), 0..30),
        after in proptest::collection::vec(step(), 0..10),
    ) {
        let disk = disk();
        let kit = Kit::open(&disk, &[]).expect("empty");
        let db = kit.create("db").expect("created");
        before.iter().for_each(|edit| run(&kit, &db, edit));
        kit.save().expect("a good disk");
        before.iter().for_each(|edit| run(&kit, &db, edit));
        let mut rest = between.chunks(4);
        let mut seen = db.snapshot().update_seq();
        compact(&kit, &db, |_| {
            for (edit, saves) in rest.next().unwrap_or_default() {
                let edit: &Edit = edit;
                run(&kit, &db, edit);
                if *saves {
                    kit.save()?;
                }
                // A reader of the feed sees each document once, and only after the position it has reached.
                let snapshot = db.snapshot();
                let rows: Vec<u64> = snapshot.changes(seen, Direction::Ascending).map(|row| row.expect("readable").seq).collect();
                assert!(rows.is_sorted_by(|a, b| a < b) && rows.first().is_none_or(|first| *first > seen));
                seen = snapshot.update_seq();
            }
            Ok(())
        }).expect("a good disk");
        assert_eq!(kit.dump(), kit.replica().dump());
        after.iter().for_each(|edit| run(&kit, &db, edit));
        kit.save().expect("a good disk");
        recovered(&disk, &log_of(&kit), "compacted");
    }
}
