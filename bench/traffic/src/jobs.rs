//! Workers on a stream: each takes one entry of a group, acknowledges it, and takes the next.
//!
//! XREADGROUP and XACK alternate on many connections until all jobs are done. There are no retries: no worker
//! takes another one's entries.
//!
//! Invariants
//! - Every job is delivered to one worker, once, and acknowledged once; otherwise the run fails.

use std::{io::Read, net::SocketAddr, time::Duration};

use env::{Clock, RealClock};
use mio::{Events, Interest, Poll, Token, net::TcpStream};
use serde_json::{Value as Json, json};
use wire::{DecodeLimits, Value, decode};

use crate::{
    connection::{connect, write},
    failure::Failure,
    frames::Garbled,
    latency::Latencies,
    message::write_command,
    process::Process,
};

const STREAM: &[u8] = b"jobs";
const GROUP: &[u8] = b"workers";
/// The payload of a job.
const PAYLOAD: [u8; 100] = [b'x'; 100];
/// Number of jobs added at once.
const BATCH: usize = 500;
/// One in this many jobs is for the warm-up.
const WARMING: usize = 5;
/// Time without events after which the run fails.
const SILENCE: Duration = Duration::from_secs(30);
const RECEIVE_BYTES: usize = 64 << 10;

/// Adds `jobs` jobs, and lets `connections` workers do them.
pub fn run(address: SocketAddr, process: Process, connections: usize, jobs: usize) -> Result<Json, Failure> {
    fill(address, jobs)?;
    let mut shift = Shift::begin(address, connections, jobs)?;
    shift.work_until(jobs / WARMING)?;
    let (cpu_before, own_before, began_us) = (process.cpu_s()?, own_cpu_s(), RealClock.monotonic_us());
    let (done_before, _) = (shift.done, std::mem::take(&mut shift.latencies));
    shift.work_until(jobs)?;
    let elapsed_s = (RealClock.monotonic_us() - began_us) as f64 / 1e6;
    let (measured, cpu_s) = ((shift.done - done_before) as f64, process.cpu_s()? - cpu_before);
    let own_s = own_cpu_s() - own_before;
    check(address)?;
    Ok(json!({
        "jobs_s": measured / elapsed_s,
        "p50_ms": shift.latencies.quantile_ms(0.5),
        "p99_ms": shift.latencies.quantile_ms(0.99),
        "cpu_us_per_job": cpu_s * 1e6 / measured,
        "client_share": own_s / elapsed_s,
    }))
}

fn own_cpu_s() -> f64 {
    let own = env::process::cpu_time();
    (own.user_us + own.system_us) as f64 / 1e6
}

/// A connection with its unsent requests and the received bytes of replies.
#[derive(Debug)]
struct Caller {
    stream: TcpStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Caller {
    fn open(address: SocketAddr, poll: &Poll, token: usize) -> Result<Caller, Failure> {
        let mut stream = connect(address)?;
        poll.registry().register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Caller { stream, unsent: Vec::new(), received: Vec::new() })
    }

    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.unsent.extend_from_slice(request);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let sent = write(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..sent);
        Ok(())
    }

    /// The next reply; `None` if it is incomplete.
    fn reply(&mut self, buffer: &mut [u8]) -> Result<Option<Value>, Failure> {
        self.flush()?;
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        match decode(&self.received, &DecodeLimits::DEFAULT).map_err(|_| Garbled)? {
            None => Ok(None),
            Some((Value::Error(text), _)) => {
                Err(Failure::Refused(String::from_utf8_lossy(&text).into_owned()))
            }
            Some((value, len)) => {
                self.received.drain(..len);
                Ok(Some(value))
            }
        }
    }
}

/// Sends requests on a new connection, and returns their `count` replies.
fn ask(address: SocketAddr, request: &[u8], count: usize) -> Result<Vec<Value>, Failure> {
    let mut poll = Poll::new()?;
    let mut caller = Caller::open(address, &poll, 0)?;
    caller.send(request)?;
    let (mut events, mut buffer, mut replies) =
        (Events::with_capacity(1), vec![0; RECEIVE_BYTES], Vec::new());
    while replies.len() < count {
        match caller.reply(&mut buffer)? {
            Some(reply) => replies.push(reply),
            None => {
                poll.poll(&mut events, Some(SILENCE))?;
                if events.is_empty() {
                    return Err(Failure::Stalled("replies are missing"));
                }
            }
        }
    }
    Ok(replies)
}

fn fill(address: SocketAddr, jobs: usize) -> Result<(), Failure> {
    let mut request = Vec::new();
    write_command(&mut request, &[b"XGROUP", b"CREATE", STREAM, GROUP, b"0", b"MKSTREAM"]);
    ask(address, &request, 1)?;
    for first in (0..jobs).step_by(BATCH) {
        request.clear();
        let numbers = first..(first + BATCH).min(jobs);
        for number in numbers.clone() {
            let number = number.to_string();
            write_command(
                &mut request,
                &[b"XADD", STREAM, b"*", b"number", number.as_bytes(), b"payload", &PAYLOAD],
            );
        }
        ask(address, &request, numbers.len())?;
    }
    Ok(())
}

/// Checks that nothing is pending at the end.
fn check(address: SocketAddr) -> Result<(), Failure> {
    let mut request = Vec::new();
    write_command(&mut request, &[b"XPENDING", STREAM, GROUP]);
    match &ask(address, &request, 1)?[..] {
        [Value::Array(summary)] if summary.first() == Some(&Value::Integer(0)) => Ok(()),
        other => Err(Failure::Wrong(format!("XPENDING: {other:?}"))),
    }
}

