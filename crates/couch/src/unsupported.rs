//! Paths of CouchDB that this server does not support: the reply says why, or what to use instead. Documents
//! that are refused because they would have no effect here are in `documents::unsupported`.

use documents::DESIGN_PREFIX;

use super::failure::Failure;

/// Paths below `/`.
const OF_SERVER: &[(&str, &str)] = &[
    (
        "_replicate",
        "This server runs no replications of its own: use a client that does (PouchDB), or a replicator of CouchDB with this server as source or target.",
    ),
    ("_scheduler", "This server runs no replications of its own, so none are scheduled."),
    ("_reshard", "Databases are not divided into shards."),
    ("_cluster_setup", "There is nothing to set up: use REPLICAOF or --replica-of for replicas."),
    (
        "_utils",
        "There is no Fauxton here: open / in a browser for the console of this server, which shows its databases, or use any client of CouchDB.",
    ),
    ("_stats", "Use /metrics."),
    ("_log", "Read the log of the process instead."),
    ("_restart", "Use SHUTDOWN on the port for Redis, and start the server again."),
    ("_search_analyze", TEXT_SEARCH),
    ("_nouveau_analyze", TEXT_SEARCH),
];

/// Paths below `/_node/NODE`.
const OF_NODE: &[(&str, &str)] = &[
    ("_stats", "Use /metrics."),
    ("_prometheus", "Use /metrics."),
    ("_system", "Use /metrics, or INFO on the port for Redis."),
    ("_versions", "GET / tells the version."),
    ("_restart", "Use SHUTDOWN on the port for Redis, and start the server again."),
];

/// Paths below a database.
const OF_DATABASE: &[(&str, &str)] = &[
    ("_partition", PARTITIONS),
    ("_temp_view", VIEWS),
    ("_shards", "Databases are not divided into shards."),
    ("_sync_shards", "Databases are not divided into shards."),
    ("_local_docs", "_local documents are not listed: read them by their ids."),
    ("_purged_infos", "Purges leave no trace here."),
    ("_purged_infos_limit", "Purges leave no trace here."),
    ("_auto_purge", "Use _purge."),
    ("_time_seq", "Use _changes."),
    ("_search_cleanup", TEXT_SEARCH),
    ("_nouveau_cleanup", TEXT_SEARCH),
];

/// Paths below a design document.
const OF_DESIGN: &[(&str, &str)] = &[
    ("_view", VIEWS),
    ("_queries", VIEWS),
    ("_info", VIEWS),
    ("_list", "Lists in JavaScript are not run: query with _find, and format the result in the client."),
    ("_show", "Shows in JavaScript are not run: read the document, and format it in the client."),
    ("_update", "Updates in JavaScript are not run: read the document, change it in the client, and PUT it."),
    ("_rewrite", "Rewrites are not made: use a proxy before this server."),
    ("_search", TEXT_SEARCH),
    ("_search_info", TEXT_SEARCH),
    ("_nouveau", TEXT_SEARCH),
    ("_nouveau_info", TEXT_SEARCH),
];

const VIEWS: &str = "Views in JavaScript are not run: query with _find and an index made by _index, or with PouchDB in the client.";
const TEXT_SEARCH: &str = "There is no full-text search: query with _find and $regex.";
const MULTIPART: &str =
    "Bodies of several parts are not read: send attachments inline as base64, or each with PUT /DB/DOC/NAME.";
const PARTITIONS: &str =
    "Databases have no partitions: create it without `partitioned`, and query ranges of ids with _all_docs.";

/// The failure for `/NAME/...` or `/_node/NODE/NAME/...`, if NAME is not supported there.
pub(super) fn of_server(path: &[&str]) -> Option<Failure> {
    match path {
        ["_node", _, name, ..] => find(OF_NODE, name),
        [name, ..] => find(OF_SERVER, name),
        [] => None,
    }
}

/// Checks the content type of a document's body.
///
/// # Errors
/// If it is a multipart type.
pub(super) fn of_body(content_type: Option<&str>) -> Result<(), Failure> {
    let is_multipart = |it: &str| it.get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"));
    match content_type.is_some_and(is_multipart) {
        true => Err(Failure::NotImplemented(MULTIPART)),
        false => Ok(()),
    }
}

/// The failure for `/DB/NAME/...`, if NAME is in [`OF_DATABASE`].
pub(super) fn of_database(name: &str) -> Option<Failure> {
    find(OF_DATABASE, name)
}

/// The failure for `/DB/ID/NAME/...`, if ID is a design document and NAME is in [`OF_DESIGN`].
pub(super) fn of_document(id: &str, name: &str) -> Option<Failure> {
    if id.starts_with(DESIGN_PREFIX) { find(OF_DESIGN, name) } else { None }
}

/// The failure for creating a partitioned database.
pub(super) fn partitioned() -> Failure {
    Failure::NotImplemented(PARTITIONS)
}

fn find(rows: &[(&str, &'static str)], name: &str) -> Option<Failure> {
    rows.iter().find(|row| row.0 == name).map(|row| Failure::NotImplemented(row.1))
}
