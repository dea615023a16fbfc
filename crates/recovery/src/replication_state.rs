//! The replication state that a data directory persists: `replication.json`.
//!
//! ```json
//! {"replica_id": "16 bytes in hex", "setting": "HOST:PORT or empty", "leader": "HOST:PORT or empty",
//!  "seen_epoch": 5, "fenced_by": 0, "is_unconfirmed": false, "is_member": false,
//!  "checksum": "crc32c of the rest in hex"}
//! ```
//!
//! Invariants
//! - REPLICAOF outlives a restart: `leader` counts, unless the setting `replica-of` has changed since, to
//!   another server or to `none`. A setting that is merely missing changes nothing: a forgotten flag must not
//!   make a second leader.
//! - If the setting `none` makes a fenced leader lead again, it leads in an epoch above the one that fenced
//!   it.
//! - `seen_epoch` is the highest epoch of the leaders that were followed, without the server's own epochs as
//!   a leader. A new value is on disk before anything in that epoch is acknowledged.
//! - `is_unconfirmed` is set when this server, as a leader, begins to follow or is fenced: its last writes
//!   may exist nowhere else. The field is cleared when another leader has committed everything in the log
//!   here, or when this server leads again. Files of earlier versions lack the field, which means false.
//! - `is_member` is set while the directory belongs to a member of a group. If `group.json` is lost, such a
//!   directory is refused ([`refuse_lost`](crate::group_state::refuse_lost)) instead of starting alone. A
//!   backup has neither file.
//! - A modified file is refused: the checksum covers all other fields, and only a file with no fields other
//!   than those of the versions without a checksum ([`UNSEALED`]) may lack it.
//! - If this file is lost, a server with a copy of another server's log (marked in the control file) does not
//!   start as a leader. The start is refused until the setting decides the role. A server that never followed
//!   another needs no file.

use std::{io, path::Path};

use engine::replication::Address;
use env::{Disk, Entropy};
use replication::{Remembered, ReplicaId};
use serde::{Deserialize, Serialize};
use storage::{Control, outbid_epoch};

use crate::sealed_json;

const NAME: &str = "replication.json";
/// The value of `replica-of` for a server that shall lead, regardless of its previous role.
const NOBODY: &str = "none";
/// How to set the role of a server; a part of error messages.
const ROLES: &str = "--replica-of HOST:PORT to follow that server, or --replica-of none to lead with the data of this directory";
/// The fields of files from versions without a checksum.
const UNSEALED: [&str; 8] = [
    "replica_id",
    "setting",
    "leader",
    "seen_epoch",
    "fenced_by",
    "is_unconfirmed",
    "copied_end",
    "copied_hash",
];

/// The contents of `replication.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationState {
    replica_id: String,
    setting: String,
    leader: String,
    /// The highest epoch of the leaders followed.
    seen_epoch: u32,
    /// The epoch of another server that keeps this one from taking writes; 0 for none.
    fenced_by: u32,
    /// Whether the log here may hold more than any leader has committed.
    #[serde(default)]
    is_unconfirmed: bool,
    /// Whether the directory belongs to a member of a group.
    #[serde(default)]
    is_member: bool,
}

impl ReplicationState {
    /// Loads the file or creates it, for a server with this setting `replica-of`.
    ///
    /// # Errors
    /// I/O errors; `InvalidData` if the file is damaged or lost, `InvalidInput` for a malformed setting,
    /// `Other` if the control file of the log cannot be read or written.
    pub fn load(
        disk: &dyn Disk,
        dir: &Path,
        setting: &str,
        entropy: &dyn Entropy,
    ) -> io::Result<ReplicationState> {
        let known = find(disk, dir, setting)?;
        let is_new = known.is_none();
        let mut state = known.unwrap_or_else(|| {
            let id = u128::from(entropy.random_u64()) << 64 | u128::from(entropy.random_u64());
            ReplicationState {
                replica_id: ReplicaId::new(id.to_le_bytes()).to_string(),
                setting: String::new(),
                leader: String::new(),
                seen_epoch: 0,
                fenced_by: 0,
                is_unconfirmed: false,
                is_member: false,
            }
        });
        if is_new || state.setting != setting {
            if is_new || !setting.is_empty() {
                let mut remembered = state.remembered();
                let leader = parse_address(setting);
                if leader.is_none() && remembered.fenced_by > 0 {
                    // The epoch is outbid before the state forgets that another server leads in this epoch.
                    outbid_epoch(disk, dir, remembered.fenced_by).map_err(io::Error::other)?;
                }
                remembered.set_leader(leader);
                state.remember(&remembered);
            }
            state.setting = setting.into();
            state.store(disk, dir)?;
        }
        Ok(state)
    }

