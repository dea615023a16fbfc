//! What a cluster has promised: the judge.
//!
//! What it is: the log as far as any leader has called it committed, byte by byte, with the state after every record of it; who
//! has led which epoch; which writes were acknowledged.
//! What it is not: told by replicas. It grows by what leaders commit, and everything else is held against it.
//!
//! Invariants
//! - What is committed stays: a leader whose log says something else at a committed position, or ends before one when it is
//!   made leader, has lost it.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use keyspace::{DbId, Effect, Keyspace, Value, slot_of};
use lsn::Lsn;
use storage::{Chains, Chunk};

use super::{
    network::NodeId,
    writes::{self, KEYS, NUMBER_KEY},
};

/// What every key holds.
type State = BTreeMap<Vec<u8>, Rc<[u8]>>;

/// See the module documentation.
pub(super) struct Truth {
    bytes: Vec<u8>,
    chains: Chains,
    states: Vec<(Lsn, Rc<State>)>,
    leaders: BTreeMap<u32, (NodeId, u64)>,
    written: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    checks: u64,
}

impl Truth {
    pub(super) fn new() -> Truth {
        let states = vec![(Lsn::ZERO, Rc::default())];
        let (bytes, chains) = (Vec::new(), Chains::from(Lsn::ZERO));
        let (leaders, written, acknowledged) = Default::default();
        Truth { bytes, chains, states, leaders, written, acknowledged, checks: 0 }
    }

    /// Where what is committed ends.
    pub(super) fn end(&self) -> Lsn {
        Lsn::new(self.bytes.len() as u64)
    }

    /// Writes that were acknowledged.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// How often a replica was looked at.
    pub(super) fn checks(&self) -> u64 {
        self.checks
    }

    /// Somebody leads this epoch, in this life.
    pub(super) fn leads(&mut self, epoch: u32, node: NodeId, life: u64) -> Result<(), String> {
        match self.leaders.insert(epoch, (node, life)) {
            Some(other) if other != (node, life) => {
                Err(format!("epoch {epoch} has two leaders: {other:?} and {:?}", (node, life)))
            }
            _ => Ok(()),
        }
    }

    /// The highest epoch that anybody has led.
    pub(super) fn epoch(&self) -> u32 {
        self.leaders.keys().next_back().copied().unwrap_or(0)
    }

    /// A leader has this in its log, and calls all of it up to `commit` committed.
    pub(super) fn commits(&mut self, chunk: &Chunk, commit: Lsn) -> Result<(), String> {
        let bytes = &chunk.bytes[..commit.min(chunk.end).bytes_since(chunk.start) as usize];
        let (known_bytes, start) = (self.bytes.len(), chunk.start.get() as usize);
        if start > known_bytes {
            return Err(format!("what is committed ends at {known_bytes}, this begins at {start}"));
        }
        let (known, new) = bytes.split_at((known_bytes - start).min(bytes.len()));
        self.compare(chunk.start, known)?;
        self.bytes.extend_from_slice(new);
        for record in chunk.records().filter(|it| it.lsn.get() > known_bytes as u64 && it.lsn <= commit) {
            if let Some(payload) = self.chains.payload(&record) {
                let (_, state) = self.states.last().expect("there is one at first");
                let mut state = State::clone(state);
                self.written.extend(apply(&mut state, &payload));
                self.states.push((record.lsn, state.into()));
            }
        }
        Ok(())
    }

    /// Holds bytes of some log against what is committed.
    pub(super) fn compare(&self, start: Lsn, bytes: &[u8]) -> Result<(), String> {
        let start = start.get() as usize;
        let known = self.bytes.get(start..).unwrap_or_default();
        match known.iter().zip(bytes).position(|(known, found)| known != found) {
            Some(at) => {
                Err(format!("another log at {}: of {} committed bytes", start + at, self.bytes.len()))
            }
            None => Ok(()),
        }
    }

    /// A client was told that its write is safe.
    pub(super) fn acknowledges(&mut self, number: u64) -> Result<(), String> {
        self.acknowledged.insert(number);
        if self.written.contains(&number) {
            Ok(())
        } else {
            Err(format!("write {number} was acknowledged and is not committed"))
        }
    }

    /// Looks at what somebody shows who has applied the log up to `applied`.
    pub(super) fn check(&mut self, keyspace: &Keyspace, applied: Lsn) -> Result<(), String> {
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

/// The numbers of the writes of this record, applied.
fn apply(state: &mut State, payload: &[u8]) -> Vec<u64> {
    let (mut rest, mut numbers) = (payload, Vec::new());
    while let Some(effect) = Effect::decode_next(&mut rest).expect("written by the same code") {
        match effect {
            Effect::FlushAll => state.clear(),
            Effect::Delete { key, .. } => drop(state.remove(key)),
            Effect::Append { key, suffix, .. } => {
                let value = state.entry(key.to_vec()).or_insert_with(|| Rc::new([]));
                *value = [&**value, suffix].concat().into();
            }
            Effect::Put { key, value: Value::String(value), .. } => {
                state.insert(key.to_vec(), value.into());
                if key == NUMBER_KEY {
                    numbers.extend(value.first_chunk().map(|it| u64::from_be_bytes(*it)));
                }
            }
            other => unreachable!("{other:?} is not written here"),
        }
    }
    numbers
}
