//! The settings for scripts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use scripting::Limits;

/// The settings for scripts, which may change at any time. The limits of a script, and whether it is rolled
/// back, are those in force when it begins.
#[derive(Debug)]
pub struct ScriptSettings {
    memory_bytes_max: AtomicU64,
    instructions_max: AtomicU64,
    busy_after_ms: AtomicU64,
    rolls_back: AtomicBool,
}

impl Default for ScriptSettings {
    fn default() -> ScriptSettings {
        ScriptSettings {
            memory_bytes_max: (256 << 20).into(),
            instructions_max: 0.into(),
            busy_after_ms: 5000.into(),
            rolls_back: false.into(),
        }
    }
}

impl ScriptSettings {
    /// The limits for a script that begins now.
    pub fn limits(&self) -> Limits {
        Limits {
            memory_bytes_max: usize::try_from(self.memory_bytes_max.load(Relaxed)).unwrap_or(usize::MAX),
            instructions_max: self.instructions_max.load(Relaxed),
        }
    }

    /// Limits the memory of the machine of each worker, in bytes (`script-max-memory`).
    pub fn set_memory(&self, bytes_max: u64) {
        self.memory_bytes_max.store(bytes_max, Relaxed);
    }

    /// Limits the instructions of one script; 0 for no limit (`script-max-instructions`).
    pub fn set_instructions(&self, max: u64) {
        self.instructions_max.store(max, Relaxed);
    }

    /// Sets the time after which commands that need a script's slot get BUSY, in milliseconds; 0: never
    /// (`busy-reply-threshold`).
    pub fn set_busy_after(&self, ms: u64) {
        self.busy_after_ms.store(ms, Relaxed);
    }

    /// The time in milliseconds; see [`ScriptSettings::set_busy_after`].
    pub fn busy_after_ms(&self) -> u64 {
        self.busy_after_ms.load(Relaxed)
    }

    /// Sets whether a script that fails is rolled back (`script-rollback`).
    pub fn set_rolls_back(&self, rolls_back: bool) {
        self.rolls_back.store(rolls_back, Relaxed);
    }

    /// Whether the changes of a script that fails are undone; see [`ScriptSettings::set_rolls_back`].
    pub fn rolls_back(&self) -> bool {
        self.rolls_back.load(Relaxed)
    }
}
