//! The look at the machine and the directory: figures for [`super::judge`].
//!
//! Invariants
//! - A check that cannot be made is a finding ([`State::Unseen`], or a note if the kernel does not say), and
//!   the other checks go on. There is one exception: if the settings are refused, the directory, its disk and
//!   the limits are not looked at, which is one finding for all of them.
//! - Files of documents that cannot be read count as empty.

use std::path::{Path, PathBuf};

use env::{
    DirLock, Disk, RealDisk, RealEntropy,
    machine::{self, FileSystemKind},
    process,
};
use recovery::{
    data_directory::{Foreign, refuse_foreign, refuse_lost_settings},
    group_state::{self, GroupState, Wanted},
    replication_state,
    unfinished::refuse_unfinished,
};
use settings::{ClientsMax, Given, Key, Lasting, OPTIONS, Origin, Settings, unknown_variables, variable};

use super::{
    Finding, Options, State,
    judge::{self, Growth},
};
use crate::disk_sync;

/// All checks, in the order in which they are shown.
pub(super) fn all(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    match settings(options) {
        Ok((settings, of_settings)) => {
            findings.push(of_settings);
            findings.extend(variables());
            findings.extend(with_settings(options, &settings));
        }
        Err(refused) => {
            findings.push(refused);
            findings.extend(variables());
            let text = "not looked at, like the disk and the limits: which one it is, and what they must hold, is in the settings";
            findings.push(Finding::new("directory", State::Unseen, text));
        }
    }
    findings.push(judge::huge_pages(machine::transparent_huge_pages().as_deref()));
    findings.push(judge::overcommit(machine::overcommit_memory()));
    findings.push(judge::clock(machine::clock_is_synchronized()));
    findings
}

/// The checks that need the settings: of the directory, its disk and the limits.
fn with_settings(options: &Options, settings: &Settings) -> Vec<Finding> {
    let dir = options.dir.clone().unwrap_or_else(|| PathBuf::from(settings.text(Key::Dir)));
    let mut findings = vec![directory(&dir, options.config.as_deref(), settings)];
    // The directory, or the existing directory in which a first start creates it.
    let place = existing(&dir);
    findings.extend(disk(&place, &dir, settings));
    let maxclients = settings.integer(Key::Maxclients);
    // The limit is raised as the server raises it; only this process is changed.
    let limit = process::raise_open_files_limit(ClientsMax::descriptors(maxclients));
    findings.push(judge::open_files(limit, maxclients));
    findings.push(judge::memory(settings.integer(Key::Maxmemory), process::memory_total_bytes()));
    findings
}

/// The settings that a server would have here.
///
/// # Errors
/// The reason why a server would refuse them.
fn settings(options: &Options) -> Result<(Settings, Finding), Finding> {
    let of_variable = |name: &'static str| {
        let value = std::env::var(variable(name)).ok()?;
        Some(Given { name: name.into(), value, origin: Origin::Variable })
    };
    let mut given: Vec<Given> = OPTIONS.iter().filter_map(|option| of_variable(option.name)).collect();
    if let Some(dir) = &options.dir {
        let Some(value) = dir.to_str().map(Into::into) else {
            let text = format!("the name of {} is not UTF-8: no server can use it", dir.display());
            return Err(Finding::new("settings", State::Change, text));
        };
        given.push(Given { name: "dir".into(), value, origin: Origin::Flag });
    }
    match Lasting::load(options.config.clone(), given) {
        Ok((settings, _)) => {
            let defaults = Settings::default();
            let differs = |key: Key| settings.value(key) != defaults.value(key);
            let set = OPTIONS.iter().filter(|option| differs(option.key)).map(|option| option.name);
            let set: Vec<&str> = set.collect();
            let text =
                if set.is_empty() { "the defaults".into() } else { format!("valid: {}", set.join(", ")) };
            Ok((settings, Finding::new("settings", State::Fine, text)))
        }
        Err(error) => {
            let text = format!("a server would refuse them: {error}");
            Err(Finding::new("settings", State::Change, text))
        }
    }
}

/// Judges variables that are named like a setting but set none.
fn variables() -> Option<Finding> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    unknown_variables(names).map(|warning| Finding::new("variables", State::Change, warning))
}

