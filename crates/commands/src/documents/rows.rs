//! The rows of the commands on documents.

use documents::USERS_DATABASE;
use engine::{Family, Flags, Keys, Needs, Row, Treatment};

use super::{del, get, put};

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 3,
    flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::DOCUMENTS).or(Flags::NOSCRIPT),
    keys: Keys::None,
    family: Family::Documents,
    since: "7.2.4",
    complexity: "O(log N) where N is the number of documents in the database.",
    summary: "",
    syntax: "",
    handler: get,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "doc.del",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DOCUMENTS).or(Flags::NOSCRIPT),
        summary: "Deletes a revision of a document; gives the revision that says so.",
        syntax: "database id rev",
        handler: del,
        ..ROW
    },
    Row {
        name: "doc.get",
        arity: -3,
        flags: Flags::READONLY.or(Flags::DOCUMENTS).or(Flags::NOSCRIPT),
        summary: "The document as JSON, with its _id and _rev; null if there is none.",
        syntax: "database id [rev]",
        handler: get,
        ..ROW
    },
    Row {
        name: "doc.put",
        arity: -4,
        summary: "Writes a document; gives its revision. `rev` (or _rev) is the one it replaces.",
        syntax: "database id json [rev]",
        // DOC.PUT to `_users` is refused, but the JSON of such a call may contain a password.
        treatment: Treatment::of_secrets(|args, index| index == 3 && args.at(1) == USERS_DATABASE.as_bytes()),
        handler: put,
        ..ROW
    },
];
