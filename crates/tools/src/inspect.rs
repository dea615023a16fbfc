//! `sheaf check` and `sheaf log`: read-only inspection of a directory without a server.

use std::{
    io::{self, Write},
    ops::ControlFlow,
    path::Path,
    sync::Arc,
};

use backup::ManifestError;
use documents::{Listener, StoreError};
use env::{Access, DirLock, Disk, RealClock, RealDisk, RealEntropy, Untouched};
use keyspace::{
    Effect, Item, Items, ListEnd, Listed, LoggedMessage, Scope, ScoredItems, StreamHead, StreamId, Value,
};
use lsn::Lsn;
use recovery::{
    data_directory::{Foreign, refuse_foreign},
    progress::LoadProgress,
    progress_bar::ProgressBar,
    recover::{DOCUMENTS_REMEDY, RecoverError, rehearse},
    replication_state,
    unfinished::{Unfinished, refuse_unfinished},
    unix_time,
};
use settings::{ConfigError, Given, Key, Lasting, Origin};
use storage::{
    CheckReport, Error, LogReader, RecordKind, Recovery,
    snapshot::{self, SnapshotCheck},
};

/// A problem found by `sheaf check`.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// In the log or in a snapshot.
    #[error(transparent)]
    Storage(#[from] Error),
    /// In the manifest or the files of a backup.
    #[error(transparent)]
    Backup(#[from] ManifestError),
    /// In the document files as a whole.
    #[error("{0}. {way_out}", way_out = DOCUMENTS_REMEDY)]
    Documents(#[from] StoreError),
    /// At this number of places in document files, which were printed.
    #[error("documents are damaged at {0} places. {way_out}", way_out = DOCUMENTS_REMEDY)]
    DamagedDocuments(u64),
    /// An import or a restore into the directory was interrupted.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The directory is not a server's.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// In the settings file of the directory.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// In the replication state of the directory.
    #[error(transparent)]
    ReplicationState(#[from] io::Error),
    /// All files are intact, but do not form a consistent state.
    #[error(transparent)]
    Recover(#[from] RecoverError),
}

/// Verifies every byte in `dir`, which may be a backup, and whether a server would start there; prints the
/// findings. The start is rehearsed with the code of a real one, so that all its errors are found; keys are
/// not kept in memory. While a server is running, its files change between two reads, and the start is not
/// rehearsed.
///
/// # Errors
/// The first damage found, or a failed read.
pub fn check(dir: &Path) -> Result<(), CheckError> {
    backup::refuse_incomplete(&RealDisk, dir)?;
    let (disk, manifest) = backup::view(Arc::new(RealDisk), dir)?;
    if manifest.is_none() {
        refuse_foreign(dir, None)?;
        refuse_unfinished(&RealDisk, dir)?;
        let value = dir.to_string_lossy().into_owned();
        let given = Given { name: "dir".into(), value, origin: Origin::Flag };
        let (settings, _) = Lasting::load(None, vec![given])?;
        replication_state::find(&RealDisk, dir, settings.text(Key::ReplicaOf))?;
    }
    check_data(&disk, dir)?;
    check_documents(&*disk, dir)?;
    if DirLock::is_held(dir) {
        println!("start      not rehearsed: a server runs here");
    } else {
        rehearse_start(disk, dir)?;
    }
    if let Some(manifest) = manifest {
        let bar = ProgressBar::new("checking");
        let checked = manifest.check(&RealDisk, dir, |done, total| bar.show(done, total));
        bar.finish();
        checked?;
        println!("backup     complete: {} files, state of {}", manifest.files.len(), manifest.made_at);
        if backup::is_being_made(&RealDisk, dir) {
            println!(
                "increment  unfinished: run the same `sheaf backup` again. Its files are not part of the backup"
            );
        }
    }
    Ok(())
}

/// Performs a start in memory.
fn rehearse_start(disk: Arc<dyn Disk>, dir: &Path) -> Result<(), RecoverError> {
    let disk: Arc<dyn Disk> = Arc::new(Untouched(disk));
    let nobody: Listener = Arc::new(|_| {});
    let documents = recovery::opening::open(disk.clone(), dir, Arc::new(RealEntropy), None, nobody)?;
    let mut recovery = Recovery::open_to_read(disk.clone(), dir)?;
    let progress = LoadProgress::new(Arc::new(RealClock));
    rehearse(&mut recovery, (&*disk, dir), &documents, &progress)
}

fn check_documents(disk: &dyn Disk, dir: &Path) -> Result<(), CheckError> {
    let bar = ProgressBar::new("checking");
    let damaged = |what: String| println!("documents  DAMAGED: {what}");
    let dir = documents::directory(dir);
    let checked = documents::check(disk, &dir, damaged, |done, total| bar.show(done, total));
    bar.finish();
    let report = checked?;
    if report.damaged > 0 {
        return Err(CheckError::DamagedDocuments(report.damaged));
    }
    if report.databases > 0 {
        println!(
            "documents  intact: {} in {} databases, {} bytes in files",
            report.documents, report.databases, report.file_bytes
        );
    }
    Ok(())
}

fn check_data(disk: &Arc<dyn Disk>, dir: &Path) -> Result<(), Error> {
    let bar = ProgressBar::new("checking");
    let log = storage::check(disk.clone(), dir, |position, end| {
        bar.show(position.get(), end.get());
        ControlFlow::Continue(())
    });
    let snapshots = snapshot::check(&**disk, dir, |done, total| {
        bar.show(done, total);
        ControlFlow::Continue(())
    });
    bar.finish();
    // Snapshots are reported before a log error is returned: after damage to the log their state matters even
    // more.
    let intact = snapshots.as_deref().map_or(Lsn::ZERO, print_snapshots);
    let log = log?;
    print_log_report(&log);
    let damage = snapshots?.into_iter().find_map(|snapshot| snapshot.outcome.err());
    match damage {
        Some(damage) => Err(damage),
        None if log.needs_snapshot && intact < log.start => Err(snapshot::missing(dir, log.start)),
        None => Ok(()),
    }
}

fn print_log_report(report: &CheckReport) {
    println!("log        intact from lsn {} to {}", report.start, report.tail.end);
    if let Some(chain) = report.end_chain {
        println!("chain      {chain:016x} at its end: a log with the same value there is the same log");
    }
    let last =
        report.closed_at_ms.map_or(String::new(), |ms| format!(", the last at {}", unix_time::shown(ms)));
    println!(
        "content    {} records in {} batches, written by {} runs{last}",
        report.records, report.batches, report.epochs
    );
    match report.tail.torn_end {
        _ if report.closed_cleanly => println!("end        closed in order"),
        None => println!("end        not closed in order (a crash, or a server is running)"),
        Some(end) => println!(
            "end        an interrupted write of {} bytes that was never acknowledged; the next start cuts it off",
            end.bytes_since(report.tail.end)
        ),
    }
}

/// Prints a line for each snapshot; returns the begin of the newest intact one.
fn print_snapshots(snapshots: &[SnapshotCheck]) -> Lsn {
    for SnapshotCheck { begin_lsn, outcome } in snapshots {
        match outcome {
            Ok(info) => println!(
                "snapshot   intact, of lsn {begin_lsn} to {}: {} rows in {} chunks, {} bytes in {} files ({} before \
                 compression)",
                info.end_lsn,
                info.rows(),
                info.chunks(),
                info.file_bytes(),
                info.parts.len(),
                info.raw_bytes(),
            ),
            Err(_) => println!("snapshot   DAMAGED, of lsn {begin_lsn}"),
        }
    }
    let intact = snapshots.iter().filter(|snapshot| snapshot.outcome.is_ok());
    intact.map(|snapshot| snapshot.begin_lsn).max().unwrap_or(Lsn::ZERO)
}

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

/// Prints the records of the log in `dir`, one line per effect.
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
    let (disk, _) = backup::view(Arc::new(RealDisk), dir)?;
    let mut reader = LogReader::open(disk, dir, Access::Read)?;
    let from = selection.from.unwrap_or(Lsn::ZERO);
    loop {
        match reader.next_batch()? {
            Ok(batch) => {
                if selection.to.is_some_and(|to| batch.start > to) {
                    return Ok(());
                }
                for record in batch.records() {
                    if record.lsn < from || selection.to.is_some_and(|to| record.lsn > to) {
                        continue;
                    }
                    match record.kind {
                        RecordKind::Whole => print_effects(record.lsn, record.payload, selection, out)?,
                        _ if selection.key.is_some() => {}
                        kind => writeln!(
                            out,
                            "{} {kind:?} of a large record, {} bytes",
                            record.lsn,
                            record.payload.len()
                        )?,
                    }
                }
            }
            Err(tail) => {
                writeln!(out, "{} end of the log: {}", tail.end, tail.reason)?;
                return Ok(());
            }
        }
    }
}

fn print_effects(
    lsn: Lsn,
    payload: &[u8],
    selection: &Selection,
    out: &mut impl Write,
) -> Result<(), PrintError> {
    let mut rest = payload;
    loop {
        match Item::decode_next(&mut rest) {
            Ok(Some(Item::Message(LoggedMessage { channel, payload }))) => {
                // Channels are not keys.
                if selection.key.is_none() {
                    writeln!(out, "{lsn} message to {}: {}", quoted(channel), quoted(payload))?;
                }
            }
            Ok(Some(Item::Documents(change))) => {
                if selection.key.is_none() {
                    writeln!(out, "{lsn} documents: {} bytes", change.len())?;
                }
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
                if selection.key.as_ref().is_none_or(wanted) {
                    writeln!(out, "{lsn} {}", Readable(&effect))?;
                }
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                writeln!(out, "{lsn} not understood: {error}")?;
                return Ok(());
            }
        }
    }
}

/// An effect in readable form.
struct Readable<'a>(&'a Effect<'a>);

impl std::fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let until = |deadline: &Option<u64>| deadline.map_or(String::new(), |ms| format!(" expires {ms}"));
        match self.0 {
            Effect::PutLibrary { name, code, .. } => {
                return write!(f, "library {} = {}", quoted(name), quoted(code));
            }
            Effect::DropLibrary { name } => return write!(f, "drop library {}", quoted(name)),
            Effect::PutSetting { name, value } => {
                return write!(f, "setting {} = {}", quoted(name), quoted(value));
            }
            Effect::DropSetting { name } => return write!(f, "drop setting {}", quoted(name)),
            Effect::FlushAll => return f.write_str("flush all"),
            Effect::FlushDb { db } => return write!(f, "db{db} flush"),
            Effect::SwapDb { a, b } => return write!(f, "swap db{a} db{b}"),
            Effect::Move { db, key, to_db, to_key } => {
                return write!(f, "db{db} move {} to db{to_db} {}", quoted(key), quoted(to_key));
            }
            _ => {}
        }
        let Some((db, key)) = self.0.target() else { return Ok(()) };
        let key = quoted(key);
        write!(f, "db{db} ")?;
        match self.0 {
            Effect::Put { value: Value::String(value), expire_at_ms, .. } => {
                write!(f, "put {key} = {}{}", quoted(value), until(expire_at_ms))
            }
            Effect::Put { value, expire_at_ms, .. } => {
                let type_name = value.value_type().name();
                write!(f, "put {key} = {type_name} {}{}", shown_value(value), until(expire_at_ms))
            }
            Effect::Delete { .. } => write!(f, "delete {key}"),
            Effect::SetExpiry { expire_at_ms: None, .. } => write!(f, "persist {key}"),
            Effect::SetExpiry { expire_at_ms, .. } => write!(f, "expiry of {key}:{}", until(expire_at_ms)),
            Effect::Append { suffix, .. } => write!(f, "append to {key}: {}", quoted(suffix)),
            Effect::SetRange { offset, bytes, .. } => {
                write!(f, "overwrite {key} at {offset}: {}", quoted(bytes))
            }
            Effect::ListPush { end, items, .. } => {
                write!(f, "push at {} of {key}: {}", end_name(*end), shown(*items))
            }
            Effect::ListPop { end, count, .. } => write!(f, "pop {count} at {} of {key}", end_name(*end)),
            Effect::ListSet { index, item, .. } => write!(f, "set {key}[{index}] = {}", quoted(item)),
            Effect::ListInsert { index, item, .. } => write!(f, "insert {key}[{index}] = {}", quoted(item)),
            Effect::ListRemove { end, count, item, .. } => {
                write!(f, "remove {count} (0: all) from {} of {key}: {}", end_name(*end), quoted(item))
            }
            Effect::SetAdd { members, .. } => write!(f, "add to {key}: {}", shown(*members)),
            Effect::SetRemove { members, .. }
            | Effect::ZsetRemove { members, .. }
            | Effect::HashRemove { fields: members, .. } => {
                write!(f, "remove from {key}: {}", shown(*members))
            }
            Effect::ZsetPut { members, .. } => write!(f, "add to {key}: {}", shown_scored(*members)),
            Effect::ZsetRemoveRanks { first, count, .. } => {
                write!(f, "remove from {key} {count} by rank from {first}")
            }
            Effect::HashPut { pairs, .. } => write!(f, "set in {key}: {}", shown(*pairs)),
            Effect::HashUpdate { pairs, .. } => write!(f, "set in {key}, keeping expiry: {}", shown(*pairs)),
            Effect::HashSetExpiry { fields, expire_at_ms: None, .. } => {
                write!(f, "persist in {key}: {}", shown(*fields))
            }
            Effect::HashSetExpiry { fields, expire_at_ms, .. } => {
                write!(f, "expiry in {key}: {}{}", shown(*fields), until(expire_at_ms))
            }
            Effect::StreamAdd { id, pairs, .. } => write!(f, "add to {key}: {id} {}", shown(*pairs)),
            Effect::StreamAddBlock { block, .. } => {
                let entries = block.entries().map(|entry| entry.id.to_string());
                write!(f, "add to {key}: {}", joined(block.entries().count(), entries))
            }
            Effect::StreamTrim { through, .. } => write!(f, "trim {key} through {through}"),
            Effect::StreamDelete { ids, .. } => write!(f, "delete from {key}: {}", shown_ids(*ids)),
            Effect::StreamSetHead { head, .. } => write!(f, "head of {key}: {}", shown_head(head)),
            Effect::StreamPutGroup { group, position, .. } => {
                let read = position.entries_read.map_or(String::new(), |read| format!(", {read} read"));
                write!(f, "group {} of {key} at {}{read}", quoted(group), position.last_id)
            }
            Effect::StreamDropGroup { group, .. } => write!(f, "drop group {} of {key}", quoted(group)),
            Effect::StreamPutConsumer { group, consumer, times, .. } => {
                let active = times.active_ms.map_or(String::new(), |ms| format!(", active {ms}"));
                let (consumer, group) = (quoted(consumer), quoted(group));
                write!(f, "consumer {consumer} in {group} of {key}: seen {}{active}", times.seen_ms)
            }
            Effect::StreamDropConsumer { group, consumer, .. } => {
                write!(f, "drop consumer {} in {} of {key}", quoted(consumer), quoted(group))
            }
            Effect::StreamPend { group, consumer, deliveries, .. } => {
                let ids = joined(deliveries.len(), deliveries.iter().map(|delivery| delivery.id.to_string()));
                write!(f, "pending for {} in {} of {key}: {ids}", quoted(consumer), quoted(group))
            }
            Effect::StreamUnpend { group, ids, .. } => {
                write!(f, "pending no more in {} of {key}: {}", quoted(group), shown_ids(*ids))
            }
            Effect::Move { .. }
            | Effect::PutLibrary { .. }
            | Effect::DropLibrary { .. }
            | Effect::PutSetting { .. }
            | Effect::DropSetting { .. }
            | Effect::FlushAll
            | Effect::FlushDb { .. }
            | Effect::SwapDb { .. } => Ok(()),
        }
    }
}

/// Maximum number of items printed per effect.
const SHOWN_ITEMS_MAX: usize = 16;

fn end_name(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Head => "the head",
        ListEnd::Tail => "the tail",
    }
}

