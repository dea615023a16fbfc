//! The full sync: copies everything from the leader into a directory beside the data, while the old data
//! stays in service. The next start installs the copy.
//!
//! ```text
//! fetch:   leader's snapshot and log -> <dir>/full-copy, verified, resumable; backup.json last
//! install: mark "remove" -> delete old data -> mark "move" -> move the copy into place -> delete mark
//! ```
//!
//! The copy is a backup (`backup::fetch`) into its own directory; there is no second way to copy. A witness
//! copies the log alone.
//!
//! Invariants
//! - The copy is installed only if it is complete, and only when a server starts on the directory.
//! - An interrupted installation is resumed by the next start, in any role, before the data is read: without
//!   it, the directory may lack all data.
//! - Stopping never waits for the leader: the connection of the copy is broken.
//! - An installation keeps files that are not data, such as the lock, `replication.json`, `group.json`,
//!   `settings.toml` and files that were set aside (`diverged-*.bin`).

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
};

use backup::{
    Manifest,
    fetch::{BackupError, Copied, Notice, Onto, Remote, copy_server},
};
use engine::replication::Address;
use env::{
    Access, Disk,
    crashsafe::{remove_durably, write_atomically},
};
use recovery::offline::Stage;
use storage::{Control, CopyPlan, snapshot};

use super::{Node, follower::Following, line::Introduction};
use crate::logging::rounded;

const COPY: &str = "full-copy";
const MARK: &str = "full-copy-install";
const REMOVING: &[u8] = b"remove\n";
const MOVING: &[u8] = b"move\n";
/// The interval of progress messages in the server's log.
const REPORT_PERIOD_MS: u64 = 5_000;

/// The subdirectories of the data directory that are copied completely.
const BELOW: [fn(&Path) -> PathBuf; 2] = [snapshot::directory, ::documents::directory];

fn copy_dir(dir: &Path) -> PathBuf {
    dir.join(COPY)
}

/// Copies everything from the leader into a directory beside the data.
///
/// # Errors
/// The reason, as text for a line of the server's log. The next call resumes the copy.
pub(super) fn fetch(
    node: &Node,
    following: &Following,
    leader: &Address,
    http_port: u16,
    own: &Introduction,
) -> Result<(), String> {
    let dir = copy_dir(node.dir());
    let url = Address { host: leader.host.clone(), port: http_port }.to_string();
    let url = if own.tls.is_some() { format!("https://{url}") } else { url };
    let (user, password) = own.credentials.for_http();
    let remote = Remote::new(&url, user, password).for_follower();
    let remote = match &own.tls {
        Some((_, files)) => remote.over_tls(files).map_err(|error| error.to_string())?,
        None => remote,
    };
    let remote = if node.is_witness() { remote.log_only() } else { remote };
    // The breaker is set before the first check of `is_stopping`, so that a stop is never missed.
    following.set_copying(Some(remote.breaker()));
    let tell = |notice: Notice<'_>| tracing::info!(target: "replication", %notice, "copying from the leader");
    let reported = Cell::new(node.now_ms());
    let show = |stage: Stage, done: u64, total: u64| {
        if following.is_stopping() || node.leader_address().as_ref() != Some(leader) {
            return Err(BackupError::Interrupted(
                "this server follows another leader, or none, or is stopping".into(),
            ));
        }
        node.note_copied(done, total);
        if node.now_ms() >= reported.get() + REPORT_PERIOD_MS {
            reported.set(node.now_ms());
            let percent = rounded(100.0 * done as f64 / total.max(1) as f64, 1);
            tracing::info!(target: "replication", stage = stage.name(), percent, bytes = done, total, "copying from the leader");
        }
        Ok(())
    };
    let job = node.traces.job("replication.full_sync");
    let copied = copy_server(&remote, &dir, Onto::Nothing, &tell, &show);
    following.set_copying(None);
    let bytes = vec![("sheaf.replication.bytes", node.copied_bytes().into())];
    job.end(bytes, copied.as_ref().err().map(ToString::to_string));
    match copied {
        Ok(Copied { manifest, .. }) => {
            tracing::info!(target: "replication", end = manifest.end_lsn, "everything was copied");
            Ok(())
        }
        // The copy was complete before, but was not installed: the process ended first, or the installation
        // mark could not be written.
        Err(BackupError::Complete { .. }) => Ok(()),
        Err(error) => Err(format!("the copy from the leader is not complete: {error}")),
    }
}

/// Whether the installation of the copy has begun.
fn is_begun(disk: &dyn Disk, dir: &Path) -> bool {
    disk.open(&dir.join(MARK), Access::Read).is_ok()
}

/// Prepares the directory for a server without a leader: resumes the installation of a copy if it has begun,
/// else removes the copy. Returns whether a copy was installed.
///
/// # Errors
/// I/O errors; the next start resumes the installation.
pub(crate) fn settle(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    if is_begun(disk, dir) {
        return install(disk, dir);
    }
    discard(disk, dir).map(|()| false)
}

