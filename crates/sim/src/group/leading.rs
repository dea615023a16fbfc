//! A member that leads: executes writes and reads of clients. Each reply leaves within the lease, once all
//! data that the reply shows is committed.

use keyspace::{AccessClock, DbId, Effect, Freed, Keyspace, LIBRARIES_SLOT, slot_of};
use lsn::Lsn;
use membership::{OF_GROUP, ROSTER, Roster};
use storage::{Admission, Appender, Log};

use crate::cluster::{
    node::{Failure, flush},
    writes::{self, KEYS, NUMBER_KEY},
};

/// A reply that waits for a commit.
pub(super) enum Reply {
    /// The reply to the write with this number.
    Write { lsn: Lsn, number: u64 },
    /// The reply to a read: its keys with their values, the newest position of their slots, and the end of
    /// the newest write that had been acknowledged when the read began.
    Read { gate: Lsn, values: Vec<(Vec<u8>, Option<Vec<u8>>)>, acknowledged: Lsn },
}

impl Reply {
    pub(super) fn gate(&self) -> Lsn {
        match self {
            Reply::Write { lsn, .. } => *lsn,
            Reply::Read { gate, .. } => *gate,
        }
    }
}

/// A hand-over in progress.
pub(super) struct HandingOver {
    pub(super) to: consensus::MemberId,
    pub(super) until_us: u64,
    /// Whether the election has begun.
    pub(super) has_begun: bool,
}

/// A member that leads.
pub(super) struct Leading {
    pub(super) term: u64,
    appender: Appender,
    recorder: Appender,
    record: Vec<u8>,
    pub(super) waiting: Vec<Reply>,
    pub(super) handing_over: Option<HandingOver>,
}

impl Leading {
    /// Leads in `term`. `appenders`: the ones used in an earlier term, if any, because a log has a limited
    /// number of appenders.
    pub(super) fn new(term: u64, log: &Log, appenders: Option<[Appender; 2]>) -> Leading {
        let [appender, recorder] = appenders.unwrap_or_else(|| [log.appender(), log.appender()]);
        Leading { term, appender, recorder, record: Vec::new(), waiting: Vec::new(), handing_over: None }
    }

    /// The appenders, for the next term in which this server leads.
    pub(super) fn into_appenders(self) -> [Appender; 2] {
        [self.appender, self.recorder]
    }

    /// Executes a write if the log has room for it.
    pub(super) fn write(
        &mut self,
        log: &Log,
        keyspace: &Keyspace,
        number: u64,
        prng: &mut env::Prng,
    ) -> Result<(), Failure> {
        if log.admit(64 << 10) != Admission::Go {
            flush(log)?;
            if log.admit(64 << 10) != Admission::Go {
                return Ok(());
            }
        }
        self.record.clear();
        let (mut touched, mut is_global) = (Vec::new(), false);
        writes::write(number, &mut prng.clone(), |effect| match effect.key() {
            Some(key) => touched.push(slot_of(key)),
            None => is_global = true,
        });
        let mut slots = if is_global { keyspace.lock_all() } else { keyspace.lock_many(touched) };
        let (record, settings) = (&mut self.record, keyspace.data_settings());
        writes::write(number, prng, |effect| {
            let mut put = |effect: &Effect<'_>| {
                slots.apply(effect, AccessClock::default(), &mut Freed::new());
                effect.encode_into(record);
            };
            put(effect);
            if effect.key().is_none() {
                // As FLUSHALL does: the roster stays.
                settings.effects().for_each(|setting| put(&setting));
            }
        });
        let pending = self.appender.reserve(record)?;
        let lsn = pending.lsn();
        slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
        pending.publish();
        self.waiting.push(Reply::Write { lsn, number });
        Ok(())
    }

    /// Reads two keys, one of which every write changes.
    pub(super) fn read(&mut self, keyspace: &Keyspace, acknowledged: Lsn, prng: &mut env::Prng) {
        let keys = [writes::key(prng.below(KEYS)), NUMBER_KEY.to_vec()];
        let slots = keyspace.lock_many(keys.iter().map(|key| slot_of(key)));
        let value = |key: &Vec<u8>| {
            let entry = slots.get(slot_of(key))?.get(DbId::ZERO, &keyspace.hash(key), key, 0);
            entry.as_ref().and_then(|entry| entry.string()).map(<[u8]>::to_vec)
        };
        let values = keys.iter().map(|key| (key.clone(), value(key))).collect();
        let gate = slots.last_lsn();
        self.waiting.push(Reply::Read { gate, values, acknowledged });
    }

    /// Records a roster in the data; returns the position of the record.
    pub(super) fn record(&mut self, keyspace: &Keyspace, roster: &Roster) -> Result<Lsn, Failure> {
        let (name, text) = (format!("{OF_GROUP}{ROSTER}"), roster.text());
        let effect = Effect::Setting { name: name.as_bytes(), value: Some(text.as_bytes()) };
        let mut slot = keyspace.lock(LIBRARIES_SLOT);
        let (mut record, mut freed) = (Vec::new(), Freed::new());
        slot.apply(&effect, AccessClock::default(), &mut freed);
        effect.encode_into(&mut record);
        let pending = self.recorder.reserve(&record)?;
        let position = pending.lsn();
        slot.set_last_lsn(position);
        drop(slot);
        pending.publish();
        Ok(position)
    }
}
