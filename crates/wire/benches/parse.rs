//! Nanoseconds per command of the request parser and per value of the reply writer.
//!
//! `cargo bench -p wire`. Prints the best of several rounds, because noise only ever adds.

// A benchmark measures real time; it is not part of the server.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::Instant;

use wire::{Limits, Protocol, ReplyWriter, RequestBatch, RequestParser};

/// Commands of one pipeline, and values of one reply buffer.
const COMMANDS: usize = 64;
const PASSES: usize = 2_000;
const ROUNDS: usize = 40;

/// Size of a read that cuts commands in two.
const READ_BYTES: usize = 1_000;

fn main() {
    let value = "0123456789abcdef0123456789abcdef";
    let mut hset = vec!["HSET", "hash:1"];
    hset.extend(["field", "value"].repeat(16));
    for (name, args) in [
        ("GET key:000000001", vec!["GET", "key:000000001"]),
        ("SET key:000000001 <32 bytes>", vec!["SET", "key:000000001", value]),
        ("HSET of 16 fields", hset),
    ] {
        let pipeline = encode(&args).repeat(COMMANDS);
        report(&format!("parse {name}, one read"), || parse(&pipeline));
        report(&format!("parse {name}, reads of {READ_BYTES} bytes"), || parse_in_reads(&pipeline));
    }
    let inline = b"PING\r\n".repeat(COMMANDS);
    report("parse PING inline, one read", || parse(&inline));
    report("reply +OK", || reply(|writer| writer.ok()));
    report("reply bulk of 32 bytes", || reply(|writer| writer.bulk(black_box(value.as_bytes()))));
    report("reply integer 7", || reply(|writer| writer.integer(black_box(7))));
    report("reply integer 123456", || reply(|writer| writer.integer(black_box(123_456))));
    report("reply double 0.1", || reply(|writer| writer.double(black_box(0.1))));
}

/// Runs a function that handles `COMMANDS` items, and prints the best time per item.
fn report(name: &str, mut run: impl FnMut() -> usize) {
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let handled: usize = (0..PASSES).map(|_| run()).sum();
        assert_eq!(handled, PASSES * COMMANDS, "{name} handled something else");
        best_ns = best_ns.min(begin.elapsed().as_nanos() as f64 / handled as f64);
    }
    println!("{best_ns:7.1} ns  {name}");
}

thread_local! {
    static BATCH: std::cell::RefCell<RequestBatch> = const { std::cell::RefCell::new(RequestBatch::new()) };
}

/// Parses all commands and reads each argument's length and first byte, as any execution would.
fn parse(bytes: &[u8]) -> usize {
    BATCH.with_borrow_mut(|batch| pass(&mut RequestParser::new(), bytes, batch).1)
}

fn parse_in_reads(bytes: &[u8]) -> usize {
    let mut parser = RequestParser::new();
    let (mut consumed, mut commands) = (0, 0);
    for end in (READ_BYTES..bytes.len()).step_by(READ_BYTES).chain([bytes.len()]) {
        let read = BATCH.with_borrow_mut(|batch| pass(&mut parser, &bytes[consumed..end], batch));
        consumed += read.0;
        commands += read.1;
    }
    commands
}

fn pass(parser: &mut RequestParser, bytes: &[u8], batch: &mut RequestBatch) -> (usize, usize) {
    let parsed = parser.parse(black_box(bytes), &Limits::DEFAULT, batch, usize::MAX);
    for index in 0..batch.len() {
        for arg in batch.command(index, bytes) {
            black_box((arg.len(), arg.first()));
        }
    }
    (parsed.consumed, batch.len())
}

fn reply(write: impl Fn(&mut ReplyWriter<'_>)) -> usize {
    thread_local! {
        static OUT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    OUT.with_borrow_mut(|out| {
        out.clear();
        let mut writer = ReplyWriter::new(out, Protocol::Resp2);
        (0..COMMANDS).for_each(|_| write(&mut writer));
        black_box(&out);
    });
    COMMANDS
}

fn encode(args: &[&str]) -> Vec<u8> {
    let bulks: String = args.iter().map(|arg| format!("${}\r\n{arg}\r\n", arg.len())).collect();
    format!("*{}\r\n{bulks}", args.len()).into_bytes()
}
