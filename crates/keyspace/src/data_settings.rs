//! Settings that belong to the data: rules for every server that has the data, such as the channels that are
//! kept in the log, the members of a group, and the users.
//!
//! ```text
//! effect -> LIBRARIES_SLOT, under its lock: `ahead` -- LSN noted --> `published` -> readers without the lock
//! ```
//!
//! What it is: names and values, the current set of settings, and the effects on it. What it is not: the
//! meaning of a name, or a check whether a value is valid.
//!
//! These settings belong to the slot of the libraries of functions. So captures, snapshots and replays of
//! slots carry the settings, and a replica, a backup and a new leader have them.
//!
//! Invariants
//! - The settings change only under the lock of [`LIBRARIES_SLOT`]. Readers without that lock see the changes
//!   up to the last LSN that was noted for the slot.
//! - FlushAll removes the settings like everything else in a slot, so that the data after it depend on no
//!   earlier record. A caller that wants to remove only the keys puts the settings again in the same record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lsn::Lsn;
use parking_lot::{Mutex, RwLock};

use crate::apply::Applied;
use crate::effect::Effect;
use crate::keyspace::Keyspace;
use crate::libraries::LIBRARIES_SLOT;
use crate::slot::SlotGuard;

/// An upper bound of the bytes of the effect of a setting besides its name and value.
const ENCODING_BYTES: usize = 16;

/// An immutable set of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSettings {
    by_name: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

impl DataSettings {
    /// The value of the setting of this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.by_name.get(name).map(|value| &**value)
    }

    /// The name and the value of each setting, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.by_name.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The effects that put these settings.
    pub fn effects(&self) -> impl Iterator<Item = Effect<'_>> {
        self.iter().map(|(name, value)| Effect::Setting { name, value: Some(value) })
    }

    /// Whether there is no setting.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// An upper bound of the bytes of the effects that put these settings.
    pub fn encoded_bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len() + ENCODING_BYTES).sum()
    }

    /// The settings after an effect on one of them; `None` if the effect changes nothing.
    fn after(&self, name: &[u8], value: Option<&[u8]>) -> Option<DataSettings> {
        if self.get(name) == value {
            return None;
        }
        let mut by_name = self.by_name.clone();
        match value {
            Some(value) => _ = by_name.insert(name.into(), value.into()),
            None => _ = by_name.remove(name),
        }
        Some(DataSettings { by_name })
    }
}

#[derive(Debug, Default)]
pub(crate) struct DataSettingsShelf {
    /// The state after all effects. Changed under the lock of the slot.
    ahead: Mutex<Arc<DataSettings>>,
    /// The settings that all readers see, and the LSN that was noted when they were shown.
    published: RwLock<(Arc<DataSettings>, Lsn)>,
    /// Rises with every change of `published`; readable without its lock.
    generation: AtomicU64,
}

impl Keyspace {
    /// The settings as of the last LSN that was noted for their slot. Until they change, every call returns
    /// the same `Arc`.
    pub fn data_settings(&self) -> Arc<DataSettings> {
        self.data_settings.published.read().0.clone()
    }

    /// [`Keyspace::data_settings`], with an LSN that is not below the LSN of the record that made these
    /// settings.
    pub fn data_settings_and_lsn(&self) -> (Arc<DataSettings>, Lsn) {
        self.data_settings.published.read().clone()
    }

    /// The number of changes of [`Keyspace::data_settings`]. Takes one load, for callers that keep something
    /// derived from the settings. Such a caller reads the number before the settings: then a change between
    /// the two reads makes the number differ at the next comparison.
    #[inline]
    pub fn data_settings_generation(&self) -> u64 {
        self.data_settings.generation.load(Ordering::Acquire)
    }
}

