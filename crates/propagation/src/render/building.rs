//! A stream that a record makes as a whole, because it was made, renamed, moved, copied, or restored.
//!
//! The stream is first made here, in a keyspace that holds nothing else, and the replica gets the whole
//! stream by RESTORE. Commands cannot make such a stream: no command adds an entry below the last id, makes a
//! deleted entry pending, or sets the times of consumers.
//!
//! Invariants
//! - The stream is a part of one record, so it is bounded as records are. It is removed once it is rendered.

use std::fmt;

use commands::encode_value;
use keyspace::{AccessClock, DbId, Effect, Freed, KeyOp, Keyspace, Options, StreamHead, Value, View};
use rdb::Writer;

use super::{commands::Commands, deadline, scripts};

/// The keyspace in which a stream is made. It holds no key but that of the [`Building`].
#[derive(Default)]
pub(super) struct Workbench(Option<Box<Keyspace>>);

impl fmt::Debug for Workbench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workbench").finish_non_exhaustive()
    }
}

impl Workbench {
    /// The keyspace, which is made once it is needed. Its seed is fixed, so that the same records give the
    /// same bytes.
    fn keyspace(&mut self) -> &Keyspace {
        self.0.get_or_insert_with(|| Box::new(Keyspace::new(Options { hash_seed: 0 })))
    }

    fn apply(&mut self, key: &[u8], op: &KeyOp<'_>) {
        let effect = op.on(DbId::ZERO, key);
        let mut slot = self.keyspace().lock(keyspace::slot_of(key));
        slot.apply(&effect, AccessClock::default(), &mut Freed::new());
    }
}

/// The stream on the workbench.
#[derive(Debug)]
pub(super) struct Building {
    pub(super) db: DbId,
    key: Vec<u8>,
}

impl Building {
    pub(super) fn begin(
        bench: &mut Workbench,
        (db, key): (DbId, &[u8]),
        head: StreamHead,
        expire_at_ms: Option<u64>,
    ) -> Building {
        bench.apply(key, &KeyOp::Put { value: Value::Stream(head), expire_at_ms });
        Building { db, key: key.to_vec() }
    }

    /// Takes an effect that changes the stream, but does not replace or delete it. Returns `false` for any
    /// other.
    pub(super) fn takes(&self, bench: &mut Workbench, effect: &Effect<'_>) -> bool {
        let Effect::Key { db, key, op } = *effect else { return false };
        let changes_entries = matches!(
            op,
            KeyOp::StreamAdd { .. }
                | KeyOp::StreamAddBlock { .. }
                | KeyOp::StreamTrim { .. }
                | KeyOp::StreamDelete { .. }
        );
        let changes_it = changes_entries || effect.keeps_entries() || matches!(op, KeyOp::SetExpiry { .. });
        let is_taken = changes_it && (db, key) == (self.db, self.key.as_slice());
        if is_taken {
            bench.apply(key, &op);
        }
        is_taken
    }

    /// Adds the command that makes the stream, and clears the workbench.
    pub(super) fn finish(self, bench: &mut Workbench, out: &mut Commands) {
        let keyspace = bench.keyspace();
        let hash = keyspace.hash(&self.key);
        let slot = keyspace.lock(hash.slot());
        if let Some(entry) = slot.get_raw(DbId::ZERO, &hash, &self.key) {
            let ttl = entry.expire_at_ms().map_or("0".into(), deadline);
            restore(out, &self.key, ttl.as_bytes(), entry.view());
        }
        drop(slot);
        bench.apply(&self.key, &KeyOp::Delete);
    }
}

/// Adds a RESTORE. In the form that every version reads, a consumer has only one time, that of its last call.
/// If the last call of a consumer got nothing, a script first tries a newer form, which also has the time of
/// the last delivery.
fn restore(out: &mut Commands, key: &[u8], ttl: &[u8], view: View<'_>) {
    let payload = |mut writer: Writer| {
        encode_value(view, 0, &mut writer);
        rdb::dump(writer.into_bytes())
    };
    let plain = payload(Writer::new());
    if has_idle_consumers(view) {
        out.script(scripts::RESTORE, key, &[ttl, &payload(Writer::with_active_times()), &plain]);
    } else {
        out.command(&[b"RESTORE", key, ttl, &plain, b"REPLACE", b"ABSTTL"]);
    }
}

/// Whether any consumer of the stream got nothing from its last call.
fn has_idle_consumers(view: View<'_>) -> bool {
    let View::Stream(stream) = view else { return false };
    let mut consumers = stream.groups().flat_map(|(_, group)| group.consumers());
    consumers.any(|consumer| consumer.times().active_ms != Some(consumer.times().seen_ms))
}
