//! A full sync: the file of a snapshot, in the form of Redis.
//!
//! A snapshot holds each slot as of a moment of its own. Later changes of the slot in the log follow in the
//! stream ([`Loaded::left_of`]). A change of whole databases between these moments concerns all slots, and
//! cannot be sent for some slots alone. So a snapshot with such a change is not used.
//!
//! Invariants
//! - The snapshot and the log after it are pinned until the stream begins. A replica for which more log than
//!   `replica-retention-bytes` would be pinned is disconnected (`sending`), but not for less than
//!   [`PINNED_LOG_BYTES_MIN`].

use std::{
    io,
    sync::{
        atomic::Ordering::SeqCst,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
};

use env::RealDisk;
use keyspace::{AccessClock, Effect, Item};
use lsn::Lsn;
use propagation::{
    Feed, Ticket,
    dump::{Parts, ReplicaFile, for_each_deadline},
};
use recovery::{Loaded, visit_runs};
use storage::{
    CursorRead, Pin,
    snapshot::{self, SnapshotInfo},
};

use super::{Begun, PIECE_BYTES, PREPARING_PERIOD, Serving};

/// A snapshot is used again if the log has grown by at most this many bytes since the snapshot began. To
/// render these bytes takes less time than a new snapshot.
const REUSED_LOG_BYTES_MAX: u64 = 64 << 20;
/// The bytes of log that may be pinned for a file even if `replica-retention-bytes` is less.
pub(super) const PINNED_LOG_BYTES_MIN: u64 = 2 * REUSED_LOG_BYTES_MAX;
/// The attempts to get a snapshot that can be used.
const TRIES: usize = 5;

impl Serving<'_> {
    /// Sends a file, and returns the stream that follows it; `None` if the replica wants the file alone.
    pub(super) fn full_sync(&self) -> Result<Option<Begun>, String> {
        let (info, _pin) = self.snapshot().inspect_err(|reason| {
            self.pinned_from.set(None);
            // The replica gets the error, if it still listens.
            let _ = self.write(format!("-ERR {}\r\n", reason.trim_start_matches("ERR ")).as_bytes());
        })?;
        let ticket = self.node.redis.sessions.lock().begin(self.node.new_stream());
        if let Some(unlogged) = self.node.redis_news(&self.replica.address, "gets a file") {
            tracing::info!(target: "replication", replica = %self.replica.address, begin_lsn = info.begin_lsn.get(), unlogged, "a Redis replica gets a file of everything");
        }
        let begun = self.copy(ticket, &info);
        self.pinned_from.set(None);
        if !matches!(begun, Ok(Some(_))) {
            // The replica has no bytes of the stream with which it could return.
            self.node.forget_stream(ticket);
        }
        begun
    }

    /// Sends the file of a snapshot, and waits until the stream may follow.
    fn copy(&self, ticket: Ticket, info: &SnapshotInfo) -> Result<Option<Begun>, String> {
        let replica = self.replica;
        if self.claim.is_psync {
            self.write(format!("+FULLRESYNC {} 0\r\n", ticket.id).as_bytes())?;
        }
        let job = self.node.traces.job("replication.redis_full_sync");
        let sent = self.send_file(info);
        job.end(vec![("sheaf.log.lsn", info.begin_lsn.get().into())], sent.as_ref().err().cloned());
        let (loaded, has_field_deadlines) = sent?;
        replica.set_has_file(self.node.now_ms());
        if self.claim.replica.wants_rdb_only {
            return Ok(None);
        }
        self.node.hold_log(ticket.id, info.begin_lsn);
        if self.claim.replica.takes_eof {
            // Waits until the replica has loaded the file: a replica that waits for the end mark would take
            // bytes that follow the mark at once for a part of the file.
            while !replica.has_acked.load(SeqCst) {
                self.check()?;
                self.node.hold_log(ticket.id, info.begin_lsn);
                thread::park_timeout(PREPARING_PERIOD);
            }
        }
        self.node.keep_log_now();
        let mut feed = Feed::new(info.begin_lsn);
        if has_field_deadlines {
            self.send_field_deadlines(info, &mut feed)?;
        }
        Ok(Some(Begun { feed, ticket, loaded: Some(loaded) }))
    }

    /// Returns a snapshot that is committed and usable, with its pin.
    fn snapshot(&self) -> Result<(SnapshotInfo, Pin), String> {
        let mut may_reuse = true;
        for _ in 0..TRIES {
            self.check()?;
            let newest = self.newest()?;
            let usable = newest.filter(|(info, _)| {
                may_reuse && self.log.appended_lsn().bytes_since(info.begin_lsn) <= REUSED_LOG_BYTES_MAX
            });
            let taken = match usable {
                Some(usable) => Some(usable),
                None => {
                    self.take_snapshot()?;
                    self.newest()?
                }
            };
            may_reuse = false;
            let Some((info, pin)) = taken else { continue };
            self.pinned_from.set(Some(info.begin_lsn));
            while self.log.showable_lsn() < info.end_lsn {
                self.check()?;
                self.write(b"\n")?;
                thread::park_timeout(PREPARING_PERIOD);
            }
            if !self.changes_databases(&info).map_err(|error| error.to_string())? {
                return Ok((info, pin));
            }
            self.pinned_from.set(None);
        }
        Err("no snapshot could be used: databases are flushed or swapped all the time. Try again".into())
    }

    /// Returns the newest snapshot from which on the log is kept, with its pin.
    fn newest(&self) -> Result<Option<(SnapshotInfo, Pin)>, String> {
        let dir = &self.snapshots.sources.startup.dir;
        let begins = snapshot::list_begins(&RealDisk, dir).map_err(|error| error.to_string())?;
        let Some(begin) = begins.into_iter().find(|&begin| begin >= self.log.start_lsn()) else {
            return Ok(None);
        };
        let Some(pin) = self.log.pin(begin) else { return Ok(None) };
        let info = snapshot::load(&RealDisk, dir, begin).ok().filter(|info| info.log_id == self.log.id());
        Ok(info.map(|info| (info, pin)))
    }

    /// Has a snapshot taken, and sends newlines to the replica meanwhile, so that the replica does not time
    /// out.
    fn take_snapshot(&self) -> Result<(), String> {
        let (sender, receiver) = channel();
        self.snapshots.ask_then(Box::new(move |taken| _ = sender.send(taken)));
        loop {
            match receiver.recv_timeout(PREPARING_PERIOD) {
                Ok(taken) => return taken,
                Err(RecvTimeoutError::Disconnected) => return Err("this server stops".into()),
                Err(RecvTimeoutError::Timeout) => {
                    self.check()?;
                    self.write(b"\n")?;
                }
            }
        }
    }

    /// Whether whole databases were changed while the snapshot was taken, as far as the log of that time
    /// tells; if it is no longer kept, true.
    fn changes_databases(&self, info: &SnapshotInfo) -> Result<bool, storage::Error> {
        let mut cursor = self.log.cursor(self.log.boundary_before(info.begin_lsn)?);
        while cursor.position() < info.end_lsn {
            let CursorRead::Chunk(chunk) = cursor.read(PIECE_BYTES)? else { return Ok(true) };
            let during = |lsn: Lsn| lsn > info.begin_lsn && lsn <= info.end_lsn;
            for record in chunk.records().filter(|record| during(record.lsn)) {
                let payload = engine::log_messages::whole_payload(self.log, &record)?;
                let mut rest = payload.as_deref().unwrap_or_default();
                while let Ok(Some(item)) = Item::decode_next(&mut rest) {
                    if matches!(item, Item::Effect(Effect::Global(_))) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Sends the file in the form that the replica takes. Also returns whether fields in the file have
    /// deadlines.
    fn send_file(&self, info: &SnapshotInfo) -> Result<(Loaded, bool), String> {
        let now_ms = self.snapshots.sources.clock.unix_ms();
        if self.claim.replica.takes_eof {
            let mark = self.node.new_stream().to_string();
            self.write(format!("$EOF:{mark}\r\n").as_bytes())?;
            let sent = self.write_file(info, now_ms, FileSocket(self))?;
            self.write(mark.as_bytes())?;
            return Ok(sent);
        }
        let mut length = Counter { replica: self, bytes: 0, told_ms: self.node.now_ms() };
        self.write_file(info, now_ms, &mut length)?;
        let bytes = length.bytes;
        self.write(format!("${bytes}\r\n").as_bytes())?;
        self.write_file(info, now_ms, FileSocket(self))
    }

    fn write_file(
        &self,
        info: &SnapshotInfo,
        now_ms: u64,
        out: impl io::Write,
    ) -> Result<(Loaded, bool), String> {
        let wants = &self.claim.replica;
        // A key that has expired by now may have been alive when the log changed it, so the file includes it.
        // The log says when the key is removed.
        let live_at_ms = if wants.wants_rdb_only { now_ms } else { 0 };
        let parts = Parts { live_at_ms, keys: wants.wants_keys, functions: wants.wants_functions };
        let mut file = ReplicaFile::begin(out, now_ms, parts);
        let loaded = self.visit(info, &mut |keyspace, slots| {
            file.add(keyspace, slots);
            true
        })?;
        let (_, has_field_deadlines) = file.finish().map_err(|error| error.to_string())?;
        Ok((loaded, has_field_deadlines))
    }

    fn visit(
        &self,
        info: &SnapshotInfo,
        visit: &mut dyn FnMut(&keyspace::Keyspace, &[keyspace::SlotId]) -> bool,
    ) -> Result<Loaded, String> {
        let dir = &self.snapshots.sources.startup.dir;
        let mut visit_more = |keyspace: &keyspace::Keyspace, slots: &[keyspace::SlotId]| {
            self.check().is_ok() && visit(keyspace, slots)
        };
        let visited = visit_runs((&RealDisk, dir), info, AccessClock::default(), &mut visit_more);
        match visited.map_err(|error| error.to_string())? {
            Some(loaded) => Ok(loaded),
            None => Err(self.check().err().unwrap_or_else(|| "the connection was closed".into())),
        }
    }

    fn send_field_deadlines(&self, info: &SnapshotInfo, feed: &mut Feed) -> Result<(), String> {
        let mut out = Vec::new();
        let mut failed = Ok(());
        self.visit(info, &mut |keyspace, slots| {
            for_each_deadline(keyspace, slots, |db, key, field, at_ms| {
                feed.field_deadline((db, key), (field, at_ms), &mut out);
            });
            failed = self.write(&out);
            out.clear();
            failed.is_ok()
        })?;
        failed
    }
}

/// The replica's socket, as the writer of the file uses it.
struct FileSocket<'a>(&'a Serving<'a>);

impl io::Write for FileSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_some(bytes).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the bytes of a file, and sends newlines to the replica meanwhile, so that the replica does not time
/// out.
struct Counter<'a> {
    replica: &'a Serving<'a>,
    bytes: u64,
    told_ms: u64,
}

impl io::Write for &mut Counter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        let now_ms = self.replica.node.now_ms();
        if now_ms - self.told_ms >= PREPARING_PERIOD.as_millis() as u64 {
            self.told_ms = now_ms;
            self.replica.write(b"\n").map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
