//! A leader: executes writes, ships its log, collects acknowledgements of replicas, and acknowledges writes
//! to clients.
//!
//! ```text
//! write -> keyspace and log -> flush -> relays -> ACK -> Acks: commit -> reply to the client
//! ```
//!
//! Invariants
//! - A write is acknowledged when it is committed: durable here, and on the required number of replicas.
//! - A leader that knows of a higher epoch takes no writes, ships nothing and commits nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Clock, Disk, Prng, SimClock, SimDisk};
use keyspace::{AccessClock, Effect, Freed, Keyspace, LIBRARIES_SLOT, slot_of};
use lsn::Lsn;
use replication::{
    Acked, Close, Moment, Outgoing, Relay, RelayError, RelayOptions, ReplicaId, SILENCE_MS, Session, Tail,
    join::{Claim, Decision, newest_common, parse_marks},
};
use settings::OwedSettings;
use storage::{Admission, Appender, CopyPlan, CursorRead, Log, Pin, snapshot};

use super::{
    FaultInjection,
    given::ACK_REPLICAS,
    history::JudgedHistory,
    member::Member,
    network::{ConnId, Message, Network, NodeId, Side},
    node::{Failure, flush},
    truth::{Truth, Witness},
    writes,
};
use crate::snapshotting::Snapshotting;

/// The maximum amount of log that is kept for a replica.
const RETENTION_BYTES_MAX: u64 = 384 << 10;
/// The time for which log is kept for a disconnected replica.
const AWAY_MS_MAX: u64 = 20_000;
/// Small values, so that rounds and flushes reach their limits.
const RELAY: RelayOptions =
    RelayOptions { flush_bytes: 8 << 10, round_bytes_max: 24 << 10, unsent_bytes_max: 32 << 10 };

/// The state of a replica's connection.
enum Served {
    Talking { since_ms: u64 },
    Shipping { relay: Box<Relay>, source: Tail, session: Session, replica: ReplicaId },
}

/// The reason for closing a connection.
enum End {
    Closed,
    Fenced(u32),
    Failed(Failure),
}

impl From<Close> for End {
    fn from(close: Close) -> End {
        if let Close::Fenced { epoch, .. } = close { End::Fenced(epoch) } else { End::Closed }
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

impl From<storage::Error> for End {
    fn from(error: storage::Error) -> End {
        End::Failed(error.into())
    }
}

/// A server in the role of the leader.
pub(super) struct Leading {
    pub(super) log: Log,
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) dir: PathBuf,
    appender: Appender,
    record: Vec<u8>,
    account: replication::Leading,
    pin: Option<(Lsn, Pin)>,
    conns: BTreeMap<ConnId, Served>,
    /// Writes that are not acknowledged yet.
    waiting: VecDeque<(Lsn, u64)>,
    /// Reads the committed log for the judge.
    witness: Witness,
    committed: Lsn,
    /// Settings given at the start that are not in the log yet.
    owed: OwedSettings,
    fault: Option<FaultInjection>,
}

/// The surroundings that a step of a leader uses.
pub(super) struct Around<'a> {
    pub(super) number: NodeId,
    pub(super) network: &'a mut Network,
    pub(super) truth: &'a mut Truth,
    pub(super) member: &'a mut Member,
    pub(super) clock: &'a SimClock,
    pub(super) prng: &'a mut Prng,
    /// The number of replicas required for a commit.
    pub(super) acks: usize,
}

impl Leading {
    /// Leads with a log that was recovered or promoted.
    pub(super) fn new(
        log: Log,
        keyspace: Arc<Keyspace>,
        dir: PathBuf,
        acks: usize,
        fault: Option<FaultInjection>,
    ) -> Result<Leading, Failure> {
        let mut account = replication::Leading::new(RETENTION_BYTES_MAX, AWAY_MS_MAX);
        // An empty log has no earlier leaders. Without required acks, this server's disk alone commits its
        // log.
        let is_first = log.written_lsn() == Lsn::ZERO || fault == Some(FaultInjection::CommitLeftovers);
        if !is_first && acks > 0 {
            account.begin_at(log.mark_epoch()?, Lsn::ZERO);
        }
        let appender = log.appender();
        let witness = Witness::new(&log);
        Ok(Leading {
            appender,
            record: Vec::new(),
            account,
            pin: None,
            conns: BTreeMap::new(),
            waiting: VecDeque::new(),
            witness,
            committed: Lsn::ZERO,
            owed: OwedSettings::default(),
            fault,
            log,
            keyspace,
            dir,
        })
    }

