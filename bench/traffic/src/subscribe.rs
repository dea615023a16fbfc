//! Subscribing at full rate: to very many channels, and to one after the other.

use std::{net::SocketAddr, thread, time::Duration};

use env::{Clock, RealClock};
use mio::{Events, Poll, Token};
use serde_json::{Value, json};

use crate::{
    connection::{Connection, RECEIVE_BYTES},
    failure::Failure,
    frames::Frame,
    ledger::channel_name,
    message::write_command,
    process::Process,
};

/// Channels per SUBSCRIBE command while subscribing to many.
const PER_COMMAND: usize = 100;
/// Time without events after which the run fails.
const SILENCE: Duration = Duration::from_secs(30);
/// Time to wait before memory is measured: servers must become idle, and allocators release memory with a
/// delay.
const REST: Duration = Duration::from_secs(1);
const LEFT: Duration = Duration::from_secs(12);

/// Subscribes `connections` connections to `channels` different channels in total, and disconnects them.
pub fn many(
    address: SocketAddr,
    process: Process,
    connections: usize,
    channels: usize,
) -> Result<Value, Failure> {
    let mut poll = Poll::new()?;
    let mut clients = (0..connections)
        .map(|index| Connection::open(address, poll.registry(), Token(index)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut requests: Vec<_> = (0..connections)
        .map(|index| {
            let mine: Vec<_> = (index..channels).step_by(connections).map(channel_name).collect();
            let mut request = Vec::new();
            for names in mine.chunks(PER_COMMAND) {
                let words: Vec<&[u8]> =
                    [&b"SUBSCRIBE"[..]].into_iter().chain(names.iter().map(|it| &it[..])).collect();
                write_command(&mut request, &words);
            }
            request
        })
        .collect();
    thread::sleep(REST);
    let (rss_before, cpu_before, began_us) =
        (process.rss_bytes()?, process.cpu_s()?, RealClock.monotonic_us());
    for (client, request) in clients.iter_mut().zip(&mut requests) {
        client.send(&std::mem::take(request))?;
    }
    let (mut events, mut buffer, mut confirmed) = (Events::with_capacity(1024), vec![0; RECEIVE_BYTES], 0);
    while confirmed < channels {
        poll.poll(&mut events, Some(SILENCE))?;
        if events.is_empty() {
            return Err(Failure::Stalled("subscribing"));
        }
        for event in events.iter() {
            let client = &mut clients[event.token().0];
            client.flush()?;
            client.receive(&mut buffer, |frame| {
                confirmed += usize::from(matches!(frame, Frame::Began { .. }));
                Ok(())
            })?;
        }
    }
    let built_s = (RealClock.monotonic_us() - began_us) as f64 / 1e6;
    let cpu_s = process.cpu_s()? - cpu_before;
    thread::sleep(REST);
    let rss_built = process.rss_bytes()?;
    drop(clients);
    thread::sleep(LEFT);
    let rss_left = process.rss_bytes()?;
    let per_channel = |rss: u64| (rss as f64 - rss_before as f64) / channels as f64;
    let grown = rss_built.saturating_sub(rss_before);
    Ok(json!({
        "built_s": built_s,
        "cpu_us_per_subscription": cpu_s * 1e6 / channels as f64,
        "rss_bytes": per_channel(rss_built),
        "left_bytes": per_channel(rss_left),
        "given_back_share": (grown > 0).then(|| rss_built.saturating_sub(rss_left) as f64 / grown as f64),
    }))
}

/// Subscribes one connection to channels and unsubscribes again, with `batch` pairs at once, for `seconds`.
pub fn pairs(address: SocketAddr, process: Process, batch: usize, seconds: f64) -> Result<Value, Failure> {
    let mut poll = Poll::new()?;
    let mut client = Connection::open(address, poll.registry(), Token(0))?;
    let mut request = Vec::new();
    for number in 0..batch {
        let name = channel_name(number);
        write_command(&mut request, &[b"SUBSCRIBE", &name]);
        write_command(&mut request, &[b"UNSUBSCRIBE", &name]);
    }
    let (mut events, mut buffer) = (Events::with_capacity(1), vec![0; RECEIVE_BYTES]);
    let mut exchange = || -> Result<(), Failure> {
        client.send(&request)?;
        let mut confirmed = 0;
        while confirmed < 2 * batch {
            poll.poll(&mut events, Some(SILENCE))?;
            if events.is_empty() {
                return Err(Failure::Stalled("pairs"));
            }
            client.flush()?;
            client.receive(&mut buffer, |frame| {
                confirmed += usize::from(matches!(frame, Frame::Began { .. } | Frame::Ended { .. }));
                Ok(())
            })?;
        }
        Ok(())
    };
    let mut run_for = |seconds: f64| -> Result<(u64, f64), Failure> {
        let (began_us, mut batches) = (RealClock.monotonic_us(), 0);
        loop {
            exchange()?;
            batches += 1;
            let elapsed_s = (RealClock.monotonic_us() - began_us) as f64 / 1e6;
            if elapsed_s >= seconds {
                return Ok((batches * batch as u64, elapsed_s));
            }
        }
    };
    run_for(seconds / 4.0)?;
    let (cpu_before, own_before) = (process.cpu_s()?, own_cpu_s());
    let (done, elapsed_s) = run_for(seconds)?;
    Ok(json!({
        "pairs_s": done as f64 / elapsed_s,
        "cpu_us_per_pair": (process.cpu_s()? - cpu_before) * 1e6 / done as f64,
        "client_share": (own_cpu_s() - own_before) / elapsed_s,
    }))
}

fn own_cpu_s() -> f64 {
    let own = env::process::cpu_time();
    (own.user_us + own.system_us) as f64 / 1e6
}
