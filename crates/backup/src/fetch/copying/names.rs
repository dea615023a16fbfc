//! Which files backups consist of.

use std::path::Path;

use documents::directory;
use storage::CopyPlan;

/// Whether a file is another one with each copy: it vouches for what that has.
pub(super) fn is_replaced(name: &str) -> bool {
    name == CopyPlan::CONTROL_NAME || is_catalog(name)
}

/// Whether a file of a copy is its catalog of documents: the catalog of an earlier session vouches for other files.
pub(super) fn is_catalog(name: &str) -> bool {
    Path::new(name) == directory(Path::new("")).join(documents::CATALOG_NAME)
}

/// Whether a file is a segment of the log.
pub(super) fn is_of_log(name: &str) -> bool {
    name.starts_with("log-") && name.ends_with(".seg")
}

/// Whether a file can belong to a copy. Nothing else is written into the directory of a backup, whatever a server
/// offers.
pub(super) fn is_of_copy(name: &str) -> bool {
    let Some((below, file)) = name.split_once('/') else {
        return is_of_log(name) || name == CopyPlan::CONTROL_NAME;
    };
    let is_name = |ending: &str| !file.contains('/') && file.len() > ending.len() && file.ends_with(ending);
    match below {
        _ if is_catalog(name) => true,
        "snapshots" => file.starts_with("snap-") && (is_name(".part") || is_name(".manifest")),
        "documents" => is_name(".tree"),
        _ => false,
    }
}

/// Whether a file is one of a copy, by its name or by that of an increment.
pub(super) fn is_stored_by_copies(stored: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_of_copy(stored)
        || stored.rsplit_once('.').is_some_and(|(name, number)| is_number(number) && is_of_copy(name))
}
