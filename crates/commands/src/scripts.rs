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

use scripting::Vm;

use crate::CommandError;
pub use cache::Scripts;
pub(crate) use cache::{LONG_SCRIPT_US, Script};
pub(crate) use libraries::{
    FUNCTIONS_MAX, LIBRARIES_BYTES_MAX, LIBRARIES_MAX, LOADING_MS_MAX, Loading, RESTORING_MS_MAX, TOO_MANY,
    WorkerLibraries, load_library,
};
pub use libraries::{LibraryReader, require_few_libraries};
pub(crate) use running::{Kill, RunningFunction, ScriptKind};
pub use settings::ScriptSettings;

/// What a worker runs scripts with.
#[derive(Debug, Default)]
pub(crate) struct Scripting {
    vm: Option<Box<Vm>>,
    /// The generation of the scripts that it has compiled.
    generation: u64,
    /// The libraries of the machine.
    pub(crate) libraries: WorkerLibraries,
    /// Why the script that runs may not write.
    pub(crate) no_writes: Option<CommandError>,
    /// Why it may not add data.
    pub(crate) no_growth: Option<CommandError>,
}

impl Scripting {
    /// Takes the machine, for the time of a script; the first script of a worker makes it.
    pub(crate) fn take_vm(&mut self, scripts: &Scripts) -> Box<Vm> {
        let limits = scripts.settings.limits();
        let mut vm = self.vm.take().unwrap_or_else(|| Box::new(Vm::new(limits)));
        vm.set_limits(limits);
        let generation = scripts.generation();
        if generation != self.generation {
            self.generation = generation;
            vm.forget_scripts();
        }
        vm
    }

    /// Gives the machine back.
    pub(crate) fn put_vm(&mut self, vm: Box<Vm>) {
        self.vm = Some(vm);
    }

    /// What may keep the script from writing, as the checks before it have found.
    pub(crate) fn allow(&mut self, writes: Result<(), CommandError>, growth: Result<(), CommandError>) {
        (self.no_writes, self.no_growth) = (writes.err(), growth.err());
    }
}
