//! Which directories may become a data directory: a mistyped name must not create a log among foreign files.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use env::{Access, DirLock, Disk, RealDisk};
use storage::Control;

/// The file of the settings that clients have set. The crate `settings` reads and writes it.
const SETTINGS_FILE: &str = "settings.toml";
/// The names that a data directory may have without a control file. Such a directory is new or unfinished, or
/// has lost the control file, which the start then reports.
const OWN: [&str; 15] = [
    DirLock::NAME,
    "control",
    "replication.json",
    "group.json",
    env::reserve::NAME,
    SETTINGS_FILE,
    "snapshots",
    "documents",
    "full-copy",
    "full-copy-install",
    "import-unfinished",
    "restore-unfinished",
    "backup.json",
    "backup-unfinished",
    "recovery-report.json",
];
/// Prefixes and suffixes of further names like [`OWN`].
const OWN_AFFIXES: [(&str, &str); 6] = [
    ("log-", ".seg"),
    ("torn-", ".bin"),
    ("diverged-", ".bin"),
    ("recovery-report-confirmed-", ".json"),
    ("", ".tmp"),
    ("control.", ""),
];
/// A directory that file systems keep in the root of a volume.
const OF_FILE_SYSTEM: &str = "lost+found";

/// Why a directory is refused as a data directory.
#[derive(Debug, thiserror::Error)]
pub enum Foreign {
    /// The directory holds files that do not belong to a data directory.
    #[error(
        "{} is not empty and not a data directory (it holds {name:?}): name the directory of a server. A new server needs one that is \
         empty or does not exist yet (--dir)", dir.display()
    )]
    Files {
        /// The refused directory.
        dir: PathBuf,
        /// The first foreign name in it.
        name: String,
    },
    /// The directory cannot be read.
    #[error("cannot read {} as the data directory: {source}{}", dir.display(), whose(source))]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Names the user of this process if the OS has denied permission.
fn whose(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            format!(". This process runs as {}: give that user the directory (chown)", env::process::user())
        }
        _ => String::new(),
    }
}

/// Refuses a directory that is neither a data directory nor empty. A directory that does not exist counts as
/// empty; names that begin with a dot, `lost+found` and the name of `config_file` are ignored.
///
/// # Errors
/// [`Foreign`].
pub fn refuse_foreign(dir: &Path, config_file: Option<&Path>) -> Result<(), Foreign> {
    let names = match RealDisk.names(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Foreign::Unreadable { dir: dir.to_path_buf(), source }),
    };
    if names.iter().any(|name| name == "control") {
        return Ok(());
    }
    let configures = |name: &OsStr| config_file.is_some_and(|file| file.file_name() == Some(name));
    let mut foreign: Vec<_> = names.iter().filter(|name| !is_own(name) && !configures(name)).collect();
    foreign.sort_unstable();
    match foreign.first() {
        None => Ok(()),
        Some(name) => {
            Err(Foreign::Files { dir: dir.to_path_buf(), name: name.to_string_lossy().into_owned() })
        }
    }
}

/// Refuses a directory whose control file says that clients have set settings, without the file that has
/// them: the server would start without them, and so perhaps without a password. A damaged control file is
/// reported by recovery.
///
/// # Errors
/// `InvalidData`, with the remedy in its text.
pub fn refuse_lost_settings(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let has_settings = matches!(Control::load(disk, dir), Ok(Some(control)) if control.has_settings);
    let path = dir.join(SETTINGS_FILE);
    match disk.open(&path, Access::Read) {
        Err(error) if has_settings && error.kind() == io::ErrorKind::NotFound => {
            let text = format!(
                "{} is missing, with the settings that clients have set (CONFIG SET), perhaps a password. Restore it from a copy, or \
                 create it with the line '# none' to start without them",
                path.display()
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        _ => Ok(()),
    }
}

fn is_own(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let has_affixes = |(begin, end): &(&str, &str)| name.starts_with(begin) && name.ends_with(end);
    name.starts_with('.')
        || name == OF_FILE_SYSTEM
        || OWN.contains(&name)
        || OWN_AFFIXES.iter().any(has_affixes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_servers_and_file_systems_are_own() {
        for own in [
            "sheaf.lock",
            "lost+found",
            ".gitkeep",
            "log-0000000000000000.seg",
            "control.tmp",
            "settings.toml",
            "backup-unfinished",
            "control.2",
            "recovery-report-confirmed-0000000000001000.json",
        ] {
            assert!(is_own(OsStr::new(own)), "{own}");
        }
        for foreign in ["thesis.odt", "log-today.txt", "src", "snapshots2", "data", "~"] {
            assert!(!is_own(OsStr::new(foreign)), "{foreign}");
        }
    }
}
