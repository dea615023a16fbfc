//! The workload of simulated clients: random commands on few keys, so that they conflict.
//!
//! A value that a client writes names its writer and a sequence number, with a checksum. So no two values of
//! a workload are equal, and a value that was assembled from parts of others is detectable. Some elements of
//! collections and some values of fields are made in the same way; the others repeat. Counters are numbers.

mod collections;

use env::Prng;
use keyspace::DbId;

use crate::Command;

/// The shape of a workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadOptions {
    /// The number of keys of strings per database. Counters and collections have other keys.
    pub keys: u64,
    /// The number of databases in use.
    pub dbs: u8,
    /// The maximum number of commands per pipeline, except that a transaction that is begun is completed.
    pub pipeline_max: u64,
    /// The padding after the name and checksum of an ordinary value is shorter than this number of bytes.
    pub value_bytes_max: u64,
    /// The percentage of large values.
    pub large_percent: u64,
    /// The padding of a large value is shorter than this number of bytes.
    pub large_bytes_max: u64,
    /// The number of commands on whole databases, per thousand commands.
    pub global_permille: u64,
    /// The percentage of commands that begin a transaction.
    pub transaction_percent: u64,
    /// The percentage of commands on lists, sets, sorted sets and hashes, among the commands that are not on
    /// whole databases.
    pub collection_percent: u64,
    /// The number of member and field names in use: few, so that they conflict.
    pub members: u64,
    /// The maximum number of elements, members or fields per command.
    pub batch_max: u64,
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
            collection_percent: 45,
            members: 12,
            batch_max: 4,
        }
    }
}

/// The generator of the commands of all clients.
#[derive(Debug)]
pub struct Workload {
    options: WorkloadOptions,
    prng: Prng,
    sequence: u64,
}

impl Workload {
    /// Creates a generator that draws from `prng`.
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

    /// Appends a transaction, or only its WATCH, so that commands of others can come in between.
    fn transaction(&mut self, writer: usize, commands: &mut Vec<Command>) {
        if self.prng.chance(40) {
            commands.push(Command::Watch(self.any_keys()));
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
        if self.prng.chance(self.options.collection_percent) {
            return self.collection_command(writer);
        }
        match self.prng.below(100) {
            0..28 => Command::Set { key: self.key(), value: self.value(writer), px_ms: self.px_ms() },
            28..42 => Command::Get(self.string_key()),
            42..47 => Command::MGet(self.keys()),
            47..52 => {
                let keys = self.keys();
                Command::MSet(keys.into_iter().map(|key| (key, self.value(writer))).collect())
            }
            52..56 => Command::Del(self.any_keys()),
            56..62 => Command::Incr(format!("counter-{}", self.prng.below(4)).into_bytes()),
            62..68 => Command::Append(self.string_key(), self.value(writer)),
            68..72 => Command::SetRange(self.key(), self.prng.below(64) as usize, self.value(writer)),
            72..80 => Command::PExpire(self.any_key(), self.ttl_ms()),
            80..84 => Command::Persist(self.any_key()),
            84..88 => Command::Rename(self.any_key(), self.any_key()),
            88..91 => Command::Copy(self.any_key(), self.any_key()),
            91..94 => Command::GetSet(self.key(), self.value(writer)),
            94..96 => Command::GetDel(self.string_key()),
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

    /// The key of a value of any type.
    fn any_key(&mut self) -> Vec<u8> {
        match self.prng.below(8) {
            0 => self.collection_key("list"),
            1 => self.collection_key("set"),
            2 => self.collection_key("zset"),
            3 => self.collection_key("hash"),
            _ => self.key(),
        }
    }

    /// The key of a string; sometimes the key of a value of another type.
    fn string_key(&mut self) -> Vec<u8> {
        if self.prng.chance(4) { self.any_key() } else { self.key() }
    }

    fn any_keys(&mut self) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(4);
        (0..count).map(|_| self.any_key()).collect()
    }

    fn px_ms(&mut self) -> Option<u64> {
        self.prng.chance(15).then(|| self.ttl_ms())
    }

    /// A time to live: at most 2 seconds in half of the cases, and at most a minute in the others.
    fn ttl_ms(&mut self) -> u64 {
        let max = if self.prng.chance(50) { 2000 } else { 60_000 };
        1 + self.prng.below(max)
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
    use std::collections::HashSet;

    use super::*;
    use crate::Operation;

    /// The type and the name of an operation.
    fn kind(operation: &Operation) -> String {
        let text = format!("{operation:?}");
        text.split(['(', ')', ',']).take(2).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_same_seed_makes_the_same_commands_and_all_kinds_of_them() {
        let make = || Workload::new(WorkloadOptions::default(), Prng::new(5));
        let (mut one, mut other) = (make(), make());
        let (mut kinds, mut operations) = (HashSet::new(), HashSet::new());
        for writer in 0..1000 {
            let pipeline = one.pipeline(writer);
            assert_eq!(pipeline, other.pipeline(writer));
            kinds.extend(pipeline.iter().map(std::mem::discriminant));
            operations.extend(pipeline.iter().filter_map(|command| match command {
                Command::Collection(_, operation) => Some(kind(operation)),
                _ => None,
            }));
        }
        assert_eq!(kinds.len(), 25, "every command is made");
        assert_eq!(operations.len(), 29, "on every type: {operations:?}");
    }
}
