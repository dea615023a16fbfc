//! What a directory remembers of its place among servers: `replication.json`.
//!
//! ```json
//! {"replica_id": "16 bytes in hex", "setting": "HOST:PORT or empty", "leader": "HOST:PORT or empty", "seen_epoch": 5,
//!  "fenced_by": 0, "is_unconfirmed": false, "copied_end": 8192, "copied_hash": 123}
//! ```
//!
//! Invariants
//! - REPLICAOF outlives a restart: `leader` counts, unless the setting `replica-of` has been changed since.
//! - `seen_epoch` is the highest epoch of those that were followed; what this server wrote itself as a leader does not count.
//!   It is on disk before anything is acknowledged in that epoch.
//! - `is_unconfirmed` from when a leader begins to follow, or is fenced, until a leader has committed all that is here then: what it
//!   wrote last may never have been anywhere else. Files of earlier versions do not say it: then it is not so.

use std::{io, path::Path};

use commands::replication::Address;
use env::{Access, Disk, Entropy};
use lsn::Lsn;
use replication::ReplicaId;
use serde::{Deserialize, Serialize};

const NAME: &str = "replication.json";
/// A larger file is none of ours.
const BYTES_MAX: u64 = 64 << 10;

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standing {
    replica_id: String,
    setting: String,
    leader: String,
    /// The highest epoch that was followed.
    pub(super) seen_epoch: u32,
    /// The epoch that has begun elsewhere, so that nobody writes here any more; 0 for none.
    pub(super) fenced_by: u32,
    /// What the log here holds may be more than any leader has committed.
    #[serde(default)]
    pub(super) is_unconfirmed: bool,
    copied_end: u64,
    copied_hash: u32,
}

impl Standing {
    /// Reads what the directory remembers, or makes it up, for a server with this setting `replica-of`.
    ///
    /// # Errors
    /// I/O errors; `InvalidData` if the file is damaged.
    pub(super) fn load(
        disk: &dyn Disk,
        dir: &Path,
        setting: &str,
        entropy: &dyn Entropy,
    ) -> io::Result<Standing> {
        let known = read(disk, dir)?;
        let changed = known.as_ref().is_none_or(|known| known.setting != setting);
        let mut standing = known.unwrap_or_else(|| {
            let id = u128::from(entropy.random_u64()) << 64 | u128::from(entropy.random_u64());
            Standing {
                replica_id: ReplicaId::new(id.to_le_bytes()).to_string(),
                setting: String::new(),
                leader: String::new(),
                seen_epoch: 0,
                fenced_by: 0,
                is_unconfirmed: false,
                copied_end: 0,
                copied_hash: 0,
            }
        });
        if changed {
            standing.setting = setting.into();
            standing.set_leader(parse_address(setting));
            standing.store(disk, dir)?;
        }
        Ok(standing)
    }

    /// Writes it, durably.
    pub(super) fn store(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        env::crashsafe::write_atomically(disk, &dir.join(NAME), &text)
    }

    /// Who this server is to leaders.
    pub(super) fn replica_id(&self) -> ReplicaId {
        ReplicaId::parse(self.replica_id.as_bytes()).unwrap_or(ReplicaId::new([0; 16]))
    }

    /// Whom it follows.
    pub(super) fn leader(&self) -> Option<Address> {
        parse_address(&self.leader)
    }

    /// It follows somebody else, or nobody, from now on.
    pub(super) fn set_leader(&mut self, leader: Option<Address>) {
        if self.leader.is_empty() {
            // What was seen as a leader says nothing about those that are followed now.
            self.seen_epoch = 0;
            self.is_unconfirmed = true;
        }
        // What a leader has is its own.
        self.is_unconfirmed &= leader.is_some();
        self.leader = leader.map_or(String::new(), |leader| leader.to_string());
        self.fenced_by = 0;
    }

    /// Another leads in this epoch: nobody writes here any more.
    pub(super) fn set_fenced(&mut self, epoch: u32) {
        (self.fenced_by, self.is_unconfirmed) = (epoch, true);
    }

