//! The list of databases at one moment.

use std::sync::Arc;

use lsn::Lsn;

use crate::database::Database;
use crate::id::DbId;

/// All document databases, by name and by id.
#[derive(Clone, Default)]
pub(crate) struct Names {
    pub(crate) by_name: imbl::OrdMap<Arc<str>, Arc<Database>>,
    pub(crate) by_id: imbl::OrdMap<DbId, Arc<Database>>,
    /// The position of the last creation or deletion; after opening, a position up to which the catalog has
    /// every creation and deletion.
    pub(crate) lsn: Lsn,
    /// The position of the last deletion.
    pub(crate) deleted_lsn: Lsn,
    /// The position before the first creation since the files were opened; `None` if there was none.
    pub(crate) first_lsn: Option<Lsn>,
}

impl Names {
    pub(crate) fn insert(&mut self, database: Arc<Database>) {
        self.by_name.insert(database.name().clone(), database.clone());
        self.by_id.insert(database.id(), database);
    }

    /// Whether this list has every creation and deletion up to `lsn`. Then a database that the record at
    /// `lsn` names, and that is not in the list, was deleted by a later record.
    pub(crate) fn covers(&self, lsn: Lsn) -> bool {
        lsn <= self.lsn.max(self.deleted_lsn)
    }
}
