//! Converts the elements of an RDB file to effects.
//!
//! Invariants
//! - A key is complete or absent wherever the log ends: until a large collection is complete it has a
//!   deadline in the past, and an expired key is absent. So a repeated import never finds a part of a key.
//! - Memory is bounded by [`PART_BYTES`], the longest element and, if the import looks for duplicate keys,
//!   the number of all keys of the file.

use std::sync::Arc;

use commands::stream_effect;
use engine::{LibraryReader, require_few_libraries};
use keyspace::{
    DB_COUNT, DbId, Items, ItemsBuf, KeyOp, Keyspace, Libraries, Library, ListEnd, ScoredItemsBuf,
    StreamHead, Value,
};
use rdb::{Element, FileError, Key, Kind, PassedOver, StreamElement, Visitor};

use super::{Existing, ImportError, Imported, log_writer::EffectSink, seen::Seen};

/// The approximate size of the parts in which a collection is written.
const PART_BYTES: usize = 256 << 10;
/// The number that stands in place of a database when the name of a library is noted.
const LIBRARIES: u64 = u64::MAX;
/// The deadline of an incomplete key, in unix milliseconds: long past.
const UNFINISHED_MS: u64 = 1;

/// The visitor of an RDB file that writes effects to a sink.
pub(super) struct Transcript<'k, S> {
    pub(super) sink: S,
    /// The counts of the import so far.
    pub(super) imported: Imported,
    /// The keys so far; `None` if the import does not look for keys that come twice.
    pub(super) seen: Option<Seen>,
    /// The keyspace before the import; `None` if its keys do not matter.
    present: Option<&'k Keyspace>,
    existing: Existing,
    now_ms: u64,
    /// The present libraries, including those imported so far.
    libraries: Arc<Libraries>,
    /// The reader of libraries; created for the first library of the file.
    reader: Option<LibraryReader>,
    /// The database of the key being imported.
    db: DbId,
    key: Vec<u8>,
    kind: Kind,
    expire_at_ms: Option<u64>,
    fate: Fate,
    items: ItemsBuf,
    scored: ScoredItemsBuf,
    /// The fields in `items` that have a deadline.
    deadlines: Vec<(u64, Vec<u8>)>,
    deadline_bytes: usize,
    stream: OpenStream,
}

/// The stream being imported.
#[derive(Default)]
struct OpenStream {
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// Bytes of the stream's effects since the last boundary.
    bytes: usize,
}

/// The treatment of the key being imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The key is left out, and its elements are skipped.
    LeftOut,
    /// Nothing of the key is written yet. `replaces`: whether an existing key has this name.
    Wanted { replaces: bool },
    /// A part of the key is written.
    Begun { replaces: bool },
}

impl<'k, S: EffectSink> Transcript<'k, S> {
    pub(super) fn new(
        sink: S,
        (present, libraries): (Option<&'k Keyspace>, Arc<Libraries>),
        existing: Existing,
        now_ms: u64,
    ) -> Self {
        Transcript {
            sink,
            imported: Imported::default(),
            seen: None,
            present,
            existing,
            now_ms,
            libraries,
            reader: None,
            db: DbId::ZERO,
            key: Vec::new(),
            kind: Kind::String,
            expire_at_ms: None,
            fate: Fate::LeftOut,
            items: ItemsBuf::new(),
            scored: ScoredItemsBuf::new(),
            deadlines: Vec::new(),
            deadline_bytes: 0,
            stream: OpenStream::default(),
        }
    }

    /// Adds a library of the file to the present ones, replacing one with the same name.
    ///
    /// # Errors
    /// The reason why the library cannot be added.
    fn join(&mut self, library: Library) -> Result<(), String> {
        let library = Arc::new(library);
        let others = self.libraries.iter().filter(|other| other.name != library.name);
        let others: Libraries = others.cloned().collect();
        if let Some(function) = library.functions.iter().find(|it| others.function(&it.name).is_some()) {
            let name = function.name.escape_ascii();
            return Err(format!("its function {name} is in another library"));
        }
        let joined = others.iter().chain([&library]).cloned().collect();
        // A reason is no reply: it has no error code.
        require_few_libraries(&joined).map_err(|text| text.trim_start_matches("ERR ").to_owned())?;
        library.with_effect(|effect| self.sink.put(effect));
        self.libraries = Arc::new(joined);
        Ok(())
    }

    fn is_present(&self, db: DbId, key: &[u8]) -> bool {
        self.present.is_some_and(|keyspace| {
            let hash = keyspace.hash(key);
            keyspace.lock(hash.slot()).get(db, &hash, key, self.now_ms).is_some()
        })
    }

    fn is_past(&self, deadline_ms: Option<u64>) -> bool {
        deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.now_ms)
    }