fn shown_value(value: &Value<'_>) -> String {
    match value {
        Value::String(bytes) => quoted(bytes),
        Value::List(items) | Value::Set(items) | Value::Hash(items) => shown(*items),
        Value::Zset(members) => shown_scored(*members),
        Value::Stream(head) => shown_head(head),
    }
}

fn shown_head(head: &StreamHead) -> String {
    let StreamHead { last_id, max_deleted_id, entries_added } = head;
    format!("last {last_id}, deleted up to {max_deleted_id}, {entries_added} added")
}

fn shown_ids(ids: Listed<'_, StreamId>) -> String {
    joined(ids.len(), ids.iter().map(|id| id.to_string()))
}

fn shown(items: Items<'_>) -> String {
    joined(items.len(), items.iter().map(quoted))
}

fn shown_scored(members: ScoredItems<'_>) -> String {
    joined(members.len(), members.iter().map(|(score, member)| format!("{score} {}", quoted(member))))
}

fn joined(len: usize, items: impl Iterator<Item = String>) -> String {
    let mut text = items.take(SHOWN_ITEMS_MAX).collect::<Vec<_>>().join(", ");
    if len > SHOWN_ITEMS_MAX {
        text.push_str(&format!(" and {} more", len - SHOWN_ITEMS_MAX));
    }
    text
}

