//! Where the effects of an import go: into large records of the log, or, in the rehearsal, nowhere.

use keyspace::{DataSettings, Effect, GlobalOp, Libraries};
use storage::{Admission, Appender, Log};

use super::ImportError;

/// A record is written once it has so many bytes.
const RECORD_BYTES: usize = 512 << 10;

/// Takes effects.
pub(super) trait EffectSink {
    /// Takes one.
    fn put(&mut self, effect: &Effect<'_>);

    /// What was taken so far may be made durable without what follows.
    fn boundary(&mut self) -> Result<(), ImportError>;
}

/// Counts what the log would be given.
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

/// Gathers effects into records and appends them. Flushes and makes segments itself: nobody else works on the log.
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

    /// Removes every key, and the log that made them; puts these libraries of functions and settings, which that log made, too.
    pub(super) fn forget_keys(
        &mut self,
        libraries: &Libraries,
        settings: &DataSettings,
    ) -> Result<(), ImportError> {
        self.log.flush_all()?;
        let dead_before = self.log.durable_lsn();
        self.put(&Effect::Global(GlobalOp::FlushAll));
        libraries.iter().for_each(|library| library.with_effect(|effect| self.put(effect)));
        settings.effects().for_each(|effect| self.put(&effect));
        self.sync()?;
        // Nobody has pinned anything: there is no server.
        self.log.truncate_before(dead_before)?;
        Ok(())
    }

    /// Appends what is gathered and makes everything durable.
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
                // An import recovers without leaving anything out.
                Admission::NoRoom | Admission::Frozen => {
                    return Err(ImportError::NoRoom(self.log.no_room_reason()));
                }
                // A poisoned log says why when it is flushed.
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
