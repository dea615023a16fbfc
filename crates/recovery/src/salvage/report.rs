//! `recovery-report.json`: the omissions of a forced recovery, and the next steps for the operator.
//!
//! The report is written for people: it explains everything in words and names every file. Programs can read
//! the same fields.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
};

use env::Disk;
use keyspace::SLOT_COUNT;
use lsn::Lsn;
use serde_json::{Value, json};
use storage::{Hole, HoleKind, SnapshotDamage, snapshot};

use super::messages::{Messages, OfChannel};
use crate::unix_time;

const FILE_NAME: &str = "recovery-report.json";

/// The kind of a damaged part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A part of the log.
    Log(HoleKind),
    /// Chunks of the loaded snapshot.
    SnapshotChunk,
    /// A part file of the loaded snapshot that could not be opened.
    SnapshotPart,
    /// A damaged snapshot that was not loaded.
    SnapshotPassedOver,
    /// A snapshot of another log, left by an interrupted confirmation.
    ForeignSnapshot,
    /// All snapshots, while the log does not hold everything.
    AllSnapshots,
    /// All document files, while the log does not hold everything.
    Documents,
    /// Document files that are older than the log, or newer.
    DocumentsApart,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Log(HoleKind::Control) => "control file",
            Kind::Log(HoleKind::SegmentHeader) => "header of a log segment",
            Kind::Log(HoleKind::Segment) => "log segment",
            Kind::Log(HoleKind::Records) => "log records",
            Kind::Log(HoleKind::Chain) => "log record in parts",
            Kind::SnapshotChunk => "snapshot chunks",
            Kind::SnapshotPart => "part of a snapshot",
            Kind::SnapshotPassedOver => "snapshot",
            Kind::ForeignSnapshot => "snapshot of another log",
            Kind::AllSnapshots => "all snapshots",
            Kind::Documents => "all files of documents",
            Kind::DocumentsApart => "files of documents of another moment",
        }
    }

    fn loses_nothing(self) -> bool {
        let files =
            matches!(self, Kind::Log(HoleKind::Control | HoleKind::SegmentHeader | HoleKind::Segment));
        files || matches!(self, Kind::SnapshotPassedOver | Kind::ForeignSnapshot)
    }

    /// The consequence for the data, in words.
    fn loss(self) -> &'static str {
        match self {
            Kind::Log(HoleKind::Control | HoleKind::SegmentHeader) | Kind::SnapshotPassedOver => {
                "nothing by itself: the same was found elsewhere"
            }
            Kind::ForeignSnapshot => "nothing: a confirmation that was interrupted has left it",
            Kind::Log(HoleKind::Segment) => {
                "nothing by itself: records of it that are needed are named apart"
            }
            Kind::Log(HoleKind::Records | HoleKind::Chain) => {
                "the changes of these records: the keys have their earlier values, with later changes applied"
            }
            Kind::SnapshotChunk | Kind::SnapshotPart => {
                "the keys of these slots, except those that the log creates again"
            }
            Kind::AllSnapshots => "all keys, except those that the log creates again",
            Kind::Documents => "all documents, except databases that the log creates again",
            Kind::DocumentsApart => {
                "the changes of these records: of documents if their files are older than the log, of keys if they are newer"
            }
        }
    }
}

/// A damaged part that was left out.
#[derive(Debug, Clone)]
pub(super) struct DamageLocation {
    pub(super) kind: Kind,
    pub(super) file: PathBuf,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) lsns: Option<(Lsn, Lsn)>,
    /// The first and the last slot with lost keys; `None` if unknown, or if the kind loses none.
    pub(super) slots: Option<(u16, u16)>,
    pub(super) rows: Option<u64>,
    pub(super) batches: Option<u64>,
    pub(super) closed_at_ms: (Option<u64>, Option<u64>),
    pub(super) reason: String,
}

impl DamageLocation {
    pub(super) fn of_snapshot(damage: &SnapshotDamage, kind: Kind) -> DamageLocation {
        DamageLocation {
            kind,
            file: damage.path.clone(),
            offset: damage.offset,
            bytes: 0,
            lsns: None,
            slots: damage.slots,
            rows: None,
            batches: None,
            closed_at_ms: (None, None),
            reason: damage.reason.clone(),
        }
    }

    pub(super) fn without_snapshot(dir: &Path, log_start: Lsn) -> DamageLocation {
        let reason = "there is none that can be used, and the log begins later";
        DamageLocation {
            lsns: Some((Lsn::ZERO, log_start)),
            slots: Some((0, SLOT_COUNT as u16 - 1)),
            ..DamageLocation::of_all_snapshots(dir, Kind::AllSnapshots, reason.into())
        }
    }

