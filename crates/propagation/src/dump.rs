//! Keys and functions for an RDB file.
//!
//! Invariants
//! - If keys are written, only expired data is left out: keys, fields of hashes, and hashes of which all
//!   fields have expired.

use std::io;

use commands::encode_value;
use keyspace::{DbId, EntryRef, Keyspace, SlotId, View};
use rdb::FileWriter;

/// First version of the format with field expiry.
pub const VERSION_EXPIRING_FIELDS: u16 = 12;

/// Begins a file of a version from 10 to 12.
pub fn begin<W: io::Write>(file: W, version: u16, now_ms: u64) -> FileWriter<W> {
    let mut writer = FileWriter::begin(file, version);
    writer.note("sheaf-ver", env!("CARGO_PKG_VERSION"));
    writer.note("redis-bits", "64");
    writer.note("ctime", &(now_ms / 1000).to_string());
    writer
}

/// Writes one key with its value and its deadline. Fields of a hash that have expired at `now_ms` are left
/// out.
pub fn key<W: io::Write>(writer: &mut FileWriter<W>, entry: EntryRef<'_>, now_ms: u64) {
    encode_value(entry.view(), now_ms, writer.key(entry.key(), entry.expire_at_ms()));
}

/// Calls `visit` for every key of these slots that has not expired. A hash with only expired fields counts
/// as expired.
pub fn for_each_live(
    keyspace: &Keyspace,
    slots: impl IntoIterator<Item = SlotId>,
    db: DbId,
    now_ms: u64,
    mut visit: impl FnMut(EntryRef<'_>),
) {
    for slot in slots {
        let slot = keyspace.lock(slot);
        let is_live =
            |entry: &EntryRef<'_>| !entry.is_expired(now_ms) && !has_only_expired_fields(*entry, now_ms);
        slot.entries(db).filter(is_live).for_each(&mut visit);
    }
}

fn has_only_expired_fields(entry: EntryRef<'_>, now_ms: u64) -> bool {
    match entry.view() {
        View::Hash(hash) => hash.has_deadlines() && hash.iter().all(|field| field.is_expired(now_ms)),
        _ => false,
    }
}

/// The version of the files for replicas: every Redis from 7.0 and every Valkey reads it. Fields of hashes
/// lose their deadlines in it; commands after the file set them ([`for_each_deadline`]).
const REPLICA_VERSION: u16 = 10;

/// A file for a replica, written part by part.
pub struct ReplicaFile<W> {
    writer: FileWriter<W>,
    parts: Parts,
    has_field_deadlines: bool,
}

/// The contents of a file for a replica.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Keys that have expired at this time (unix milliseconds) are left out. With 0 all keys are written, for
    /// a file that is followed by a stream, which removes expired keys.
    pub live_at_ms: u64,
    /// Whether the file holds keys.
    pub keys: bool,
    /// Whether the file holds functions.
    pub functions: bool,
}

impl<W: io::Write> ReplicaFile<W> {
    /// Begins a file at the time `now_ms`.
    pub fn begin(file: W, now_ms: u64, parts: Parts) -> Self {
        let writer = begin(file, REPLICA_VERSION, now_ms);
        ReplicaFile { writer, parts, has_field_deadlines: false }
    }

    /// Writes all functions of a keyspace, and the keys of these slots that have not expired at
    /// `Parts::live_at_ms`; either is left out if [`Parts`] does not ask for it.
    pub fn add(&mut self, keyspace: &Keyspace, slots: &[SlotId]) {
        if self.parts.functions {
            let libraries = keyspace.libraries().libraries;
            libraries.iter().for_each(|library| self.writer.library(&library.code));
        }
        if !self.parts.keys {
            return;
        }
        let (writer, now_ms) = (&mut self.writer, self.parts.live_at_ms);
        for db in DbId::all() {
            let mut is_selected = false;
            for_each_live(keyspace, slots.iter().copied(), db, now_ms, |entry| {
                if !std::mem::replace(&mut is_selected, true) {
                    writer.switch(db.get().into());
                }
                self.has_field_deadlines |= matches!(entry.view(), View::Hash(hash) if hash.has_deadlines());
                key(writer, entry, now_ms);
            });
        }
    }

    /// Ends the file. Returns the writer, and whether hashes in the file have fields with deadlines.
    ///
    /// # Errors
    /// The first error of writing.
    pub fn finish(self) -> io::Result<(W, bool)> {
        Ok((self.writer.finish()?, self.has_field_deadlines))
    }
}

/// Calls `visit` with the database, key, name and deadline of every field that has a deadline, even if the
/// deadline has passed.
pub fn for_each_deadline(
    keyspace: &Keyspace,
    slots: &[SlotId],
    mut visit: impl FnMut(DbId, &[u8], &[u8], u64),
) {
    for db in DbId::all() {
        for_each_live(keyspace, slots.iter().copied(), db, 0, |entry| {
            let View::Hash(hash) = entry.view() else { return };
            if !hash.has_deadlines() {
                return;
            }
            for field in hash.iter() {
                if let Some(at_ms) = field.expire_at_ms {
                    visit(db, entry.key(), &field.name, at_ms);
                }
            }
        });
    }
}
