//! Generation of commands on collections.

use std::collections::BTreeSet;

use keyspace::ListEnd;

use super::Workload;
use crate::{Command, HashOperation, ListOperation, Operation, SetOperation, ZsetOperation};

/// The number of collections per type and database.
const COLLECTIONS: u64 = 2;

impl Workload {
    pub(super) fn collection_command(&mut self, writer: usize) -> Command {
        let (prefix, operation) = match self.prng.below(100) {
            0..28 => ("list", Operation::List(self.list_operation(writer))),
            28..50 => ("set", Operation::Set(self.set_operation())),
            50..72 => ("zset", Operation::Zset(self.zset_operation())),
            72..95 => ("hash", Operation::Hash(self.hash_operation(writer))),
            _ => {
                let prefix = ["list", "set", "zset", "hash"][self.prng.below(4) as usize];
                let (from, to) = (self.key_of(prefix), self.key_of(prefix));
                return if self.prng.chance(50) {
                    Command::Copy(from, to)
                } else {
                    Command::Rename(from, to)
                };
            }
        };
        Command::Collection(self.key_of(prefix), operation)
    }

    fn list_operation(&mut self, writer: usize) -> ListOperation {
        let (end, other_end) = (self.end(), self.end());
        let index = self.prng.below(1 + self.options.batch_max) as usize;
        match self.prng.below(24) {
            0..9 => ListOperation::Push(end, self.elements(writer)),
            9..12 => ListOperation::Pop(end, self.pop_count()),
            12 => ListOperation::Trim(index, index + self.prng.below(self.options.members) as usize),
            13..15 => ListOperation::Set(index, self.element(writer)),
            15..17 => ListOperation::InsertBefore(self.member(), self.element(writer)),
            17..19 => ListOperation::Remove(self.prng.below(5) as i64 - 2, self.member()),
            19..22 => ListOperation::Move(self.key_of("list"), end, other_end),
            _ => ListOperation::Elements,
        }
    }

    fn set_operation(&mut self) -> SetOperation {
        match self.prng.below(24) {
            0..10 => SetOperation::Add(self.members()),
            10..14 => SetOperation::Remove(self.members()),
            14..17 => SetOperation::Pop(self.pop_count()),
            17..20 => SetOperation::Move(self.key_of("set"), self.member()),
            20 => SetOperation::StoreUnion(self.sources(&["set"])),
            21 => SetOperation::StoreDifference(self.sources(&["set"])),
            _ => SetOperation::Members,
        }
    }

    fn zset_operation(&mut self) -> ZsetOperation {
        match self.prng.below(24) {
            0..10 => {
                let members = self.members();
                ZsetOperation::Put(members.into_iter().map(|member| (self.small_number(), member)).collect())
            }
            10..13 => ZsetOperation::Increment(self.small_number(), self.member()),
            13..16 => ZsetOperation::Remove(self.members()),
            16..18 => {
                let start = self.prng.below(1 + self.options.batch_max) as usize;
                ZsetOperation::RemoveRanks(start, start + self.pop_count() - 1)
            }
            18..21 => ZsetOperation::PopLowest(self.pop_count()),
            21 => ZsetOperation::StoreUnion(self.sources(&["zset", "zset", "set"])),
            _ => ZsetOperation::Ranking,
        }
    }

    fn hash_operation(&mut self, writer: usize) -> HashOperation {
        match self.prng.below(24) {
            0..8 => {
                let fields = self.members();
                HashOperation::Put(
                    fields.into_iter().map(|field| (field, self.field_value(writer))).collect(),
                )
            }
            8..11 => HashOperation::Increment(self.member(), self.small_number()),
            11..13 => HashOperation::Remove(self.members()),
            13..18 => HashOperation::Expire(self.ttl_ms(), self.members()),
            18..21 => HashOperation::Persist(self.members()),
            21 => HashOperation::Len,
            _ => HashOperation::Fields,
        }
    }

    /// A key of this type; sometimes of another type.
    fn key_of(&mut self, prefix: &str) -> Vec<u8> {
        if self.prng.chance(4) { self.any_key() } else { self.collection_key(prefix) }
    }

    pub(super) fn collection_key(&mut self, prefix: &str) -> Vec<u8> {
        format!("{prefix}-{}", self.prng.below(COLLECTIONS)).into_bytes()
    }

    /// Keys, each of a value of one of these types, or sometimes of another type.
    fn sources(&mut self, prefixes: &[&str]) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(3);
        let prefix = |prng: &mut env::Prng| prefixes[prng.below(prefixes.len() as u64) as usize];
        (0..count)
            .map(|_| prefix(&mut self.prng))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|it| self.key_of(it))
            .collect()
    }

    fn end(&mut self) -> ListEnd {
        if self.prng.chance(50) { ListEnd::Head } else { ListEnd::Tail }
    }

    fn pop_count(&mut self) -> usize {
        1 + self.prng.below(self.options.batch_max) as usize
    }

    fn small_number(&mut self) -> i64 {
        self.prng.below(9) as i64 - 4
    }

    /// An element of a list: in half of the cases a name that repeats, otherwise a new value.
    fn element(&mut self, writer: usize) -> Vec<u8> {
        if self.prng.chance(50) { self.member() } else { self.value(writer) }
    }

    fn elements(&mut self, writer: usize) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(self.options.batch_max);
        (0..count).map(|_| self.element(writer)).collect()
    }

    fn field_value(&mut self, writer: usize) -> Vec<u8> {
        if self.prng.chance(30) { self.small_number().to_string().into_bytes() } else { self.value(writer) }
    }

    /// A member of a set or a field of a hash: a number, a short name or a long name.
    fn member(&mut self) -> Vec<u8> {
        let number = self.prng.below(self.options.members);
        match number % 3 {
            0 => number.to_string().into_bytes(),
            1 => format!("member-{number}").into_bytes(),
            _ => format!("member-{number:0100}").into_bytes(),
        }
    }

    /// Distinct members.
    fn members(&mut self) -> Vec<Vec<u8>> {
        let count = 1 + self.prng.below(self.options.batch_max);
        let members: BTreeSet<_> = (0..count).map(|_| self.member()).collect();
        members.into_iter().collect()
    }
}