/// Removes a complete or partial copy, which a server without a leader does not need. Does nothing once the
/// installation of the copy has begun.
pub(crate) fn discard(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let copy = copy_dir(dir);
    if is_begun(disk, dir) {
        return Ok(());
    }
    for below in BELOW {
        remove_files(disk, &below(&copy), |_| true)?;
    }
    remove_files(disk, &copy, |_| true)
}

/// Whether a complete copy waits for its installation.
pub(crate) fn is_complete(disk: &dyn Disk, dir: &Path) -> bool {
    matches!(Manifest::load(disk, &copy_dir(dir)), Ok(Some(_)))
}

/// Whether a complete copy waits for its installation and has another log than the directory, because it
/// comes from another group. False once the installation has begun, and if the identity of either log is
/// unknown.
pub(crate) fn has_another_log(disk: &dyn Disk, dir: &Path) -> bool {
    let copy = copy_dir(dir);
    if is_begun(disk, dir) || !is_complete(disk, dir) {
        return false;
    }
    let log_id = |dir: &Path| Some(Control::load(disk, dir).ok()??.log_id);
    matches!((log_id(dir), log_id(&copy)), (Some(here), Some(copied)) if here != copied)
}

/// Replaces the data of the directory by a complete copy; `false` if none exists.
///
/// # Errors
/// I/O errors; the next start resumes the installation.
pub(crate) fn install(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    let (copy, mark) = (copy_dir(dir), dir.join(MARK));
    let state = read(disk, &mark)?;
    if state.is_none() && !is_complete(disk, dir) {
        return Ok(false);
    }
    if state.is_none() {
        write_atomically(disk, &mark, REMOVING)?;
    }
    if state.as_deref() != Some(MOVING) {
        // The control file is removed first: without it, the other files are no database.
        remove_files(disk, dir, |name| name == CopyPlan::CONTROL_NAME)?;
        remove_files(disk, dir, is_of_log)?;
        for below in BELOW {
            remove_files(disk, &below(dir), |_| true)?;
        }
        // Indexes are derived from the old documents, and are rebuilt from the new ones.
        remove_files(disk, &recovery::opening::indexes_directory(dir), |_| true)?;
        write_atomically(disk, &mark, MOVING)?;
    }
    for below in BELOW {
        disk.create_dir_all(&below(dir))?;
        move_files(disk, &below(&copy), &below(dir), |_| true)?;
    }
    move_files(disk, &copy, dir, is_of_log)?;
    move_files(disk, &copy, dir, |name| name == CopyPlan::CONTROL_NAME)?;
    remove_files(disk, &copy, |_| true)?;
    remove_durably(disk, &mark)?;
    Ok(true)
}

fn is_of_log(name: &str) -> bool {
    name.starts_with("log-") && name.ends_with(".seg")
}

fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = vec![0; REMOVING.len()];
    let read = file.read_at(&mut text, 0)?;
    text.truncate(read);
    Ok(Some(text))
}

