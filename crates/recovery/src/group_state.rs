//! The membership that a data directory persists: `group.json`.
//!
//! ```json
//! {"name": "shop", "group_id": "16 bytes in hex, or empty", "member_id": "8 bytes in hex", "founded": true,
//!  "join": "HOST:PORT or empty", "term": 5,
//!  "voted_for": "8 bytes in hex, or empty", "voters": ["8 bytes in hex"], "learners": [],
//!  "in_force_at": 4096, "is_removed": false, "is_witness": false, "roster": "",
//!  "checksum": "crc32c of the rest"}
//! ```
//!
//! Invariants
//! - A directory with this file belongs to a group, whatever the settings say: a forgotten flag must not make
//!   a second leader. Only `--group none` ends the membership.
//! - A member whose file is lost does not start ([`refuse_lost`]): `replication.json` notes the membership as
//!   well.
//! - A server that joins writes this file before it first asks. Until the group has answered, the settings
//!   may name another group and another member instead.
//! - A member runs the durability `strict` or `commit`.
//! - The term and the vote are on disk before any message of that term leaves.
//! - A change of the members is on disk before it comes into force.
//! - A new directory gets a new member id: the votes of a lost disk are never given twice.
//! - A witness that has joined stays one, because its directory has a log and no data. Its list of the
//!   members is here, because the part of the log that holds the list may be forgotten.
//! - On a full disk, this file gets the room of the reserve, if the directory has one ([`env::reserve`]).
//! - A backup has no such file: a restored directory is no member.
//! - A modified file is refused: the checksum covers all other fields.

use std::{io, path::Path};

use engine::replication::Address;
use env::{Disk, Entropy};
use serde::{Deserialize, Serialize};
use storage::Durability;

use crate::{
    replication_state::{ReplicationState, parse_address},
    sealed_json,
};

/// The name of the file.
pub const GROUP_FILE: &str = "group.json";
/// The value of the setting `group` that ends the membership of a directory.
pub const NO_GROUP: &str = "none";
const WITNESS_JOINS: &str = "--witness is for a server that joins a group, since it has no data of its own: --group NAME --join HOST:PORT";
/// The longest name of a group, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// The contents of `group.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// The name of the group.
    pub name: String,
    /// The id of the group; empty until a member of the group has reported it.
    pub group_id: String,
    /// The id of this member.
    pub member_id: String,
    /// Whether the group began with this directory.
    pub founded: bool,
    /// The address of the member that this server asks to let it join; empty for a founder.
    pub join: String,
    /// The highest term that this member has taken part in.
    pub term: u64,
    /// The id of the member that got this member's vote in that term; empty for none.
    pub voted_for: String,
    /// The voters that are in force here. The log may have a later change that is not committed yet.
    #[serde(default)]
    pub voters: Vec<String>,
    /// The learners that are in force here.
    #[serde(default)]
    pub learners: Vec<String>,
    /// A position of the log that was committed when these members came into force, or when this server last
    /// stopped in order; no later change of the members lies before it.
    #[serde(default)]
    pub in_force_at: u64,
    /// Whether the group has removed this member.
    #[serde(default)]
    pub is_removed: bool,
    /// Whether this member is a witness, which keeps the log and no data.
    #[serde(default)]
    pub is_witness: bool,
    /// For a witness, the newest list of the members that is in force, in the form of the data; else empty.
    #[serde(default)]
    pub roster: String,
}

/// The settings of a start that concern the group.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'s> {
    /// The name of the group; if empty, the directory decides; [`NO_GROUP`] for none.
    pub group: &'s str,
    /// A member of the group to join; empty for none.
    pub join: &'s str,
    /// Whether the server is to keep the log and no data.
    pub is_witness: bool,
    /// The setting `durability`.
    pub durability: &'s str,
}

/// Whether a directory belongs to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// The directory belongs to no group.
    None,
    /// The directory belongs to a group, and the settings end the membership: see [`leave`].
    Leaves,
    /// The directory belongs to a group, or its server begins one or asks to join one.
    Of(Box<GroupState>),
}

impl GroupState {
    /// Loads the file, or begins a membership if the settings name a group. The file of a founder is written;
    /// a server that joins has none until it [stores](GroupState::store) it.
    ///
    /// # Errors
    /// I/O errors; `InvalidData` if the file is damaged; `InvalidInput` if the settings contradict it or each
    /// other, or are malformed.
    pub fn load(
        disk: &dyn Disk,
        dir: &Path,
        wanted: Wanted<'_>,
        entropy: &dyn Entropy,
    ) -> io::Result<Membership> {
        let membership = GroupState::look(disk, dir, wanted, entropy)?;
        if let Membership::Of(state) = &membership
            && state.founded
            && find(disk, dir)?.is_none()
        {
            state.store(disk, dir)?;
        }
        Ok(membership)
    }

