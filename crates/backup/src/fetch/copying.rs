//! The steps of a backup, on any disk and from any [`Origin`]: see the documentation of [`backup`](crate).
//!
//! This module knows only one thing about formats: the last bytes of each file seal the file.
//! - A segment ends with the footer of a batch, which continues the chain of all batches before it.
//! - A part of a snapshot ends with the page that has the checksum of its index. The index has the checksums
//!   of all chunks.
//! - A file of a database ends with the header that leads to everything else.
//!
//! Two files with the same [`SEAL_BYTES`] before the same sealed position are equal up to there. The end of
//! an interrupted copy is not sealed: its bytes are verified with the rest of the file, once the file is
//! complete. For the log as a whole, the chain value at its end proves equality as well, and is compared once
//! the copy is complete.

mod names;
mod verify;

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, DirLock, Disk, Entropy, File, RealEntropy};
use recovery::offline::Stage;
use storage::snapshot;

use self::names::{is_of_copy, is_of_log, is_replaced, is_stored_by_copies};
use super::{BackupError, Copied, Notice, Onto, Origin, RemoteError, Show, os};
use crate::{
    Manifest, Offer, OfferedFile,
    manifest::{CopySource, ManifestFile, Unfinished, crc_of},
};

/// Bytes written at a time.
const PIECE_BYTES: usize = 256 << 10;
/// The number of bytes at the end of existing data that are compared with the server's data.
const SEAL_BYTES: u64 = env::BLOCK_BYTES as u64;

/// The source and destination of a copy, and the receivers of its progress.
pub(super) struct Copying<'c> {
    pub(super) disk: &'c Arc<dyn Disk>,
    /// The directory; must be locked.
    pub(super) dir: &'c Path,
    pub(super) origin: &'c dyn Origin,
    pub(super) tell: &'c dyn Fn(Notice<'_>),
    pub(super) show: Show<'c>,
}

/// How a file of an offer is added to the backup.
struct Step<'o> {
    offered: &'o OfferedFile,
    stored_as: Option<String>,
    base: Base,
}

/// The existing data of a file.
#[derive(Clone, Copy)]
enum Base {
    /// There is no usable data; if the file exists, it is removed.
    Nothing,
    /// The bytes that an interrupted copy has left, if any: they are kept if the server's file begins with
    /// them.
    Begun,
    /// The beginning, of this length and with this checksum, from the backup being brought up to date.
    Kept { bytes: u64, crc: u32 },
}

impl Step<'_> {
    fn stored(&self) -> &str {
        self.stored_as.as_deref().unwrap_or(&self.offered.name)
    }

    /// Bytes reused from the earlier backup.
    fn kept(&self) -> u64 {
        match self.base {
            Base::Kept { bytes, .. } => bytes,
            Base::Nothing | Base::Begun => 0,
        }
    }
}

