//! Libraries: the functions that clients have loaded, by name.
//!
//! ```text
//! effect -> slot 0, under its lock: `ahead` -- LSN noted --> `published` -> readers without the lock
//! ```
//!
//! What it is: immutable sets of libraries, the current set, and the effects on it.
//! What it is not: able to run or to understand code. The functions of a library were determined before its
//! effect was made. Libraries are no keys either: no read, count or scan of keys finds a library.
//!
//! Libraries belong to [`LIBRARIES_SLOT`]. So the lock of this slot orders the changes of libraries, and
//! captures, snapshots and replays of slots carry the libraries.
//!
//! Invariants
//! - Only the holder of the lock of [`LIBRARIES_SLOT`] changes libraries, or sees a change whose record has
//!   no LSN yet. Other readers see the published set with an LSN, for which a reply that depends on the set
//!   can wait.
//! - Names of functions are compared without regard to case. The maker of an effect has to make sure that
//!   these names are unique.
//! - FlushAll removes libraries like everything else in a slot, so that the data after it depend on no
//!   earlier record. A caller that wants to keep the libraries puts them again in the same record.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lsn::Lsn;
use parking_lot::{Mutex, RwLock};

use crate::apply::Applied;
use crate::effect::{Effect, ItemsBuf, LibraryContent};
use crate::id::SlotId;
use crate::keyspace::Keyspace;
use crate::slot::SlotGuard;

/// The slot that libraries belong to.
pub const LIBRARIES_SLOT: SlotId = SlotId::FIRST;

/// An upper bound of the bytes of lengths and marks in the effect of a library: this many for the library
/// itself, and this many for each of its functions.
const ENCODING_BYTES: usize = 32;

/// The empty key: its slot is [`LIBRARIES_SLOT`].
pub(crate) const LIBRARIES_KEY: &[u8] = b"";

/// The declared flags of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FunctionFlags(u8);

impl FunctionFlags {
    /// The function changes nothing.
    pub const NO_WRITES: FunctionFlags = FunctionFlags(1);
    /// The function may run when memory is full.
    pub const ALLOW_OOM: FunctionFlags = FunctionFlags(1 << 1);
    /// The function may run where the data may not be shown, such as on a replica that has lost its leader.
    pub const ALLOW_STALE: FunctionFlags = FunctionFlags(1 << 2);
    /// The function says that it does not run in a cluster. Sheaf runs it nevertheless.
    pub const NO_CLUSTER: FunctionFlags = FunctionFlags(1 << 3);
    /// The function says that it uses keys of several slots in a cluster. Here every function may.
    pub const ALLOW_CROSS_SLOT_KEYS: FunctionFlags = FunctionFlags(1 << 4);