/// The error of a server that would not start because of a file in the directory, or because of the settings
/// for it.
fn refusal(dir: &Path, settings: &Settings) -> Option<String> {
    let (disk, text) = (&RealDisk, |key| settings.text(key));
    let standing = || {
        let wanted = Wanted {
            group: text(Key::Group),
            join: text(Key::Join),
            is_witness: settings.switch(Key::Witness),
            durability: text(Key::Durability),
        };
        if let Some(standing) = replication_state::find(disk, dir, text(Key::ReplicaOf))? {
            group_state::refuse_lost(disk, dir, wanted.group, &standing)?;
        }
        GroupState::look(disk, dir, wanted, &RealEntropy)
    };
    let unfinished = refuse_unfinished(disk, dir).map_err(|error| error.to_string());
    unfinished
        .and_then(|()| backup::refuse_backup(disk, dir).map_err(|error| error.to_string()))
        .and_then(|()| refuse_lost_settings(disk, dir).map_err(|error| error.to_string()))
        .and_then(|()| standing().map_err(|error| error.to_string()))
        .err()
}

/// Whether a server can begin in the directory, or runs there.
fn directory(dir: &Path, config: Option<&Path>, settings: &Settings) -> Finding {
    let finding = |state, text: String| Finding::new("directory", state, text);
    if !dir.exists() {
        return finding(
            State::Fine,
            format!("{} does not exist yet: the first start creates it", dir.display()),
        );
    }
    match refuse_foreign(dir, config) {
        Err(unreadable @ Foreign::Unreadable { .. }) => {
            return finding(State::Unseen, unreadable.to_string());
        }
        Err(foreign) => return finding(State::Change, foreign.to_string()),
        Ok(()) => {}
    }
    if let Some(refusal) = refusal(dir, settings) {
        return finding(State::Change, refusal);
    }
    let text = match DirLock::is_held(dir) {
        true => "a server runs there: the disk is measured beside it",
        false => "no server runs there; `sheaf check` verifies the data",
    };
    finding(State::Fine, format!("{}: {text}", dir.display()))
}

/// The nearest directory upwards that exists.
fn existing(dir: &Path) -> PathBuf {
    let upwards = dir.ancestors().find(|dir| dir.is_dir());
    upwards.filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn disk(place: &Path, dir: &Path, settings: &Settings) -> [Finding; 3] {
    let unseen = |check, error: &dyn std::fmt::Display| {
        Finding::new(check, State::Unseen, format!("{}: {error}", place.display()))
    };
    let kind = machine::file_system(place);
    let is_in_memory = kind.as_ref().is_ok_and(|found| found.kind == FileSystemKind::Memory);
    let space = || {
        let free = RealDisk.free_bytes(place).map_err(|error| unseen("disk space", &error))?;
        let growth = growth(dir, settings).map_err(|error| unseen("disk space", &error))?;
        Ok::<_, Finding>(judge::space(free, growth))
    };
    [
        kind.map_or_else(|error| unseen("file system", &error), judge::file_system),
        disk_sync::measure(place).map_or_else(
            |error| unseen("disk sync", &error),
            |latencies| judge::syncs(latencies, is_in_memory),
        ),
        space().unwrap_or_else(|finding| finding),
    ]
}

/// The room that the data and the settings will need.
fn growth(dir: &Path, settings: &Settings) -> Result<Growth, storage::Error> {
    // A server that runs here may remove a file of documents meanwhile: such a file counts as empty.
    let newest = if dir.is_dir() { storage::snapshot::list(&RealDisk, dir)? } else { Vec::new() };
    Ok(Growth {
        snapshot: newest.first().map_or(0, storage::snapshot::SnapshotInfo::file_bytes),
        documents: bytes_of_files(&documents::directory(dir)),
        snapshot_log: settings.integer(Key::SnapshotLogBytes),
        segment: settings.integer(Key::LogSegmentBytes),
    })
}

fn bytes_of_files(dir: &Path) -> u64 {
    let bytes = |name: String| RealDisk.open(&dir.join(name), env::Access::Read).and_then(|file| file.len());
    RealDisk.list(dir).unwrap_or_default().into_iter().filter_map(|name| bytes(name).ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_does_not_exist_is_looked_at_where_it_would_be() {
        let temp = std::env::temp_dir();
        assert_eq!(existing(&temp.join("no/such/dir")), temp);
        assert_eq!(existing(Path::new("no-such-dir/data")), Path::new("."));
    }
}