    /// Writes the file durably.
    pub fn store(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        sealed_json::store(disk, &dir.join(NAME), self)
    }

    /// The identity of this server towards leaders.
    pub fn replica_id(&self) -> ReplicaId {
        ReplicaId::parse(self.replica_id.as_bytes()).unwrap_or(ReplicaId::new([0; 16]))
    }

    /// The role, as this file remembers it.
    pub fn remembered(&self) -> Remembered<Address> {
        Remembered {
            leader: parse_address(&self.leader),
            seen_epoch: self.seen_epoch,
            fenced_by: self.fenced_by,
            is_unconfirmed: self.is_unconfirmed,
        }
    }

    /// Whether the directory belongs to a member of a group.
    pub fn is_member(&self) -> bool {
        self.is_member
    }

    /// Notes whether the directory belongs to a member of a group. The note is durable once the state is
    /// [stored](ReplicationState::store).
    pub fn set_member(&mut self, is_member: bool) {
        self.is_member = is_member;
    }

    /// The server that the setting names, if a command has decided otherwise since.
    pub fn overridden(&self) -> Option<Address> {
        parse_address(&self.setting).filter(|named| self.remembered().leader.as_ref() != Some(named))
    }

    /// Sets the role to remember. The role is durable once the state is [stored](ReplicationState::store).
    pub fn remember(&mut self, remembered: &Remembered<Address>) {
        self.leader = remembered.leader.as_ref().map_or(String::new(), ToString::to_string);
        (self.seen_epoch, self.fenced_by) = (remembered.seen_epoch, remembered.fenced_by);
        self.is_unconfirmed = remembered.is_unconfirmed;
    }
}

