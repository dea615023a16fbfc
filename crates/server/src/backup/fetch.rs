//! `sheaf backup`: copies a running server's data into a directory, goes on where it was interrupted, verifies, publishes.
//!
//! What it is not: aware of formats. The files are checked by the code that `sheaf check` uses.
//!
//! Invariants
//! - What is in the directory of an unfinished backup is a prefix of each file of the session it is of. The mark that says so
//!   is there before the first file, and before the server is asked for a session, whose name is in it.
//! - A file that turns out to be damaged is removed, so that the next run copies it again.

mod remote;

use std::{
    cell::Cell,
    io::{self, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, DirLock, Disk, Entropy, File, RealDisk, RealEntropy};
use lsn::Lsn;
use storage::{CopyPlan, snapshot};

pub use self::remote::RemoteError;
pub(crate) use self::remote::{Breaker, Remote};
use super::{
    Manifest, ManifestError, Offer, OfferedFile,
    manifest::{CopySource, ManifestFile, Unfinished, is_below},
};
use crate::{
    offline::{ProgressBars, Stage},
    password,
};

/// How much is written at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Why there is no backup; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The directory holds a backup.
    #[error("{} holds a backup already, of {}: choose another directory", dir.display(), made_at)]
    Complete {
        /// The directory.
        dir: PathBuf,
        /// When it was made.
        made_at: String,
    },
    /// The directory holds something else.
    #[error("{} is not empty and holds no backup that was begun: choose another directory", .0.display())]
    NotEmpty(PathBuf),
    /// Another backup is being made there, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] env::LockError),
    /// A manifest cannot be read or written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The server refuses.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The copy broke off.
    #[error("the copy was interrupted: {0}. Run the same command again, it goes on where it stopped")]
    Interrupted(String),
    /// What was copied is not what the server has written.
    #[error(
        "what was copied is damaged: {error}. {} was removed; run the same command again to copy it again, and `sheaf check` \
         on the server's directory, when it is stopped, if that does not help", path.display()
    )]
    Damaged {
        /// What is wrong, and where.
        error: storage::Error,
        /// The file.
        path: PathBuf,
    },
    /// What was copied cannot be verified.
    #[error("cannot verify the copy: {0}")]
    Unverified(String),
    /// The OS refused something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Os {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the OS said.
        source: io::Error,
    },
}

fn os(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_path_buf();
    move |source| BackupError::Os { doing, path, source }
}

/// Who asks if nobody else is named: the user of `requirepass`.
pub const DEFAULT_USER: &str = "default";

/// `sheaf backup`: copies what the server at `url` holds into `dir`, asking as `user`, and prints what was done.
///
/// # Errors
/// See [`BackupError`].
pub fn run(dir: &Path, url: &str, user: &str, password_file: Option<&Path>) -> Result<(), BackupError> {
    let password = password_file.map(|path| password::read(path).map_err(os("read", path))).transpose()?;
    let bars = ProgressBars::default();
    let show = |stage, done, total| {
        bars.show(stage, done, total);
        Ok(())
    };
    let starts_over =
        || println!("starts over  the server does not have the snapshot any more that the copy began with");
    let made = copy_server(&Remote::new(url, user, password.as_deref()), dir, &starts_over, &show);
    bars.finish();
    let Copied { manifest, .. } = made?;
    println!("backup       {} files, {} bytes in {}", manifest.files.len(), manifest.bytes(), dir.display());
    println!("state        lsn {}, of {}; every byte was verified", manifest.end_lsn, manifest.made_at);
    println!("restore      sheaf restore {} --dir DIR", dir.display());
    Ok(())
}

/// Is shown how far it is: the stage, bytes that are done, bytes in all. Its error ends the copy, which can be gone on with.
pub(crate) type Show<'s> = &'s dyn Fn(Stage, u64, u64) -> Result<(), BackupError>;

/// What was copied.
pub(crate) struct Copied {
    manifest: Manifest,
    /// Where it ends, and the hash of the batch that ends there.
    pub(crate) end: (Lsn, Option<u32>),
}

