//! The names of the files of a backup.

use std::path::Path;

use documents::directory;
use storage::CopyPlan;

/// Whether a file differs in each copy, because the file refers to the other files of its copy.
pub(super) fn is_replaced(name: &str) -> bool {
    name == CopyPlan::CONTROL_NAME || is_catalog(name)
}

/// Whether a file is the catalog of documents, which names the document files of one copy.
pub(super) fn is_catalog(name: &str) -> bool {
    Path::new(name) == directory(Path::new("")).join(documents::CATALOG_NAME)
}

/// Whether a file is a segment of the log.
pub(super) fn is_of_log(name: &str) -> bool {
    name.starts_with("log-") && name.ends_with(".seg")
}

/// Whether a file can belong to a copy. Other files offered by a server are never written into a backup.
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

/// Whether a file belongs to a copy, under its own name or under its name in an increment.
pub(super) fn is_stored_by_copies(stored: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_of_copy(stored)
        || stored.rsplit_once('.').is_some_and(|(name, number)| is_number(number) && is_of_copy(name))
}
