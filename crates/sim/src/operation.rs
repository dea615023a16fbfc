//! The collection commands of simulated clients.
//!
//! The commands produce effects on lists, sets, sorted sets and hashes: at both ends, in part and in whole,
//! and from one key to another. Their semantics are in `model`.

use keyspace::ListEnd;

type Bytes = Vec<u8>;

/// A command on the collection at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// On a list.
    List(ListOperation),
    /// On a set.
    Set(SetOperation),
    /// On a sorted set.
    Zset(ZsetOperation),
    /// On a hash.
    Hash(HashOperation),
}

/// A command on a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListOperation {
    /// `LPUSH` or `RPUSH key element ...`
    Push(ListEnd, Vec<Bytes>),
    /// `LPOP` or `RPOP key count`
    Pop(ListEnd, usize),
    /// `LTRIM key start stop`, both counted from the start
    Trim(usize, usize),
    /// `LSET key index element`
    Set(usize, Bytes),
    /// `LINSERT key BEFORE pivot element`
    InsertBefore(Bytes, Bytes),
    /// `LREM key count element`
    Remove(i64, Bytes),
    /// `LMOVE key destination from to`
    Move(Bytes, ListEnd, ListEnd),
    /// `LRANGE key 0 -1`
    Elements,
}

/// A command on a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetOperation {
    /// `SADD key member ...`
    Add(Vec<Bytes>),
    /// `SREM key member ...`
    Remove(Vec<Bytes>),
    /// `SPOP key count`
    Pop(usize),
    /// `SMOVE key destination member`
    Move(Bytes, Bytes),
    /// `SUNIONSTORE key source ...`
    StoreUnion(Vec<Bytes>),
    /// `SDIFFSTORE key source ...`
    StoreDifference(Vec<Bytes>),
    /// `SMEMBERS key`
    Members,
}

/// A command on a sorted set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZsetOperation {
    /// `ZADD key score member ...`
    Put(Vec<(i64, Bytes)>),
    /// `ZINCRBY key increment member`
    Increment(i64, Bytes),
    /// `ZREM key member ...`
    Remove(Vec<Bytes>),
    /// `ZREMRANGEBYRANK key start stop`, both counted from the start
    RemoveRanks(usize, usize),
    /// `ZPOPMIN key count`
    PopLowest(usize),
    /// `ZUNIONSTORE key numkeys source ...`
    StoreUnion(Vec<Bytes>),
    /// `ZRANGE key 0 -1 WITHSCORES`
    Ranking,
}

/// A command on a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashOperation {
    /// `HSET key field value ...`
    Put(Vec<(Bytes, Bytes)>),
    /// `HINCRBY key field increment`
    Increment(Bytes, i64),
    /// `HDEL key field ...`
    Remove(Vec<Bytes>),
    /// `HPEXPIRE key ms FIELDS count field ...`
    Expire(u64, Vec<Bytes>),
    /// `HPERSIST key FIELDS count field ...`
    Persist(Vec<Bytes>),
    /// `HLEN key`
    Len,
    /// `HGETALL key`
    Fields,
}

impl Operation {
    /// Whether the operation only reads.
    pub fn reads(&self) -> bool {
        matches!(
            self,
            Operation::List(ListOperation::Elements)
                | Operation::Set(SetOperation::Members)
                | Operation::Zset(ZsetOperation::Ranking)
                | Operation::Hash(HashOperation::Len | HashOperation::Fields)
        )
    }

    /// The keys that the operation accesses in addition to its own.
    pub(crate) fn other_keys(&self) -> &[Bytes] {
        match self {
            Operation::List(ListOperation::Move(key, ..)) | Operation::Set(SetOperation::Move(key, _)) => {
                std::slice::from_ref(key)
            }
            Operation::Set(SetOperation::StoreUnion(keys) | SetOperation::StoreDifference(keys))
            | Operation::Zset(ZsetOperation::StoreUnion(keys)) => keys,
            _ => &[],
        }
    }

    /// The words of the request.
    pub(crate) fn words(&self, key: &[u8]) -> Vec<Bytes> {
        let (name, args) = match self {
            Operation::List(operation) => operation.words(),
            Operation::Set(operation) => operation.words(),
            Operation::Zset(operation) => operation.words(),
            Operation::Hash(operation) => operation.words(),
        };
        [name.into(), key.to_vec()].into_iter().chain(args).collect()
    }
}