fn names(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<String>> {
    match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

fn remove_files(disk: &dyn Disk, dir: &Path, chosen: impl Fn(&str) -> bool) -> io::Result<()> {
    let names = names(disk, dir)?;
    for name in names.iter().filter(|name| chosen(name)) {
        disk.remove(&dir.join(name))?;
    }
    if names.is_empty() { Ok(()) } else { disk.sync_dir(dir) }
}

fn move_files(disk: &dyn Disk, from: &Path, to: &Path, chosen: impl Fn(&str) -> bool) -> io::Result<()> {
    let names = names(disk, from)?;
    for name in names.iter().filter(|name| chosen(name)) {
        disk.rename(&from.join(name), &to.join(name))?;
    }
    if names.is_empty() {
        return Ok(());
    }
    // The target directory is synced first: after a crash a file may be in both directories, but never in
    // neither.
    disk.sync_dir(to)?;
    disk.sync_dir(from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use env::{
        SimClock, SimDisk, SimEntropy,
        sim::{CrashMode, FaultPlan, SimDiskOptions},
    };
    use storage::{LogOptions, Recovery};

    use super::*;

    const DIR: &str = "/data";
    const MANIFEST: &[u8] =
        br#"{"format": 1, "sheaf_version": "0", "log_id": "", "begin_lsn": 0, "end_lsn": 0,
        "end_unix_ms": 0, "made_at": "", "files": []}"#;
    const KEPT: [&str; 4] = ["replication.json", "group.json", "diverged-0000000000001000.bin", "sheaf.lock"];

    /// A directory with its own data, and a complete copy beside it.
    fn disk() -> Arc<SimDisk> {
        let disk = SimDisk::new(SimDiskOptions { seed: 3, ..Default::default() });
        let (dir, copy) = (Path::new(DIR), copy_dir(Path::new(DIR)));
        for (place, mark) in [(dir, "old"), (&copy, "new")] {
            BELOW.iter().for_each(|below| disk.create_dir_all(&below(place)).unwrap());
            disk.write_file(&place.join("control"), mark.as_bytes());
            disk.write_file(&place.join(format!("log-{mark}.seg")), mark.as_bytes());
            disk.write_file(&place.join("log-same.seg"), mark.as_bytes());
            disk.write_file(&snapshot::directory(place).join(format!("snap-{mark}.part")), mark.as_bytes());
            disk.write_file(&::documents::directory(place).join(format!("{mark}.tree")), mark.as_bytes());
        }
        KEPT.iter().for_each(|name| disk.write_file(&dir.join(name), b"kept"));
        disk.write_file(&copy.join("backup.json"), MANIFEST);
        disk
    }

    #[test]
    fn a_server_without_a_leader_completes_an_installation_that_has_begun() {
        let (whole, dir) = (disk(), Path::new(DIR));
        let first_io = whole.io_count();
        assert!(install(&*whole, dir).unwrap());
        for crash_at_io in first_io..whole.io_count() {
            for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
                let disk = disk();
                disk.reseed(crash_at_io);
                disk.set_fault_plan(FaultPlan { crash_at_io: Some(crash_at_io), ..FaultPlan::default() });
                let _ = install(&*disk, dir);
                disk.crash(mode);
                disk.set_fault_plan(FaultPlan::default());
                let has_begun = is_begun(&*disk, dir);
                assert_eq!(settle(&*disk, dir).unwrap(), has_begun);
                if has_begun || disk.read_file(&dir.join("control")).unwrap() == b"new" {
                    check(&disk);
                } else {
                    assert!(names(&*disk, &copy_dir(dir)).unwrap().is_empty(), "it was not to be installed");
                }
            }
        }
    }

    /// Checks that the copy is installed completely.
    fn check(disk: &SimDisk) {
        let dir = Path::new(DIR);
        let text = |name: &str| disk.read_file(&dir.join(name)).unwrap();
        assert_eq!([text("control"), text("log-new.seg"), text("log-same.seg")], [b"new", b"new", b"new"]);
        KEPT.iter().for_each(|name| assert_eq!(text(name), b"kept"));
        assert_eq!(names(disk, dir).unwrap().len(), KEPT.len() + 3);
        assert_eq!(names(disk, &snapshot::directory(dir)).unwrap(), ["snap-new.part"]);
        assert_eq!(names(disk, &::documents::directory(dir)).unwrap(), ["new.tree"]);
        assert!(names(disk, &copy_dir(dir)).unwrap().is_empty());
    }

    #[test]
    fn a_copy_replaces_the_old_data_despite_a_crash_at_any_step() {
        let whole = disk();
        let first_io = whole.io_count();
        assert!(install(&*whole, Path::new(DIR)).unwrap());
        check(&whole);
        assert!(!install(&*whole, Path::new(DIR)).unwrap(), "once is enough");
        for crash_at_io in first_io..whole.io_count() {
            for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
                let disk = disk();
                disk.reseed(crash_at_io);
                disk.set_fault_plan(FaultPlan { crash_at_io: Some(crash_at_io), ..FaultPlan::default() });
                let _ = install(&*disk, Path::new(DIR));
                disk.crash(mode);
                disk.set_fault_plan(FaultPlan::default());
                install(&*disk, Path::new(DIR)).unwrap();
                check(&disk);
            }
        }
    }

    #[test]
    fn a_copy_of_another_log_is_recognised_until_its_installation_begins() {
        let control = |seed| {
            let log = SimDisk::new(SimDiskOptions { seed, ..Default::default() });
            let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() }.fitting();
            let mut recovery =
                Recovery::open(log.clone(), Path::new(DIR), options, &SimEntropy::new(seed)).unwrap();
            assert!(recovery.next_batch().unwrap().is_none());
            recovery.finish(Arc::new(SimClock::new(0))).unwrap();
            log.read_file(&Path::new(DIR).join("control")).unwrap()
        };
        let (disk, dir) = (disk(), Path::new(DIR));
        assert!(!has_another_log(&*disk, dir), "the control files are no such files");
        let (here, other) = (control(1), control(2));
        disk.write_file(&dir.join("control"), &here);
        disk.write_file(&copy_dir(dir).join("control"), &here);
        assert!(!has_another_log(&*disk, dir), "the same group");
        disk.write_file(&copy_dir(dir).join("control"), &other);
        assert!(has_another_log(&*disk, dir));
        disk.write_file(&dir.join(MARK), REMOVING);
        assert!(!has_another_log(&*disk, dir));
        disk.remove(&dir.join(MARK)).unwrap();
        disk.remove(&copy_dir(dir).join("backup.json")).unwrap();
        assert!(!has_another_log(&*disk, dir), "it is not complete");
    }

    #[test]
    fn an_incomplete_copy_is_not_installed_and_can_be_discarded() {
        let disk = disk();
        disk.remove(&copy_dir(Path::new(DIR)).join("backup.json")).unwrap();
        assert!(!install(&*disk, Path::new(DIR)).unwrap());
        assert_eq!(disk.read_file(&Path::new(DIR).join("control")).unwrap(), b"old");
        discard(&*disk, Path::new(DIR)).unwrap();
        assert!(names(&*disk, &copy_dir(Path::new(DIR))).unwrap().is_empty());
        assert_eq!(disk.read_file(&Path::new(DIR).join("control")).unwrap(), b"old");
    }
}