/// Copies what a server holds into `dir`, going on where an earlier call was interrupted, and verifies it.
pub(crate) fn copy_server(
    remote: &Remote,
    dir: &Path,
    starts_over: &dyn Fn(),
    show: Show<'_>,
) -> Result<Copied, BackupError> {
    RealDisk.create_dir_all(dir).map_err(os("create", dir))?;
    let _lock = DirLock::acquire(dir)?;
    let unfinished = find_unfinished(dir)?.unwrap_or_else(|| {
        let session = format!("{:016x}{:016x}", RealEntropy.random_u64(), RealEntropy.random_u64());
        Unfinished { session, source: None }
    });
    unfinished.store(&RealDisk, dir)?;
    show(Stage::Copying, 0, 0)?;
    let offer = remote.begin(&unfinished)?;
    let source = CopySource { log_id: offer.log_id.clone(), begin_lsn: offer.begin_lsn };
    if unfinished.source.as_ref().is_some_and(|earlier| *earlier != source) {
        starts_over();
        remove_copied(dir)?;
    }
    Unfinished { source: Some(source), ..unfinished }.store(&RealDisk, dir)?;
    let manifest = copy(remote, &offer, dir, show)?;
    // It would end by itself.
    remote.end(&offer);
    verify(&offer, dir, show)?;
    manifest.store(&RealDisk, dir)?;
    Ok(Copied { manifest, end: (Lsn::new(offer.end_lsn), offer.end_hash) })
}

/// What the directory holds of a backup that was begun; `None` if it is empty.
fn find_unfinished(dir: &Path) -> Result<Option<Unfinished>, BackupError> {
    if let Some(Manifest { made_at, .. }) = Manifest::load(&RealDisk, dir)? {
        return Err(BackupError::Complete { dir: dir.to_path_buf(), made_at });
    }
    let unfinished = Unfinished::load(&RealDisk, dir)?;
    let names = RealDisk.list(dir).map_err(os("list", dir))?;
    if unfinished.is_none() && names.iter().any(|name| name != DirLock::NAME && !Unfinished::is_named(name)) {
        return Err(BackupError::NotEmpty(dir.to_path_buf()));
    }
    Ok(unfinished)
}

/// Removes all files of an unfinished backup but its mark.
fn remove_copied(dir: &Path) -> Result<(), BackupError> {
    [dir, &snapshot::directory(dir), &documents::directory(dir)].into_iter().try_for_each(remove_files)
}

/// Removes the files of a directory, if it is there, but the lock and the mark of an unfinished backup.
fn remove_files(dir: &Path) -> Result<(), BackupError> {
    let names = match RealDisk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(os("list", dir))?,
    };
    for name in names.iter().filter(|name| *name != DirLock::NAME && !Unfinished::is_named(name)) {
        let path = dir.join(name);
        RealDisk.remove(&path).map_err(os("remove", &path))?;
    }
    RealDisk.sync_dir(dir).map_err(os("sync", dir))
}

/// Copies what is missing of every file and makes all of it durable.
fn copy(remote: &Remote, offer: &Offer, dir: &Path, show: Show<'_>) -> Result<Manifest, BackupError> {
    let below = [snapshot::directory(dir), documents::directory(dir)];
    below.iter().try_for_each(|dir| RealDisk.create_dir_all(dir).map_err(os("create", dir)))?;
    let total = offer.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    let done = Cell::new(0);
    let moved = |bytes: u64| {
        done.set(done.get() + bytes);
        show(Stage::Copying, done.get(), total)
    };
    let mut manifest = Manifest::new(offer);
    for file in &offer.files {
        if !is_below(&file.name) {
            return Err(BackupError::Interrupted(format!(
                "the server offers '{}', which is no file name",
                file.name
            )));
        }
        manifest.files.push(copy_file(remote, offer, file, &dir.join(&file.name), &moved)?);
    }
    for dir in below.iter().map(PathBuf::as_path).chain([dir]) {
        RealDisk.sync_dir(dir).map_err(os("sync", dir))?;
    }
    Ok(manifest)
}