    /// Gives the server these settings, as at its start.
    pub(super) fn give(&mut self, settings: Vec<(&'static str, String)>) {
        self.owed = OwedSettings::new(settings, &self.keyspace.data_settings());
    }

    /// Records the settings that were given.
    pub(super) fn record_owed(&mut self) -> Result<(), Failure> {
        let (mut slot, mut record) = (self.keyspace.lock(LIBRARIES_SLOT), Vec::new());
        self.owed.record(&mut slot, &mut record);
        if !record.is_empty() {
            let pending = self.appender.reserve(&record)?;
            slot.set_last_lsn(pending.lsn());
            pending.publish();
        }
        Ok(())
    }

    /// The number of replicas required for a commit, as the data says.
    pub(super) fn acks_of_data(&self) -> usize {
        let settings = self.keyspace.data_settings();
        let value = settings.get(ACK_REPLICAS.as_bytes()).and_then(|value| std::str::from_utf8(value).ok());
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Records the given settings that are not in the log yet, then executes a write if the log admits it.
    pub(super) fn write(&mut self, number: u64, prng: &mut Prng) -> Result<(), Failure> {
        if !self.owed.is_empty() {
            match self.fault {
                Some(FaultInjection::SettingsLate) if !prng.chance(1) => {}
                _ => self.record_owed()?,
            }
        }
        if self.log.admit(64 << 10) != Admission::Go {
            flush(&self.log)?;
            if self.log.admit(64 << 10) != Admission::Go {
                return Ok(());
            }
        }
        self.record.clear();
        let (mut touched, mut is_global) = (Vec::new(), false);
        writes::write(number, &mut prng.clone(), |effect| match effect.key() {
            Some(key) => touched.push(slot_of(key)),
            None => is_global = true,
        });
        let mut slots = if is_global { self.keyspace.lock_all() } else { self.keyspace.lock_many(touched) };
        let (record, settings) = (&mut self.record, self.keyspace.data_settings());
        writes::write(number, prng, |effect| {
            let mut put = |effect: &Effect<'_>| {
                slots.apply(effect, AccessClock::default(), &mut Freed::new());
                effect.encode_into(record);
            };
            put(effect);
            // FLUSHALL keeps the settings of the data.
            if matches!(effect, Effect::Global(_)) {
                settings.effects().for_each(|effect| put(&effect));
            }
        });
        let pending = self.appender.reserve(record)?;
        let lsn = pending.lsn();
        slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
        pending.publish();
        self.waiting.push_back((lsn, number));
        Ok(())
    }

    /// Takes a snapshot; see [`take_snapshot`].
    pub(super) fn take_snapshot(
        &self,
        disk: &Arc<SimDisk>,
        truth: &Truth,
        prng: &mut Prng,
    ) -> Result<(), Failure> {
        take_snapshot((&self.log, &self.keyspace, &self.dir), disk, truth, prng)
    }

    /// Plans a full copy; see [`plan_copy`].
    pub(super) fn plan_copy(
        &self,
        disk: &Arc<SimDisk>,
        truth: &Truth,
        prng: &mut Prng,
    ) -> Result<Option<CopyPlan>, Failure> {
        plan_copy((&self.log, &self.keyspace, &self.dir), disk, truth, prng)
    }

    /// The last acknowledgement of a connected replica; `None` if it is not connected.
    pub(super) fn acked_by(&self, replica: ReplicaId) -> Option<Acked> {
        let mut replicas = self.account.acks().replicas();
        replicas.find(|(id, _)| *id == replica).map(|(_, acked)| *acked)
    }

    /// The position up to which this leader knows the log to be committed.
    pub(super) fn committed(&self) -> Lsn {
        self.committed
    }

    /// Whether all writes are acknowledged.
    pub(super) fn has_told_all(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Serves every connection once, then acknowledges committed writes.
    pub(super) fn step(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        // A leader ships only log that is on its own disk. Where no acks are required, its own disk commits
        // the log, and a replica may show the data at once.
        if !around.member.role().is_fenced() {
            self.commit(around)?;
        }
        for conn in around.network.conns_to(around.number) {
            let since_ms = around.clock.monotonic_us() / 1000;
            let mut served = self.conns.remove(&conn).unwrap_or(Served::Talking { since_ms });
            match self.serve(conn, &mut served, around) {
                Ok(()) => drop(self.conns.insert(conn, served)),
                Err(end) => {
                    self.drop_conn(conn, &served, around);
                    match end {
                        End::Closed => {}
                        End::Fenced(epoch) => {
                            around.member.change(|role| {
                                let led = role.fence(epoch);
                                (led, led)
                            })?;
                        }
                        End::Failed(failure) => return Err(failure),
                    }
                }
            }
        }
        if !around.member.role().is_fenced() {
            self.commit(around)?;
            self.retain(around)?;
        }
        Ok(())
    }

    fn serve(&mut self, conn: ConnId, served: &mut Served, around: &mut Around<'_>) -> Result<(), End> {
        let now_ms = around.clock.monotonic_us() / 1000;
        if around.member.role().is_fenced() {
            return Err(End::Closed);
        }
        while let Some(message) = around.network.receive(conn, Side::Leader, now_ms) {
            match (message, &mut *served) {
                (Message::Claim(words), Served::Talking { .. }) => {
                    self.let_in(conn, served, &words, around)?
                }
                (Message::Marks(words), Served::Talking { .. }) => {
                    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
                    let marks = parse_marks(&words).ok_or(End::Closed)?;
                    let common = newest_common(&marks, &JudgedHistory::new(&self.log, self.fault))?;
                    let line = common.map_or(":-1".into(), |end| format!(":{end}"));
                    around.network.send(conn, Side::Replica, Message::Line(line), now_ms);
                }
                (Message::Frames(bytes), Served::Shipping { relay, session, .. }) => {
                    relay.inbox().extend_from_slice(&bytes);
                    if let Some(acked) = relay.receive(now_ms)? {
                        self.account.note(*session, acked);
                    }
                }
                _ => return Err(End::Closed),
            }
        }
        match served {
            Served::Talking { since_ms } if now_ms >= *since_ms + SILENCE_MS => Err(End::Closed),
            Served::Talking { .. } => Ok(()),
            Served::Shipping { relay, source, .. } => {
                let moment = Moment {
                    now_ms,
                    unsent_bytes: around.network.unsent_bytes(conn, Side::Replica),
                    shippable: self.log.shippable_lsn(),
                    commit: self.committed,
                    epoch: self.log.epoch(),
                    has_tick_ended: around.prng.chance(50),
                    distance: 0,
                };
                let mut out: Vec<Outgoing<Arc<[u8]>>> = Vec::new();
                let stepped = relay.step(moment, source, &mut out);
                for Outgoing { header, payload } in out {
                    let frame = [&header[..], payload.as_deref().unwrap_or_default()].concat();
                    around.network.send(conn, Side::Replica, Message::Frames(frame), now_ms);
                }
                match stepped {
                    Ok(_) => Ok(()),
                    Err(RelayError::Close(close)) => Err(close.into()),
                    Err(RelayError::Source(_)) => Err(End::Closed),
                    Err(error) => Err(End::Failed(Failure::Breach(error.to_string()))),
                }
            }
        }
    }

    fn let_in(
        &mut self,
        conn: ConnId,
        served: &mut Served,
        words: &[String],
        around: &mut Around<'_>,
    ) -> Result<(), End> {
        let now_ms = around.clock.monotonic_us() / 1000;
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let claim = Claim::parse(&words).ok_or(End::Closed)?;
        self.account.hear(&claim);
        self.retain(around)?;
        let history = JudgedHistory::new(&self.log, self.fault);
        let decision = self.account.decide(&claim, &self.log, &history)?;
        let epoch = self.log.epoch();
        match decision {
            Decision::Resume(end) => {
                let relay = Relay::new(RELAY, epoch, end, now_ms);
                let session = self.account.join(claim.replica, relay.acked());
                let (source, replica) = (Tail(self.log.cursor(end)), claim.replica);
                *served = Served::Shipping { relay: relay.into(), source, session, replica };
            }
            Decision::Probe => {}
            Decision::Full(_) => self.retain(around)?,
            Decision::Refuse(refusal) => return Err(End::Failed(Failure::Breach(refusal.to_string()))),
            Decision::Fenced { epoch } => return Err(End::Fenced(epoch)),
        }
        around.network.send(conn, Side::Replica, Message::Line(decision.line(epoch, 80)), now_ms);
        Ok(())
    }

    fn drop_conn(&mut self, conn: ConnId, served: &Served, around: &mut Around<'_>) {
        let now_ms = around.clock.monotonic_us() / 1000;
        if let Served::Shipping { session, replica, .. } = served {
            self.account.leave(*session);
            self.account.left(*replica, now_ms);
        }
        around.network.close(conn, Side::Leader, now_ms);
    }

    /// Determines the commit position, has the newly committed log judged, and acknowledges the writes in it.
    fn commit(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let commit = self.account.commit(self.log.durable_lsn(), around.acks);
        if commit <= self.committed {
            return Ok(());
        }
        self.committed = commit;
        let judged = self.witness.show(&self.log, commit, around.truth)?;
        judged.map_err(Failure::Breach)?;
        while let Some(&(lsn, number)) = self.waiting.front()
            && lsn <= commit
        {
            self.waiting.pop_front();
            around.truth.acknowledges(number).map_err(Failure::Breach)?;
        }
        Ok(())
    }

    /// Pins the log that replicas need.
    fn retain(&mut self, around: &Around<'_>) -> Result<(), Failure> {
        let now_ms = around.clock.monotonic_us() / 1000;
        let keep_from = self.account.keep_from(self.log.shippable_lsn(), now_ms);
        let keep_from = keep_from.map(|from| from.max(self.log.start_lsn()));
        if keep_from != self.pin.as_ref().map(|(lsn, _)| *lsn) {
            // Take the new pin before dropping the old one.
            self.pin = keep_from.and_then(|lsn| Some((lsn, self.log.pin(lsn)?)));
        }
        Ok(())
    }
}

/// The sources of a snapshot: the log, the data, and their directory.
type Data<'d> = (&'d Log, &'d Keyspace, &'d Path);

/// Takes a snapshot. The log before the previous snapshot is deleted, unless a replica needs it. Does nothing
/// while the newest snapshot is beyond the commit position, because the judge knows only the committed log.
pub(crate) fn take_snapshot(
    (log, keyspace, dir): Data<'_>,
    disk: &Arc<SimDisk>,
    truth: &Truth,
    prng: &mut Prng,
) -> Result<(), Failure> {
    if snapshots(log, disk, dir)?.iter().max().is_some_and(|begin_lsn| *begin_lsn > truth.end()) {
        return Ok(());
    }
    let disk: Arc<dyn Disk> = disk.clone();
    let mut snapshot = Snapshotting::begin(&disk, dir, log, keyspace, prng)?;
    while let Some(running) = snapshot {
        snapshot = running.step(prng)?;
    }
    Ok(())
}

/// Plans a full copy from the newest snapshot that is known to be committed; takes one first if possible.
pub(crate) fn plan_copy(
    (log, keyspace, dir): Data<'_>,
    disk: &Arc<SimDisk>,
    truth: &Truth,
    prng: &mut Prng,
) -> Result<Option<CopyPlan>, Failure> {
    let is_committed = |begin_lsn: &Lsn| *begin_lsn <= truth.end();
    if log.written_lsn() <= truth.end() {
        take_snapshot((log, keyspace, dir), disk, truth, prng)?;
    }
    let newest = snapshots(log, disk, dir)?.into_iter().filter(is_committed).max();
    Ok(newest.map(|begin_lsn| log.plan_copy(begin_lsn, false)).transpose()?.flatten())
}

fn snapshots(log: &Log, disk: &SimDisk, dir: &Path) -> Result<Vec<Lsn>, Failure> {
    let begins = snapshot::list_begins(disk, dir)?.into_iter();
    Ok(begins.filter(|begin| *begin >= log.start_lsn()).collect())
}

/// Whether a log, from its start on, contains everything that was ever committed.
pub(crate) fn holds(log: &Log, truth: &Truth) -> Result<Result<(), String>, Failure> {
    let end = log.durable_lsn();
    if end < truth.end() {
        return Ok(Err(format!("its log ends at {end}, committed is {}", truth.end())));
    }
    let mut cursor = log.cursor(log.start_lsn());
    while let CursorRead::Chunk(chunk) = cursor.read(64 << 10)? {
        if let Err(other) = truth.compare(chunk.start, &chunk.bytes) {
            return Ok(Err(other));
        }
    }
    Ok(Ok(()))
}
