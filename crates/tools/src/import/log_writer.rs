//! Sinks of an import's effects: large records of the log, or, in the rehearsal, a byte count.

use keyspace::{DataSettings, Effect, GlobalOp, Libraries};
use storage::{Admission, Appender, Log};

use super::ImportError;

/// A record is appended at the first boundary at which it has this many bytes.
const RECORD_BYTES: usize = 512 << 10;

pub(super) trait EffectSink {
    fn put(&mut self, effect: &Effect<'_>);

    /// Marks a point at which a record may end: effects so far may become durable without later ones.
    fn boundary(&mut self) -> Result<(), ImportError>;
}

/// Counts the bytes of effects.
#[derive(Default)]
pub(super) struct Rehearsal {
    pub(super) bytes: u64,
}

impl EffectSink for Rehearsal {
    fn put(&mut self, effect: &Effect<'_>) {
        self.bytes += effect.encoded_len() as u64;
    }

    fn boundary(&mut self) -> Result<(), ImportError> {
        Ok(())
    }
}

/// Collects effects into records and appends them to the log. The writer is the only user of the log, so it
/// also flushes the log and prepares segments.
pub(super) struct LogWriter {
    log: Log,
    appender: Appender,
    record: Vec<u8>,
}

impl LogWriter {
    pub(super) fn new(log: Log) -> Self {
        let appender = log.appender();
        LogWriter { log, appender, record: Vec::with_capacity(RECORD_BYTES) }
    }

    /// Removes every key by an effect that removes function libraries and settings, too, and writes these
    /// libraries and settings again. Then removes the log before that effect, unless `may_have_documents`:
    /// changes of documents may be in that part of the log alone.
    pub(super) fn forget_keys(
        &mut self,
        libraries: &Libraries,
        settings: &DataSettings,
        may_have_documents: bool,
    ) -> Result<(), ImportError> {
        self.log.flush_all()?;
        let dead_before = self.log.durable_lsn();
        self.put(&Effect::Global(GlobalOp::FlushAll));
        libraries.iter().for_each(|library| library.with_effect(|effect| self.put(effect)));
        settings.effects().for_each(|effect| self.put(&effect));
        self.sync()?;
        if !may_have_documents {
            // There is no server, so no part of the log is pinned.
            self.log.truncate_before(dead_before)?;
        }
        Ok(())
    }

    /// Appends the collected effects and makes everything durable.
    pub(super) fn sync(&mut self) -> Result<(), ImportError> {
        self.append()?;
        Ok(self.log.flush_all()?)
    }

    fn append(&mut self) -> Result<(), ImportError> {
        if self.record.is_empty() {
            return Ok(());
        }
        self.make_room(self.record.len() as u64)?;
        self.appender.reserve(&self.record)?.publish();
        self.record.clear();
        Ok(())
    }

    fn make_room(&self, bytes: u64) -> Result<(), ImportError> {
        loop {
            match self.log.admit(bytes) {
                Admission::Go => return Ok(()),
                // Frozen cannot happen: an import recovers without leaving anything out.
                Admission::NoRoom | Admission::Frozen => {
                    return Err(ImportError::NoRoom(self.log.no_room_reason()));
                }
                // The flush returns the error of a poisoned log.
                Admission::Wait | Admission::Stalled | Admission::Poisoned => {
                    self.log.flush()?;
                    if self.log.needs_segment() {
                        self.log.prepare_segment()?;
                    }
                }
            }
        }
    }
}

impl EffectSink for LogWriter {
    fn put(&mut self, effect: &Effect<'_>) {
        effect.encode_into(&mut self.record);
    }

    fn boundary(&mut self) -> Result<(), ImportError> {
        if self.record.len() < RECORD_BYTES { Ok(()) } else { self.append() }
    }
}