    /// As [`GroupState::load`], and writes nothing.
    ///
    /// # Errors
    /// As [`GroupState::load`].
    pub fn look(
        disk: &dyn Disk,
        dir: &Path,
        wanted: Wanted<'_>,
        entropy: &dyn Entropy,
    ) -> io::Result<Membership> {
        let Wanted { group, join, is_witness, .. } = wanted;
        let known = find(disk, dir)?;
        if group == NO_GROUP {
            if known.as_ref().is_some_and(|state| state.is_witness && state.has_joined()) {
                return Err(invalid(format!(
                    "{} is that of a witness, which has no data: it cannot go on alone. Start the server on an empty directory",
                    dir.display()
                )));
            }
            return Ok(if known.is_some() { Membership::Leaves } else { Membership::None });
        }
        let state = match known {
            Some(mut state) if group.is_empty() || state.name == group => {
                if !state.has_joined() && !join.is_empty() {
                    (state.join, state.is_witness) = (checked_address(join)?, is_witness);
                }
                if is_witness && !state.is_witness {
                    return Err(invalid(format!(
                        "{} is that of a member with data. A witness begins with an empty directory",
                        dir.display()
                    )));
                }
                state
            }
            // No group has accepted this server yet, so none relies on it.
            Some(state) if !state.has_joined() && !join.is_empty() => {
                let begun = GroupState::begin((group, join, is_witness), entropy)?;
                GroupState { member_id: state.member_id, ..begun }
            }
            Some(state) => {
                return Err(invalid(format!(
                    "{} belongs to the group '{}', not to '{group}'. Name that group, another directory, or `none` to leave the group",
                    dir.display(),
                    state.name
                )));
            }
            None if group.is_empty() => match (join.is_empty(), is_witness) {
                (true, false) => return Ok(Membership::None),
                (false, _) => return Err(invalid("--join needs the name of the group: --group NAME".into())),
                (true, true) => return Err(invalid(WITNESS_JOINS.into())),
            },
            None => GroupState::begin((group, join, is_witness), entropy)?,
        };
        check_durability(wanted.durability).map_err(invalid)?;
        Ok(Membership::Of(Box::new(state)))
    }

    fn begin((group, join, is_witness): (&str, &str, bool), entropy: &dyn Entropy) -> io::Result<GroupState> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if group.len() > NAME_BYTES_MAX || !group.bytes().all(is_name) {
            let text = format!(
                "'{group}' is not a name of a group: at most {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
            );
            return Err(invalid(text));
        }
        let founded = join.is_empty();
        if founded && is_witness {
            return Err(invalid(WITNESS_JOINS.into()));
        }
        let group_id = match founded {
            true => format!("{:016x}{:016x}", entropy.random_u64(), entropy.random_u64()),
            false => String::new(),
        };
        Ok(GroupState {
            name: group.into(),
            group_id,
            // Never 0, which stands for no member.
            member_id: format!("{:016x}", entropy.random_u64().max(1)),
            founded,
            join: if founded { String::new() } else { checked_address(join)? },
            term: 0,
            voted_for: String::new(),
            voters: Vec::new(),
            learners: Vec::new(),
            in_force_at: 0,
            is_removed: false,
            is_witness,
            roster: String::new(),
        })
    }

    /// Whether the group has accepted this server, or began with it.
    pub fn has_joined(&self) -> bool {
        !self.group_id.is_empty()
    }

    /// Writes the file durably.
    ///
    /// # Errors
    /// I/O errors.
    pub fn store(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        sealed_json::store(disk, &dir.join(GROUP_FILE), self)
    }

    /// The member that this server asks to let it join; `None` for a founder.
    pub fn join_address(&self) -> Option<Address> {
        parse_address(&self.join)
    }
}

