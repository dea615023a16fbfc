//! The script machine of one worker, with the state of the script that runs. The machine itself is in the
//! crate `scripting`.

mod libraries;

use scripting::{Meter, Vm};

use crate::{
    CommandError,
    long_units::{LONG_AFTER_US, STAYING_US, ThreadRole},
    scripts::{OffloadedScript, Scripts},
};
pub use libraries::WorkerLibraries;
pub use libraries::{
    FUNCTIONS_MAX, LIBRARIES_BYTES_MAX, LIBRARIES_MAX, LOADING_MS_MAX, LibraryReader, Loading,
    RESTORING_MS_MAX, TOO_MANY, load_library, require_few_libraries,
};

/// The script machine of a worker, with the state of the script that runs.
#[derive(Default)]
pub struct Scripting {
    vm: Option<Box<Vm>>,
    /// The generation of the scripts that the machine has compiled.
    generation: u64,
    /// The libraries that are compiled in the machine.
    pub libraries: WorkerLibraries,
    /// The error for writes of the running script; `None` if it may write.
    pub no_writes: Option<CommandError>,
    /// The error for commands of the running script that add data; `None` if they may run.
    pub no_growth: Option<CommandError>,
    /// The kind of thread on which scripts run.
    pub place: ThreadRole,
    /// Whether the running transaction must stay on its thread.
    pub stays: bool,
    /// The time at which the scripts of a transaction must have ended.
    pub deadline_us: Option<u64>,
    /// The script that was stopped to run again.
    pub offloaded: Option<OffloadedScript>,
}

impl Scripting {
    /// Takes the machine for one script; the first script of a worker creates it.
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
            ThreadRole::Worker(clock) => Meter::with_clock(clock.clone()),
            ThreadRole::Alone | ThreadRole::OwnThread => Meter::default(),
        }
    }

    /// Whether units that take long are offloaded.
    pub fn offloads(&self) -> bool {
        matches!(self.place, ThreadRole::Worker(_)) && !self.stays
    }

    /// The time at which a unit with scripts that begins now must have ended on this thread; `None`:
    /// unlimited.
    pub fn deadline_us(&self, now_us: u64) -> Option<u64> {
        let is_shared = matches!(self.place, ThreadRole::Worker(_));
        is_shared.then(|| now_us + if self.stays { STAYING_US } else { LONG_AFTER_US })
    }

    /// Puts the machine back after a script, for the next one.
    pub fn put_vm(&mut self, vm: Box<Vm>) {
        self.vm = Some(vm);
    }

    /// Sets the errors for writes and for growth of the next script, as found by the checks before it.
    pub fn allow(&mut self, writes: Result<(), CommandError>, growth: Result<(), CommandError>) {
        (self.no_writes, self.no_growth) = (writes.err(), growth.err());
    }
}
