//! Shared by all tests: runs a world until a fault, and judges its disk.

use std::sync::Arc;

use env::{
    SimClock, SimDisk,
    sim::{CrashMode, FaultPlan, SimDiskOptions},
};
use keyspace::{Digest, Keyspace};
use recovery::recover::RecoverError;
use sim::{Content, Oracle, Recovered, Survival, Violation, World, WorldOptions, content_of, recover};
use storage::Durability;

/// The start of every simulation, in unix milliseconds.
const START_MS: u64 = 1_700_000_000_000;
/// The structures of the keyspace are checked in one out of this number of states.
const CHECKED_EVERY: u64 = 16;

/// The end of an incarnation: the remaining disk, and its expected content.
pub(crate) struct Ended {
    pub(crate) options: WorldOptions,
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) oracle: Oracle,
    /// The digest of memory; `None` if the server did not start.
    pub(crate) digest: Option<Digest>,
    /// The data that survives a power cut.
    pub(crate) power_cut: Survival,
    /// The data that survives the end of the process.
    pub(crate) process_end: Survival,
}

pub(crate) fn new_disk(seed: u64) -> Arc<SimDisk> {
    SimDisk::new(SimDiskOptions { seed, ..SimDiskOptions::default() })
}

/// The end of an incarnation that did not start.
pub(crate) struct NotStarted {
    pub(crate) ended: Ended,
    pub(crate) error: RecoverError,
}

pub(crate) fn start(
    options: WorldOptions,
    disk: Arc<SimDisk>,
    oracle: Oracle,
) -> Result<World, Box<NotStarted>> {
    let clock = Arc::new(SimClock::new(START_MS));
    World::start(options, disk.clone(), clock.clone(), oracle.clone()).map_err(|error| {
        let survival = Survival::Acknowledged;
        let (power_cut, process_end) = (survival, survival);
        let ended = Ended { options, disk, clock, oracle, digest: None, power_cut, process_end };
        Box::new(NotStarted { ended, error })
    })
}

/// An oracle for the durability in these options.
pub(crate) fn oracle_for(options: &WorldOptions) -> Oracle {
    Oracle::new(options.durability)
}

/// Runs a new world for `steps` steps under a fault plan.
pub(crate) fn live(options: WorldOptions, steps: usize, plan: FaultPlan) -> Ended {
    let disk = new_disk(options.seed);
    disk.set_fault_plan(plan);
    match start(options, disk, oracle_for(&options)) {
        Ok(mut world) => {
            world.run(steps).unwrap_or_else(|violation| panic!("seed {}: {violation}", options.seed));
            end(world, options)
        }
        Err(not_started) => {
            let NotStarted { ended, error } = *not_started;
            assert!(plan != FaultPlan::default(), "seed {}: a sound disk starts: {error}", options.seed);
            ended
        }
    }
}

/// Stops driving a world, after checking its memory.
pub(crate) fn end(world: World, options: WorldOptions) -> Ended {
    world.check().unwrap_or_else(|violation| panic!("seed {}: {violation}", options.seed));
    check_structure(&world.disk, &world.keyspace);
    Ended {
        digest: Some(world.keyspace.digest()),
        options,
        disk: world.disk.clone(),
        clock: world.clock.clone(),
        power_cut: Survival::Durable(world.log.durable_lsn()),
        process_end: Survival::Written(world.log.written_lsn()),
        oracle: world.oracle,
    }
}

/// Checks the structures in memory of some states.
fn check_structure(disk: &SimDisk, keyspace: &Keyspace) {
    if disk.io_count().is_multiple_of(CHECKED_EVERY) {
        keyspace.check();
    }
}

impl Ended {
    /// A copy of the disk after one possible power cut.
    pub(crate) fn after_power_cut(&self, mode: CrashMode, seed: u64) -> Arc<SimDisk> {
        let disk = self.disk.clone_state();
        disk.reseed(seed);
        disk.crash(mode);
        disk
    }

    /// Starts a server on `disk` and judges its content, twice, with another power cut in between: a recovery
    /// must make durable the state that it shows, and a second one must find the same state.
    pub(crate) fn judge(&self, disk: &Arc<SimDisk>, survival: Survival) -> Result<usize, Violation> {
        let (position, first, epoch) = self.judge_once(disk, survival)?;
        disk.crash(CrashMode::LoseAll);
        let (_, second, next_epoch) = self.judge_once(disk, survival)?;
        if first != second {
            return Err(Violation::Protocol(format!("recovered {position} first, then something else")));
        }
        if next_epoch <= epoch {
            return Err(Violation::Protocol(format!("epoch {next_epoch} after {epoch}")));
        }
        Ok(position)
    }

    fn judge_once(
        &self,
        disk: &Arc<SimDisk>,
        survival: Survival,
    ) -> Result<(usize, Content, u32), Violation> {
        let Recovered { keyspace, log } = recover(disk.clone(), &self.options, &self.clock)
            .map_err(|error| Violation::Protocol(format!("does not start: {error}")))?;
        let content = content_of(&keyspace);
        check_structure(disk, &keyspace);
        let position = self.oracle.judge(&content, survival)?;
        if position == self.oracle.executed() && self.digest.is_some_and(|it| it != keyspace.digest()) {
            return Err(Violation::Protocol("the newest state has another digest than it had".into()));
        }
        Ok((position, content, log.epoch()))
    }

    /// Judges all kinds of power cuts: all unsynced data lost, all kept, and `random` mixtures. Returns the
    /// number of states.
    ///
    /// # Errors
    /// The first broken guarantee, with instructions to reproduce it.
    pub(crate) fn judge_power_cuts(&self, random: u64) -> Result<u64, String> {
        let chosen = [CrashMode::LoseAll, CrashMode::KeepAll].into_iter();
        let modes = chosen.chain((0..random).map(|_| CrashMode::Random));
        for (index, mode) in modes.enumerate() {
            let disk = self.after_power_cut(mode, self.options.seed ^ index as u64);
            let survival = if mode == CrashMode::KeepAll { self.process_end } else { self.power_cut };
            self.judge(&disk, survival).map_err(|violation| self.describe(mode, index, &violation))?;
        }
        Ok(random + 2)
    }

    fn describe(&self, mode: CrashMode, index: usize, violation: &Violation) -> String {
        let (seed, io) = (self.options.seed, self.disk.io_count());
        format!(
            "seed {seed}, stopped at I/O {io}, {mode:?} (#{index}), {:?}: {violation}",
            self.options.durability
        )
    }
}

/// The default options with this seed.
pub(crate) fn seeded(seed: u64) -> WorldOptions {
    WorldOptions { seed, ..WorldOptions::default() }
}

/// As [`seeded`], with this durability.
pub(crate) fn with_durability(seed: u64, durability: Durability) -> WorldOptions {
    WorldOptions { durability, ..seeded(seed) }
}