/// Removes the reserve and the file of a directory that leaves its group; the file may be lost already. The
/// caller has cleared the note in `replication.json` before ([`ReplicationState::set_member`]). Otherwise the
/// directory would count as that of a member whose file is lost.
///
/// # Errors
/// I/O errors.
pub fn leave(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    env::reserve::release(disk, dir);
    match env::crashsafe::remove_durably(disk, &dir.join(GROUP_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Refuses the directory of a member whose file is lost: alone, the server would take writes that its group
/// does not have. `group` is the setting, which may say that the directory belongs to no group.
///
/// # Errors
/// I/O errors; `InvalidData` if the file is lost or damaged.
pub fn refuse_lost(disk: &dyn Disk, dir: &Path, group: &str, standing: &ReplicationState) -> io::Result<()> {
    if group == NO_GROUP || !standing.is_member() || find(disk, dir)?.is_some() {
        return Ok(());
    }
    let text = format!(
        "{} is missing, which has the vote of this member of a group. Start a server on an empty directory with --group NAME --join HOST:PORT, \
         and remove this member there (GROUP REMOVE); or start this one with --group none, to lead its data alone",
        dir.join(GROUP_FILE).display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Whether a member may run with this value of the setting `durability`.
///
/// # Errors
/// If an acknowledgement of such a member would not promise that the write is on disk.
pub fn check_durability(durability: &str) -> Result<(), String> {
    match Durability::parse(durability) {
        Some(Durability::Strict | Durability::Commit) => Ok(()),
        _ => Err(format!(
            "a member of a group must have on disk what it acknowledges, so its durability is 'strict' or 'commit', not '{durability}'. \
             Set that (--durability strict), or leave the group (--group none)"
        )),
    }
}

fn checked_address(join: &str) -> io::Result<String> {
    match parse_address(join) {
        Some(_) => Ok(join.into()),
        None => Err(invalid(format!("join is not HOST:PORT: '{join}'"))),
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The membership in the file of the directory; `None` without a file: the directory belongs to no group, or
/// its file is lost ([`refuse_lost`]).
///
/// # Errors
/// I/O errors; `InvalidData` if the file is damaged.
pub fn find(disk: &dyn Disk, dir: &Path) -> io::Result<Option<GroupState>> {
    let path = dir.join(GROUP_FILE);
    sealed_json::read(disk, &path, &[])?.transpose().map_err(|reason| {
        let text = format!(
            "{} is damaged ({reason}): it has this member's vote. Start the server on an empty directory, with --join, and remove this \
             member from the group (GROUP REMOVE)",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use env::{SimDisk, SimEntropy, sim::SimDiskOptions};

    use super::*;

    const DIR: &str = "/data";

    fn disk() -> Arc<SimDisk> {
        let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
        disk.create_dir_all(Path::new(DIR)).expect("a directory");
        disk
    }

    fn load_with(
        disk: &SimDisk,
        group: &str,
        join: &str,
        durability: &str,
    ) -> io::Result<Option<GroupState>> {
        load_wanted(disk, Wanted { group, join, is_witness: false, durability })
    }

    fn load_wanted(disk: &SimDisk, wanted: Wanted<'_>) -> io::Result<Option<GroupState>> {
        let loaded = GroupState::load(disk, Path::new(DIR), wanted, &SimEntropy::new(7))?;
        Ok(match loaded {
            Membership::Of(state) => Some(*state),
            Membership::None => None,
            Membership::Leaves => {
                leave(disk, Path::new(DIR)).expect("removed");
                None
            }
        })
    }

    fn load(disk: &SimDisk, group: &str, join: &str) -> io::Result<Option<GroupState>> {
        load_with(disk, group, join, "strict")
    }

    #[test]
    fn a_directory_stays_in_its_group_until_none_is_named() {
        let disk = disk();
        assert_eq!(load(&disk, "", "").expect("no group"), None);
        let founded = load(&disk, "shop", "").expect("begins").expect("a group");
        assert!(founded.founded && founded.group_id.len() == 32 && founded.member_id.len() == 16);
        assert_eq!(load(&disk, "", "").expect("a forgotten flag"), Some(founded.clone()));
        assert_eq!(load(&disk, "shop", "127.0.0.1:7001").expect("nothing new"), Some(founded));
        let error = load(&disk, "other", "").expect_err("another group");
        assert!(error.to_string().contains("belongs to the group 'shop'"), "{error}");
        assert_eq!(load(&disk, "none", "").expect("leaves"), None);
        assert_eq!(load(&disk, "", "").expect("has left"), None);
    }

    #[test]
    fn a_joining_member_has_no_group_id_and_keeps_its_vote() {
        let disk = disk();
        let mut state = load(&disk, "shop", "127.0.0.1:7001").expect("begins").expect("a group");
        assert!(!state.founded && !state.has_joined());
        assert_eq!(state.join_address().map(|address| address.port), Some(7001));
        assert_eq!(load(&disk, "", "").expect("nobody was asked"), None);
        (state.term, state.voted_for) = (5, "00000000000000aa".into());
        state.store(&*disk, Path::new(DIR)).expect("stored");
        assert_eq!(load(&disk, "", "").expect("loads"), Some(state));
    }

    #[test]
    fn a_mistake_in_joining_can_be_corrected_until_the_group_has_answered() {
        let disk = disk();
        let mut state = load(&disk, "shpo", "127.0.0.1:7001").expect("begins").expect("a group");
        state.store(&*disk, Path::new(DIR)).expect("stored");
        load(&disk, "shop", "").expect_err("a forgotten --join must not found a second group");
        let right = load(&disk, "shop", "127.0.0.1:7002").expect("another group").expect("a group");
        assert_eq!((&*right.name, &*right.join), ("shop", "127.0.0.1:7002"));
        assert_eq!(right.member_id, state.member_id, "no server is listed twice");
        let again = load(&disk, "shpo", "127.0.0.1:7003").expect("another member").expect("a group");
        assert_eq!(again.join, "127.0.0.1:7003");
        state.group_id = "00".repeat(16);
        state.store(&*disk, Path::new(DIR)).expect("stored");
        load(&disk, "shop", "127.0.0.1:7002").expect_err("it is a member");
        let kept = load(&disk, "", "127.0.0.1:7003").expect("a member").expect("a group");
        assert_eq!(kept.join, "127.0.0.1:7001", "a member asks nobody");
    }

    #[test]
    fn a_member_refuses_weak_durability() {
        let disk = disk();
        for weak in ["interval", "none"] {
            let error = load_with(&disk, "shop", "", weak).expect_err(weak);
            assert!(error.to_string().contains("--durability strict"), "{error}");
            assert_eq!(load(&disk, "", "").expect("nothing was begun"), None);
        }
        let state = load_with(&disk, "shop", "", "commit").expect("begins").expect("a group");
        for weak in ["interval", "none"] {
            assert_eq!(load_with(&disk, "", "", weak).expect_err(weak).kind(), io::ErrorKind::InvalidInput);
            assert_eq!(load_with(&disk, "none", "", weak).expect("leaves"), None);
            state.store(&*disk, Path::new(DIR)).expect("stored");
        }
    }

    #[test]
    fn a_witness_joins_and_stays_one() {
        let disk = disk();
        let load = |group, join, is_witness| {
            load_wanted(&disk, Wanted { group, join, is_witness, durability: "strict" })
        };
        for group in ["shop", ""] {
            let error = load(group, "", true).expect_err("a founder has data");
            assert!(error.to_string().contains("--join HOST:PORT"), "{error}");
        }
        let mut state = load("shop", "127.0.0.1:7001", true).expect("begins").expect("a group");
        assert!(state.is_witness);
        state.store(&*disk, Path::new(DIR)).expect("stored");
        let corrected = load("shop", "127.0.0.1:7001", false).expect("nobody counts on it");
        assert!(!corrected.expect("a group").is_witness);
        (state.group_id, state.roster) = ("00".repeat(16), "the members".into());
        state.store(&*disk, Path::new(DIR)).expect("stored");
        for is_witness in [false, true] {
            assert_eq!(load("", "", is_witness).expect("a forgotten flag"), Some(state.clone()));
        }
        let error = load("none", "", false).expect_err("it has no data");
        assert!(error.to_string().contains("empty directory"), "{error}");
        state.is_witness = false;
        state.store(&*disk, Path::new(DIR)).expect("stored");
        load("shop", "", true).expect_err("a member with data");
    }

    #[test]
    fn bad_names_addresses_and_files_are_refused() {
        let disk = disk();
        for (group, join) in
            [("a b", ""), (&*"x".repeat(65), ""), ("shop", "nowhere"), ("", "127.0.0.1:7001")]
        {
            assert_eq!(load(&disk, group, join).expect_err(group).kind(), io::ErrorKind::InvalidInput);
        }
        let state = load(&disk, "shop", "").expect("begins").expect("a group");
        let text = disk.read_file(&Path::new(DIR).join(GROUP_FILE)).expect("written");
        let text = String::from_utf8(text).expect("text").replace("\"term\": 0", "\"term\": 1");
        disk.write_file(&Path::new(DIR).join(GROUP_FILE), text.as_bytes());
        assert_eq!(load(&disk, &state.name, "").expect_err("changed").kind(), io::ErrorKind::InvalidData);
        assert_eq!(find(&*disk, Path::new(DIR)).expect_err("changed").kind(), io::ErrorKind::InvalidData);
    }
}