fn copy_file(
    remote: &Remote,
    offer: &Offer,
    OfferedFile { name, bytes }: &OfferedFile,
    path: &Path,
    moved: &dyn Fn(u64) -> Result<(), BackupError>,
) -> Result<ManifestFile, BackupError> {
    let file = open_or_create(path)?;
    // That of an earlier session vouches for another end.
    let is_replaced = name == CopyPlan::CONTROL_NAME || crate::documents::is_catalog(name);
    let kept = if is_replaced { 0 } else { file.len().map_err(os("measure", path))?.min(*bytes) };
    file.set_len(kept).map_err(os("cut", path))?;
    let (mut offset, mut crc) = (0, 0);
    let mut piece = vec![0; PIECE_BYTES];
    while offset < kept {
        let piece = &mut piece[..(kept - offset).min(PIECE_BYTES as u64) as usize];
        file.read_exact_at(piece, offset).map_err(os("read", path))?;
        crc = crc32c::crc32c_append(crc, piece);
        offset += piece.len() as u64;
        moved(piece.len() as u64)?;
    }
    if offset < *bytes {
        let interrupted = |error: io::Error| BackupError::Interrupted(format!("{name}: {error}"));
        let asked = remote.file(offer, name, offset);
        let mut body = asked.map_err(|error| BackupError::Interrupted(error.to_string()))?;
        while offset < *bytes {
            let wanted = (*bytes - offset).min(PIECE_BYTES as u64) as usize;
            let read = match body.read(&mut piece[..wanted]).map_err(interrupted)? {
                0 => {
                    return Err(BackupError::Interrupted(format!(
                        "{name} ends after {offset} of {bytes} bytes"
                    )));
                }
                read => read,
            };
            file.write_all_at(&piece[..read], offset).map_err(os("write", path))?;
            crc = crc32c::crc32c_append(crc, &piece[..read]);
            offset += read as u64;
            moved(read as u64)?;
        }
    }
    // What is verified afterwards is what the disk holds.
    file.sync_all().and_then(|()| file.drop_cache()).map_err(os("sync", path))?;
    Ok(ManifestFile { name: name.clone(), bytes: *bytes, crc32c: crc })
}

fn open_or_create(path: &Path) -> Result<Arc<dyn File>, BackupError> {
    match RealDisk.open(path, Access::ReadWrite) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            RealDisk.create_new(path).map_err(os("create", path))
        }
        other => other.map_err(os("open", path)),
    }
}

/// Reads everything that the files of documents have. What is damaged is removed, so that the next run copies it again.
fn verify_documents(dir: &Path, show: Show<'_>) -> Result<(), BackupError> {
    let (mut first, mut stopped) = (None, None);
    let dir = documents::directory(dir);
    let checked = documents::check(
        &RealDisk,
        &dir,
        |what| _ = first.get_or_insert(what),
        |done, total| {
            if let Err(error) = show(Stage::Verifying, done, total) {
                stopped.get_or_insert(error);
            }
        },
    );
    if let Some(error) = stopped {
        return Err(error);
    }
    let damage = first.or_else(|| checked.err().map(|error| error.to_string()));
    let Some(what) = damage else { return Ok(()) };
    remove_files(&dir)?;
    Err(BackupError::Unverified(format!(
        "what was copied of documents is damaged: {what}. Run the same command again to copy them again"
    )))
}

/// Reads every byte of log and snapshot as recovery would.
fn verify(offer: &Offer, dir: &Path, show: Show<'_>) -> Result<(), BackupError> {
    let ended = Cell::new(None);
    let watch = |done, total| match show(Stage::Verifying, done, total) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            ended.set(Some(error));
            ControlFlow::Break(())
        }
    };
    let checked = snapshot::check(&RealDisk, dir, watch).and_then(|snapshots| {
        snapshots.into_iter().try_for_each(|snapshot| snapshot.outcome.map(drop))?;
        let begin = Lsn::new(offer.begin_lsn);
        storage::check(Arc::new(RealDisk), dir, |position, end| {
            watch(position.bytes_since(begin), end.bytes_since(begin))
        })
    });
    if let Some(error) = ended.take() {
        return Err(error);
    }
    match checked {
        Ok(log) if log.tail.end.get() == offer.end_lsn => verify_documents(dir, show),
        Ok(log) => {
            let (end, wanted) = (log.tail.end, offer.end_lsn);
            Err(BackupError::Unverified(format!("the log ends at lsn {end}, lsn {wanted} was offered")))
        }
        Err(error) => {
            let path = match &error {
                storage::Error::Corrupt(damage) => damage.path.clone(),
                storage::Error::SnapshotCorrupt(damage) => damage.path.clone(),
                storage::Error::Inconsistent { path, .. } => path.clone(),
                _ => return Err(BackupError::Unverified(error.to_string())),
            };
            // If it is not there, it is copied again as well.
            let _ = RealDisk.remove(&path);
            Err(BackupError::Damaged { error, path })
        }
    }
}
