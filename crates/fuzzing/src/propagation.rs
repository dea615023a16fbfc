//! Arbitrary records, as a replica that is a Redis server gets them: every record that decodes is rendered as
//! whole commands, each transaction with its end, and a replica that returns gets the bytes that it lacks.

use keyspace::Item;
use lsn::Lsn;
use propagation::Feed;
use wire::{DecodeLimits, Value};

use crate::{Outcome, Seed};

/// One of this many records is followed by a PING.
const RECORDS_PER_PING: usize = 4;

/// Renders a stream with a record for each item, and one with a single record. Accepts a record that is
/// decoded to its end.
///
/// # Panics
/// If the stream has something else than commands, or goes on differently after a return.
pub fn propagation(input: &[u8]) -> Outcome {
    let (mut rest, mut items) = (input, Vec::new());
    while let Ok(Some(item)) = Item::decode_next(&mut rest) {
        items.push(item);
    }
    let mut together = Vec::new();
    Feed::new(Lsn::ZERO).record(Lsn::new(1), items.iter().copied(), &mut together);
    check_commands(&together);

    let (mut feed, mut stream) = (Feed::new(Lsn::ZERO), Vec::new());
    let mut checkpoints = vec![feed.checkpoint()];
    for (index, item) in items.iter().enumerate() {
        feed.record(Lsn::new(index as u64 + 1), [*item], &mut stream);
        checkpoints.push(match index % RECORDS_PER_PING {
            0 => feed.ping(&mut stream),
            _ => feed.checkpoint(),
        });
    }
    assert_eq!(feed.offset(), stream.len() as u64);
    check_commands(&stream);

    let first = checkpoints.len() / 2;
    let begin = checkpoints[first].offset as usize;
    let has = begin + input.len() % (stream.len() - begin + 1);
    let (mut resumed, mut lacked) = (Feed::resumed(&checkpoints[first..], has as u64), Vec::new());
    resumed.repeat_pings(&mut lacked);
    for (index, item) in items.iter().enumerate().skip(first) {
        resumed.record(Lsn::new(index as u64 + 1), [*item], &mut lacked);
    }
    assert_eq!(lacked, stream[has..], "from {first} on, with {has} bytes");
    Outcome::accepted_if(rest.is_empty() && !input.is_empty())
}

fn check_commands(mut stream: &[u8]) {
    let mut is_transaction = false;
    while !stream.is_empty() {
        let decoded = wire::decode(stream, &DecodeLimits::default()).expect("RESP");
        let (command, read) = decoded.expect("a whole command");
        let Value::Array(words) = command else { panic!("no command: {command:?}") };
        assert!(words.iter().all(|word| matches!(word, Value::Bulk(_))), "{words:?}");
        match &words[..] {
            [Value::Bulk(name)] if name == b"MULTI" => {
                assert!(!std::mem::replace(&mut is_transaction, true), "no transaction is within another");
            }
            [Value::Bulk(name)] if name == b"EXEC" => assert!(std::mem::take(&mut is_transaction)),
            _ => assert!(!words.is_empty()),
        }
        stream = &stream[read..];
    }
    assert!(!is_transaction);
}

pub(crate) fn seeds() -> Vec<Seed> {
    crate::effects::seeds()
}
