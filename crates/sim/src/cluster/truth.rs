//! The judge of a cluster.
//!
//! The judge has the log up to the highest position that any server knows to be committed, byte by byte. It
//! also has the state after every record, the leader of every epoch, and the acknowledged writes.
//!
//! Invariants
//! - Committed data stays. A leader has lost committed data if its log differs from the committed log at any
//!   position. The same holds if its log is shorter than the committed log when the leader is promoted.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use keyspace::{DbId, Effect, GlobalOp, KeyOp, Keyspace, Value, slot_of};
use lsn::Lsn;
use storage::{Chains, Chunk, CursorRead, Log, LogCursor};

use super::{
    network::NodeId,
    writes::{self, KEYS, NUMBER_KEY},
};

/// The values of all keys.
type State = BTreeMap<Vec<u8>, Rc<[u8]>>;

/// The committed log and the facts derived from it.
pub(crate) struct Truth {
    bytes: Vec<u8>,
    chains: Chains,
    states: Vec<(Lsn, Rc<State>)>,
    leaders: BTreeMap<u32, (NodeId, u64)>,
    written: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    checks: u64,
}

impl Truth {
    pub(crate) fn new() -> Truth {
        let states = vec![(Lsn::ZERO, Rc::default())];
        let (bytes, chains) = (Vec::new(), Chains::from(Lsn::ZERO));
        let (leaders, written, acknowledged) = Default::default();
        Truth { bytes, chains, states, leaders, written, acknowledged, checks: 0 }
    }

    /// The end of the committed log.
    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.bytes.len() as u64)
    }

    /// The number of acknowledged writes.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// The number of checks of replicas.
    pub(crate) fn checks(&self) -> u64 {
        self.checks
    }

    /// Notes the leader of an epoch, by server and incarnation; an error if the epoch has another leader.
    pub(crate) fn leads(&mut self, epoch: u32, node: NodeId, incarnation: u64) -> Result<(), String> {
        match self.leaders.insert(epoch, (node, incarnation)) {
            Some(other) if other != (node, incarnation) => {
                Err(format!("epoch {epoch} has two leaders: {other:?} and {:?}", (node, incarnation)))
            }
            _ => Ok(()),
        }
    }

    /// The highest epoch that any server has led.
    pub(crate) fn epoch(&self) -> u32 {
        self.leaders.keys().next_back().copied().unwrap_or(0)
    }

    /// Notes that a server knows this chunk of its log to be committed up to `commit`; an error if committed
    /// data differs.
    pub(crate) fn commits(&mut self, chunk: &Chunk, commit: Lsn) -> Result<(), String> {
        let bytes = &chunk.bytes[..commit.min(chunk.end).bytes_since(chunk.start) as usize];
        let (known_bytes, start) = (self.bytes.len(), chunk.start.get() as usize);
        if start > known_bytes {
            return Err(format!("what is committed ends at {known_bytes}, this begins at {start}"));
        }
        let (known, new) = bytes.split_at((known_bytes - start).min(bytes.len()));
        self.compare(chunk.start, known)?;
        self.bytes.extend_from_slice(new);
        for record in chunk.records().filter(|it| it.lsn.get() > known_bytes as u64 && it.lsn <= commit) {
            if let Some(payload) = self.chains.payload(&record).map_err(|error| error.to_string())? {
                let (_, state) = self.states.last().expect("there is one at first");
                let mut state = State::clone(state);
                self.written.extend(apply(&mut state, &payload));
                self.states.push((record.lsn, state.into()));
            }
        }
        Ok(())
    }

    /// Compares bytes of a log with the committed log.
    pub(crate) fn compare(&self, start: Lsn, bytes: &[u8]) -> Result<(), String> {
        let start = start.get() as usize;
        let known = self.bytes.get(start..).unwrap_or_default();
        let common = known.len().min(bytes.len());
        if known[..common] == bytes[..common] {
            return Ok(());
        }
        match known.iter().zip(bytes).position(|(known, found)| known != found) {
            Some(at) => {
                Err(format!("another log at {}: of {} committed bytes", start + at, self.bytes.len()))
            }
            None => Ok(()),
        }
    }

    /// Notes that a client got the acknowledgement of its write; an error if the write is not committed.
    pub(crate) fn acknowledges(&mut self, number: u64) -> Result<(), String> {
        self.acknowledged.insert(number);
        if self.written.contains(&number) {
            Ok(())
        } else {
            Err(format!("write {number} was acknowledged and is not committed"))
        }
    }

    /// The value of a key after the last record at or before `position`.
    pub(crate) fn value_at(&self, position: Lsn, key: &[u8]) -> Option<&[u8]> {
        let index = self.states.partition_point(|(lsn, _)| *lsn <= position);
        let (_, state) = &self.states[index - 1];
        state.get(key).map(|value| &**value)
    }

    /// Checks the data that a server shows after it has applied the log up to `applied`.
    pub(crate) fn check(&mut self, keyspace: &Keyspace, applied: Lsn) -> Result<(), String> {
        self.checks += 1;
        if applied > self.end() {
            return Err(format!("shows what lies before {applied}, committed is {}", self.end()));
        }
        let index = self.states.partition_point(|(lsn, _)| *lsn <= applied);
        let (_, state) = &self.states[index - 1];
        let held = keyspace.len(DbId::ZERO);
        if held != state.len() as u64 {
            return Err(format!("shows {held} keys at {applied}, not {}", state.len()));
        }
        for key in (0..KEYS).map(writes::key).chain([NUMBER_KEY.to_vec()]) {
            let hash = keyspace.hash(&key);
            let slot = keyspace.lock(slot_of(&key));
            let entry = slot.get(DbId::ZERO, &hash, &key, 0);
            if entry.as_ref().and_then(|entry| entry.string()) != state.get(&key).map(|value| &**value) {
                return Err(format!(
                    "shows something else for {:?} at {applied}",
                    key.escape_ascii().to_string()
                ));
            }
        }
        Ok(())
    }
}

