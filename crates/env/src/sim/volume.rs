//! `Volume`: the whole state of a simulated disk, and the effect of each operation on it.
//!
//! A volume has inodes, visible and durable names, unsynced directory operations, space, the planned faults
//! and the trace. Locking and handles are in `disk`, contents in `image`, and the random choices of a crash
//! in `crash`.
//!
//! Invariants
//! - Cloning the state gives an independent disk.
//! - An inode lives at least as long as a name (visible, durable, or in an unsynced operation) or a handle
//!   refers to it.
//! - A file has one name: a rename moves the inode, even if its old name has not reached the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::crash::{CrashMode, Lottery};
use super::fault::{FaultKind, Gate, IoEvent, IoKind, Verdict, crash_error};
use super::image::{FileImage, PAGE_BYTES, SECTOR_BYTES, next};
use crate::Prng;

pub(super) type InodeId = u64;

/// The result of [`Disk::free_bytes`](crate::Disk::free_bytes) for an empty disk without a space limit: 1
/// TiB.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// A directory operation that no `sync_dir` has covered yet.
#[derive(Clone, Debug)]
pub(super) struct NameOp {
    pub(super) seq: u64,
    inode: InodeId,
    /// The name removed, if any.
    from: Option<PathBuf>,
    /// The name added, if any.
    to: Option<PathBuf>,
}

impl NameOp {
    pub(super) fn apply(&self, names: &mut BTreeMap<PathBuf, InodeId>) {
        match (&self.from, &self.to) {
            (Some(from), None) if names.get(from) == Some(&self.inode) => {
                names.remove(from);
            }
            (_, Some(to)) => {
                names.retain(|_, inode| *inode != self.inode);
                names.insert(to.clone(), self.inode);
            }
            _ => {} // the name to remove has not reached the disk
        }
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.from.iter().chain(&self.to)
    }
}

#[derive(Clone, Default, Debug)]
struct Inode {
    image: FileImage,
    handles: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) prng: Prng,
    pub(super) gate: Gate,
    pub(super) trace: Option<Vec<IoEvent>>,
    pub(super) space_limit_bytes: Option<u64>,
    /// Number of crashes so far; handles of an earlier generation are invalid.
    pub(super) generation: u64,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    names: BTreeMap<PathBuf, InodeId>,
    durable_names: BTreeMap<PathBuf, InodeId>,
    unsynced_names: Vec<NameOp>,
    dirs: BTreeSet<PathBuf>,
    seq: u64,
}

impl Volume {
    pub(super) fn new(seed: u64, space_limit_bytes: Option<u64>) -> Self {
        Volume {
            prng: Prng::new(seed),
            gate: Gate::default(),
            trace: None,
            space_limit_bytes,
            generation: 0,
            inodes: BTreeMap::new(),
            next_inode: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            dirs: [PathBuf::new(), PathBuf::from("/")].into(),
            seq: 0,
        }
    }

    fn next_io(&mut self, kind: IoKind, path: &Path, offset: u64, len: usize) -> Verdict {
        let io = self.gate.io_count;
        if let Some(trace) = &mut self.trace {
            trace.push(IoEvent { io, kind, path: path.to_owned(), offset, len });
        }
        self.gate.next()
    }

    fn next_file_io(&mut self, kind: IoKind, inode: InodeId, offset: u64, len: usize) -> Verdict {
        let path = if self.trace.is_some() { self.name_of(inode) } else { PathBuf::new() };
        self.next_io(kind, &path, offset, len)
    }

    /// The visible name of a file; empty if it is removed.
    fn name_of(&self, inode: InodeId) -> PathBuf {
        let name = self.names.iter().find(|&(_, id)| *id == inode);
        name.map_or_else(PathBuf::new, |(path, _)| path.clone())
    }

