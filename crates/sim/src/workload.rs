//! What simulated clients ask for: random commands over few keys, so that they meet.
//!
//! Every value says who wrote it, as its how many-th, and carries a checksum of that: two writes never look alike, and a
//! value that was put together from pieces of others is none.

use std::collections::BTreeSet;

use env::Prng;
use keyspace::DbId;

use crate::{Command, Operation};

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
    /// Out of 100 commands, those on lists, sets, sorted sets and hashes.
    pub collection_percent: u64,
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
        }
    }
}

/// Collections per type and database.
const COLLECTIONS: u64 = 3;

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
            0..30 => Command::Set { key: self.key(), value: self.value(writer), px_ms: self.px_ms() },
            30..48 => Command::Get(self.string_key()),
            48..53 => Command::MGet(self.keys()),
            53..58 => {
                let keys = self.keys();
                Command::MSet(keys.into_iter().map(|key| (key, self.value(writer))).collect())
            }
            58..64 => Command::Del(self.any_keys()),
            64..72 => Command::Incr(format!("counter-{}", self.prng.below(4)).into_bytes()),
            72..78 => Command::Append(self.string_key(), self.value(writer)),
            78..82 => Command::SetRange(self.key(), self.prng.below(64) as usize, self.value(writer)),
            82..85 => Command::PExpire(self.any_key(), 1 + self.prng.below(4000)),
            85..87 => Command::Persist(self.any_key()),
            87..91 => Command::Rename(self.any_key(), self.any_key()),
            91..94 => Command::GetSet(self.key(), self.value(writer)),
            94..96 => Command::GetDel(self.string_key()),
            96..98 => Command::SetNx(self.key(), self.value(writer)),
            98 => Command::DbSize,
            _ => Command::Select(self.db()),
        }
    }

    fn collection_command(&mut self, writer: usize) -> Command {
        let (prefix, operation) = match self.prng.below(100) {
            0..28 => ("list", self.list_operation(writer)),
            28..50 => ("set", self.set_operation()),
            50..72 => ("zset", self.zset_operation()),
            72..96 => ("hash", self.hash_operation(writer)),
            _ => return Command::Copy(self.any_key(), self.any_key()),
        };
        // Now and then it meets another type.
        let key = if self.prng.chance(4) { self.any_key() } else { self.collection_key(prefix) };
        Command::Collection(key, operation)
    }

    fn list_operation(&mut self, writer: usize) -> Operation {
        match self.prng.below(20) {
            0..5 => Operation::PushLeft(self.values(writer)),
            5..11 => Operation::PushRight(self.values(writer)),
            11..14 => Operation::PopLeft,
            14..17 => Operation::PopRight,
            17 => Operation::Trim(self.prng.below(3) as usize, self.prng.below(12) as usize),
            _ => Operation::Elements,
        }
    }

    fn set_operation(&mut self) -> Operation {
        match self.prng.below(20) {
            0..9 => Operation::AddMembers(self.members()),
            9..13 => Operation::RemoveMembers(self.members()),
            13..17 => Operation::PopMember,
            _ => Operation::HasMember(self.member()),
        }
    }

    fn zset_operation(&mut self) -> Operation {
        match self.prng.below(20) {
            0..10 => {
                let members = self.members();
                Operation::Score(members.into_iter().map(|it| (self.prng.below(9) as i64 - 4, it)).collect())
            }
            10..13 => Operation::RemoveScored(self.members()),
            13..17 => Operation::PopLowest,
            _ => Operation::Ranking,
        }
    }

    fn hash_operation(&mut self, writer: usize) -> Operation {
        match self.prng.below(20) {
            0..9 => {
                let fields = self.members();
                Operation::SetFields(fields.into_iter().map(|field| (field, self.value(writer))).collect())
            }
            9..12 => Operation::RemoveFields(self.members()),
            12..16 => Operation::ExpireFields(1 + self.prng.below(3000), self.members()),
            _ => Operation::Field(self.member()),
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

    fn collection_key(&mut self, prefix: &str) -> Vec<u8> {
        format!("{prefix}-{}", self.prng.below(COLLECTIONS)).into_bytes()
    }

    /// The key of any type.
    fn any_key(&mut self) -> Vec<u8> {
        match self.prng.below(8) {
            0 => self.collection_key("list"),
            1 => self.collection_key("set"),
            2 => self.collection_key("zset"),
            3 => self.collection_key("hash"),
            _ => self.key(),
        }
    }

    /// The key of a string, with exceptions.
    fn string_key(&mut self) -> Vec<u8> {
        if self.prng.chance(4) { self.any_key() } else { self.key() }
    }

    fn any_keys(&mut self) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(4);
        (0..count).map(|_| self.any_key()).collect()
    }

    fn values(&mut self, writer: usize) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(3);
        (0..count).map(|_| self.value(writer)).collect()
    }

    /// A member of a set or a field of a hash: few, so that they meet.
    fn member(&mut self) -> Vec<u8> {
        let number = self.prng.below(10);
        match self.prng.below(20) {
            0..13 => number.to_string().into_bytes(),
            13..19 => format!("member-{number}").into_bytes(),
            _ => vec![b'm'; 100 + number as usize],
        }
    }

    /// Different ones.
    fn members(&mut self) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(4);
        let members: BTreeSet<_> = (0..count).map(|_| self.member()).collect();
        members.into_iter().collect()
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
    use std::collections::HashSet;

    use super::*;

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
                Command::Collection(_, operation) => Some(std::mem::discriminant(operation)),
                _ => None,
            }));
        }
        assert_eq!(kinds.len(), 25, "every command is made");
        assert_eq!(operations.len(), 18, "with every type");
    }
}
