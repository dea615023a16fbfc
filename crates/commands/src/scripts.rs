//! Scripts: what the server keeps of them, and what a worker runs them with.
//!
//! What it is: the scripts that were loaded, the settings that hold for them, the machine of one worker.
//! What it is not: the machine itself (see the crate `scripting`), nor the commands (see `families::scripts`).
//!
//! Invariants
//! - A script is one unit: it runs with the locks of its keys, and all its effects are one record.
//! - A script that touches a key which it has not declared locks its slot if that is possible without waiting. If not, what
//!   it did is undone, and it runs again with every slot locked. Nobody has seen anything of it.

mod cache;
mod running;
mod settings;

use scripting::Vm;

use crate::CommandError;
pub(crate) use cache::Script;
pub use cache::Scripts;
pub use settings::ScriptSettings;

/// What a worker runs scripts with.
#[derive(Debug, Default)]
pub(crate) struct Scripting {
    vm: Option<Box<Vm>>,
    /// Why the script that runs may not write.
    pub(crate) no_writes: Option<CommandError>,
    /// Why it may not add data.
    pub(crate) no_growth: Option<CommandError>,
}

impl Scripting {
    /// Takes the machine, for the time of a script; the first script of a worker makes it.
    pub(crate) fn take_vm(&mut self, settings: &ScriptSettings) -> Box<Vm> {
        let mut vm = self.vm.take().unwrap_or_else(|| Box::new(Vm::new(settings.limits())));
        vm.set_limits(settings.limits());
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
