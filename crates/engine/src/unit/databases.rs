//! The document databases that a unit has locked: their changes are part of the unit's record.
//!
//! Invariants
//! - Databases are locked in ascending order of their ids, and before any slot: a unit that holds slots waits
//!   for no database.
//! - The documents that the commands of the unit name are read once before the first of them runs, so that,
//!   if a file cannot be read, the commands are usually refused before any change.
//! - If a file cannot be read while the commands run, the command that needs it fails. The changes of that
//!   database are then in no record: a transaction is undone by its first failing command on documents, and
//!   other units have only one such command.

use std::sync::Arc;

use documents::{Database, DocError, Documents, Writer};
use keyspace::encode_documents_into;
use lsn::Lsn;
use wire::Args;

/// The locked document databases of a unit.
pub struct Databases {
    locked: Vec<Locked>,
    /// The gate of a reply that says that a database does not exist.
    names_lsn: Lsn,
}

struct Locked {
    name: Box<str>,
    writer: Result<Writer, DocError>,
}

/// A document that a command names.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// The name of the database, which may not exist.
    pub database: &'a str,
    /// The ID of the document, which may not exist.
    pub id: &'a str,
}

impl<'a> Named<'a> {
    /// The document that a command on documents names, if its arguments are text.
    pub fn of_call(args: Args<'a>) -> Option<Named<'a>> {
        let text = |index| std::str::from_utf8(args.get(index)?).ok();
        Some(Named { database: text(1)?, id: text(2)? })
    }
}

impl Databases {
    /// Locks the databases of the named documents.
    pub fn lock<'a>(documents: &Documents, named: impl Iterator<Item = Named<'a>> + Clone) -> Databases {
        let mut found: Vec<(&str, _)> = Vec::new();
        for Named { database, .. } in named.clone() {
            if found.iter().all(|(name, _)| *name != database) {
                found.push((database, documents.database(database)));
            }
        }
        found.sort_by_key(|(_, database)| database.as_ref().map(|database| database.id()).ok());
        let lock = |(name, database): (&str, Result<Arc<Database>, DocError>)| Locked {
            name: name.into(),
            writer: database.and_then(|it| it.lock()),
        };
        let locked = found.into_iter().map(lock).collect();
        // The position is read after locking: a deletion updates it before the deletion releases the
        // database.
        let mut databases = Databases { locked, names_lsn: documents.names_lsn() };
        for Named { database, id } in named {
            let Some(locked) = databases.find(database) else { continue };
            let read = locked.writer.as_ref().map_or(Ok(None), |writer| writer.snapshot().document(id));
            if let Err(error) = read {
                locked.writer = Err(error);
            }
        }
        databases
    }

    fn find(&mut self, name: &str) -> Option<&mut Locked> {
        self.locked.iter_mut().find(|locked| *locked.name == *name)
    }

    /// The database with this name, for changes.
    ///
    /// # Errors
    /// If the database does not exist or cannot be read.
    pub fn writer(&mut self, name: &str) -> Result<&mut Writer, DocError> {
        let locked = self.find(name).ok_or(DocError::NoDatabase)?;
        locked.writer.as_mut().map_err(|error| error.clone())
    }

    /// The newest position of the documents and database names that were seen.
    pub fn seen(&self) -> Lsn {
        let seen =
            |locked: &Locked| locked.writer.as_ref().map_or(self.names_lsn, |it| it.snapshot().last_lsn());
        self.locked.iter().map(seen).max().unwrap_or(Lsn::ZERO)
    }

    /// Undoes all changes; the databases stay locked.
    pub fn undo(&mut self) {
        self.locked.iter_mut().filter_map(|locked| locked.writer.as_mut().ok()).for_each(Writer::undo);
    }

    /// Adds the changes to the record of the unit. A database in which a command failed half-way adds none.
    pub fn encode_into(&mut self, record: &mut Vec<u8>) {
        for locked in &mut self.locked {
            let Ok(writer) = &mut locked.writer else { continue };
            match writer.change() {
                Ok(change) => change.iter().for_each(|change| encode_documents_into(change, record)),
                // The command has replied with the error; the change is visible to no client.
                Err(error) => locked.writer = Err(error.into()),
            }
        }
    }

    /// Makes the changes visible to all: their record ends at `lsn`.
    pub fn commit(self, lsn: Lsn) {
        self.locked.into_iter().filter_map(|locked| locked.writer.ok()).for_each(|writer| writer.commit(lsn));
    }
}