impl Copying<'_> {
    /// Makes a backup in an empty directory, or brings the existing one up to date.
    pub(super) fn run(&self, onto: Onto) -> Result<Copied, BackupError> {
        let before = Manifest::load(&**self.disk, self.dir)?;
        if let (Onto::Nothing, Some(Manifest { made_at, .. })) = (onto, &before) {
            return Err(BackupError::Complete { dir: self.dir.to_path_buf(), made_at: made_at.clone() });
        }
        let (mark, goes_on) = self.mark(before.as_ref())?;
        (self.show)(Stage::Copying, 0, 0)?;
        let mut offer = self.offered(&mark, goes_on, before.as_ref())?;
        let mut intact = Vec::new();
        if let Some(before) = &before {
            // The session ends before the check, which can take long: the server would have to keep the
            // offered files meanwhile.
            self.origin.end(&offer);
            intact = self.intact(before)?;
            offer = self.offered(&mark, goes_on, Some(before))?;
        }
        let source = CopySource { log_id: offer.log_id.clone(), begin_lsn: offer.begin_lsn };
        if mark.source.as_ref().is_some_and(|earlier| *earlier != source) {
            (self.tell)(Notice::StartsOver);
            self.remove_all_but(before.as_ref())?;
        }
        let mark = Unfinished { source: Some(source), ..mark };
        mark.store(&**self.disk, self.dir)?;

        let steps = self.plan(before.as_ref(), &intact, &offer, mark.increment)?;
        let mut copied = self.copy(&offer, &steps)?;
        copied.manifest.increments = mark.increment;
        // The session ends before the verification. Otherwise the server would keep the files of the session
        // until the session times out.
        self.origin.end(&offer);
        self.verify(&offer, &steps, &copied.manifest, before.as_ref())?;
        // From here on, this manifest is the backup: files that only the earlier one names can be removed.
        copied.manifest.store(&**self.disk, self.dir)?;
        self.remove_all_but(Some(&copied.manifest))?;
        Unfinished::remove(&**self.disk, self.dir)?;
        Ok(copied)
    }

    /// Writes the marker of an unfinished backup before anything is copied. Returns the marker, and whether
    /// an interrupted copy is resumed.
    fn mark(&self, before: Option<&Manifest>) -> Result<(Unfinished, bool), BackupError> {
        let disk = &**self.disk;
        let increment = before.map_or(0, |before| before.increments.saturating_add(1));
        let found = Unfinished::load(disk, self.dir)?;
        if before.is_none() && found.is_none() {
            let names = disk.list(self.dir).map_err(os("list", self.dir))?;
            if names.iter().any(|name| name != DirLock::NAME && !Unfinished::is_named(name)) {
                return Err(BackupError::NotEmpty(self.dir.to_path_buf()));
            }
        }
        if before.is_some() && found.as_ref().is_some_and(|mark| mark.increment != increment) {
            // The interrupted run had published its backup, and was removing files no longer needed.
            self.remove_all_but(before)?;
        }
        let begun = found.filter(|mark| before.is_none() || mark.increment == increment);
        let begun = begun.map(|mark| Unfinished { increment, ..mark });
        let goes_on = begun.is_some();
        let mark = begun.unwrap_or_else(|| {
            let session = format!("{:016x}{:016x}", RealEntropy.random_u64(), RealEntropy.random_u64());
            Unfinished { session, increment, source: None }
        });
        mark.store(disk, self.dir)?;
        Ok((mark, goes_on))
    }

    /// Begins the session, which replaces an earlier one of the same name; returns the server's offer. It is
    /// an error if the offer can be neither the state of the existing data nor a later one.
    fn offered(
        &self,
        mark: &Unfinished,
        goes_on: bool,
        before: Option<&Manifest>,
    ) -> Result<Offer, BackupError> {
        // The session is to use the snapshot of the interrupted copy, or of the backup being brought up to
        // date, because files of that snapshot need not be copied again.
        let begun = mark.source.as_ref().map(|source| source.begin_lsn);
        let resume = begun.or(before.map(|before| before.begin_lsn));
        let is_told = Cell::new(false);
        let is_silent = || {
            if !is_told.replace(true) {
                (self.tell)(Notice::AwaitsSnapshot);
            }
        };
        let begun = self.origin.begin(&mark.session, resume, &is_silent);
        if !goes_on && begun.as_ref().is_err_and(RemoteError::has_no_session) {
            Unfinished::remove(&**self.disk, self.dir)?;
        }
        let offer = begun?;
        if let Err(error) = self.require_same(before, &offer) {
            self.origin.end(&offer);
            if !goes_on {
                Unfinished::remove(&**self.disk, self.dir)?;
            }
            return Err(error);
        }
        Ok(offer)
    }

    fn require_same(&self, before: Option<&Manifest>, offer: &Offer) -> Result<(), BackupError> {
        if let Some(file) = offer.files.iter().find(|file| !is_of_copy(&file.name)) {
            return Err(BackupError::Unverified(format!(
                "the server offers '{}', which does not belong to a backup",
                file.name
            )));
        }
        let Some(before) = before else { return Ok(()) };
        let (dir, made_at) = (self.dir.to_path_buf(), before.made_at.clone());
        if before.log_id != offer.log_id {
            return Err(BackupError::OtherServer { dir, made_at });
        }
        if offer.end_lsn < before.end_lsn {
            let (server, backup) = (offer.end_lsn, before.end_lsn);
            return Err(BackupError::Behind { dir, server, backup });
        }
        let chains = before.end_chain.as_ref().zip(offer.end_chain.as_ref());
        if offer.end_lsn == before.end_lsn && chains.is_some_and(|(ours, theirs)| ours != theirs) {
            return Err(BackupError::Diverged { dir, made_at });
        }
        Ok(())
    }

    /// Reads the earlier backup again, except for the files that each copy replaces; returns the files that
    /// still match their checksums.
    fn intact<'b>(&self, before: &'b Manifest) -> Result<Vec<&'b ManifestFile>, BackupError> {
        let reused: Vec<_> = before.files.iter().filter(|file| !is_replaced(&file.name)).collect();
        let total = reused.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let (mut done, mut stopped, mut intact) = (0, None, Vec::new());
        for file in reused {
            let found = self.disk.open(&self.dir.join(file.stored()), Access::Read).and_then(|stored| {
                crc_of(&*stored, file.bytes, |bytes| {
                    done += bytes;
                    if let Err(error) = (self.show)(Stage::Comparing, done, total) {
                        stopped.get_or_insert(error);
                    }
                })
            });
            if let Some(error) = stopped {
                return Err(error);
            }
            // Unreadable files count as missing.
            if found.is_ok_and(|crc| crc == file.crc32c) {
                intact.push(file);
            } else {
                (self.tell)(Notice::CopiedAgain(&file.name));
            }
        }
        Ok(intact)
    }

    /// Decides per file how much of the earlier backup can be reused: both sides are compared at the end of
    /// the earlier data.
    fn plan<'o>(
        &self,
        before: Option<&Manifest>,
        intact: &[&ManifestFile],
        offer: &'o Offer,
        increment: u32,
    ) -> Result<Vec<Step<'o>>, BackupError> {
        let step = |offered: &'o OfferedFile| {
            let name = &offered.name;
            let beside = || Some(format!("{name}.{increment}"));
            if is_replaced(name) {
                let stored_as = beside().filter(|_| increment > 0);
                return Ok(Step { offered, stored_as, base: Base::Nothing });
            }
            let Some(before) = before.filter(|before| before.file(name).is_some()) else {
                return Ok(Step { offered, stored_as: None, base: Base::Begun });
            };
            let earlier = intact.iter().find(|file| file.name == *name && file.bytes <= offered.bytes);
            if let Some(earlier) = earlier {
                let file = self.open(earlier.stored())?;
                if self.is_continued(offer, name, &*file, earlier.bytes)? {
                    let base = Base::Kept { bytes: earlier.bytes, crc: earlier.crc32c };
                    return Ok(Step { offered, stored_as: earlier.stored_as.clone(), base });
                }
                if is_of_log(name) {
                    let (dir, made_at) = (self.dir.to_path_buf(), before.made_at.clone());
                    return Err(BackupError::Diverged { dir, made_at });
                }
            }
            // The earlier file stays in place until the earlier backup is replaced.
            Ok(Step { offered, stored_as: beside(), base: Base::Nothing })
        };
        offer.files.iter().map(step).collect()
    }

    /// Whether the last [`SEAL_BYTES`] before `place`, or all bytes before it if these are fewer, are the
    /// same in `file` and in the server's file.
    fn is_continued(
        &self,
        offer: &Offer,
        name: &str,
        file: &dyn File,
        place: u64,
    ) -> Result<bool, BackupError> {
        let from = place.saturating_sub(SEAL_BYTES);
        let (mut here, mut there) = (vec![0; (place - from) as usize], vec![0; (place - from) as usize]);
        file.read_exact_at(&mut here, from).map_err(os("read", &self.dir.join(name)))?;
        if from < place {
            let mut body = self.origin.read(offer, name, from..place).map_err(BackupError::interrupted)?;
            body.read_exact(&mut there)
                .map_err(|error| BackupError::Interrupted(format!("{name}: {error}")))?;
        }
        Ok(here == there)
    }

    /// Copies the missing data of every file, and makes all of it durable.
    fn copy(&self, offer: &Offer, steps: &[Step<'_>]) -> Result<Copied, BackupError> {
        let below = [snapshot::directory(self.dir), documents::directory(self.dir)];
        below.iter().try_for_each(|dir| self.disk.create_dir_all(dir).map_err(os("create", dir)))?;
        let total = steps.iter().map(|step| step.offered.bytes - step.kept()).fold(0, u64::saturating_add);
        let done = Cell::new(0);
        let moved = |bytes: u64| {
            done.set(done.get() + bytes);
            (self.show)(Stage::Copying, done.get(), total)
        };
        let mut copied = Copied { manifest: Manifest::new(offer), reused_bytes: 0, copied_bytes: 0 };
        for step in steps {
            let (file, copied_bytes) = self.copy_file(offer, step, &moved)?;
            copied.copied_bytes += copied_bytes;
            copied.reused_bytes += file.bytes - copied_bytes;
            copied.manifest.files.push(file);
        }
        for dir in below.iter().map(PathBuf::as_path).chain([self.dir]) {
            self.disk.sync_dir(dir).map_err(os("sync", dir))?;
        }
        Ok(copied)
    }

    /// Copies the missing data of a file; returns the file and the number of bytes copied.
    fn copy_file(
        &self,
        offer: &Offer,
        step: &Step<'_>,
        moved: &dyn Fn(u64) -> Result<(), BackupError>,
    ) -> Result<(ManifestFile, u64), BackupError> {
        let OfferedFile { name, bytes } = step.offered;
        let path = self.dir.join(step.stored());
        let (mut offset, mut crc) = match step.base {
            Base::Kept { bytes, crc } => (bytes, crc),
            Base::Nothing | Base::Begun => (0, 0),
        };
        let entry = |crc32c| ManifestFile {
            name: name.clone(),
            bytes: *bytes,
            crc32c,
            stored_as: step.stored_as.clone(),
        };
        if matches!(step.base, Base::Kept { bytes: kept, .. } if kept == *bytes) {
            return Ok((entry(crc), 0));
        }
        if matches!(step.base, Base::Nothing) {
            self.remove_if_present(&path)?;
        }
        let file = self.open_or_create(&path)?;
        let len = file.len().map_err(os("measure", &path))?;
        if len > offset {
            let begun = len.min(*bytes);
            let begun_crc = self.crc_behind(&*file, &path, (offset, crc), begun)?;
            if self.is_continued(offer, name, &*file, begun)? {
                moved(begun - offset)?;
                (offset, crc) = (begun, begun_crc);
            }
            file.set_len(offset).map_err(os("cut", &path))?;
        }
        let begun = offset;
        if offset < *bytes {
            let mut body = self.origin.read(offer, name, offset..*bytes).map_err(BackupError::interrupted)?;
            let mut piece = vec![0; PIECE_BYTES];
            while offset < *bytes {
                let wanted = (*bytes - offset).min(PIECE_BYTES as u64) as usize;
                let read = body.read(&mut piece[..wanted]);
                let read = match read.map_err(|error| BackupError::Interrupted(format!("{name}: {error}")))? {
                    0 => {
                        let reason = format!("{name} ends after {offset} of {bytes} bytes");
                        return Err(BackupError::Interrupted(reason));
                    }
                    read => read,
                };
                file.write_all_at(&piece[..read], offset).map_err(os("write", &path))?;
                crc = crc32c::crc32c_append(crc, &piece[..read]);
                offset += read as u64;
                moved(read as u64)?;
            }
        }
        // Drops the cache, so that the verification reads from the disk.
        file.sync_all().and_then(|()| file.drop_cache()).map_err(os("sync", &path))?;
        Ok((entry(crc), *bytes - begun))
    }

    /// The checksum of a file up to `end`, given the checksum up to `offset`.
    fn crc_behind(
        &self,
        file: &dyn File,
        path: &Path,
        (mut offset, mut crc): (u64, u32),
        end: u64,
    ) -> Result<u32, BackupError> {
        let mut piece = vec![0; PIECE_BYTES];
        while offset < end {
            let piece = &mut piece[..(end - offset).min(PIECE_BYTES as u64) as usize];
            file.read_exact_at(piece, offset).map_err(os("read", path))?;
            crc = crc32c::crc32c_append(crc, piece);
            offset += piece.len() as u64;
        }
        Ok(crc)
    }

    /// Removes all files of backups except those of this manifest.
    fn remove_all_but(&self, manifest: Option<&Manifest>) -> Result<(), BackupError> {
        for below in [PathBuf::new(), snapshot::directory(Path::new("")), documents::directory(Path::new(""))]
        {
            let dir = self.dir.join(&below);
            let names = match self.disk.list(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(os("list", &dir))?,
            };
            let mut removed = false;
            for name in &names {
                let name = below.join(name);
                let is_needed = |file: &ManifestFile| Path::new(file.stored()) == name;
                if name.to_str().is_some_and(is_stored_by_copies)
                    && !manifest.is_some_and(|manifest| manifest.files.iter().any(is_needed))
                {
                    let path = self.dir.join(name);
                    self.disk.remove(&path).map_err(os("remove", &path))?;
                    removed = true;
                }
            }
            if removed {
                self.disk.sync_dir(&dir).map_err(os("sync", &dir))?;
            }
        }
        Ok(())
    }

    fn remove_if_present(&self, path: &Path) -> Result<(), BackupError> {
        match self.disk.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(os("remove", path)),
        }
    }

    fn open(&self, stored: &str) -> Result<Arc<dyn File>, BackupError> {
        let path = self.dir.join(stored);
        self.disk.open(&path, Access::ReadWrite).map_err(os("open", &path))
    }

    fn open_or_create(&self, path: &Path) -> Result<Arc<dyn File>, BackupError> {
        match self.disk.open(path, Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.disk.create_new(path).map_err(os("create", path))
            }
            other => other.map_err(os("open", path)),
        }
    }
}

#[cfg(test)]
mod tests;
