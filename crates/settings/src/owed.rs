//! Settings that belong to the data and were given at the start, as long as the log does not have them.
//!
//! ```text
//! given at the start of a leader -> OwedSettings -> record of the log
//! ```
//!
//! This module chooses the given values that are to be recorded, and makes their records. The module does not
//! write the log, and does not refuse writes while values are owed.
//!
//! Invariants
//! - With a given value the log gets the mark `given:<name>`, which has the value that was given last. So
//!   another start with the same value does not undo a CONFIG SET in between.

use keyspace::{AccessClock, DataSettings, Effect, Freed, SlotGuard};

/// The prefix of a setting's name in the record of the value that was given last.
const MARK: &str = "given:";

/// The values that are owed to the log, by the names of their settings.
#[derive(Debug, Default)]
pub struct OwedSettings(Vec<(&'static str, String)>);

/// A given value that a record stores as the value of its setting. One record may store several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedSetting {
    /// The name of the setting.
    pub name: &'static str,
    /// The value in the data before this record; `None` for none.
    pub before: Option<Vec<u8>>,
    /// The value in this record, as text.
    pub now: String,
}

impl OwedSettings {
    /// Keeps the given values that differ from the values given last, which the data has noted.
    pub fn new(mut given: Vec<(&'static str, String)>, data: &DataSettings) -> OwedSettings {
        given.retain(|(name, value)| data.get(mark_of(name).as_bytes()) != Some(value.as_bytes()));
        OwedSettings(given)
    }

    /// Whether no value is owed to the log any more.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a value of this setting is owed.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(owed, _)| *owed == name)
    }

    /// Forgets the given value of a setting, because a later change replaces it. Returns the name of the mark
    /// that must be recorded together with the change, and its value.
    pub fn supersede(&mut self, name: &str) -> Option<(String, String)> {
        let at = self.0.iter().position(|(owed, _)| *owed == name)?;
        let (name, value) = self.0.remove(at);
        Some((mark_of(name), value))
    }

    /// Changes the settings of the data, and encodes the effects that change them into `record`. Nothing is
    /// owed afterwards, provided that the record is in the log before the slot is unlocked.
    ///
    /// # Panics
    /// If the slot does not hold the settings.
    pub fn record(&mut self, slot: &mut SlotGuard<'_>, record: &mut Vec<u8>) -> Vec<RecordedSetting> {
        let (before, mut recorded) = (slot.data_settings(), Vec::new());
        for (name, value) in std::mem::take(&mut self.0) {
            put(slot, &mark_of(name), &value, record);
            if put(slot, name, &value, record) {
                let before = before.get(name.as_bytes()).map(<[u8]>::to_vec);
                recorded.push(RecordedSetting { name, before, now: value });
            }
        }
        recorded
    }

    /// Whether this is the name of a mark instead of a setting.
    pub fn is_mark(name: &[u8]) -> bool {
        name.starts_with(MARK.as_bytes())
    }
}

fn mark_of(name: &str) -> String {
    format!("{MARK}{name}")
}

/// Changes a setting; returns whether it had another value.
fn put(slot: &mut SlotGuard<'_>, name: &str, value: &str, record: &mut Vec<u8>) -> bool {
    let effect = Effect::Setting { name: name.as_bytes(), value: Some(value.as_bytes()) };
    let changed = slot.apply(&effect, AccessClock::default(), &mut Freed::new()).changed;
    if changed {
        effect.encode_into(record);
    }
    changed
}

#[cfg(test)]
mod tests {
    use keyspace::{Keyspace, LIBRARIES_SLOT, Options};

    use super::*;

    fn given(value: &str) -> Vec<(&'static str, String)> {
        vec![("ack-replicas", value.to_owned())]
    }

    fn record(owed: &mut OwedSettings, keyspace: &Keyspace) -> (Vec<u8>, Vec<RecordedSetting>) {
        let (mut slot, mut bytes) = (keyspace.lock(LIBRARIES_SLOT), Vec::new());
        let recorded = owed.record(&mut slot, &mut bytes);
        // Other threads see the settings when their record is in the log.
        let lsn = slot.last_lsn();
        slot.set_last_lsn(lsn);
        (bytes, recorded)
    }

    #[test]
    fn a_value_given_again_is_not_recorded_again() {
        let keyspace = Keyspace::new(Options { hash_seed: 1 });
        let mut owed = OwedSettings::new(given("1"), &keyspace.data_settings());
        assert!(owed.has("ack-replicas") && !owed.has("durable-channels"));
        let (bytes, recorded) = record(&mut owed, &keyspace);
        assert!(!bytes.is_empty() && owed.is_empty());
        assert_eq!(recorded, [RecordedSetting { name: "ack-replicas", before: None, now: "1".into() }]);
        assert_eq!(keyspace.data_settings().get(b"ack-replicas"), Some(&b"1"[..]));
        assert!(OwedSettings::new(given("1"), &keyspace.data_settings()).is_empty());
        let mut owed = OwedSettings::new(given("2"), &keyspace.data_settings());
        let before = Some(b"1".to_vec());
        assert_eq!(record(&mut owed, &keyspace).1[0].before, before);
    }

    #[test]
    fn a_later_change_replaces_the_given_setting() {
        let keyspace = Keyspace::new(Options { hash_seed: 1 });
        let mut owed = OwedSettings::new(given("1"), &keyspace.data_settings());
        assert_eq!(owed.supersede("ack-replicas"), Some(("given:ack-replicas".into(), "1".into())));
        assert_eq!(owed.supersede("ack-replicas"), None);
        assert!(owed.is_empty() && OwedSettings::is_mark(b"given:ack-replicas"));
        assert_eq!(record(&mut owed, &keyspace), (Vec::new(), Vec::new()));
    }
}