    fn gathered_bytes(&self) -> usize {
        self.items.size_bytes() + self.scored.size_bytes() + self.deadline_bytes
    }

    /// Writes the collected elements of the key; after the last part (`is_last`) the key becomes visible.
    fn write_part(&mut self, is_last: bool) -> Result<(), ImportError> {
        let (db, key) = (self.db, self.key.as_slice());
        let value = match self.kind {
            Kind::List => Value::List(self.items.as_items()),
            Kind::Set => Value::Set(self.items.as_items()),
            Kind::Hash => Value::Hash(self.items.as_items()),
            Kind::Zset => Value::Zset(self.scored.as_items()),
            Kind::String | Kind::Stream => return Ok(()),
        };
        let replaces = match self.fate {
            Fate::LeftOut => return Ok(()),
            Fate::Wanted { replaces } => {
                let expire_at_ms = if is_last { self.expire_at_ms } else { Some(UNFINISHED_MS) };
                self.sink.put(&KeyOp::Put { value, expire_at_ms }.on(db, key));
                replaces
            }
            // The remaining fields may all have expired.
            Fate::Begun { replaces } if self.items.is_empty() && self.scored.is_empty() => replaces,
            Fate::Begun { replaces } => {
                self.sink.put(&match value {
                    Value::List(items) => KeyOp::ListPush { end: ListEnd::Tail, items }.on(db, key),
                    Value::Set(members) => KeyOp::SetAdd { members }.on(db, key),
                    Value::Hash(pairs) => KeyOp::HashPut { pairs }.on(db, key),
                    Value::Zset(members) => KeyOp::ZsetPut { members }.on(db, key),
                    Value::String(_) | Value::Stream(_) => unreachable!("its elements are effects"),
                });
                replaces
            }
        };
        self.write_deadlines();
        if is_last && matches!(self.fate, Fate::Begun { .. }) {
            let (key, expire_at_ms) = (self.key.as_slice(), self.expire_at_ms);
            self.sink.put(&KeyOp::SetExpiry { expire_at_ms }.on(db, key));
        }
        self.fate = Fate::Begun { replaces };
        self.items.clear();
        self.scored.clear();
        self.sink.boundary()
    }

    /// Writes the next part of a stream, whose key counts as expired until it is complete.
    fn write_stream(&mut self, element: &StreamElement<'_>) -> Result<(), ImportError> {
        let (db, key) = (self.db, self.key.as_slice());
        if let Fate::Wanted { replaces } = self.fate {
            let value = Value::Stream(StreamHead::default());
            self.sink.put(&KeyOp::Put { value, expire_at_ms: Some(UNFINISHED_MS) }.on(db, key));
            self.fate = Fate::Begun { replaces };
        }
        let OpenStream { group, consumer, bytes } = &mut self.stream;
        stream_effect(db, key, (group, consumer), element, &mut |effect| {
            *bytes += effect.encoded_len();
            self.sink.put(effect);
        });
        match element {
            StreamElement::Group { name, .. } => *group = name.to_vec(),
            StreamElement::Consumer { name, .. } => *consumer = name.to_vec(),
            _ => {}
        }
        if *bytes < PART_BYTES {
            return Ok(());
        }
        *bytes = 0;
        self.sink.boundary()
    }

    /// Makes the stream visible: gives its key the deadline that the file has for it, or none.
    fn finish_stream(&mut self) -> Result<(), ImportError> {
        self.stream = OpenStream::default();
        let (db, key, expire_at_ms) = (self.db, self.key.as_slice(), self.expire_at_ms);
        self.sink.put(&KeyOp::SetExpiry { expire_at_ms }.on(db, key));
        self.sink.boundary()
    }

    /// Writes one effect for all fields with the same deadline.
    fn write_deadlines(&mut self) {
        self.deadlines.sort_unstable();
        for group in self.deadlines.chunk_by(|(one, _), (other, _)| one == other) {
            let fields: Vec<&[u8]> = group.iter().map(|(_, field)| field.as_slice()).collect();
            let (fields, expire_at_ms) =
                (Items::Slices(&fields), group.first().map(|(deadline, _)| *deadline));
            self.sink.put(&KeyOp::HashSetExpiry { fields, expire_at_ms }.on(self.db, &self.key));
        }
        self.deadlines.clear();
        self.deadline_bytes = 0;
    }
}