/// Reads a log as far as it is committed, for the judge.
pub(crate) struct Witness {
    cursor: LogCursor,
    /// The chunk that was read but is not fully committed yet.
    ahead: Option<Chunk>,
}

impl Witness {
    /// Reads this log from its beginning.
    pub(crate) fn new(log: &Log) -> Witness {
        Witness { cursor: log.cursor(log.start_lsn()), ahead: None }
    }

    /// Has the log judged up to `committed`; the inner error says what is wrong.
    pub(crate) fn show(
        &mut self,
        log: &Log,
        committed: Lsn,
        truth: &mut Truth,
    ) -> Result<Result<(), String>, storage::Error> {
        loop {
            let chunk = match self.ahead.take() {
                Some(chunk) => chunk,
                None if self.cursor.position() >= committed => return Ok(Ok(())),
                None => match self.cursor.read(64 << 10)? {
                    CursorRead::Chunk(chunk) => chunk,
                    CursorRead::UpToDate => return Ok(Ok(())),
                    // The deleted part of the log was committed long ago, possibly by an earlier leader.
                    CursorRead::Forgotten(start) => {
                        self.cursor = log.cursor(start);
                        continue;
                    }
                },
            };
            if let Err(lost) = truth.commits(&chunk, committed) {
                return Ok(Err(lost));
            }
            if chunk.end > committed {
                self.ahead = Some(chunk);
                return Ok(Ok(()));
            }
        }
    }
}

/// Applies a record; returns the numbers of the writes in it.
fn apply(state: &mut State, payload: &[u8]) -> Vec<u64> {
    let (mut rest, mut numbers) = (payload, Vec::new());
    while let Some(effect) = Effect::decode_next(&mut rest).expect("written by the same code") {
        match effect {
            Effect::Global(GlobalOp::FlushAll) => state.clear(),
            Effect::Key { key, op: KeyOp::Delete, .. } => drop(state.remove(key)),
            Effect::Key { key, op: KeyOp::Append { suffix }, .. } => {
                let value = state.entry(key.to_vec()).or_insert_with(|| Rc::new([]));
                *value = [&**value, suffix].concat().into();
            }
            Effect::Key { key, op: KeyOp::Put { value: Value::String(value), .. }, .. } => {
                state.insert(key.to_vec(), value.into());
                if key == NUMBER_KEY {
                    numbers.extend(value.first_chunk().map(|it| u64::from_be_bytes(*it)));
                }
            }
            // The roster of a group, or a setting that the leader was given.
            Effect::Setting { .. } => {}
            other => unreachable!("{other:?} is not written here"),
        }
    }
    numbers
}
