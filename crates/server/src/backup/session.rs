//! Sessions: what a running server keeps for backups, and for how long.
//!
//! Invariants
//! - A session that has ended hands out nothing any more, not even of a file that is open: what it kept may have become
//!   another file. So whoever reads asks *after* reading whether it has ended.
//! - At most [`SESSIONS_MAX`] sessions, of which each ends when nobody asks for anything for [`IDLE_US`], when the log behind
//!   it has grown by `backup-retention-bytes`, or when the disk has no room for the log.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use commands::Host;
use env::RealDisk;
use lsn::Lsn;
use parking_lot::Mutex;
use storage::{Admission, CopyPlan, Error, Log, Pin, snapshot};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Offer, OfferedFile};
use crate::{config::Key, host::ServerHost, snapshots::GENERATIONS};

/// Sessions at most: each keeps old snapshots and log.
pub(crate) const SESSIONS_MAX: usize = 4;
/// Files of a session that are sent at a time: each takes two pieces of memory.
pub(crate) const TRANSFERS_MAX: usize = 4;
/// A session that nobody asks for anything ends after this time.
const IDLE_US: u64 = 60_000_000;
/// A snapshot can go between being found and being pinned; not so often.
const PIN_TRIES: usize = 3;

/// All sessions of a server.
pub(crate) struct Sessions {
    open: Mutex<Vec<Arc<Session>>>,
    places: Arc<Semaphore>,
}

/// See the module documentation.
pub(crate) struct Session {
    id: String,
    dir: PathBuf,
    files: Vec<OfferedFile>,
    control: Vec<u8>,
    end_lsn: Lsn,
    /// `None` once it has ended.
    hold: Mutex<Option<Hold>>,
    last_asked_us: AtomicU64,
    transfers: Arc<Semaphore>,
}

/// What a session takes up as long as it is open.
struct Hold {
    _pin: Pin,
    _place: OwnedSemaphorePermit,
}

/// What a session hands out under a name.
pub(crate) enum Content<'s> {
    /// The beginning of a file of the directory.
    File { path: PathBuf, bytes: u64 },
    /// The control file of the copy.
    Bytes(&'s [u8]),
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions { open: Mutex::default(), places: Arc::new(Semaphore::new(SESSIONS_MAX)) }
    }
}

impl Sessions {
    /// A place for one more session, if there is one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Plans a copy that starts with the snapshot of `resume`, or with the newest. `None` if there is no snapshot. Blocks.
    pub(crate) fn plan(host: &ServerHost, log: &Log, resume: Option<Lsn>) -> Result<Option<CopyPlan>, Error> {
        if let Some(begin_lsn) = resume
            && let Some(plan) = log.plan_copy(begin_lsn)?
        {
            return Ok(Some(plan));
        }
        for _ in 0..PIN_TRIES {
            let begins = snapshot::list_begins(&RealDisk, &host.facts.dir)?;
            let Some(newest) = begins.into_iter().find(|&begin| begin >= log.start_lsn()) else { break };
            if let Some(plan) = log.plan_copy(newest)? {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// Opens a session for what was planned.
    pub(crate) fn open(
        &self,
        host: &ServerHost,
        log: &Log,
        plan: CopyPlan,
        place: OwnedSemaphorePermit,
    ) -> Offer {
        let CopyPlan { begin_lsn, end_lsn, files, control, pin } = plan;
        let mut files: Vec<OfferedFile> =
            files.into_iter().map(|file| OfferedFile { name: file.name, bytes: file.bytes }).collect();
        files.push(OfferedFile { name: CopyPlan::CONTROL_NAME.into(), bytes: control.len() as u64 });
        let offer = Offer {
            session: format!("{:016x}{:016x}", host.random_u64(), host.random_u64()),
            log_id: log.id().iter().map(|byte| format!("{byte:02x}")).collect(),
            begin_lsn: begin_lsn.get(),
            end_lsn: end_lsn.get(),
            end_unix_ms: host.unix_ms(),
            files: files.clone(),
        };
        tracing::info!(target: "server", session = offer.session, %begin_lsn, %end_lsn, "a backup begins");
        self.open.lock().push(Arc::new(Session {
            id: offer.session.clone(),
            dir: host.facts.dir.clone(),
            files,
            control,
            end_lsn,
            hold: Mutex::new(Some(Hold { _pin: pin, _place: place })),
            last_asked_us: host.monotonic_us().into(),
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
        }));
        offer
    }

    /// The open session of this name.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.open.lock().iter().find(|session| session.id == id).cloned()
    }

    /// Ends a session. `false` if there is none of this name.
    pub(crate) fn end(&self, id: &str) -> bool {
        let ended = self.end_those(|session| (session.id == id).then_some("it was asked to"));
        ended > 0
    }

    /// Ends the sessions that have to end. `true` if there were any. Called once a second.
    pub(crate) fn end_due(&self, host: &ServerHost, log: &Log) -> bool {
        if self.open.lock().is_empty() {
            return false;
        }
        let now_us = host.monotonic_us();
        let retained_bytes_max = host.settings().integer(Key::BackupRetentionBytes);
        let is_full = log.admit(0) == Admission::NoRoom;
        let appended = log.appended_lsn();
        let reason = |session: &Session| {
            if now_us.saturating_sub(session.last_asked_us.load(Relaxed)) > IDLE_US {
                Some("nobody asked for anything for a minute")
            } else if appended.bytes_since(session.end_lsn) > retained_bytes_max {
                Some("the log has grown by more than backup-retention-bytes since it began")
            } else if is_full {
                Some("the disk has no room for the log")
            } else {
                None
            }
        };
        self.end_those(reason) > 0
    }

    /// Ends the sessions that there is a reason for, and says how many.
    fn end_those(&self, reason: impl Fn(&Session) -> Option<&'static str>) -> usize {
        let mut open = self.open.lock();
        let before = open.len();
        open.retain(|session| match reason(session) {
            Some(reason) => {
                tracing::info!(target: "server", session = session.id, reason, "a backup has ended");
                session.end();
                false
            }
            None => true,
        });
        before - open.len()
    }
}

impl Session {
    /// What it hands out under this name.
    pub(crate) fn content(&self, name: &str) -> Option<Content<'_>> {
        let file = self.files.iter().find(|file| file.name == name)?;
        Some(match name {
            CopyPlan::CONTROL_NAME => Content::Bytes(&self.control),
            _ => Content::File { path: self.dir.join(&file.name), bytes: file.bytes },
        })
    }

    /// The right to send one more file, if not too many are being sent.
    pub(crate) fn transfer(&self) -> Option<OwnedSemaphorePermit> {
        self.transfers.clone().try_acquire_owned().ok()
    }

    /// Somebody has asked for something.
    pub(crate) fn touch(&self, now_us: u64) {
        self.last_asked_us.fetch_max(now_us, Relaxed);
    }

    /// Whether what was read of its files by now may be something else.
    pub(crate) fn has_ended(&self) -> bool {
        self.hold.lock().is_none()
    }

    /// It has ended before anything that it keeps can go.
    fn end(&self) {
        let hold = self.hold.lock().take();
        drop(hold);
    }
}

/// Removes what only sessions have kept. Blocks.
pub(crate) fn remove_unpinned(host: &ServerHost, log: &Log) {
    if let Err(error) = snapshot::retain(&RealDisk, &host.facts.dir, log, GENERATIONS) {
        tracing::warn!(
            target: "server", %error,
            "cannot remove what a backup has kept; the next snapshot tries again"
        );
    }
}