    pub(super) fn without_documents(dir: &Path, begin: Lsn) -> DamageLocation {
        let reason = "all files of documents are missing, and only they had the older documents";
        DamageLocation {
            lsns: Some((Lsn::ZERO, begin)),
            file: documents::directory(dir),
            ..DamageLocation::of_all_snapshots(dir, Kind::Documents, reason.into())
        }
    }

    /// Documents that are saved up to `saved`, beside a log that was read from `begin` to `end`.
    pub(super) fn documents_apart(dir: &Path, saved: Lsn, (begin, end): (Lsn, Lsn)) -> DamageLocation {
        let reason = format!("they are saved up to lsn {saved}; the log is read from {begin} to {end}");
        DamageLocation {
            lsns: Some(if saved < begin { (saved, begin) } else { (end, saved) }),
            file: documents::directory(dir),
            ..DamageLocation::of_all_snapshots(dir, Kind::DocumentsApart, reason)
        }
    }

    pub(super) fn of_another_log(dir: &Path, begin_lsn: Lsn) -> DamageLocation {
        let reason = format!("the snapshot of lsn {begin_lsn} is of another log");
        DamageLocation::of_all_snapshots(dir, Kind::ForeignSnapshot, reason)
    }

    fn of_all_snapshots(dir: &Path, kind: Kind, reason: String) -> DamageLocation {
        DamageLocation {
            kind,
            file: snapshot::directory(dir),
            offset: 0,
            bytes: 0,
            lsns: None,
            slots: None,
            rows: None,
            batches: None,
            closed_at_ms: (None, None),
            reason,
        }
    }

    fn of_log(hole: &Hole) -> DamageLocation {
        DamageLocation {
            kind: Kind::Log(hole.kind),
            file: hole.path.clone(),
            offset: hole.offset,
            bytes: hole.bytes,
            lsns: hole.lsns,
            slots: None,
            rows: None,
            batches: hole.batches,
            closed_at_ms: hole.closed_at_ms,
            reason: hole.reason.clone(),
        }
    }

    fn to_json(&self) -> Value {
        let slots = match (self.slots, self.kind) {
            (Some((first, last)), _) => json!([first, last]),
            (None, kind) if kind.loses_nothing() => json!([]),
            _ => json!("unknown"),
        };
        let mut place = json!({
            "what": self.kind.name(),
            "file": self.file,
            "offset": self.offset,
            "bytes": self.bytes,
            "reason": self.reason,
            "lost": self.kind.loss(),
            "slots": slots,
        });
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                place[name] = value;
            }
        };
        add("lsns", self.lsns.map(|(from, to)| json!([from.get(), to.get()])));
        add("rows", self.rows.map(Into::into));
        add("batches", self.batches.map(Into::into));
        add("written_after", self.closed_at_ms.0.map(|ms| unix_time::shown(ms).into()));
        add("written_before", self.closed_at_ms.1.map(|ms| unix_time::shown(ms).into()));
        place
    }
}

/// All omissions of a forced recovery.
#[derive(Debug, Clone)]
pub struct Losses {
    made_at_ms: u64,
    places: Vec<DamageLocation>,
    /// Ranges of slots whose state at the start of the replay was lost.
    slots: Vec<(u16, u16)>,
    /// The beginning of the loaded snapshot.
    pub(super) base: Option<Lsn>,
    /// The position up to which the log was read.
    pub(super) log_end: Option<Lsn>,
    pub(super) rows: u64,
    pub(super) records: u64,
    /// Logged changes that did not fit what is left of the keys and documents.
    pub(super) changes_left_out: u64,
    /// Number of recovered keys.
    pub(super) keys: u64,
    /// Messages of durable channels in the damaged log.
    pub(super) messages: Messages,
}

/// A range as text, for a log line.
fn shown_range<T: Display>((from, to): (T, T)) -> String {
    format!("{from} to {to}")
}

impl Losses {
    pub(super) fn new(made_at_ms: u64) -> Losses {
        let (places, slots) = (Vec::new(), Vec::new());
        let (rows, records, changes_left_out, keys) = (0, 0, 0, 0);
        let (base, log_end, messages) = (None, None, Messages::default());
        Losses { made_at_ms, places, slots, base, log_end, rows, records, changes_left_out, keys, messages }
    }

    pub(super) fn note(&mut self, place: DamageLocation) {
        tracing::error!(
            target: "server", file = %place.file.display(), offset = place.offset, bytes = place.bytes,
            lsns = place.lsns.map(shown_range), slots = place.slots.map(shown_range), reason = %place.reason, "left out: {}", place.kind.name()
        );
        self.places.push(place);
    }

