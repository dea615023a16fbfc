//! Scripts: what the server keeps of them, and what a worker runs them with.
//!
//! What it is: the scripts that were loaded, the settings that hold for them and for functions, the machine of one worker.
//! What it is not: the machine itself (see the crate `scripting`), nor the commands (see `families::scripts`).
//!
//! Invariants
//! - A script is one unit: it runs with the locks of its keys, and all its effects are one record.
//! - A script that touches a key which it has not declared locks its slot if that is possible without waiting. If not, what
//!   it did is undone, and it runs again with every slot locked. Nobody has seen anything of it.

mod cache;
mod libraries;
mod running;
mod settings;

use scripting::{Meter, Vm};

use crate::{
    CommandError,
    long_units::{LONG_AFTER_US, Place, STAYING_US},
};
pub use cache::HandedOver;
pub use cache::{Script, Scripts};
pub use libraries::WorkerLibraries;
pub use libraries::{
    FUNCTIONS_MAX, LIBRARIES_BYTES_MAX, LIBRARIES_MAX, LOADING_MS_MAX, LibraryReader, Loading,
    RESTORING_MS_MAX, TOO_MANY, load_library, require_few_libraries,
};
pub use running::{Kill, RunningFunction, ScriptKind};
pub use settings::ScriptSettings;

/// What a worker runs scripts with.
#[derive(Default)]
pub struct Scripting {
    vm: Option<Box<Vm>>,
    /// The generation of the scripts that it has compiled.
    generation: u64,
    /// The libraries of the machine.
    pub libraries: WorkerLibraries,
    /// Why the script that runs may not write.
    pub no_writes: Option<CommandError>,
    /// Why it may not add data.
    pub no_growth: Option<CommandError>,
    /// Where it runs.
    pub place: Place,
    /// The unit that runs cannot be handed over.
    pub stays: bool,
    /// When a unit of several scripts has to have ended.
    pub deadline_us: Option<u64>,
    /// The script that was stopped to run again.
    pub handed_over: Option<HandedOver>,
}

impl Scripting {
    /// Takes the machine, for the time of a script; the first script of a worker makes it.
    pub fn take_vm(&mut self, scripts: &Scripts) -> Box<Vm> {
        let limits = scripts.settings.limits();
        let mut vm = self.vm.take().unwrap_or_else(|| Box::new(Vm::metered(limits, self.new_meter())));
        vm.set_limits(limits);
        let generation = scripts.generation();
        if generation != self.generation {
            self.generation = generation;
            vm.forget_scripts();
        }
        vm
    }

    fn new_meter(&self) -> Meter {
        match &self.place {
            Place::Worker(clock) => Meter::with_clock(clock.clone()),
            Place::Alone | Place::OwnThread => Meter::default(),
        }
    }

    /// Whether what takes long is handed over.
    pub fn hands_over(&self) -> bool {
        matches!(self.place, Place::Worker(_)) && !self.stays
    }

    /// When a unit with scripts that begins now has to have ended where it runs, if it has to.
    pub fn deadline_us(&self, now_us: u64) -> Option<u64> {
        let is_shared = matches!(self.place, Place::Worker(_));
        is_shared.then(|| now_us + if self.stays { STAYING_US } else { LONG_AFTER_US })
    }

    /// Gives the machine back.
    pub fn put_vm(&mut self, vm: Box<Vm>) {
        self.vm = Some(vm);
    }

    /// What may keep the script from writing, as the checks before it have found.
    pub fn allow(&mut self, writes: Result<(), CommandError>, growth: Result<(), CommandError>) {
        (self.no_writes, self.no_growth) = (writes.err(), growth.err());
    }
}