/// The reply that a worker waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A job.
    Taking,
    /// The acknowledgement.
    Acknowledging,
    /// None: there are no jobs left.
    Idle,
}

#[derive(Debug)]
struct Worker {
    caller: Caller,
    /// The encoded XREADGROUP command.
    take: Vec<u8>,
    step: Step,
    began_us: u64,
}

/// The workers and their progress.
#[derive(Debug)]
struct Shift {
    poll: Poll,
    workers: Vec<Worker>,
    /// By job: whether it was delivered.
    delivered: Vec<bool>,
    done: usize,
    latencies: Latencies,
    buffer: Vec<u8>,
}

impl Shift {
    fn begin(address: SocketAddr, connections: usize, jobs: usize) -> Result<Shift, Failure> {
        let poll = Poll::new()?;
        let mut workers = Vec::with_capacity(connections);
        for index in 0..connections {
            let (caller, name) = (Caller::open(address, &poll, index)?, format!("worker-{index}"));
            let mut take = Vec::new();
            let words: [&[u8]; 9] =
                [b"XREADGROUP", b"GROUP", GROUP, name.as_bytes(), b"COUNT", b"1", b"STREAMS", STREAM, b">"];
            write_command(&mut take, &words);
            workers.push(Worker { caller, take, step: Step::Taking, began_us: RealClock.monotonic_us() });
        }
        for worker in &mut workers {
            worker.caller.send(&worker.take)?;
        }
        let latencies = Latencies::default();
        Ok(Shift {
            poll,
            workers,
            delivered: vec![false; jobs],
            done: 0,
            latencies,
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    /// Runs until this many jobs are done.
    fn work_until(&mut self, jobs: usize) -> Result<(), Failure> {
        let mut events = Events::with_capacity(self.workers.len().max(1));
        while self.done < jobs {
            self.poll.poll(&mut events, Some(SILENCE))?;
            if events.is_empty() {
                return Err(Failure::Stalled("jobs are missing"));
            }
            for event in &events {
                self.advance(event.token().0)?;
            }
        }
        Ok(())
    }

    fn advance(&mut self, index: usize) -> Result<(), Failure> {
        let worker = &mut self.workers[index];
        while let Some(reply) = worker.caller.reply(&mut self.buffer)? {
            match (&worker.step, reply) {
                (Step::Taking, Value::Null) => worker.step = Step::Idle,
                (Step::Taking, reply) => {
                    let (id, number) =
                        job(&reply).ok_or_else(|| Failure::Wrong(format!("XREADGROUP: {reply:?}")))?;
                    match self.delivered.get_mut(number) {
                        Some(delivered) if !*delivered => *delivered = true,
                        _ => return Err(Failure::Wrong(format!("job {number} comes twice"))),
                    }
                    let mut request = Vec::new();
                    write_command(&mut request, &[b"XACK", STREAM, GROUP, id]);
                    worker.caller.send(&request)?;
                    worker.step = Step::Acknowledging;
                }
                (Step::Acknowledging, Value::Integer(1)) => {
                    let now_us = RealClock.monotonic_us();
                    self.latencies.add(now_us.saturating_sub(worker.began_us), 1);
                    self.done += 1;
                    worker.began_us = now_us;
                    worker.caller.send(&worker.take)?;
                    worker.step = Step::Taking;
                }
                (step, reply) => return Err(Failure::Wrong(format!("{step:?}: {reply:?}"))),
            }
        }
        Ok(())
    }
}

fn list(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        Some(Value::Array(values)) => Some(values),
        _ => None,
    }
}

/// Id and number of the only job in a reply.
fn job(reply: &Value) -> Option<(&[u8], usize)> {
    let streams = list(Some(reply))?;
    let entries = list(list(streams.first())?.get(1))?;
    let entry = list(entries.first())?;
    let fields = list(entry.get(1))?;
    match (entry, fields) {
        ([Value::Bulk(id), _], [Value::Bulk(name), Value::Bulk(number), _, Value::Bulk(payload)])
            if entries.len() == 1 && **name == *b"number" && **payload == PAYLOAD =>
        {
            Some((id, str::from_utf8(number).ok()?.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_whole_job_is_taken() {
        let reply = |number: &str, payload: &str| {
            let entry = format!(
                "*2\r\n$3\r\n1-1\r\n*4\r\n$6\r\nnumber\r\n${}\r\n{number}\r\n$7\r\npayload\r\n${}\r\n{payload}\r\n",
                number.len(),
                payload.len(),
            );
            format!("*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n{entry}")
        };
        let read = |text: &str| {
            let (value, len) = decode(text.as_bytes(), &DecodeLimits::DEFAULT).unwrap().unwrap();
            assert_eq!(len, text.len());
            value
        };
        let whole = "x".repeat(PAYLOAD.len());
        assert_eq!(job(&read(&reply("17", &whole))), Some((&b"1-1"[..], 17)));
        assert_eq!(job(&read(&reply("-1", &whole))), None);
        assert_eq!(job(&read(&reply("17", &whole[1..]))), None, "every byte is checked");
        assert_eq!(job(&read("*0\r\n")), None);
        let two = reply("17", &whole).replace("jobs\r\n*1", "jobs\r\n*2") + "*0\r\n";
        assert_eq!(job(&read(&two)), None);
    }
}