impl ListOperation {
    fn words(&self) -> (&'static str, Vec<Bytes>) {
        match self {
            ListOperation::Push(ListEnd::Head, elements) => ("LPUSH", elements.clone()),
            ListOperation::Push(ListEnd::Tail, elements) => ("RPUSH", elements.clone()),
            ListOperation::Pop(ListEnd::Head, count) => ("LPOP", vec![number(count)]),
            ListOperation::Pop(ListEnd::Tail, count) => ("RPOP", vec![number(count)]),
            ListOperation::Trim(start, stop) => ("LTRIM", vec![number(start), number(stop)]),
            ListOperation::Set(index, element) => ("LSET", vec![number(index), element.clone()]),
            ListOperation::InsertBefore(pivot, element) => {
                ("LINSERT", vec![b"BEFORE".to_vec(), pivot.clone(), element.clone()])
            }
            ListOperation::Remove(count, element) => ("LREM", vec![number(count), element.clone()]),
            ListOperation::Move(destination, from, to) => {
                ("LMOVE", vec![destination.clone(), side(*from), side(*to)])
            }
            ListOperation::Elements => ("LRANGE", vec![number(0), number(-1)]),
        }
    }
}

impl SetOperation {
    fn words(&self) -> (&'static str, Vec<Bytes>) {
        match self {
            SetOperation::Add(members) => ("SADD", members.clone()),
            SetOperation::Remove(members) => ("SREM", members.clone()),
            SetOperation::Pop(count) => ("SPOP", vec![number(count)]),
            SetOperation::Move(destination, member) => ("SMOVE", vec![destination.clone(), member.clone()]),
            SetOperation::StoreUnion(sources) => ("SUNIONSTORE", sources.clone()),
            SetOperation::StoreDifference(sources) => ("SDIFFSTORE", sources.clone()),
            SetOperation::Members => ("SMEMBERS", vec![]),
        }
    }
}

impl ZsetOperation {
    fn words(&self) -> (&'static str, Vec<Bytes>) {
        match self {
            ZsetOperation::Put(members) => {
                let pair = |(score, member): &(i64, Bytes)| [number(score), member.clone()];
                ("ZADD", members.iter().flat_map(pair).collect())
            }
            ZsetOperation::Increment(increment, member) => {
                ("ZINCRBY", vec![number(increment), member.clone()])
            }
            ZsetOperation::Remove(members) => ("ZREM", members.clone()),
            ZsetOperation::RemoveRanks(start, stop) => ("ZREMRANGEBYRANK", vec![number(start), number(stop)]),
            ZsetOperation::PopLowest(count) => ("ZPOPMIN", vec![number(count)]),
            ZsetOperation::StoreUnion(sources) => ("ZUNIONSTORE", counted(sources)),
            ZsetOperation::Ranking => ("ZRANGE", vec![number(0), number(-1), b"WITHSCORES".to_vec()]),
        }
    }
}

impl HashOperation {
    fn words(&self) -> (&'static str, Vec<Bytes>) {
        let fields = |names: &[Bytes]| [vec![b"FIELDS".to_vec()], counted(names)].concat();
        match self {
            HashOperation::Put(pairs) => {
                ("HSET", pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]).collect())
            }
            HashOperation::Increment(field, increment) => ("HINCRBY", vec![field.clone(), number(increment)]),
            HashOperation::Remove(names) => ("HDEL", names.clone()),
            HashOperation::Expire(ms, names) => ("HPEXPIRE", [vec![number(ms)], fields(names)].concat()),
            HashOperation::Persist(names) => ("HPERSIST", fields(names)),
            HashOperation::Len => ("HLEN", vec![]),
            HashOperation::Fields => ("HGETALL", vec![]),
        }
    }
}

fn number(number: impl ToString) -> Bytes {
    number.to_string().into_bytes()
}

/// The words, preceded by their number.
fn counted(words: &[Bytes]) -> Vec<Bytes> {
    std::iter::once(number(words.len())).chain(words.iter().cloned()).collect()
}

fn side(end: ListEnd) -> Bytes {
    match end {
        ListEnd::Head => b"LEFT".to_vec(),
        ListEnd::Tail => b"RIGHT".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_command() {
        let words = |operation: Operation| operation.words(b"k").join(&b' ');
        assert_eq!(words(Operation::List(ListOperation::Pop(ListEnd::Head, 2))), b"LPOP k 2");
        let scored = ZsetOperation::Put(vec![(-1, b"m".to_vec()), (2, b"n".to_vec())]);
        assert_eq!(words(Operation::Zset(scored)), b"ZADD k -1 m 2 n");
        let names = || vec![b"a".to_vec(), b"b".to_vec()];
        let expires = HashOperation::Expire(5, names());
        assert_eq!(words(Operation::Hash(expires)), b"HPEXPIRE k 5 FIELDS 2 a b");
        let stores = Operation::Zset(ZsetOperation::StoreUnion(names()));
        assert_eq!(stores.other_keys(), names());
        assert_eq!(words(stores), b"ZUNIONSTORE k 2 a b");
    }
}