/// Maximum bytes printed of a value.
const SHOWN_BYTES_MAX: usize = 128;

fn quoted(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let rest = bytes.len() - shown.len();
    let more = if rest > 0 { format!("... and {rest} bytes") } else { String::new() };
    format!("\"{}\"{more}", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use env::{SimClock, SimEntropy};
    use storage::{
        LogOptions, Recovery,
        snapshot::{ChunkInfo, Compression, SnapshotWriter},
    };

    use super::*;

    /// A directory with a log that needs its snapshot.
    fn write_data(dir: &Path) -> Result<(), Error> {
        let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() }.fitting();
        let mut recovery = Recovery::open(Arc::new(RealDisk), dir, options, &SimEntropy::new(1))?;
        while recovery.next_batch()?.is_some() {}
        let log = recovery.finish(Arc::new(SimClock::new(0)))?;
        log.appender().reserve(b"a record")?.publish();
        log.flush_all()?;
        let meta = log.begin_snapshot(Compression::Lz4);
        let (writer, parts) = SnapshotWriter::create(Arc::new(RealDisk), dir, meta, 2)?;
        let mut summaries = Vec::new();
        for mut part in parts {
            for slot in 0..3 {
                let (lsn, continues) = (meta.begin_lsn, false);
                let info = ChunkInfo { first_slot: slot, last_slot: slot, rows: 7, lsn, continues };
                part.append(info, &[slot as u8; 700_000])?;
            }
            summaries.push(part.finish()?);
        }
        writer.publish(summaries, meta.begin_lsn)?;
        snapshot::retain(&RealDisk, dir, &log, 1)?;
        log.close()
    }

    #[test]
    fn the_check_fails_for_damaged_and_for_missing_snapshots() {
        let dir = std::env::temp_dir().join(format!("sheaf-check-{}", std::process::id()));
        write_data(&dir).unwrap();
        check(&dir).unwrap();
        let part = snapshot::directory(&dir).join("snap-0000000000001000.1.part");
        let intact = std::fs::read(&part).unwrap();
        let mut damaged = intact.clone();
        damaged[5000] ^= 1;
        std::fs::write(&part, &damaged).unwrap();
        let Err(Error::SnapshotCorrupt(damage)) = check_data(&(Arc::new(RealDisk) as Arc<dyn Disk>), &dir)
        else {
            panic!("the damage was not found")
        };
        assert_eq!((damage.path, damage.offset), (part.clone(), 4096));
        std::fs::write(&part, &intact).unwrap();
        check(&dir).unwrap();
        snapshot::remove(&RealDisk, &dir, Lsn::new(4096)).unwrap();
        let missing = check(&dir).unwrap_err().to_string();
        assert!(missing.contains("there is none to start from"), "{missing}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
