//! `sheaf log`: prints the records of a directory's log, a line for each change.

mod readable;

use std::{
    collections::HashMap,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::ManifestError;
use documents::{DbId, change::Change};
use env::{Access, RealDisk};
use keyspace::{Item, LoggedMessage, Scope};
use lsn::Lsn;
use recovery::unix_time;
use storage::{Error, LogReader, RecordKind, Tail};

use self::readable::{Readable, joined, quoted, shown_operation};

/// The records that `sheaf log` prints.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Records at or after this position.
    pub from: Option<Lsn>,
    /// Records at or before this position.
    pub to: Option<Lsn>,
    /// Print only effects on keys that match this glob pattern.
    pub key: Option<String>,
}

/// Why `sheaf log` ended early.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// There is no such directory.
    #[error("{} does not exist: name the data directory of a server, or a backup", .0.display())]
    Missing(PathBuf),
    /// The log cannot be read.
    #[error(transparent)]
    Storage(#[from] Error),
    /// The manifest of a backup cannot be read.
    #[error(transparent)]
    Backup(#[from] ManifestError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Prints the selected records of the log in `dir`, and after each batch with a printed line the time at
/// which the batch was written. There is one line per effect, but only one for each part of a large record.
///
/// # Errors
/// [`PrintError`], except for a closed pipe.
pub fn print_log(dir: &Path, selection: &Selection) -> Result<(), PrintError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match print_records(dir, selection, &mut out).and_then(|()| Ok(out.flush()?)) {
        Err(PrintError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn print_records(dir: &Path, selection: &Selection, out: &mut impl Write) -> Result<(), PrintError> {
    if !dir.exists() {
        return Err(PrintError::Missing(dir.to_path_buf()));
    }
    let (disk, _) = backup::view(Arc::new(RealDisk), dir)?;
    let mut reader = LogReader::open(disk, dir, Access::Read)?;
    let from = selection.from.unwrap_or(Lsn::ZERO);
    let mut printer = Printer { selection, databases: HashMap::new(), printed: 0, out };
    loop {
        match reader.next_batch()? {
            Ok(batch) => {
                if selection.to.is_some_and(|to| batch.start > to) {
                    return Ok(());
                }
                let printed_before = printer.printed;
                for record in batch.records() {
                    if record.lsn < from {
                        if record.kind == RecordKind::Whole {
                            printer.note_databases(record.lsn, record.payload);
                        }
                        continue;
                    }
                    if selection.to.is_some_and(|to| record.lsn > to) {
                        continue;
                    }
                    match record.kind {
                        RecordKind::Whole => printer.effects(record.lsn, record.payload)?,
                        kind => {
                            let bytes = record.payload.len();
                            printer.other(
                                record.lsn,
                                format_args!("{kind:?} of a large record, {bytes} bytes"),
                            )?;
                        }
                    }
                }
                if printer.printed > printed_before {
                    printer.line(
                        batch.end,
                        format_args!("written at {}", unix_time::shown(batch.closed_at_ms)),
                    )?;
                }
            }
            Err(Tail { end, torn_end, reason }) => {
                match torn_end {
                    Some(_) => printer.line(end, format_args!("end of the log: {reason}"))?,
                    None => printer.line(end, "end of the log")?,
                }
                return Ok(());
            }
        }
    }
}

/// Prints the selected records, and counts the lines.
struct Printer<'a, W> {
    selection: &'a Selection,
    /// The names of the databases whose creation lies in a record that was read, selected or not.
    databases: HashMap<DbId, String>,
    /// The number of lines printed so far.
    printed: u64,
    out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    fn line(&mut self, lsn: Lsn, what: impl std::fmt::Display) -> Result<(), PrintError> {
        self.printed += 1;
        Ok(writeln!(self.out, "{lsn} {what}")?)
    }

    /// Prints a line that concerns no key, unless a pattern selects keys.
    fn other(&mut self, lsn: Lsn, what: impl std::fmt::Display) -> Result<(), PrintError> {
        if self.selection.key.is_some() { Ok(()) } else { self.line(lsn, what) }
    }

    /// Remembers the databases that a record makes, without printing it.
    fn note_databases(&mut self, lsn: Lsn, payload: &[u8]) {
        let mut rest = payload;
        while let Ok(Some(item)) = Item::decode_next(&mut rest) {
            if let Item::Documents(change) = item
                && let Ok(Change::Create { name }) = Change::decode(change)
            {
                self.databases.insert(DbId::new(lsn), quoted(name.as_bytes()));
            }
        }
    }

    fn effects(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), PrintError> {
        let mut rest = payload;
        loop {
            match Item::decode_next(&mut rest) {
                Ok(Some(Item::Message(LoggedMessage { channel, payload }))) => {
                    let what = format_args!("message to {}: {}", quoted(channel), quoted(payload));
                    self.other(lsn, what)?;
                }
                Ok(Some(Item::Documents(change))) => {
                    let what = self.shown_change(lsn, change);
                    self.other(lsn, what)?;
                }
                Ok(Some(Item::Effect(effect))) => {
                    let wanted = |pattern: &String| {
                        let matches = |key| wire::glob::matches(pattern.as_bytes(), key);
                        match effect.scope() {
                            Scope::Slot(_) => effect.key().is_some_and(matches),
                            Scope::Two(from, to) => matches(from) || matches(to),
                            Scope::Global => false,
                        }
                    };
                    if self.selection.key.as_ref().is_none_or(wanted) {
                        self.line(lsn, Readable(&effect))?;
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => return self.line(lsn, format_args!("not understood: {error}")),
            }
        }
    }

    /// A change of documents. A database whose creation is not among the records so far is shown by its id.
    fn shown_change(&mut self, lsn: Lsn, change: &[u8]) -> String {
        let name = |databases: &HashMap<DbId, String>, db: DbId| {
            databases.get(&db).cloned().unwrap_or_else(|| format!("with id {db}"))
        };
        match Change::decode(change) {
            Ok(Change::Create { name }) => {
                let name = quoted(name.as_bytes());
                self.databases.insert(DbId::new(lsn), name.clone());
                format!("create database {name}")
            }
            Ok(Change::Delete { db }) => format!("delete database {}", name(&self.databases, db)),
            Ok(Change::Update { db, operations, .. }) => {
                let shown = joined(
                    operations.count(),
                    operations.map(|operation| match operation {
                        Ok(operation) => shown_operation(&operation),
                        Err(error) => error.to_string(),
                    }),
                );
                format!("database {}: {shown}", name(&self.databases, db))
            }
            Err(error) => format!("documents, not understood: {error}"),
        }
    }
}