impl<S: EffectSink> Visitor for Transcript<'_, S> {
    type Error = ImportError;

    fn begin(&mut self, key: &Key<'_>) -> Result<(), ImportError> {
        let db = u8::try_from(key.db).ok().and_then(DbId::new);
        self.db = db.ok_or_else(|| ImportError::Database {
            key: key.name.escape_ascii().to_string(),
            db: key.db,
            count: DB_COUNT,
        })?;
        self.key.clear();
        self.key.extend_from_slice(key.name);
        (self.kind, self.expire_at_ms) = (key.kind, key.expire_at_ms);
        if self.seen.as_mut().is_some_and(|seen| !seen.add(key.db, key.name)) {
            let (key, db) = (key.name.escape_ascii().to_string(), key.db);
            return Err(ImportError::Twice { key, db });
        }
        self.fate = if self.is_past(key.expire_at_ms) {
            self.imported.expired_keys += 1;
            Fate::LeftOut
        } else {
            match (self.is_present(self.db, key.name), self.existing) {
                (true, Existing::Kept) => {
                    self.imported.kept += 1;
                    Fate::LeftOut
                }
                (replaces, _) => Fate::Wanted { replaces },
            }
        };
        Ok(())
    }

    fn element(&mut self, element: Element<'_>) -> Result<(), ImportError> {
        if self.fate == Fate::LeftOut {
            return Ok(());
        }
        if self.gathered_bytes() >= PART_BYTES {
            self.write_part(false)?;
        }
        match element {
            Element::String(bytes) => {
                let (db, key, expire_at_ms) = (self.db, self.key.as_slice(), self.expire_at_ms);
                self.sink.put(&KeyOp::Put { value: Value::String(bytes), expire_at_ms }.on(db, key));
            }
            Element::Stream(element) => self.write_stream(&element)?,
            Element::Item(item) | Element::Member(item) => self.items.push(item),
            Element::Scored(score, member) => self.scored.push(score, member),
            Element::Field { expire_at_ms, .. } if self.is_past(expire_at_ms) => {
                self.imported.expired_fields += 1;
            }
            Element::Field { name, value, expire_at_ms } => {
                self.items.push(name);
                self.items.push(value);
                if let Some(deadline_ms) = expire_at_ms {
                    self.deadlines.push((deadline_ms, name.to_vec()));
                    self.deadline_bytes += name.len() + size_of::<(u64, Vec<u8>)>();
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ImportError> {
        let replaces = match self.fate {
            Fate::LeftOut => return Ok(()),
            Fate::Wanted { .. }
                if self.kind != Kind::String && self.items.is_empty() && self.scored.is_empty() =>
            {
                // No elements, or only expired ones.
                self.imported.empty += 1;
                return Ok(());
            }
            Fate::Wanted { replaces } | Fate::Begun { replaces } => replaces,
        };
        self.imported.replaced += u64::from(replaces);
        self.imported.keys[self.kind as usize] += 1;
        match self.kind {
            Kind::String => self.sink.boundary(),
            Kind::Stream => self.finish_stream(),
            _ => self.write_part(true),
        }
    }

    fn library(&mut self, source: &[u8]) -> Result<(), ImportError> {
        let library = self.reader.get_or_insert_default().read(source);
        if let (Ok(library), Some(seen)) = (&library, &mut self.seen)
            && !seen.add(LIBRARIES, &library.name)
        {
            return Err(ImportError::LibraryTwice { name: library.name.escape_ascii().to_string() });
        }
        let outcome = match library {
            Ok(library) if self.existing == Existing::Kept && self.libraries.get(&library.name).is_some() => {
                self.imported.kept_libraries += 1;
                return Ok(());
            }
            Ok(library) => self.join(library),
            Err(why) => Err(why),
        };
        match outcome {
            Ok(()) => self.imported.libraries += 1,
            Err(why) => {
                self.imported.refused_libraries += 1;
                self.imported.first_refusal.get_or_insert(why);
            }
        }
        self.sink.boundary()
    }

    fn passed_over(&mut self, what: PassedOver) -> Result<(), ImportError> {
        match what {
            PassedOver::ModuleData => self.imported.module_data += 1,
            PassedOver::AppendOnlyBase => self.imported.is_append_only_base = true,
        }
        Ok(())
    }
}

impl From<FileError> for ImportError {
    fn from(error: FileError) -> Self {
        ImportError::File(error)
    }
}
