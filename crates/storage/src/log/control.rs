//! The control file: the identity of the log in this directory, and how its last server ended.
//!
//! ```text
//!  0  8 bytes  magic "SHEAFCTL"
//!  8  u32      format version, 4 (1: no snapshots, zeros at 56; 2: a 0 or 1 at 56; 3: the file ended at 64)
//! 12  u32      epoch: the highest one that was noted, at most 2^31 - 2 (EPOCH_MAX). When no epoch is
//!              left, the log is not opened for writing: the state must be restored into a new directory
//! 16  16 bytes log id, random
//! 32  u64      segment_bytes
//! 40  u64      log_start: the oldest position still needed, a batch boundary
//! 48  u64      clean_end: where the log ended when it was closed in order, 0 while it is open
//! 56  u32      bit 31: the state before log_start is in a snapshot; else it is not needed at all
//!              bits 0 to 30: the last epoch whose batches may have been copied from another server,
//!              0 if none were, all ones while they still are
//! 60  u32      crc32c of bytes 0..60
//! 64  u64      the chain value that the batch at log_start continues, 0 if it is not known: see `footer`
//! 72  u64      the reign before that batch, 0 if there was none or it is not known
//! 80  u32      bit 0: documents were saved in files of their own, without which the directory is incomplete
//!              bit 1: clients have set settings, which are in a file of their own
//! 84  u32      crc32c of bytes 0..84
//! ```
//! The file is always replaced as a whole, atomically and durably.

use std::path::{Path, PathBuf};

use env::{Disk, Entropy};
use lsn::Lsn;

use super::{
    LogOptions,
    footer::{Footer, seed_of},
};
use crate::Error;

const MAGIC: &[u8; 8] = b"SHEAFCTL";
const VERSION: u32 = 4;
const CONTROL_BYTES: usize = 88;
/// Size of the control file up to version 3.
const EARLIER_CONTROL_BYTES: usize = 64;

const NEEDS_SNAPSHOT: u32 = 1 << 31;
const HAS_DOCUMENTS: u32 = 1;
const HAS_SETTINGS: u32 = 1 << 1;
/// The `mirrored_epoch` of a log whose batches still come from another server.
pub(crate) const MIRRORING: u32 = NEEDS_SNAPSHOT - 1;
/// The largest possible epoch.
pub const EPOCH_MAX: u32 = MIRRORING - 1;

/// The contents of the control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The highest epoch noted in this directory.
    pub epoch: u32,
    /// Identifies the log; every segment carries it.
    pub log_id: [u8; 16],
    /// Bytes of log that one segment file holds.
    pub segment_bytes: u64,
    /// The oldest position still needed.
    pub log_start: Lsn,
    /// The end of the log when it was closed in order; `None` while open or after a crash.
    pub clean_end: Option<Lsn>,
    /// Whether the state before `log_start` is in a snapshot, so the log alone is not enough.
    pub needs_snapshot: bool,
    /// The last epoch whose batches may have been copied from another server, many in one write: see
    /// `log::mirror`. 0 if none were, 2^31 - 1 while they still are.
    pub mirrored_epoch: u32,
    /// The reign and the chain value before the first batch after `log_start`.
    pub start: Start,
    /// Whether documents were saved in files of their own: the log may no longer contain them.
    pub has_documents: bool,
    /// Whether the directory has a file with settings set by clients.
    pub has_settings: bool,
}

/// The known properties of the predecessor of the first batch of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The reign before the first batch; 0 if there was none, or if it is unknown.
    pub reign: u64,
    /// The chain value before the first batch; `None` if unknown.
    pub chain: Option<u64>,
}

impl Start {
    /// The start of a new log: its first batch continues the seed of its chain, and `reign` is the last reign
    /// of the data in its directory.
    pub(crate) fn of_log(log_id: &[u8; 16], reign: u64) -> Start {
        Start { reign, chain: Some(seed_of(log_id)) }
    }

    /// The start of a log that continues after the batch with this footer.
    pub(crate) fn behind(footer: &Footer) -> Start {
        Start { reign: footer.reign(), chain: Some(footer.chain()) }
    }
}

/// The result of inspecting a control file.
pub(crate) enum ControlState {
    Intact(Control),
    /// Missing or damaged, with the reason.
    Damaged(&'static str),
    /// Of an unknown version.
    Unknown(Error),
}

/// Why bytes are not a control file.
#[derive(Debug, PartialEq, Eq)]
enum Invalid {
    Damaged(&'static str),
    Version(u32),
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Invalid::Damaged(reason) => f.write_str(reason),
            Invalid::Version(version) => {
                write!(f, "format version {version}, this server reads up to version {VERSION}")
            }
        }
    }
}

impl Control {
    pub(crate) const FILE_NAME: &'static str = "control";