impl SlotGuard<'_> {
    /// The current settings, including changes of the unit that holds this lock.
    ///
    /// # Panics
    /// If this is not the slot of the settings.
    pub fn data_settings(&self) -> Arc<DataSettings> {
        assert_eq!(self.slot(), LIBRARIES_SLOT);
        self.keyspace.data_settings.ahead.lock().clone()
    }

    /// Gives a setting a value, or removes the setting.
    ///
    /// # Panics
    /// If this is not the slot of the settings.
    #[cold]
    pub(crate) fn change_data_setting(&mut self, name: &[u8], value: Option<&[u8]>) -> Applied {
        assert_eq!(self.slot(), LIBRARIES_SLOT, "settings changed under the lock of another slot");
        let mut ahead = self.keyspace.data_settings.ahead.lock();
        let Some(changed) = ahead.after(name, value) else { return Applied::default() };
        *ahead = Arc::new(changed);
        Applied { changed: true, ..Applied::default() }
    }

    #[cold]
    pub(crate) fn clear_data_settings(&mut self) {
        let mut ahead = self.keyspace.data_settings.ahead.lock();
        if !ahead.is_empty() {
            *ahead = Arc::default();
        }
    }

    /// Shows the changes of settings to all readers.
    #[cold]
    pub(crate) fn publish_data_settings(&self) {
        let ahead = self.data_settings();
        if !Arc::ptr_eq(&ahead, &self.keyspace.data_settings.published.read().0) {
            *self.keyspace.data_settings.published.write() = (ahead, self.last_lsn());
            self.keyspace.data_settings.generation.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessClock, Capture, Freed, GlobalOp, Loader, Options, SlotId};

    fn keyspace() -> Keyspace {
        Keyspace::new(Options { hash_seed: 1 })
    }

    fn apply(guard: &mut SlotGuard<'_>, effect: &Effect<'_>) -> bool {
        guard.apply(effect, AccessClock::default(), &mut Freed::new()).changed
    }

    const PUT: Effect<'static> = Effect::Setting { name: b"ack-replicas", value: Some(b"2") };

    #[test]
    fn a_change_is_seen_by_others_once_it_has_an_lsn() {
        let keyspace = keyspace();
        let mut guard = keyspace.lock(LIBRARIES_SLOT);
        assert!(apply(&mut guard, &PUT) && !apply(&mut guard, &PUT), "the second changes nothing");
        assert!(
            guard.data_settings().get(b"ack-replicas") == Some(b"2") && keyspace.data_settings().is_empty()
        );
        guard.set_last_lsn(Lsn::new(7));
        assert_eq!(
            (keyspace.data_settings_and_lsn().1, keyspace.data_settings_generation()),
            (Lsn::new(7), 1)
        );
        let published = keyspace.data_settings();
        assert_eq!(published.get(b"ack-replicas"), Some(&b"2"[..]));
        guard.set_last_lsn(Lsn::new(9));
        assert!(Arc::ptr_eq(&published, &keyspace.data_settings()), "a record of something else");
        assert_eq!(keyspace.data_settings_generation(), 1);
        assert!(apply(&mut guard, &Effect::Setting { name: b"ack-replicas", value: None }));
        assert!(!apply(&mut guard, &Effect::Setting { name: b"ack-replicas", value: None }));
        guard.set_last_lsn(Lsn::new(11));
        assert!(keyspace.data_settings().is_empty());
    }

    #[test]
    fn settings_are_in_the_digest_until_all_data_is_removed() {
        let keyspace = keyspace();
        let empty = keyspace.digest();
        let mut guard = keyspace.lock(LIBRARIES_SLOT);
        apply(&mut guard, &PUT);
        guard.set_last_lsn(Lsn::new(7));
        drop(guard);
        assert_ne!(keyspace.digest(), empty);
        let mut guard = keyspace.lock(LIBRARIES_SLOT);
        apply(&mut guard, &Effect::Global(GlobalOp::FlushAll));
        guard.set_last_lsn(Lsn::new(9));
        drop(guard);
        assert_eq!(keyspace.digest(), empty);
    }

    #[test]
    fn a_capture_carries_the_settings() {
        let keyspace = keyspace();
        let mut guard = keyspace.lock(LIBRARIES_SLOT);
        apply(&mut guard, &PUT);
        guard.set_last_lsn(Lsn::new(7));
        drop(guard);
        let mut capture = Capture::new(&keyspace, SlotId::FIRST, SlotId::LAST);
        let (copy, mut piece) = (self::keyspace(), Vec::new());
        let mut loader = Loader::new(&copy, AccessClock::default());
        while capture.fill(&mut piece, 100, 1000).is_some() {
            loader.feed(&piece).expect("a piece");
        }
        assert_eq!(loader.finish().expect("all of it"), 0, "settings are no keys");
        assert_eq!(copy.data_settings(), keyspace.data_settings());
        assert_eq!(copy.digest(), keyspace.digest());
    }
}
