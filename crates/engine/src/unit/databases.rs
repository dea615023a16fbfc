//! The document databases that a unit has locked: what it does to them is part of its record.
//!
//! Invariants
//! - Databases are locked in ascending order of their ids, and before any slot: who holds slots waits for no database, and so for
//!   none of its files.
//! - What the commands of the unit will look up was read once before the first of them runs, so that a file that cannot be read
//!   refuses them, as a rule, before anything is done.
//! - A file that cannot be read later makes the command fail that needs it. What was changed in its database until then is in no
//!   record: a transaction is undone by its first command on documents that fails, and other units have no other.

use std::sync::Arc;

use documents::{Database, DocError, Documents, Writer};
use keyspace::encode_documents_into;
use lsn::Lsn;
use wire::Args;

/// See the module documentation.
pub struct Databases {
    locked: Vec<Locked>,
    /// What is said of a database that is not there waits for this.
    names_lsn: Lsn,
}

struct Locked {
    name: Box<str>,
    writer: Result<Writer, DocError>,
}

/// A document that a command names.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// The name of the database.
    pub database: &'a str,
    /// The ID of the document.
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
    /// Locks the databases of the documents that commands name.
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
        // After the locks: who has deleted a database has said so before the lock could be had.
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

    /// The database with this name, to be changed.
    ///
    /// # Errors
    /// If it is not there, or cannot be read.
    pub fn writer(&mut self, name: &str) -> Result<&mut Writer, DocError> {
        let locked = self.find(name).ok_or(DocError::NoDatabase)?;
        locked.writer.as_mut().map_err(|error| error.clone())
    }

    /// The newest position of anything that was seen.
    pub fn seen(&self) -> Lsn {
        let seen =
            |locked: &Locked| locked.writer.as_ref().map_or(self.names_lsn, |it| it.snapshot().last_lsn());
        self.locked.iter().map(seen).max().unwrap_or(Lsn::ZERO)
    }

    /// Takes back all that was changed; the databases stay locked.
    pub fn undo(&mut self) {
        self.locked.iter_mut().filter_map(|locked| locked.writer.as_mut().ok()).for_each(Writer::undo);
    }

    /// Adds what was changed to the record of the unit. Where a command has failed half-way through, nothing was.
    pub fn encode_into(&mut self, record: &mut Vec<u8>) {
        for locked in &mut self.locked {
            let Ok(writer) = &mut locked.writer else { continue };
            match writer.change() {
                Ok(change) => change.iter().for_each(|change| encode_documents_into(change, record)),
                // The command has said so; nothing of the change is shown to anybody.
                Err(error) => locked.writer = Err(error.into()),
            }
        }
    }

    /// Shows what was changed to all: the record ends at `lsn`.
    pub fn commit(self, lsn: Lsn) {
        self.locked.into_iter().filter_map(|locked| locked.writer.ok()).for_each(|writer| writer.commit(lsn));
    }
}