    /// The control file of a new, empty log.
    pub(crate) fn new(options: &LogOptions, entropy: &dyn Entropy) -> Control {
        let mut log_id = [0; 16];
        log_id[..8].copy_from_slice(&entropy.random_u64().to_le_bytes());
        log_id[8..].copy_from_slice(&entropy.random_u64().to_le_bytes());
        Control {
            epoch: 0,
            log_id,
            segment_bytes: options.segment_bytes,
            log_start: Lsn::ZERO,
            clean_end: None,
            needs_snapshot: false,
            mirrored_epoch: 0,
            start: Start::of_log(&log_id, 0),
            has_documents: false,
            has_settings: false,
        }
    }

    /// Whether the batches of this log come from another server.
    pub fn is_mirror(&self) -> bool {
        self.mirrored_epoch == MIRRORING
    }

    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join(Self::FILE_NAME)
    }

    /// Reads the control file of `dir`; `None` if the file does not exist.
    ///
    /// # Errors
    /// I/O errors, and [`Error::Inconsistent`] if it is damaged or of another version.
    pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Control>, Error> {
        let path = Self::path(dir);
        let file = match disk.open(&path, env::Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        let mut bytes = [0; CONTROL_BYTES];
        let read = file.read_at(&mut bytes, 0).map_err(Error::io("read", &path))?;
        Self::decode(&bytes[..read])
            .map(Some)
            .map_err(|invalid| Error::Inconsistent { path, reason: invalid.to_string() })
    }

    /// Reads the control file of `dir`, for a caller that can continue if it is damaged.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn inspect(disk: &dyn Disk, dir: &Path) -> Result<ControlState, Error> {
        let path = Self::path(dir);
        let file = match disk.open(&path, env::Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(ControlState::Damaged("the control file is missing"));
            }
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        let mut bytes = [0; CONTROL_BYTES];
        let read = file.read_at(&mut bytes, 0).map_err(Error::io("read", &path))?;
        Ok(match Self::decode(&bytes[..read]) {
            Ok(control) => ControlState::Intact(control),
            Err(Invalid::Damaged(reason)) => ControlState::Damaged(reason),
            Err(invalid @ Invalid::Version(_)) => {
                ControlState::Unknown(Error::Inconsistent { path, reason: invalid.to_string() })
            }
        })
    }

    /// Replaces the control file of `dir`.
    ///
    /// # Errors
    /// I/O errors; the file then has the complete old or the complete new contents.
    pub(crate) fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        let path = Self::path(dir);
        env::crashsafe::write_atomically(disk, &path, &self.encode()).map_err(Error::io("replace", &path))
    }

    pub(crate) fn encode(&self) -> [u8; CONTROL_BYTES] {
        let mut out = [0; CONTROL_BYTES];
        out[0..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.epoch.to_le_bytes());
        out[16..32].copy_from_slice(&self.log_id);
        out[32..40].copy_from_slice(&self.segment_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.log_start.get().to_le_bytes());
        out[48..56].copy_from_slice(&self.clean_end.unwrap_or(Lsn::ZERO).get().to_le_bytes());
        let needs_snapshot = if self.needs_snapshot { NEEDS_SNAPSHOT } else { 0 };
        out[56..60].copy_from_slice(&(self.mirrored_epoch | needs_snapshot).to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out[64..72].copy_from_slice(&self.start.chain.unwrap_or(0).to_le_bytes());
        out[72..80].copy_from_slice(&self.start.reign.to_le_bytes());
        let documents = if self.has_documents { HAS_DOCUMENTS } else { 0 };
        let settings = if self.has_settings { HAS_SETTINGS } else { 0 };
        out[80..84].copy_from_slice(&(documents | settings).to_le_bytes());
        let crc = crc32c::crc32c(&out[..84]);
        out[84..88].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Control, Invalid> {
        const MISMATCH: Invalid =
            Invalid::Damaged("control file is damaged (checksum mismatch); restore it from a backup");
        const SHORT: Invalid = Invalid::Damaged("the control file is cut short");
        if bytes.len() < EARLIER_CONTROL_BYTES {
            return Err(SHORT);
        }
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if &bytes[0..8] != MAGIC {
            return Err(Invalid::Damaged("not a control file of Sheaf"));
        }
        if u32_at(60) != crc32c::crc32c(&bytes[..60]) {
            return Err(MISMATCH);
        }
        let (needs_snapshot, mirrored_epoch) = match (u32_at(8), u32_at(56)) {
            (1 | 2, needs @ (0 | 1)) => (needs == 1, 0),
            (3 | 4, both) => (both & NEEDS_SNAPSHOT != 0, both & MIRRORING),
            (version, _) => return Err(Invalid::Version(version)),
        };
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&bytes[16..32]);
        let (log_start, clean_end) = (Lsn::new(u64_at(40)), Lsn::new(u64_at(48)));
        let start = match (u32_at(8), bytes.len()) {
            (..=3, _) if log_start == Lsn::ZERO => Start::of_log(&log_id, 0),
            (..=3, _) => Start { reign: 0, chain: None },
            (_, ..CONTROL_BYTES) => return Err(SHORT),
            _ if u32_at(84) != crc32c::crc32c(&bytes[..84]) => return Err(MISMATCH),
            _ => Start { reign: u64_at(72), chain: Some(u64_at(64)).filter(|&chain| chain > 0) },
        };
        Ok(Control {
            epoch: u32_at(12),
            log_id,
            segment_bytes: u64_at(32),
            log_start,
            clean_end: (clean_end > Lsn::ZERO).then_some(clean_end),
            needs_snapshot,
            mirrored_epoch,
            start,
            has_documents: u32_at(8) > 3 && u32_at(80) & HAS_DOCUMENTS != 0,
            has_settings: u32_at(8) > 3 && u32_at(80) & HAS_SETTINGS != 0,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reads_back_and_detects_every_flipped_bit() {
        let control = Control {
            epoch: 3,
            log_id: [9; 16],
            segment_bytes: 1 << 26,
            log_start: Lsn::new(4096),
            clean_end: Some(Lsn::new(8192)),
            needs_snapshot: true,
            mirrored_epoch: 2,
            start: Start { reign: 77, chain: Some(5) },
            has_documents: true,
            has_settings: false,
        };
        for (has_documents, has_settings) in [(false, false), (false, true), (true, true)] {
            let marked = Control { has_documents, has_settings, ..control };
            assert_eq!(Control::decode(&marked.encode()), Ok(marked));
        }
        let unknown = Control { start: Start { reign: 77, chain: None }, ..control };
        assert_eq!(Control::decode(&unknown.encode()), Ok(unknown));
        let bytes = control.encode();
        assert_eq!(Control::decode(&bytes), Ok(control));
        for bit in 0..CONTROL_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Control::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_file_that_is_cut_short_is_no_control_file() {
        let options = LogOptions::default();
        let bytes = Control::new(&options, &env::SimEntropy::new(1)).encode();
        for length in 0..bytes.len() {
            assert!(Control::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn earlier_versions_are_read() {
        for needs_snapshot in [false, true] {
            let control = Control {
                epoch: 3,
                log_id: [9; 16],
                segment_bytes: 1 << 26,
                log_start: Lsn::ZERO,
                clean_end: None,
                needs_snapshot,
                mirrored_epoch: 0,
                start: Start::of_log(&[9; 16], 0),
                has_documents: false,
                has_settings: false,
            };
            for version in [2, 3] {
                let mut bytes = control.encode()[..EARLIER_CONTROL_BYTES].to_vec();
                bytes[8] = version;
                bytes[56..60].copy_from_slice(&[u8::from(needs_snapshot), 0, 0, 0]);
                if version == 3 {
                    bytes[56..60].copy_from_slice(&(u32::from(needs_snapshot) << 31).to_le_bytes());
                }
                let sealed = |bytes: &mut [u8]| {
                    let crc = crc32c::crc32c(&bytes[..60]);
                    bytes[60..].copy_from_slice(&crc.to_le_bytes());
                };
                sealed(&mut bytes);
                assert_eq!(Control::decode(&bytes), Ok(control));
                let start = Start { reign: 0, chain: None };
                let cut = Control { log_start: Lsn::new(4096), start, ..control };
                bytes[40..48].copy_from_slice(&4096u64.to_le_bytes());
                sealed(&mut bytes);
                assert_eq!(Control::decode(&bytes), Ok(cut), "what the first batch continues is not known");
            }
        }
    }

    #[test]
    fn files_that_are_missing_unreadable_or_of_a_later_version_are_told_apart() {
        let (disk, dir) = (crate::log::tests::disk(), Path::new("/data"));
        disk.create_dir_all(dir).expect("creates");
        assert_eq!(Control::load(&*disk, dir).expect("no file is no error"), None);
        let missing = Control::inspect(&*disk, dir).expect("no file is no error");
        assert!(matches!(missing, ControlState::Damaged(reason) if reason.contains("missing")));

        let mut later = Control::new(&LogOptions::default(), &env::SimEntropy::new(1)).encode();
        later[8] = VERSION as u8 + 1;
        let crc = crc32c::crc32c(&later[..60]);
        later[60..64].copy_from_slice(&crc.to_le_bytes());
        env::crashsafe::write_atomically(&*disk, &Control::path(dir), &later).expect("stores");
        let Err(Error::Inconsistent { reason, .. }) = Control::load(&*disk, dir) else {
            panic!("it is refused")
        };
        assert_eq!(
            reason,
            format!("format version {}, this server reads up to version {VERSION}", VERSION + 1)
        );
        assert!(matches!(Control::inspect(&*disk, dir), Ok(ControlState::Unknown(_))));

        let crash_at_io = Some(disk.io_count());
        disk.set_fault_plan(env::sim::FaultPlan { crash_at_io, ..Default::default() });
        assert!(env::crashsafe::write_atomically(&*disk, &Control::path(dir), &later).is_err());
        assert!(matches!(Control::load(&*disk, dir), Err(Error::Io { operation: "open", .. })));
        assert!(matches!(Control::inspect(&*disk, dir), Err(Error::Io { operation: "open", .. })));
    }
}
