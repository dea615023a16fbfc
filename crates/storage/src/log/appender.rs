//! Appending: reserve under the caller's locks, fill after they are released.
//!
//! ```text
//! lock slots -> validate -> apply in memory -> reserve (this is the LSN) -> unlock -> publish (copy, crc)
//! ```
//!
//! The order in memory equals the order in the log because the position is reserved while the slots are
//! locked.
//!
//! The only unsafe code here writes into the ring through a raw pointer: a reservation owns its bytes
//! exclusively until it is published (see [`sequencer`](super::sequencer)).

#![allow(unsafe_code)]

use std::{sync::Arc, time::Duration};

use lsn::Lsn;

use super::{
    Admission, Durability, Flush, Log, LogState, Prepare,
    record::{self, CHAIN_BYTES_MAX, CHAIN_ID_BYTES, PAYLOAD_BYTES_MAX, RecordKind},
};
use crate::{Error, sync::Ordering};

/// The longest time that an appender waits for ring space before it checks again. This is only a safeguard,
/// because every flush wakes the appender.
const RING_WAIT_MS: u64 = 100;
/// The longest pause between two attempts to make a segment on a full disk.
const NO_ROOM_WAIT: Duration = Duration::from_millis(100);

/// The right to append, one per thread.
pub struct Appender {
    shared: Arc<LogState>,
    index: usize,
    /// The maximum bytes of a payload in one record; larger payloads are split. The ring has room for several
    /// such parts.
    piece_bytes_max: usize,
}

/// A record with a reserved position whose bytes are not yet in the log. The caller must
/// [publish](Pending::publish) it: nothing after it becomes durable before that.
#[must_use = "an unpublished record stops the log"]
pub struct Pending<'a> {
    shared: &'a LogState,
    index: usize,
    start: u64,
    lsn: Lsn,
    kind: RecordKind,
    is_marked: bool,
    chain_id: [u8; CHAIN_ID_BYTES],
    payload: &'a [u8],
    published: bool,
}

impl Drop for Appender {
    fn drop(&mut self) {
        if !self.shared.waiters.is_listening(self.index) {
            self.shared.free_appenders.lock().push(self.index);
        }
    }
}

impl Appender {
    pub(super) fn new(shared: Arc<LogState>, index: usize) -> Self {
        let piece_bytes_max = PAYLOAD_BYTES_MAX.min(shared.options.ring_bytes as usize / 4);
        Appender { shared, index, piece_bytes_max }
    }

    /// Reserves the next position for a record with `payload`. The caller must hold the locks of the slots
    /// that the record changes.
    ///
    /// A payload above 1 MiB (or a quarter of a smaller ring) is appended as a chain of parts, of which all
    /// but the last are published before this returns. Waits only if the ring is full, which admission
    /// ([`Log::admit`]) prevents for ordinary records. The wait ends, because flushing does not need the
    /// caller's locks; on a full disk it ends when there is room again.
    ///
    /// # Errors
    /// [`Error::Poisoned`], or the failure of a flush on this thread that made space in the ring: the record
    /// will never be durable, so no reply that depends on it may be released.
    ///
    /// # Panics
    /// If the payload exceeds [`CHAIN_BYTES_MAX`], 2 GiB.
    #[inline]
    pub fn reserve<'a>(&'a mut self, payload: &'a [u8]) -> Result<Pending<'a>, Error> {
        self.reserve_marked(payload, false)
    }

