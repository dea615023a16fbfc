//! What simulated clients ask for: random commands over few keys, so that they meet.
//!
//! Every value says who wrote it, as its how many-th, and carries a checksum of that: two writes never look alike, and a
//! value that was put together from pieces of others is none.

use env::Prng;
use keyspace::DbId;

use crate::Command;

/// The shape of a workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadOptions {
    /// Keys per database.
    pub keys: u64,
    /// Databases in use.
    pub dbs: u8,
    /// Commands per pipeline at most.
    pub pipeline_max: u64,
    /// Length of an ordinary value at most, in bytes.
    pub value_bytes_max: u64,
    /// Out of 100 values, those that are large.
    pub large_percent: u64,
    /// Length of a large value at most, in bytes.
    pub large_bytes_max: u64,
    /// Out of 1000 commands, those that concern whole databases.
    pub global_permille: u64,
    /// Out of 100 commands, those that begin a transaction.
    pub transaction_percent: u64,
}

impl Default for WorkloadOptions {
    fn default() -> Self {
        WorkloadOptions {
            keys: 12,
            dbs: 3,
            pipeline_max: 16,
            value_bytes_max: 90,
            large_percent: 3,
            large_bytes_max: 20_000,
            global_permille: 3,
            transaction_percent: 6,
        }
    }
}

/// Makes commands.
#[derive(Debug)]
pub struct Workload {
    options: WorkloadOptions,
    prng: Prng,
    sequence: u64,
}

impl Workload {
    /// Commands that follow from `prng`.
    pub fn new(options: WorkloadOptions, prng: Prng) -> Workload {
        Workload { options, prng, sequence: 0 }
    }

    /// The next pipeline of client `writer`.
    pub fn pipeline(&mut self, writer: usize) -> Vec<Command> {
        let count = 1 + self.prng.below(self.options.pipeline_max) as usize;
        let mut commands = Vec::new();
        while commands.len() < count {
            if self.prng.chance(self.options.transaction_percent) {
                self.transaction(writer, &mut commands);
            } else {
                commands.push(self.command(writer));
            }
        }
        commands
    }

    /// Appends a transaction, or only what it is to depend on: then others may come in between.
    fn transaction(&mut self, writer: usize, commands: &mut Vec<Command>) {
        if self.prng.chance(40) {
            commands.push(Command::Watch(self.keys()));
            if self.prng.chance(50) {
                return;
            }
        }
        commands.push(Command::Multi);
        let count = self.prng.below(7);
        commands.extend((0..count).map(|_| self.command(writer)));
        commands.push(if self.prng.chance(90) { Command::Exec } else { Command::Discard });
    }

    fn command(&mut self, writer: usize) -> Command {
        if self.prng.below(1000) < self.options.global_permille {
            return self.global_command();
        }
        match self.prng.below(100) {
            0..30 => Command::Set { key: self.key(), value: self.value(writer), px_ms: self.px_ms() },
            30..48 => Command::Get(self.key()),
            48..53 => Command::MGet(self.keys()),
            53..58 => {
                let keys = self.keys();
                Command::MSet(keys.into_iter().map(|key| (key, self.value(writer))).collect())
            }
            58..64 => Command::Del(self.keys()),
            64..72 => Command::Incr(format!("counter-{}", self.prng.below(4)).into_bytes()),
            72..78 => Command::Append(self.key(), self.value(writer)),
            78..82 => Command::SetRange(self.key(), self.prng.below(64) as usize, self.value(writer)),
            82..85 => Command::PExpire(self.key(), 1 + self.prng.below(4000)),
            85..87 => Command::Persist(self.key()),
            87..91 => Command::Rename(self.key(), self.key()),
            91..94 => Command::GetSet(self.key(), self.value(writer)),
            94..96 => Command::GetDel(self.key()),
            96..98 => Command::SetNx(self.key(), self.value(writer)),
            98 => Command::DbSize,
            _ => Command::Select(self.db()),
        }
    }

    fn global_command(&mut self) -> Command {
        match self.prng.below(4) {
            0 => Command::FlushAll,
            1 => Command::FlushDb,
            _ => Command::SwapDb(self.db(), self.db()),
        }
    }

    fn db(&mut self) -> DbId {
        DbId::new(self.prng.below(self.options.dbs.into()) as u8).expect("there are 16 databases")
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key-{}", self.prng.below(self.options.keys)).into_bytes()
    }

    fn keys(&mut self) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(4);
        (0..count).map(|_| self.key()).collect()
    }

    fn px_ms(&mut self) -> Option<u64> {
        self.prng.chance(15).then(|| 1 + self.prng.below(3000))
    }

    fn value(&mut self, writer: usize) -> Vec<u8> {
        self.sequence += 1;
        let large = self.prng.chance(self.options.large_percent);
        let bytes_max = if large { self.options.large_bytes_max } else { self.options.value_bytes_max };
        let padding = self.prng.below(bytes_max) as usize;
        let mut checksum = Prng::new(self.sequence ^ (writer as u64) << 48);
        let mut value = format!("{writer}:{}:{:016x}:", self.sequence, checksum.next_u64()).into_bytes();
        value.resize(value.len() + padding, b'a' + (self.sequence % 26) as u8);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_commands_and_all_kinds_of_them() {
        let make = || Workload::new(WorkloadOptions::default(), Prng::new(5));
        let (mut one, mut other) = (make(), make());
        let mut kinds = std::collections::HashSet::new();
        for writer in 0..1000 {
            let pipeline = one.pipeline(writer);
            assert_eq!(pipeline, other.pipeline(writer));
            kinds.extend(pipeline.iter().map(std::mem::discriminant));
        }
        assert_eq!(kinds.len(), 23, "every command is made");
    }
}
