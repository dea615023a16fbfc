//! Snapshots as commands see them: implements [`engine::Persistence`].

use std::sync::Arc;

use engine::{CancelAnswer, Responder, SaveAnswer, UNCONFIRMED};
use lsn::Lsn;
use storage::Log;

use super::Snapshots;
use crate::dead_log::DeadLog;

pub(crate) struct Persistence {
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) dead_log: Arc<DeadLog>,
}

impl Persistence {
    fn awaits_confirmation(&self) -> bool {
        self.snapshots.sources.log.get().is_some_and(Log::is_frozen)
    }
}

impl engine::Persistence for Persistence {
    fn save(&self, scheduled: bool) -> SaveAnswer {
        if self.awaits_confirmation() { SaveAnswer::Unconfirmed } else { self.snapshots.ask(scheduled) }
    }

    fn cancel_save(&self) -> CancelAnswer {
        if self.awaits_confirmation() { CancelAnswer::Nothing } else { self.snapshots.cancel() }
    }

    fn save_and_respond(&self, responder: Responder) -> Result<(), &'static str> {
        if self.awaits_confirmation() {
            return Err(UNCONFIRMED);
        }
        self.snapshots.ask_and_tell(responder)
    }

    fn confirm_recovery(&self, responder: Responder) -> Result<(), &'static str> {
        if !self.awaits_confirmation() {
            return Err("ERR there is no forced recovery to confirm");
        }
        self.snapshots.confirm(responder)
    }

    fn last_save_unix_s(&self) -> u64 {
        self.snapshots.figures().last_unix_ms / 1000
    }

    fn flushing_all(&self, record: Lsn, dead_before: Lsn) {
        self.dead_log.flushing_all(record, dead_before);
    }

    fn make_room_for(&self, bytes: u64) -> Result<(), String> {
        match self.snapshots.sources.log.get() {
            Some(log) if !log.make_room_for(bytes) => Err(log.no_room_reason()),
            _ => Ok(()),
        }
    }
}