    /// Does the same as [`Appender::reserve`], with a mark (`is_marked`) that readers of the log see without
    /// decoding the payload.
    ///
    /// # Errors
    /// As [`Appender::reserve`].
    ///
    /// # Panics
    /// As [`Appender::reserve`].
    #[inline]
    pub fn reserve_marked<'a>(
        &'a mut self,
        payload: &'a [u8],
        is_marked: bool,
    ) -> Result<Pending<'a>, Error> {
        // An appender that is refused here has changed memory, but its record is missing from the log. Later
        // changes of the same slot are refused as well: their appenders lock the slot later and see the flag.
        if self.shared.poisoned.load(Ordering::Relaxed) {
            return Err(self.poisoned());
        }
        if payload.len() > self.piece_bytes_max {
            return self.reserve_chain(payload, is_marked);
        }
        let start = self.reserve_bytes(record::occupied_bytes(payload.len()))?;
        Ok(self.pending(start, (RecordKind::Whole, is_marked), [0; CHAIN_ID_BYTES], payload))
    }

    fn pending<'a>(
        &'a self,
        start: u64,
        (kind, is_marked): (RecordKind, bool),
        chain_id: [u8; CHAIN_ID_BYTES],
        payload: &'a [u8],
    ) -> Pending<'a> {
        let prefix_bytes = if kind == RecordKind::Whole { 0 } else { CHAIN_ID_BYTES };
        let lsn = Lsn::new(start + record::occupied_bytes(prefix_bytes + payload.len()));
        Pending {
            shared: &self.shared,
            index: self.index,
            start,
            lsn,
            kind,
            is_marked,
            chain_id,
            payload,
            published: false,
        }
    }

    #[cold]
    fn reserve_chain<'a>(&'a mut self, payload: &'a [u8], is_marked: bool) -> Result<Pending<'a>, Error> {
        assert!(payload.len() <= CHAIN_BYTES_MAX, "a record of {} bytes", payload.len());
        let piece_bytes = self.piece_bytes_max - CHAIN_ID_BYTES;
        let mut chain_id = None;
        let mut rest = payload;
        while rest.len() > piece_bytes {
            // The first part has the remainder, all others are full.
            let (piece, remaining) = rest.split_at((rest.len() - 1) % piece_bytes + 1);
            rest = remaining;
            let start = self.reserve_bytes(record::occupied_bytes(CHAIN_ID_BYTES + piece.len()))?;
            let id = *chain_id.get_or_insert(start.to_le_bytes());
            self.pending(start, (RecordKind::Part, is_marked), id, piece).publish();
        }
        let id = chain_id.expect("a payload above the maximum has a first part");
        let start = self.reserve_bytes(record::occupied_bytes(CHAIN_ID_BYTES + rest.len()))?;
        Ok(self.pending(start, (RecordKind::Last, is_marked), id, rest))
    }

    #[inline]
    fn reserve_bytes(&self, bytes: u64) -> Result<u64, Error> {
        loop {
            if let Some(start) = self.shared.sequencer.reserve(self.index, bytes) {
                return Ok(start);
            }
            self.make_space()?;
        }
    }

    /// Makes space in the full ring: flushes it, or waits for the thread that is flushing.
    #[cold]
    fn make_space(&self) -> Result<(), Error> {
        let shared = &*self.shared;
        if shared.poisoned.load(Ordering::SeqCst) {
            return Err(self.poisoned());
        }
        if let Some(mut flusher) = shared.flusher.try_lock() {
            if let Flush::NeedSegment = shared.flush(&mut flusher)? {
                drop(flusher);
                if shared.prepare_segment()? == Prepare::NoRoom {
                    // The effects of the record are in memory already, so it cannot be refused: it waits
                    // until the disk has room again.
                    let mut progress = shared.progress.0.lock();
                    shared.progress.1.wait_for(&mut progress, NO_ROOM_WAIT);
                }
            }
            return Ok(());
        }
        let mut progress = shared.progress.0.lock();
        if shared.sequencer.used() > 0 {
            shared.progress.1.wait_for(&mut progress, Duration::from_millis(RING_WAIT_MS));
        }
        Ok(())
    }

    #[cold]
    fn poisoned(&self) -> Error {
        Error::Poisoned { reason: self.shared.poison_reason.lock().clone().unwrap_or_default() }
    }

    /// The shared state, and the index of this appender.
    pub(super) fn parts(&self) -> (&LogState, usize) {
        (&self.shared, self.index)
    }

    /// A handle on the log of this appender.
    pub fn log(&self) -> Log {
        Log { shared: self.shared.clone() }
    }

    /// Whether a write whose record has about `bytes` may be executed now.
    #[inline]
    pub fn admit(&self, bytes: u64) -> Admission {
        self.shared.admit(bytes)
    }

    /// The position up to which the log survives a power cut.
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.shared.durable.load(Ordering::SeqCst))
    }

    /// See [`Log::committed_lsn`].
    #[inline]
    pub fn committed_lsn(&self) -> Lsn {
        Lsn::new(self.shared.committed())
    }

    /// See [`Log::awaits_acks`].
    #[inline]
    pub fn awaits_acks(&self) -> bool {
        self.shared.awaits_acks()
    }

    /// See [`Log::needs_flusher`].
    #[inline]
    pub fn needs_flusher(&self) -> bool {
        self.shared.needs_flusher()
    }

    /// The position after everything reserved in the log: the end of the last record, or of its batch if that
    /// batch is closed.
    #[inline]
    pub fn appended_lsn(&self) -> Lsn {
        Lsn::new(self.shared.sequencer.tail())
    }

    /// The durability in force.
    #[inline]
    pub fn durability(&self) -> Durability {
        Durability::from_byte(self.shared.durability.load(Ordering::Relaxed))
    }

    /// The durability that replies wait for. If commits require acknowledgements of replicas, it may be
    /// stronger than the log's own durability.
    #[inline]
    pub fn reply_durability(&self) -> Durability {
        match self.durability() {
            durability if !self.awaits_acks() => durability,
            // Replies wait for replicas even if they need not wait for this disk.
            Durability::None | Durability::Interval => Durability::Commit,
            // No client may read a change that the next leader might lack.
            Durability::Commit | Durability::Strict => Durability::Strict,
        }
    }

    /// Sets the listener: the function that the log calls for the last request of [`Appender::wait_for`],
    /// [`Appender::wait_for_movement`] or [`Appender::wait_for_room`]. The log also calls the listener,
    /// without a request, when the log gains or lacks room or is poisoned. The listener runs on the thread
    /// that has caused the change, so the listener must not block.
    ///
    /// # Panics
    /// If called twice.
    pub fn listen(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.shared.waiters.listen(self.index, Box::new(listener));
    }

    /// Requests one call of the listener once `lsn` is committed; replaces the previous request. A call of
    /// the listener for another reason before that ends the request. Returns `false` if `lsn` is committed
    /// already: then the request is withdrawn, although a call may come if `lsn` was committed meanwhile.
    pub fn wait_for(&self, lsn: Lsn) -> bool {
        self.shared.waiters.arm(self.index, lsn, || self.shared.committed())
    }

    /// Requests one call of the listener at the next progress of the log after this call.
    pub fn wait_for_movement(&self) {
        self.shared.waiters.arm_any(self.index);
    }

    /// Requests one call of the listener at the next progress of the log, after an [`Admission::Wait`].
    /// Returns `false` if there is nothing to wait for: there is room by now, or the log refuses writes.
    pub fn wait_for_room(&self) -> bool {
        self.shared.waiters.arm_any(self.index);
        let prepared_end = self.shared.prepared_end.load(Ordering::SeqCst);
        self.shared.admit(0) == Admission::Wait || self.shared.is_wanted_beyond(prepared_end)
    }
}

impl Pending<'_> {
    /// The LSN of the record.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Copies the record into the ring. From now on it can be flushed.
    #[inline]
    pub fn publish(mut self) {
        let bytes = (self.lsn.get() - self.start) as usize;
        // SAFETY: the reservation [start, lsn) belongs to this `Pending` alone until its appender publishes
        // it (below), and is smaller than the ring, which is mapped twice in a row.
        let space = unsafe { self.shared.ring.slice_mut(self.start, bytes) };
        let prefix: &[u8] = if self.kind == RecordKind::Whole { &[] } else { &self.chain_id };
        let kind = (self.kind, self.is_marked);
        let epoch = self.shared.epoch.load(std::sync::atomic::Ordering::Relaxed);
        record::encode(space, kind, self.lsn, epoch, prefix, self.payload);
        self.published = true;
        self.shared.sequencer.publish(self.index);
    }
}

impl Drop for Pending<'_> {
    /// Aborts the process if the record was not published: memory already has its changes, and would differ
    /// from the log.
    fn drop(&mut self) {
        if !self.published {
            eprintln!("sheaf: bug: a record was reserved in the log and never published");
            std::process::abort();
        }
    }
}