    const NAMES: [(FunctionFlags, &'static str); 5] = [
        (FunctionFlags::NO_WRITES, "no-writes"),
        (FunctionFlags::ALLOW_OOM, "allow-oom"),
        (FunctionFlags::ALLOW_STALE, "allow-stale"),
        (FunctionFlags::NO_CLUSTER, "no-cluster"),
        (FunctionFlags::ALLOW_CROSS_SLOT_KEYS, "allow-cross-slot-keys"),
    ];

    /// The flag of this name.
    pub fn named(name: &[u8]) -> Option<FunctionFlags> {
        Self::NAMES.iter().find(|(_, known)| known.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// The names of these flags, always in the same order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }

    /// The flags that `self` or `other` has.
    #[must_use]
    pub const fn or(self, other: FunctionFlags) -> FunctionFlags {
        FunctionFlags(self.0 | other.0)
    }

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: FunctionFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A function of a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// The name of the function.
    pub name: Box<[u8]>,
    /// The description of the function.
    pub description: Option<Box<[u8]>>,
    /// The declared flags of the function.
    pub flags: FunctionFlags,
}

/// A library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    /// The name of the library.
    pub name: Box<[u8]>,
    /// The source of the library, with the line that gives its name.
    pub code: Box<[u8]>,
    /// The functions that the library registers.
    pub functions: Box<[Function]>,
}

impl Library {
    /// Bytes of all names, descriptions and code of the library.
    pub fn bytes(&self) -> usize {
        let function = |function: &Function| {
            function.name.len() + function.description.as_ref().map_or(0, |text| text.len())
        };
        self.name.len() + self.code.len() + self.functions.iter().map(function).sum::<usize>()
    }

    /// Calls `apply` with the effect that puts the library.
    pub fn with_effect<R>(&self, apply: impl FnOnce(&Effect<'_>) -> R) -> R {
        let mut functions = ItemsBuf::new();
        for function in &self.functions {
            functions.push(&function.name);
            functions.push(&[function.flags.0, u8::from(function.description.is_some())]);
            functions.push(function.description.as_deref().unwrap_or_default());
        }
        let content = LibraryContent { code: &self.code, functions: functions.as_items() };
        apply(&Effect::Library { name: &self.name, content: Some(content) })
    }

    /// The library of an effect. An incomplete function at the end is left out.
    fn of_effect(name: &[u8], LibraryContent { code, functions }: LibraryContent<'_>) -> Library {
        let mut items = functions.iter();
        let next = || {
            let (name, marks, text) = (items.next()?, items.next()?, items.next()?);
            let [flags, is_described] = [0, 1].map(|at| marks.get(at).copied().unwrap_or(0));
            let description = (is_described != 0).then(|| text.into());
            Some(Function { name: name.into(), description, flags: FunctionFlags(flags) })
        };
        let functions = std::iter::from_fn(next).collect();
        Library { name: name.into(), code: code.into(), functions }
    }
}

/// An immutable set of libraries.
#[derive(Debug, Default)]
pub struct Libraries {
    by_name: BTreeMap<Box<[u8]>, Arc<Library>>,
    /// The index of functions, made by the first search for a function.
    functions: OnceLock<Index>,
}

/// For each function's name in lower case: its library, and its index in the library.
type Index = HashMap<Box<[u8]>, (Arc<Library>, usize)>;

impl Libraries {
    /// The library of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Library>> {
        self.by_name.get(name)
    }

    /// All libraries, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// The function of this name, in upper or lower case, and its library.
    pub fn function(&self, name: &[u8]) -> Option<(&Arc<Library>, &Function)> {
        let index = self.functions.get_or_init(|| self.index());
        let (library, index) = index.get(&*name.to_ascii_lowercase())?;
        Some((library, library.functions.get(*index)?))
    }

    /// The number of libraries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no library.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The number of functions.
    pub fn functions_len(&self) -> usize {
        self.iter().map(|library| library.functions.len()).sum()
    }

    /// Bytes of all libraries.
    pub fn bytes(&self) -> usize {
        self.iter().map(|library| library.bytes()).sum()
    }

    /// An upper bound of the bytes of the effects that put these libraries.
    pub fn encoded_bytes(&self) -> usize {
        self.bytes() + ENCODING_BYTES * (self.len() + self.functions_len())
    }

    /// The libraries after an effect on one of them; `None` if the effect changes nothing.
    fn after(&self, name: &[u8], content: Option<LibraryContent<'_>>) -> Option<Libraries> {
        let mut by_name = self.by_name.clone();
        match content {
            Some(content) => {
                let library = Library::of_effect(name, content);
                if by_name.get(name).is_some_and(|known| **known == library) {
                    return None;
                }
                by_name.insert(name.into(), Arc::new(library));
            }
            None => _ = by_name.remove(name)?,
        }
        Some(Libraries { by_name, functions: OnceLock::new() })
    }

    fn index(&self) -> Index {
        let mut functions = HashMap::new();
        for library in self.iter() {
            for (index, function) in library.functions.iter().enumerate() {
                functions.insert(function.name.to_ascii_lowercase().into(), (library.clone(), index));
            }
        }
        functions
    }
}

impl FromIterator<Arc<Library>> for Libraries {
    fn from_iter<I: IntoIterator<Item = Arc<Library>>>(libraries: I) -> Self {
        let by_name = libraries.into_iter().map(|library| (library.name.clone(), library)).collect();
        Libraries { by_name, functions: OnceLock::new() }
    }
}

/// The libraries in force, and an LSN for replies that depend on them.
#[derive(Clone, Debug)]
pub struct Published {
    /// A number that rises whenever the published libraries change.
    pub generation: u64,
    /// The libraries.
    pub libraries: Arc<Libraries>,
    /// An LSN that is not below the LSN of the record that made these libraries. [`Lsn::ZERO`] if there is no
    /// such record, [`Lsn::MAX`] if the record cannot be written.
    pub lsn: Lsn,
}

#[derive(Debug)]
pub(crate) struct Shelf {
    /// The state after all effects. Changed under the lock of the slot.
    ahead: Mutex<Arc<Libraries>>,
    published: RwLock<Published>,
    /// The generation of `published`, to be read without its lock.
    generation: AtomicU64,
}

impl Shelf {
    pub(crate) fn new() -> Shelf {
        let libraries = Arc::<Libraries>::default();
        let published = Published { generation: 0, libraries: libraries.clone(), lsn: Lsn::ZERO };
        Shelf {
            ahead: Mutex::new(libraries),
            published: RwLock::new(published),
            generation: AtomicU64::new(0),
        }
    }
}

impl Keyspace {
    /// The libraries as of the last LSN that was noted for their slot.
    pub fn libraries(&self) -> Published {
        self.shelf.published.read().clone()
    }

    /// The generation of [`Keyspace::libraries`]. Takes one load, for callers that keep a copy of the
    /// libraries.
    #[inline]
    pub fn libraries_generation(&self) -> u64 {
        self.shelf.generation.load(Ordering::Acquire)
    }
}

impl SlotGuard<'_> {
    /// The current libraries, including changes of the unit that holds this lock.
    ///
    /// # Panics
    /// If this is not the slot of libraries.
    pub fn libraries(&self) -> Arc<Libraries> {
        assert_eq!(self.slot(), LIBRARIES_SLOT);
        self.keyspace.shelf.ahead.lock().clone()
    }

    /// Puts a library, or removes it.
    ///
    /// # Panics
    /// If this is not the slot of libraries.
    #[cold]
    pub(crate) fn change_library(&mut self, name: &[u8], content: Option<LibraryContent<'_>>) -> Applied {
        assert_eq!(self.slot(), LIBRARIES_SLOT, "libraries changed under the lock of another slot");
        let mut ahead = self.keyspace.shelf.ahead.lock();
        let Some(changed) = ahead.after(name, content) else { return Applied::default() };
        *ahead = Arc::new(changed);
        Applied { changed: true, ..Applied::default() }
    }

    #[cold]
    pub(crate) fn clear_libraries(&mut self) {
        let mut ahead = self.keyspace.shelf.ahead.lock();
        if !ahead.is_empty() {
            *ahead = Arc::default();
        }
    }

    /// Shows the changes of libraries to all readers.
    #[cold]
    pub(crate) fn publish_libraries(&self) {
        let shelf = &self.keyspace.shelf;
        let ahead = shelf.ahead.lock().clone();
        let mut published = shelf.published.write();
        if Arc::ptr_eq(&published.libraries, &ahead) {
            return;
        }
        let generation = published.generation + 1;
        *published = Published { generation, libraries: ahead, lsn: self.last_lsn() };
        shelf.generation.store(generation, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
