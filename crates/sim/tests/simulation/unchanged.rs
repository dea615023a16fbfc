//! Writes that leave a key as it was: some count as a change and some do not, which is visible in a
//! transaction that watches the key.

use keyspace::ListEnd;
use sim::{Command, HashOperation, ListOperation, Operation, SetOperation, ZsetOperation, seed_or};

use crate::states::{new_disk, oracle_for, seeded, start};

#[test]
fn server_and_model_agree_which_writes_without_a_change_abort_exec() {
    let one = || vec![b"1".to_vec()];
    let scored = || vec![(1, b"1".to_vec())];
    let fields = || vec![(b"1".to_vec(), b"1".to_vec())];
    let (list, set) = (Operation::List, Operation::Set);
    let (zset, hash) = (Operation::Zset, Operation::Hash);
    let filled = [
        ("list", list(ListOperation::Push(ListEnd::Tail, one()))),
        ("set", set(SetOperation::Add(one()))),
        ("zset", zset(ZsetOperation::Put(scored()))),
        ("hash", hash(HashOperation::Put(fields()))),
    ];
    let rotate = |take, put| list(ListOperation::Move(b"list".to_vec(), take, put));
    let writes = [
        ("list", rotate(ListEnd::Head, ListEnd::Tail)),
        ("list", rotate(ListEnd::Tail, ListEnd::Tail)),
        ("list", list(ListOperation::Set(0, b"1".to_vec()))),
        ("list", list(ListOperation::Set(1, b"1".to_vec()))),
        ("list", list(ListOperation::Trim(0, 1))),
        ("list", list(ListOperation::Remove(0, b"2".to_vec()))),
        ("set", set(SetOperation::Add(one()))),
        ("set", set(SetOperation::Move(b"set".to_vec(), b"1".to_vec()))),
        ("set", set(SetOperation::StoreUnion(vec![b"set".to_vec()]))),
        ("zset", zset(ZsetOperation::Put(scored()))),
        ("zset", zset(ZsetOperation::Increment(0, b"1".to_vec()))),
        ("zset", zset(ZsetOperation::StoreUnion(vec![b"zset".to_vec()]))),
        ("hash", hash(HashOperation::Put(fields()))),
        ("hash", hash(HashOperation::Increment(b"1".to_vec(), 0))),
        ("hash", hash(HashOperation::Persist(one()))),
        ("hash", hash(HashOperation::Expire(1000, one()))),
        ("hash", hash(HashOperation::Expire(1000, one()))),
    ];
    let options = seeded(seed_or(695));
    let mut world = start(options, new_disk(options.seed), oracle_for(&options)).ok().expect("a sound disk");
    for (key, operation) in filled {
        world.send(0, vec![Command::Collection(key.into(), operation)]).expect("the reply is right");
        world.drain().expect("everybody is answered");
    }
    for (key, operation) in writes {
        let depends = vec![Command::Watch(vec![key.into()])];
        let write = vec![Command::Collection(key.into(), operation.clone())];
        let transaction = vec![Command::Multi, Command::DbSize, Command::Exec];
        for (client, commands) in [(0, depends), (1, write), (0, transaction)] {
            let sent = world.send(client, commands).and_then(|()| world.drain());
            sent.unwrap_or_else(|violation| panic!("{operation:?}: {violation}"));
        }
    }
    world.check().expect("memory is what was executed");
}