    /// The log here was copied up to this batch, which is not kept itself.
    pub(super) fn set_copied(&mut self, end: Lsn, hash: u32) {
        (self.copied_end, self.copied_hash) = (end.get(), hash);
    }

    /// Where the log was copied to, and the hash of the batch before; nothing, if it never was.
    pub(super) fn copied(&self) -> (Lsn, u32) {
        (Lsn::new(self.copied_end), self.copied_hash)
    }
}

fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Standing>> {
    let path = dir.join(NAME);
    let file = match disk.open(&path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = vec![0; file.len()?.min(BYTES_MAX) as usize];
    file.read_exact_at(&mut text, 0)?;
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let text = format!(
            "{} is damaged ({error}): remove it, and say with --replica-of whom to follow",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Reads `HOST:PORT`; `None` for anything else.
pub(crate) fn parse_address(text: &str) -> Option<Address> {
    let (host, port) = text.trim().rsplit_once([':', ' '])?;
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|&port| port > 0)?;
    (!host.is_empty()).then(|| Address { host: host.into(), port })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use env::{SimDisk, SimEntropy};

    use super::*;

    fn load(disk: &SimDisk, setting: &str) -> Standing {
        Standing::load(disk, Path::new("/data"), setting, &SimEntropy::new(1)).unwrap()
    }

    #[test]
    fn what_was_commanded_holds_until_the_setting_changes() {
        let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 1, ..Default::default() });
        disk.create_dir_all(Path::new("/data")).unwrap();
        let mut standing = load(&disk, "");
        assert_eq!(standing.leader(), None);
        let other = Address { host: "other".into(), port: 7 };
        standing.set_leader(Some(other.clone()));
        standing.seen_epoch = 9;
        standing.store(&*disk, Path::new("/data")).unwrap();
        let again = load(&disk, "");
        assert_eq!((again.leader(), again.seen_epoch), (Some(other), 9));
        assert_eq!(again.replica_id(), standing.replica_id());
        let set = load(&disk, "first:6379");
        assert_eq!(set.leader(), parse_address("first:6379"));
        assert_eq!(load(&disk, "").leader(), None, "the setting was taken away");
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        let address = |host: &str, port| Some(Address { host: host.into(), port });
        assert_eq!(parse_address("a.b:6379"), address("a.b", 6379));
        assert_eq!(parse_address("a.b 6379"), address("a.b", 6379));
        assert_eq!(parse_address("[::1]:1"), address("::1", 1));
        for wrong in ["", "host", ":1", "host:", "host:0", "host:65536", "host:x"] {
            assert_eq!(parse_address(wrong), None, "{wrong}");
        }
        assert_eq!(parse_address(&address("::1", 5).unwrap().to_string()), address("::1", 5));
    }

    #[test]
    fn what_a_leader_wrote_itself_is_not_what_it_has_seen() {
        let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 1, ..Default::default() });
        disk.create_dir_all(Path::new("/data")).unwrap();
        let mut standing = load(&disk, "");
        standing.seen_epoch = 12;
        standing.set_leader(parse_address("new:1"));
        assert_eq!(standing.seen_epoch, 0);
        standing.seen_epoch = 13;
        standing.set_leader(parse_address("newer:1"));
        assert_eq!(standing.seen_epoch, 13, "one leader after another");
    }

    #[test]
    fn what_a_leader_wrote_last_is_unconfirmed_once_it_follows() {
        let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 1, ..Default::default() });
        disk.create_dir_all(Path::new("/data")).unwrap();
        let mut standing = load(&disk, "");
        assert!(!standing.is_unconfirmed, "it leads");
        standing.set_leader(parse_address("new:1"));
        standing.store(&*disk, Path::new("/data")).unwrap();
        standing = load(&disk, "");
        assert!(standing.is_unconfirmed, "a restart does not change that");
        standing.is_unconfirmed = false;
        standing.set_leader(parse_address("newer:1"));
        assert!(!standing.is_unconfirmed, "what was confirmed stays so");
        standing.set_leader(None);
        standing.set_fenced(7);
        assert!(standing.is_unconfirmed);
        standing.set_leader(None);
        assert!(!standing.is_unconfirmed && standing.fenced_by == 0, "it leads after all");
    }
}
