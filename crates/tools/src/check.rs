//! `sheaf check`: verifies the log, the snapshots and the documents in a directory, and rehearses a start on
//! it.

use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::ManifestError;
use documents::{Listener, StoreError};
use env::{DirLock, Disk, RealClock, RealDisk, RealEntropy, Untouched};
use lsn::Lsn;
use recovery::{
    data_directory::{Foreign, refuse_foreign, refuse_lost_settings},
    group_state,
    progress::LoadProgress,
    progress_bar::ProgressBar,
    recover::{DOCUMENTS_REMEDY, RecoverError, rehearse, rehearse_witness},
    replication_state,
    unfinished::{Unfinished, refuse_unfinished},
    unix_time,
};
use settings::{ConfigError, Given, Key, Lasting, Origin};
use storage::{
    CheckReport, Error, Recovery, SnapshotDamage,
    snapshot::{self, SnapshotCheck},
};

/// A problem found by `sheaf check`.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The log or a snapshot is damaged, or cannot be read.
    #[error(transparent)]
    Storage(#[from] Error),
    /// The manifest or the files of a backup are not as they must be.
    #[error(transparent)]
    Backup(#[from] ManifestError),
    /// The document files as a whole are damaged, or cannot be read.
    #[error("{0}. {remedy}", remedy = DOCUMENTS_REMEDY)]
    Documents(#[from] StoreError),
    /// Document files are damaged at this number of places, which were printed.
    #[error("documents are damaged at {}. {remedy}", places(.0), remedy = DOCUMENTS_REMEDY)]
    DamagedDocuments(u64),
    /// There is no such directory.
    #[error("{} does not exist: name the data directory of a stopped server, or a backup", .0.display())]
    Missing(PathBuf),
    /// An import or a restore into the directory was interrupted.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The directory is not a server's.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The settings file of the directory is not valid.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// The replication state, the group membership or the name of the directory cannot be used, or settings
    /// are lost.
    #[error(transparent)]
    Roles(#[from] io::Error),
    /// A start would be refused.
    #[error("{0}{hint}", hint = .0.last_resort())]
    Start(RecoverError),
    /// The data of a backup cannot be recovered, although log, snapshots and documents were found intact.
    #[error(transparent)]
    BackupState(RecoverError),
}

fn places(count: &u64) -> String {
    format!("{count} {}", if *count == 1 { "place" } else { "places" })
}

/// Verifies the log, the snapshots and the documents in `dir`, which may be a backup, and whether a server
/// would start there; prints the findings. The start is rehearsed with the code of a real one, except that
/// keys are not kept in memory. While a server is running, its files change between two reads, and the start
/// is not rehearsed.
///
/// # Errors
/// The first problem found. If the log or a snapshot is damaged, and the rehearsed start fails, this is the
/// error of the start instead, because the error of the start names the way out.
pub fn check(dir: &Path) -> Result<(), CheckError> {
    if !dir.exists() {
        return Err(CheckError::Missing(dir.to_path_buf()));
    }
    backup::refuse_incomplete(&RealDisk, dir)?;
    let mut is_witness = false;
    let (disk, manifest) = backup::view(Arc::new(RealDisk), dir)?;
    if manifest.is_none() {
        refuse_foreign(dir, None)?;
        refuse_unfinished(&RealDisk, dir)?;
        let Some(value) = dir.to_str().map(Into::into) else {
            let text = format!("the name of {} is not UTF-8: no server can use it", dir.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text).into());
        };
        let given = Given { name: "dir".into(), value, origin: Origin::Flag };
        refuse_lost_settings(&RealDisk, dir)?;
        let (settings, _) = Lasting::load(None, vec![given])?;
        if let Some(standing) = replication_state::find(&RealDisk, dir, settings.text(Key::ReplicaOf))? {
            group_state::refuse_lost(&RealDisk, dir, settings.text(Key::Group), &standing)?;
        }
        is_witness = group_state::find(&RealDisk, dir)?.is_some_and(|state| state.is_witness);
    }
    let is_held = DirLock::is_held(dir);
    let is_backup = manifest.is_some();
    // Rehearses the start, and returns where its replay begins: at a snapshot, or at the start of the log.
    let rehearse_start = |damaged: Option<&SnapshotDamage>| match is_witness {
        true => rehearse_start_of_witness(disk.clone(), dir),
        false => rehearse_start(disk.clone(), dir, damaged),
    };
    let rehearse = |damaged: Option<&SnapshotDamage>| match rehearse_start(damaged) {
        Err(error) if is_backup => Err(CheckError::BackupState(error)),
        rehearsed => rehearsed.map_err(CheckError::Start),
    };
    if let Err(damage) = check_data(&disk, dir, is_witness) {
        // The error of a start that fails is returned instead of the damage, because it names the way out.
        if !is_held && !is_backup {
            let damaged = if let Error::SnapshotCorrupt(damaged) = &damage { Some(&**damaged) } else { None };
            let begin = rehearse(damaged)?;
            println!("start      works: it begins at lsn {begin}, and does not need what is damaged");
        }
        return Err(damage.into());
    }
    check_documents(&*disk, dir)?;
    if is_witness {
        println!("witness    of a group: a log and no data");
    }
    if is_held {
        println!("start      not rehearsed: a server runs here");
    } else {
        rehearse(None)?;
    }
    if let Some(manifest) = manifest {
        let bar = ProgressBar::new("checking");
        let checked = manifest.check(&RealDisk, dir, |done, total| bar.show(done, total));
        bar.finish();
        checked?;
        println!("backup     complete: {} files, state of {}", manifest.files.len(), manifest.made_at);
        if backup::is_being_made(&RealDisk, dir) {
            println!(
                "increment  unfinished: run the same `sheaf backup` again. Its files are not part of the backup"
            );
        }
    }
    Ok(())
}

/// Performs a start in memory; `damaged`: see [`rehearse`].
fn rehearse_start(
    disk: Arc<dyn Disk>,
    dir: &Path,
    damaged: Option<&SnapshotDamage>,
) -> Result<Lsn, RecoverError> {
    let disk: Arc<dyn Disk> = Arc::new(Untouched(disk));
    let nobody: Listener = Arc::new(|_| {});
    let documents = recovery::opening::open(disk.clone(), dir, Arc::new(RealEntropy), None, nobody)?;
    let mut recovery = Recovery::open_to_read(disk.clone(), dir)?;
    let progress = LoadProgress::new(Arc::new(RealClock));
    rehearse(&mut recovery, (&*disk, dir), &documents, damaged, &progress)
}

fn rehearse_start_of_witness(disk: Arc<dyn Disk>, dir: &Path) -> Result<Lsn, RecoverError> {
    let mut recovery = Recovery::open_to_read(Arc::new(Untouched(disk)), dir)?;
    rehearse_witness(&mut recovery, &LoadProgress::new(Arc::new(RealClock)))?;
    Ok(recovery.start())
}

fn check_documents(disk: &dyn Disk, dir: &Path) -> Result<(), CheckError> {
    let bar = ProgressBar::new("checking");
    let damaged = |what: String| println!("documents  DAMAGED: {what}");
    let dir = documents::directory(dir);
    let checked = documents::check(disk, &dir, damaged, |done, total| bar.show(done, total));
    bar.finish();
    let report = checked?;
    if report.damaged > 0 {
        return Err(CheckError::DamagedDocuments(report.damaged));
    }
    if report.databases > 0 {
        println!(
            "documents  intact: {} in {} databases, {} bytes in files",
            report.documents, report.databases, report.file_bytes
        );
    }
    Ok(())
}

/// Verifies the log and the snapshots. `is_alone` says that the log needs no snapshot.
fn check_data(disk: &Arc<dyn Disk>, dir: &Path, is_alone: bool) -> Result<(), Error> {
    let bar = ProgressBar::new("checking");
    let log = storage::check(disk.clone(), dir, |position, end| {
        bar.show(position.get(), end.get());
        ControlFlow::Continue(())
    });
    let snapshots = snapshot::check(&**disk, dir, |done, total| {
        bar.show(done, total);
        ControlFlow::Continue(())
    });
    bar.finish();
    // Snapshots are reported before a log error is returned: after damage to the log their state matters even
    // more.
    let intact = snapshots.as_deref().map_or(Lsn::ZERO, print_snapshots);
    let log = log?;
    print_log_report(&log);
    let damage = snapshots?.into_iter().find_map(|snapshot| snapshot.outcome.err());
    match damage {
        Some(damage) => Err(damage),
        None if log.needs_snapshot && intact < log.start && !is_alone => {
            Err(snapshot::missing(dir, log.start))
        }
        None => Ok(()),
    }
}

fn print_log_report(report: &CheckReport) {
    println!("log        intact from lsn {} to {}", report.start, report.tail.end);
    if let Some(chain) = report.end_chain {
        println!("chain      {chain:016x} at its end: a log with the same value there is the same log");
    }
    let last =
        report.closed_at_ms.map_or(String::new(), |ms| format!(", the last at {}", unix_time::shown(ms)));
    println!(
        "content    {} records in {} batches, written by {} runs{last}",
        report.records, report.batches, report.epochs
    );
    match report.tail.torn_end {
        _ if report.closed_cleanly => println!("end        closed in order"),
        None => println!("end        not closed in order (a crash, or a server is running)"),
        Some(end) => println!(
            "end        an interrupted write of {} bytes that was never acknowledged; the next start cuts it off",
            end.bytes_since(report.tail.end)
        ),
    }
}

/// Prints a line for each snapshot; returns the begin of the newest intact one.
fn print_snapshots(snapshots: &[SnapshotCheck]) -> Lsn {
    for SnapshotCheck { begin_lsn, outcome } in snapshots {
        match outcome {
            Ok(info) => println!(
                "snapshot   intact, of lsn {begin_lsn} to {}: {} rows in {} chunks, {} bytes in {} files ({} before \
                 compression)",
                info.end_lsn,
                info.rows(),
                info.chunks(),
                info.file_bytes(),
                info.parts.len(),
                info.raw_bytes(),
            ),
            Err(_) => println!("snapshot   DAMAGED, of lsn {begin_lsn}"),
        }
    }
    let intact = snapshots.iter().filter(|snapshot| snapshot.outcome.is_ok());
    intact.map(|snapshot| snapshot.begin_lsn).max().unwrap_or(Lsn::ZERO)
}

#[cfg(test)]
mod tests {
    use env::{SimClock, SimEntropy};
    use storage::{
        LogOptions, Recovery, retain_snapshots,
        snapshot::{ChunkInfo, Compression, SnapshotWriter},
    };

    use super::*;

    /// A directory with a log that needs its snapshot.
    fn write_data(dir: &Path) -> Result<(), Error> {
        let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() }.fitting();
        let mut recovery = Recovery::open(Arc::new(RealDisk), dir, options, &SimEntropy::new(1))?;
        while recovery.next_batch()?.is_some() {}
        let log = recovery.finish(Arc::new(SimClock::new(0)))?;
        log.appender().reserve(b"a record")?.publish();
        log.flush_all()?;
        let meta = log.begin_snapshot(Compression::Lz4);
        let (writer, parts) = SnapshotWriter::create(Arc::new(RealDisk), dir, meta, 2)?;
        let mut summaries = Vec::new();
        for mut part in parts {
            for slot in 0..3 {
                let (lsn, continues) = (meta.begin_lsn, false);
                let info = ChunkInfo { first_slot: slot, last_slot: slot, rows: 7, lsn, continues };
                part.append(info, &[slot as u8; 700_000])?;
            }
            summaries.push(part.finish()?);
        }
        writer.publish(summaries, meta.begin_lsn)?;
        retain_snapshots(&RealDisk, dir, &log, 1)?;
        log.close()
    }

    #[test]
    fn the_check_fails_for_damaged_and_for_missing_snapshots() {
        let dir = std::env::temp_dir().join(format!("sheaf-check-{}", std::process::id()));
        write_data(&dir).unwrap();
        check(&dir).unwrap();
        let part = snapshot::directory(&dir).join("snap-0000000000001000.1.part");
        let intact = std::fs::read(&part).unwrap();
        let mut damaged = intact.clone();
        damaged[5000] ^= 1;
        std::fs::write(&part, &damaged).unwrap();
        let Err(Error::SnapshotCorrupt(damage)) =
            check_data(&(Arc::new(RealDisk) as Arc<dyn Disk>), &dir, false)
        else {
            panic!("the damage was not found")
        };
        assert_eq!((damage.path, damage.offset), (part.clone(), 4096));
        std::fs::write(&part, &intact).unwrap();
        check(&dir).unwrap();
        snapshot::remove(&RealDisk, &dir, Lsn::new(4096)).unwrap();
        let missing = check(&dir).unwrap_err().to_string();
        assert!(missing.contains("there is none to start from"), "{missing}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