    // Directories and names.

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        if self.dirs.contains(dir) {
            return Ok(());
        }
        match self.next_io(IoKind::CreateDir, dir, 0, 0) {
            Verdict::Proceed => {
                self.dirs.extend(dir.ancestors().map(Path::to_owned));
                Ok(())
            }
            Verdict::Fail(kind) => Err(kind.error()),
            Verdict::Stop => Err(crash_error()),
        }
    }

    /// Creates a file and returns its inode, held by one handle.
    pub(super) fn create_new(&mut self, path: &Path) -> io::Result<InodeId> {
        self.require_dir(path.parent().unwrap_or(path))?;
        if self.names.contains_key(path) || self.dirs.contains(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = next(&mut self.next_inode);
        self.inodes.insert(inode, Inode::default());
        self.change_names(IoKind::Create, inode, None, Some(path.to_owned()))?;
        self.hold(inode);
        Ok(inode)
    }

    /// Finds a file and returns its inode, held by one more handle.
    pub(super) fn open(&mut self, path: &Path) -> io::Result<InodeId> {
        let inode = self.inode_at(path)?;
        self.hold(inode);
        Ok(inode)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.inode_at(from)?;
        self.require_dir(to.parent().unwrap_or(to))?;
        self.change_names(IoKind::Rename, inode, Some(from.to_owned()), Some(to.to_owned()))
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.inode_at(path)?;
        self.change_names(IoKind::Remove, inode, Some(path.to_owned()), None)
    }

    /// Performs one directory operation. If the machine stops in the middle of it, the operation has either
    /// happened (unsynced) or not.
    fn change_names(
        &mut self,
        kind: IoKind,
        inode: InodeId,
        from: Option<PathBuf>,
        to: Option<PathBuf>,
    ) -> io::Result<()> {
        let subject = from.as_ref().or(to.as_ref()).cloned().unwrap_or_default();
        let verdict = self.next_io(kind, &subject, 0, 0);
        if let Verdict::Fail(fault) = verdict {
            return Err(fault.error());
        }
        if verdict == Verdict::Proceed || self.prng.chance(50) {
            let op = NameOp { seq: next(&mut self.seq), inode, from, to };
            op.apply(&mut self.names);
            self.unsynced_names.push(op);
        }
        if verdict == Verdict::Stop { Err(crash_error()) } else { Ok(()) }
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.require_dir(dir)?;
        let in_dir = self.names.keys().filter(|path| path.parent() == Some(dir));
        let mut names: Vec<String> =
            in_dir.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.require_dir(dir)?;
        let verdict = self.next_io(IoKind::SyncDir, dir, 0, 0);
        if verdict == Verdict::Stop {
            return Err(crash_error());
        }
        for op in self.take_ops_covered_by_sync_of(dir) {
            // A failed sync loses some of the operations for good, as it loses some of the contents of files.
            if verdict == Verdict::Proceed || self.prng.chance(50) {
                op.apply(&mut self.durable_names);
            }
        }
        self.drop_unreachable_inodes();
        if let Verdict::Fail(kind) = verdict { Err(kind.error()) } else { Ok(()) }
    }

    /// Takes the operations in `dir`, and earlier operations elsewhere on which they depend: a rename out of
    /// another directory cannot be durable unless the creation of the renamed file is durable.
    fn take_ops_covered_by_sync_of(&mut self, dir: &Path) -> Vec<NameOp> {
        let (mut covered, mut paths) = (Vec::new(), BTreeSet::new());
        for index in (0..self.unsynced_names.len()).rev() {
            let op = &self.unsynced_names[index];
            if op.paths().any(|path| path.parent() == Some(dir) || paths.contains(path)) {
                paths.extend(op.paths().cloned());
                covered.push(self.unsynced_names.remove(index));
            }
        }
        covered.reverse();
        covered
    }

    fn require_dir(&self, dir: &Path) -> io::Result<()> {
        if self.dirs.contains(dir) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn inode_at(&self, path: &Path) -> io::Result<InodeId> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    // Handles and inodes.

    fn hold(&mut self, inode: InodeId) {
        self.inode_mut(inode).handles += 1;
    }

    pub(super) fn release(&mut self, inode: InodeId) {
        self.inode_mut(inode).handles -= 1;
    }

    fn inode_mut(&mut self, inode: InodeId) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("an inode outlives its names and handles")
    }

    pub(super) fn image(&self, inode: InodeId) -> &FileImage {
        &self.inodes.get(&inode).expect("an inode outlives its names and handles").image
    }

    fn drop_unreachable_inodes(&mut self) {
        let unsynced = self.unsynced_names.iter().map(|op| op.inode);
        let named = self.names.values().chain(self.durable_names.values()).copied();
        let reachable: BTreeSet<InodeId> = named.chain(unsynced).collect();
        self.inodes.retain(|id, inode| inode.handles > 0 || reachable.contains(id));
    }

    // Contents.

    pub(super) fn write(&mut self, inode: InodeId, buf: &[u8], offset: u64) -> io::Result<()> {
        match self.next_file_io(IoKind::Write, inode, offset, buf.len()) {
            Verdict::Proceed => {
                self.require_space(inode, offset, buf.len())?;
                self.write_visible(inode, buf, offset);
                Ok(())
            }
            Verdict::Fail(kind) => {
                if kind == FaultKind::ShortWrite {
                    let arrived = self.prng.below(buf.len() as u64 + 1) as usize;
                    self.write_visible(inode, &buf[..arrived], offset);
                }
                Err(kind.error())
            }
            Verdict::Stop => Err(self.write_until_stop(inode, buf, offset)),
        }
    }

    pub(super) fn write_durable(&mut self, inode: InodeId, buf: &[u8], offset: u64) -> io::Result<()> {
        match self.next_file_io(IoKind::WriteDurable, inode, offset, buf.len()) {
            Verdict::Proceed => {
                self.require_space(inode, offset, buf.len())?;
                self.write_committed(inode, buf, offset);
                Ok(())
            }
            Verdict::Fail(kind) => {
                match kind {
                    FaultKind::Enospc => {}
                    FaultKind::ShortWrite => {
                        let sectors = self.prng.below((buf.len() / SECTOR_BYTES) as u64 + 1) as usize;
                        self.write_committed(inode, &buf[..sectors * SECTOR_BYTES], offset);
                    }
                    FaultKind::Eio => {
                        let Volume { inodes, prng, seq, .. } = self;
                        let file = inodes.get_mut(&inode).expect("an open file has an inode");
                        file.image.write_some_sectors(buf, offset, prng, seq);
                    }
                }
                Err(kind.error())
            }
            Verdict::Stop => Err(self.write_until_stop(inode, buf, offset)),
        }
    }

    fn write_visible(&mut self, inode: InodeId, buf: &[u8], offset: u64) {
        let mut seq = self.seq;
        self.inode_mut(inode).image.write(buf, offset, &mut seq);
        self.seq = seq;
    }

    fn write_committed(&mut self, inode: InodeId, buf: &[u8], offset: u64) {
        self.write_visible(inode, buf, offset);
        self.inode_mut(inode).image.commit_range(offset, buf.len());
    }

    /// The effect of a stop during a write: all of it or its first part is in the cache, and nothing of it is
    /// durable.
    fn write_until_stop(&mut self, inode: InodeId, buf: &[u8], offset: u64) -> io::Error {
        let whole = self.prng.chance(50);
        let arrived = if whole { buf.len() } else { self.prng.below(buf.len() as u64 + 1) as usize };
        self.write_visible(inode, &buf[..arrived], offset);
        crash_error()
    }

    pub(super) fn set_len(&mut self, inode: InodeId, len: u64) -> io::Result<()> {
        let verdict = self.next_file_io(IoKind::SetLen, inode, len, 0);
        if let Verdict::Fail(kind) = verdict {
            return Err(kind.error());
        }
        if verdict == Verdict::Proceed || self.prng.chance(50) {
            let mut seq = self.seq;
            self.inode_mut(inode).image.set_len(len, &mut seq);
            self.seq = seq;
        }
        if verdict == Verdict::Stop { Err(crash_error()) } else { Ok(()) }
    }

    pub(super) fn sync(&mut self, inode: InodeId) -> io::Result<()> {
        self.sync_as(IoKind::Sync, inode)
    }

    pub(super) fn drop_cache(&mut self, inode: InodeId) -> io::Result<()> {
        let synced = self.sync_as(IoKind::DropCache, inode);
        if !self.gate.stopped {
            self.inode_mut(inode).image.drop_cache();
        }
        synced
    }

    fn sync_as(&mut self, kind: IoKind, inode: InodeId) -> io::Result<()> {
        let verdict = self.next_file_io(kind, inode, 0, 0);
        let Volume { inodes, prng, .. } = self;
        let image = &mut inodes.get_mut(&inode).expect("an open file has an inode").image;
        match verdict {
            Verdict::Proceed => {
                image.commit_all();
                Ok(())
            }
            Verdict::Fail(kind) => {
                image.lose_dirty(prng);
                Err(kind.error())
            }
            // A random choice at the crash decides how much of the file was synced.
            Verdict::Stop => Err(crash_error()),
        }
    }

    // Space.

    pub(super) fn free_bytes(&self) -> u64 {
        let named: BTreeSet<InodeId> = self.names.values().copied().collect();
        let live = self.inodes.iter().filter(|(id, inode)| inode.handles > 0 || named.contains(id));
        let used: u64 = live.map(|(_, inode)| inode.image.allocated.len() * PAGE_BYTES as u64).sum();
        self.space_limit_bytes.unwrap_or(UNLIMITED_BYTES).saturating_sub(used)
    }

    fn require_space(&self, inode: InodeId, offset: u64, len: usize) -> io::Result<()> {
        if self.space_limit_bytes.is_none() {
            return Ok(());
        }
        let wanted = self.image(inode).pages_missing(offset, len) * PAGE_BYTES as u64;
        if wanted <= self.free_bytes() { Ok(()) } else { Err(FaultKind::Enospc.error()) }
    }

    // Crashes and test controls.

    /// Stops the machine unless it has stopped already, and restarts it with one of the states that may
    /// survive, according to `mode`.
    pub(super) fn crash(&mut self, mode: CrashMode) {
        let moments = self.unsynced_moments();
        let Volume { prng, inodes, .. } = self;
        let mut lottery = Lottery::new(mode, prng, &moments);
        self.durable_names = lottery.names_after(&self.durable_names, &self.unsynced_names);
        for inode in inodes.values_mut() {
            *inode = Inode { image: lottery.file_after(&inode.image), handles: 0 };
        }
        self.names = self.durable_names.clone();
        self.unsynced_names.clear();
        self.drop_unreachable_inodes();
        self.generation += 1;
        self.gate = Gate { io_count: self.gate.io_count, ..Gate::default() };
    }

    fn unsynced_moments(&self) -> Vec<u64> {
        let images = self.inodes.values().map(|inode| &inode.image);
        let contents = images.flat_map(|image| {
            let versions = image.pending.values().flatten().map(|version| version.seq);
            versions.chain(image.pending_sizes.iter().map(|&(seq, _)| seq))
        });
        contents.chain(self.unsynced_names.iter().map(|op| op.seq)).collect()
    }

    /// A copy without handles.
    pub(super) fn copy(&self) -> Volume {
        let mut copy = self.clone();
        copy.inodes.values_mut().for_each(|inode| inode.handles = 0);
        copy.drop_unreachable_inodes();
        copy
    }

    /// Puts a durable file in place, replacing any file there.
    pub(super) fn put_file(&mut self, path: &Path, bytes: &[u8]) {
        self.dirs.extend(path.ancestors().skip(1).map(Path::to_owned));
        self.unsynced_names.retain(|op| op.paths().all(|named| named != path));
        let inode = next(&mut self.next_inode);
        self.inodes.insert(inode, Inode { image: FileImage::durable(bytes), handles: 0 });
        self.names.insert(path.to_owned(), inode);
        self.durable_names.insert(path.to_owned(), inode);
        self.drop_unreachable_inodes();
    }

    /// The contents of the file at `path`, for damage and inspection.
    pub(super) fn image_at(&mut self, path: &Path) -> io::Result<&mut FileImage> {
        let inode = self.inode_at(path)?;
        Ok(&mut self.inode_mut(inode).image)
    }
}
