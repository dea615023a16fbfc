//! Long units: units that would occupy their worker for longer than its other clients should wait.
//!
//! ```text
//! worker: unit begins -> ends in time
//!                    '-> long: undone -> LongUnit (arguments, session) -> own thread: the unit, again
//!                                         the worker goes on               '-> reply, session -> worker
//! ```
//!
//! This module has the rules for long units, and the slots that each of them holds. The module `offload`
//! moves a unit to its own thread and executes it there. The threads belong to the server.
//!
//! Invariants
//! - A unit is offloaded before any of its changes is visible: its changes are undone, and its slots are
//!   free. The unit runs again as if it had just arrived.
//! - A unit that may still be offloaded begins nothing that cannot be undone, or that must not be done
//!   twice.
//! - A command that needs a slot of a long unit blocks a shared thread for little more than a millisecond at
//!   most, and is then retried or gets BUSY: see [`crate::unit::LockPolicy`].

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use keyspace::{SLOT_COUNT, SlotId, View};
use parking_lot::Mutex;
use scripting::ClockUs;

use crate::CommandError;

/// A unit with scripts that has run for this long on a worker is long.
pub const LONG_AFTER_US: u64 = 3_000;

/// How long a transaction with scripts that cannot be offloaded may run: a script that takes longer is
/// stopped, and gets an error.
pub(crate) const STAYING_US: u64 = 50_000;

/// Work on more elements than this is long: about a millisecond.
pub const LONG_ELEMENTS: usize = 16 << 10;

/// The number of bytes of a string that take about as long as one element of a collection.
pub const BYTES_PER_ELEMENT: usize = 256;

/// How many elements a command may process on the thread where it runs.
#[derive(Debug, Clone, Copy)]
pub struct ElementsMax(pub(crate) usize);

impl ElementsMax {
    /// Has the unit offloaded if there are more elements. To be called before the first change.
    ///
    /// # Errors
    /// To be passed on: [`CommandError::NeedsOwnThread`].
    #[inline]
    pub fn require(self, elements: usize) -> Result<(), CommandError> {
        if elements <= self.0 { Ok(()) } else { Err(CommandError::NeedsOwnThread) }
    }

    /// As [`ElementsMax::require`], for the bytes of a string.
    ///
    /// # Errors
    /// To be passed on.
    #[inline]
    pub fn require_bytes(self, bytes: usize) -> Result<(), CommandError> {
        self.require(bytes / BYTES_PER_ELEMENT)
    }
}

/// The size of a value in elements.
pub fn elements(view: View<'_>) -> usize {
    match view {
        View::String(bytes) => bytes.len() / BYTES_PER_ELEMENT,
        view => view.len(),
    }
}

/// The kind of thread on which an executor runs its units.
#[derive(Clone, Default)]
pub enum ThreadRole {
    /// A thread without other clients, from which no unit is offloaded.
    #[default]
    Alone,
    /// A worker, on which other clients wait: long units are offloaded.
    Worker(ClockUs),
    /// A thread for one offloaded unit.
    OwnThread,
}

/// The slots that a unit on a thread of its own holds, readable by other threads.
#[derive(Debug)]
pub(crate) struct HeldSlots {
    since_us: u64,
    runs_scripts: bool,
    slots: Box<[AtomicU64]>,
}

impl HeldSlots {
    fn new(since_us: u64, runs_scripts: bool) -> HeldSlots {
        HeldSlots {
            since_us,
            runs_scripts,
            slots: (0..SLOT_COUNT.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn place(slot: SlotId) -> (usize, u64) {
        let number = usize::from(slot.get());
        (number / 64, 1 << (number % 64))
    }

    /// Notes that the unit holds one more slot.
    pub fn add(&self, slot: SlotId) {
        let (word, bit) = HeldSlots::place(slot);
        self.slots[word].fetch_or(bit, Relaxed);
    }

    fn has(&self, slot: SlotId) -> bool {
        let (word, bit) = HeldSlots::place(slot);
        self.slots[word].load(Relaxed) & bit != 0
    }

    /// Forgets all slots: the unit has ended, or begins again.
    pub fn clear(&self) {
        self.slots.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// The long unit that holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The time at which the unit began, monotonic microseconds.
    pub since_us: u64,
    /// Whether clients get BUSY when the unit has run for long.
    pub runs_scripts: bool,
}

/// All units that run on threads of their own.
#[derive(Debug, Default)]
pub struct LongUnits(Mutex<Vec<Arc<HeldSlots>>>);

impl LongUnits {
    /// Registers a unit; dropping the result removes it.
    pub(crate) fn begin(&self, since_us: u64, runs_scripts: bool) -> Holding<'_> {
        let held = Arc::new(HeldSlots::new(since_us, runs_scripts));
        self.0.lock().push(held.clone());
        Holding { units: self, held }
    }

    /// The long unit that holds a slot; `None` if no long unit does.
    pub fn holder(&self, slot: SlotId) -> Option<Holder> {
        let units = self.0.lock();
        let holder = units.iter().find(|unit| unit.has(slot));
        holder.map(|unit| Holder { since_us: unit.since_us, runs_scripts: unit.runs_scripts })
    }
}

/// The registration of a unit that runs on a thread of its own.
pub(crate) struct Holding<'u> {
    units: &'u LongUnits,
    held: Arc<HeldSlots>,
}

impl Holding<'_> {
    /// The slots of the unit, shown to other threads.
    pub fn held(&self) -> &Arc<HeldSlots> {
        &self.held
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.units.0.lock().retain(|unit| !Arc::ptr_eq(unit, &self.held));
    }
}