/// The replication state of the directory; `None` if it has none.
///
/// # Errors
/// As [`ReplicationState::load`].
pub fn find(disk: &dyn Disk, dir: &Path, setting: &str) -> io::Result<Option<ReplicationState>> {
    if !setting.is_empty() && setting != NOBODY && parse_address(setting).is_none() {
        let text = format!("replica-of is neither HOST:PORT nor '{NOBODY}': '{setting}'");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let known = read(disk, dir)?;
    if known.is_none() && setting.is_empty() && is_copy(disk, dir) {
        let text = format!(
            "{} is missing, which says whom this server follows, and the log here is a copy of another server's. Restore the file, or say \
             what the server shall be: {ROLES}",
            dir.join(NAME).display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(known)
}

/// Whether the log is a copy of another server's. An unreadable control file is reported by recovery.
fn is_copy(disk: &dyn Disk, dir: &Path) -> bool {
    matches!(Control::load(disk, dir), Ok(Some(control)) if control.is_mirror())
}

fn refused(path: &Path, reason: &str) -> io::Error {
    let text = format!(
        "{} {reason}. It says whom this server follows: restore the file, or remove it and say what the server shall be: {ROLES}",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Option<ReplicationState>> {
    let path = dir.join(NAME);
    let read = sealed_json::read(disk, &path, &UNSEALED)?;
    read.transpose().map_err(|reason| refused(&path, &format!("is damaged ({reason})")))
}

/// Parses `HOST:PORT` or `HOST PORT`; `None` for anything else.
pub fn parse_address(text: &str) -> Option<Address> {
    let (host, port) = text.trim().rsplit_once([':', ' '])?;
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|&port| port > 0)?;
    (!host.is_empty()).then(|| Address { host: host.into(), port })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use env::{SimClock, SimDisk, SimEntropy};
    use storage::{LogOptions, Recovery};

    use super::*;

    fn load(disk: &SimDisk, setting: &str) -> ReplicationState {
        ReplicationState::load(disk, Path::new("/data"), setting, &SimEntropy::new(1)).unwrap()
    }

    fn leader(state: &ReplicationState) -> Option<Address> {
        state.remembered().leader
    }

    fn set_leader(state: &mut ReplicationState, leader: Option<Address>) {
        let mut remembered = state.remembered();
        remembered.set_leader(leader);
        state.remember(&remembered);
    }

    #[test]
    fn a_fenced_leader_that_leads_again_by_the_setting_outbids_the_other_leader() {
        let disk: Arc<SimDisk> = SimDisk::new(env::sim::SimDiskOptions { seed: 1, ..Default::default() });
        let dir = Path::new("/data");
        disk.create_dir_all(dir).unwrap();
        let started = || {
            let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() }.fitting();
            let mut recovery = Recovery::open(disk.clone(), dir, options, &SimEntropy::new(1)).unwrap();
            recovery.replay::<storage::Error>(|_, _| Ok(()), |_| {}).unwrap();
            recovery.finish(Arc::new(SimClock::new(0))).unwrap().epoch()
        };
        assert_eq!(started(), 1);
        let mut state = load(&disk, "");
        let mut remembered = state.remembered();
        remembered.fenced_by = 65_536;
        state.remember(&remembered);
        state.store(&*disk, dir).unwrap();
        assert_eq!(load(&disk, "none").remembered().fenced_by, 0);
        assert!(started() > 65_536, "the other leader fences no server in a higher epoch");
    }

    #[test]
    fn a_commanded_leader_stays_until_the_setting_changes() {
        let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 1, ..Default::default() });
        disk.create_dir_all(Path::new("/data")).unwrap();
        let mut state = load(&disk, "");
        assert_eq!(leader(&state), None);
        let other = Address { host: "other".into(), port: 7 };
        set_leader(&mut state, Some(other.clone()));
        state.seen_epoch = 9;
        state.store(&*disk, Path::new("/data")).unwrap();
        let again = load(&disk, "");
        assert_eq!((leader(&again), again.seen_epoch), (Some(other), 9));
        assert_eq!(again.replica_id(), state.replica_id());
        let set = load(&disk, "first:6379");
        assert_eq!(leader(&set), parse_address("first:6379"));
        assert_eq!(leader(&load(&disk, "")), leader(&set), "a flag that was forgotten makes no leader");
        assert_eq!(leader(&load(&disk, NOBODY)), None);
    }

    #[test]
    fn a_setting_that_a_command_has_overridden_is_known() {
        let disk = new_disk();
        let mut state = load(&disk, "first:6379");
        assert_eq!(state.overridden(), None);
        for commanded in [None, parse_address("other:7")] {
            set_leader(&mut state, commanded.clone());
            state.store(&*disk, Path::new("/data")).unwrap();
            let again = load(&disk, "first:6379");
            assert_eq!((leader(&again), again.overridden()), (commanded, parse_address("first:6379")));
        }
        assert_eq!(load(&disk, "").overridden(), None);
        assert_eq!(load(&disk, NOBODY).overridden(), None);
    }

    fn new_disk() -> std::sync::Arc<SimDisk> {
        let disk = SimDisk::new(env::sim::SimDiskOptions { seed: 1, ..Default::default() });
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk
    }

    fn load_text(text: &[u8]) -> io::Result<ReplicationState> {
        let disk = new_disk();
        disk.write_file(&Path::new("/data").join(NAME), text);
        ReplicationState::load(&*disk, Path::new("/data"), "", &SimEntropy::new(1))
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_refused() {
        let disk = new_disk();
        let mut state = load(&disk, "");
        set_leader(&mut state, parse_address("other:7"));
        state.store(&*disk, Path::new("/data")).unwrap();
        let text = disk.read_file(&Path::new("/data").join(NAME)).unwrap();
        assert_eq!(load_text(&text).unwrap(), state);
        for len in 0..text.len() {
            let error = load_text(&text[..len]).expect_err("it was cut");
            assert!(error.to_string().contains("--replica-of none"), "{error}");
        }
        for bit in 0..text.len() * 8 {
            let mut changed = text.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // Replacing one white space by another changes nothing.
            assert!(
                load_text(&changed).is_ok_and(|it| it == state) || load_text(&changed).is_err(),
                "bit {bit}"
            );
            let is_space = text[bit / 8].is_ascii_whitespace();
            assert!(is_space || load_text(&changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_file_of_an_earlier_version_has_no_checksum() {
        let earlier = r#"{"replica_id": "00000000000000000000000000000001", "setting": "", "leader": "a:1", "seen_epoch": 5,
            "fenced_by": 0, "copied_end": 8192, "copied_hash": 123}"#;
        assert_eq!(leader(&load_text(earlier.as_bytes()).unwrap()), parse_address("a:1"));
        let misnamed = earlier.replacen('{', r#"{"checksun": "00000000", "#, 1);
        load_text(misnamed.as_bytes()).expect_err("the checksum goes by another name");
    }

    #[test]
    fn a_server_that_leads_by_setting_leads_until_a_command_or_a_new_setting() {
        let disk = new_disk();
        assert_eq!(leader(&load(&disk, "first:6379")), parse_address("first:6379"));
        let mut state = load(&disk, NOBODY);
        assert_eq!(leader(&state), None);
        set_leader(&mut state, parse_address("other:7"));
        state.store(&*disk, Path::new("/data")).unwrap();
        assert_eq!(leader(&load(&disk, "")), parse_address("other:7"), "the flag was for once");
        assert_eq!(leader(&load(&disk, NOBODY)), None);
        let entropy = SimEntropy::new(1);
        ReplicationState::load(&*disk, Path::new("/data"), "nobody", &entropy).expect_err("no address");
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
}
