//! The contract of the request parser as a function, for the property tests and the fuzzer.

use super::{Limits, OwnedArgs, ProtocolError, RequestBatch, RequestParser};

/// The result of parsing a sequence of bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The commands in order.
    pub commands: Vec<OwnedArgs>,
    /// Bytes consumed by the commands and by empty requests.
    pub consumed: usize,
    /// The error that ended the parsing, if any.
    pub error: Option<ProtocolError>,
}

/// Parses `bytes`, which arrive in reads that end at `ends`, in batches of at most `commands_max` commands.
/// Each pass gets a buffer of its own.
///
/// `ends` must be ascending, and none may exceed the number of bytes. The end of `bytes` is always the last
/// end.
///
/// # Panics
/// If the parser violates its contract, for example by consuming more than it was given.
pub fn parse_in_reads(bytes: &[u8], ends: &[usize], limits: &Limits, commands_max: usize) -> Outcome {
    let (mut parser, mut batch) = (RequestParser::new(), RequestBatch::new());
    let mut outcome = Outcome { commands: Vec::new(), consumed: 0, error: None };
    for &end in ends.iter().chain([&bytes.len()]) {
        loop {
            // Each pass gets a copy, because the result must not depend on the address of the bytes.
            let buffer = bytes[outcome.consumed..end].to_vec();
            let parsed = parser.parse(&buffer, limits, &mut batch, commands_max);
            assert!(parsed.consumed <= buffer.len(), "consumed more than there was");
            assert!(batch.len() <= commands_max, "batch overfilled");
            collect(&batch, &buffer, parsed.consumed, &mut outcome);
            if parsed.error.is_some() {
                return Outcome { error: parsed.error, ..outcome };
            }
            assert!(parser.bytes_missing() <= limits.bulk_bytes_max + 2, "more missing than allowed");
            if batch.len() < commands_max {
                break;
            }
        }
    }
    outcome
}

fn collect(batch: &RequestBatch, buffer: &[u8], consumed: usize, outcome: &mut Outcome) {
    let mut end_before = 0;
    for index in 0..batch.len() {
        let args = batch.command(index, buffer);
        assert!(!args.is_empty(), "a command without a name");
        assert!(batch.end(index) > end_before && batch.end(index) <= consumed, "commands overlap");
        end_before = batch.end(index);
        outcome.commands.push(OwnedArgs::from(args));
    }
    outcome.consumed += consumed;
}

/// Parses `bytes` in three ways: in one piece; divided at `cut` (modulo the number of possible positions);
/// and in batches of one command. Returns the result, which must be the same for all three.
///
/// # Panics
/// If the three results differ, or the parser otherwise violates its contract.
pub fn check_cut(bytes: &[u8], cut: usize, limits: &Limits) -> Outcome {
    let whole = parse_in_reads(bytes, &[], limits, usize::MAX);
    let cut = cut % (bytes.len() + 1);
    assert_eq!(whole, parse_in_reads(bytes, &[cut], limits, usize::MAX), "cut at {cut}");
    assert_eq!(whole, parse_in_reads(bytes, &[], limits, 1), "one command at a time");
    whole
}