    pub(super) fn note_log(&mut self, holes: &[Hole]) {
        holes.iter().map(DamageLocation::of_log).for_each(|place| self.note(place));
    }

    pub(super) fn note_slots(&mut self, lost: &[bool]) {
        for slot in (0u16..).zip(lost).filter(|(_, lost)| **lost).map(|(slot, _)| slot) {
            match self.slots.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => self.slots.push((slot, slot)),
            }
        }
    }

    /// Whether there was no damage.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Number of damaged parts.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Number of messages of durable channels that are lost once the loss is accepted, damaged ones not
    /// counted.
    pub fn messages(&self) -> u64 {
        self.messages.count
    }

    fn messages_to_json(&self) -> Value {
        let Messages { count, by_channel, of_other_channels, has_holes, failed } = &self.messages;
        let of_channel = |channel: &[u8], OfChannel { messages, lsns: (first, last) }: OfChannel| {
            json!({
                "channel": String::from_utf8_lossy(channel),
                "messages": messages,
                "lsns": [first.get(), last.get()],
            })
        };
        let channels = by_channel.iter().map(|(channel, messages)| of_channel(channel, *messages));
        let mut told = json!({
            "lost": "all messages: only the log has them, and confirming begins a new log",
            "messages": count,
            "channels": channels.collect::<Vec<_>>(),
            "messages_of_other_channels": of_other_channels,
            "perhaps_more_in_damaged_parts": has_holes,
        });
        if let Some(reason) = failed {
            told["not_counted_to_the_end"] = reason.as_str().into();
        }
        told
    }

    /// The bytes of places that lose something: the records lost with a segment are places of their own.
    fn lost_bytes(&self) -> u64 {
        let losing = self.places.iter().filter(|place| !place.kind.loses_nothing());
        losing.map(|place| place.bytes).fold(0, u64::saturating_add)
    }

    /// Writes the report into the data directory.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<PathBuf> {
        let report = json!({
            "what": "a forced recovery has left out the damaged parts; the server is read-only until an operator confirms",
            "made_at": unix_time::shown(self.made_at_ms),
            "directory": dir,
            "recovered": {
                "snapshot": self.base.map(Lsn::get),
                "log_end": self.log_end.map(Lsn::get),
                "rows": self.rows,
                "records": self.records,
                "keys": self.keys,
            },
            "left_out": {
                "places": self.places.len(),
                "bytes": self.lost_bytes(),
                "slots": self.slots,
                "changes_of_lost_keys": self.changes_left_out,
            },
            "durable_channels": self.messages_to_json(),
            "places": self.places.iter().map(DamageLocation::to_json).collect::<Vec<_>>(),
            "next": [
                "Copy the directory before anything else: confirming removes the damaged files.",
                "If durable channels have messages that somebody still needs: `sheaf log` shows those before the first damaged part.",
                "Look at the data; reads are served. `slots` are those of CLUSTER KEYSLOT, `lsns` positions of the log.",
                "If a backup or a replica has the lost data: stop the server and restore that instead.",
                "Else accept the loss: CONFIG SET force-recovery confirmed. The server then takes a snapshot of what it has, \
                 forgets the damaged log, and takes writes; the next start is an ordinary one.",
            ],
        });
        let path = dir.join(FILE_NAME);
        let text = format!("{report:#}\n");
        env::crashsafe::write_atomically(disk, &path, text.as_bytes())?;
        Ok(path)
    }
}

/// Renames the report to record that its losses were accepted; the directory's data now begins at
/// `begin_lsn`.
pub(super) fn confirmed(disk: &dyn Disk, dir: &Path, begin_lsn: Lsn) -> io::Result<()> {
    let aside = dir.join(format!("recovery-report-confirmed-{:016x}.json", begin_lsn.get()));
    env::crashsafe::rename_durably(disk, &dir.join(FILE_NAME), &aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_missing_segment_count_once() {
        let place = |kind, bytes| DamageLocation {
            bytes,
            ..DamageLocation::of_all_snapshots(Path::new("/data"), kind, String::new())
        };
        let mut losses = Losses::new(0);
        losses.note(place(Kind::Log(HoleKind::Segment), 1 << 20));
        losses.note(place(Kind::Log(HoleKind::SegmentHeader), 4096));
        losses.note(place(Kind::Log(HoleKind::Records), 8192));
        losses.note(place(Kind::SnapshotChunk, 100));
        assert_eq!((losses.lost_bytes(), losses.places()), (8292, 4));
    }
}
