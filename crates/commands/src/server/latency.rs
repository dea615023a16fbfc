//! LATENCY: the history of latency spikes, and the distribution of command durations.

use engine::{CommandError, Context, Row, observe::LatencyEvent, stats::Histogram};
use wire::{Aggregate, Args};

use super::{ADMIN, HELP, ROW, latency_text};
use crate::rows;

pub(super) const ROWS: [Row; 7] = [
    Row {
        name: "latency|doctor",
        arity: 2,
        flags: ADMIN,
        since: "2.8.13",
        summary: "Explains slow operations and possible remedies.",
        handler: doctor,
        ..ROW
    },
    Row {
        name: "latency|graph",
        arity: 3,
        flags: ADMIN,
        since: "2.8.13",
        summary: "Draws the history of an event.",
        syntax: "event",
        handler: graph,
        ..ROW
    },
    Row { name: "latency|help", since: "2.8.13", ..HELP },
    Row {
        name: "latency|histogram",
        arity: -2,
        flags: ADMIN,
        since: "7.0.0",
        complexity: "O(N) where N is the number of commands.",
        summary: "Shows how the times of commands are distributed, estimated from samples.",
        syntax: "[command [command ...]]",
        handler: histogram,
        ..ROW
    },
    Row {
        name: "latency|history",
        arity: 3,
        flags: ADMIN,
        since: "2.8.13",
        summary: "Shows the worst of each second in which an event reached latency-monitor-threshold.",
        syntax: "event",
        handler: history,
        ..ROW
    },
    Row {
        name: "latency|latest",
        arity: 2,
        flags: ADMIN,
        since: "2.8.13",
        summary: "Shows of each event the last time, how long it took in milliseconds, and the longest.",
        handler: latest,
        ..ROW
    },
    Row {
        name: "latency|reset",
        arity: -2,
        flags: ADMIN,
        since: "2.8.13",
        summary: "Forgets the history of events, and replies how many had one.",
        syntax: "[event [event ...]]",
        handler: reset,
        ..ROW
    },
];

/// `LATENCY LATEST`
fn latest(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let noted = cx.host.observer.latency.noted();
    cx.reply.array(noted.len());
    for (event, series) in &noted {
        let (unix_s, ms) = series.samples.back().map_or((0, 0), |last| (last.unix_s, last.ms));
        cx.reply.array(4);
        cx.reply.bulk(event.name().as_bytes());
        [unix_s, ms, series.max_ms].iter().for_each(|&number| cx.reply.integer(number as i64));
    }
    Ok(())
}

/// `LATENCY HISTORY event`
fn history(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let series = LatencyEvent::parse(args.at(2)).map(|event| cx.host.observer.latency.series(event));
    let samples = series.unwrap_or_default().samples;
    cx.reply.array(samples.len());
    for sample in &samples {
        cx.reply.array(2);
        cx.reply.integer(sample.unix_s as i64);
        cx.reply.integer(sample.ms as i64);
    }
    Ok(())
}

/// `LATENCY RESET [event [event ...]]`
fn reset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let latency = &cx.host.observer.latency;
    let named = args.skip(2);
    let wanted = |event: &LatencyEvent| {
        named.is_empty() || named.iter().any(|name| LatencyEvent::parse(name) == Some(*event))
    };
    let count = LatencyEvent::ALL.into_iter().filter(wanted).filter(|event| latency.reset(*event)).count();
    cx.reply.count(count);
    Ok(())
}

/// `LATENCY GRAPH event`
fn graph(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let noted = cx.host.observer.latency.noted();
    let wanted = LatencyEvent::parse(args.at(2));
    let Some((event, series)) = noted.iter().find(|(event, _)| Some(*event) == wanted) else {
        let name = String::from_utf8_lossy(args.at(2));
        return Err(CommandError::Composed(format!("ERR No samples available for event '{name}'")));
    };
    let text = latency_text::graph(*event, series, cx.now_ms() / 1000);
    cx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// `LATENCY DOCTOR`
fn doctor(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let latency = &cx.host.observer.latency;
    let text = latency_text::diagnosis(latency.is_on(), &latency.noted());
    cx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// `LATENCY HISTOGRAM [command [command ...]]`. A container stands for its subcommands; unknown commands and
/// commands without calls are left out.
fn histogram(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut wanted: Vec<&'static Row> = Vec::new();
    if args.len() == 2 {
        wanted.extend(rows());
    }
    for name in args.skip(2) {
        if let Some(row) = find(name) {
            wanted.push(row);
            wanted.extend(row.subcommands);
        }
    }
    let map = cx.reply.begin_deferred();
    let mut shown = 0;
    for row in wanted {
        let histogram = cx.host.stats.histogram(crate::table().index_of(row));
        if histogram.count() > 0 {
            cx.reply.bulk(row.name.as_bytes());
            write_histogram(cx, &histogram);
            shown += 1;
        }
    }
    cx.reply.end_deferred(map, Aggregate::Map, shown);
    Ok(())
}

/// The row of a command, or of a subcommand (`container|sub`).
fn find(name: &[u8]) -> Option<&'static Row> {
    let subcommand = || rows().iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name)).copied();
    crate::resolve(name).or_else(subcommand)
}

/// Writes cumulative counts at the upper bounds of the buckets that are not empty.
fn write_histogram(cx: &mut Context<'_, '_>, histogram: &Histogram) {
    cx.reply.map(2);
    cx.reply.bulk(b"calls");
    cx.reply.integer(histogram.count() as i64);
    cx.reply.bulk(b"histogram_usec");
    let map = cx.reply.begin_deferred();
    let (mut total, mut shown) = (0, 0);
    for (bound_us, count) in histogram.buckets().filter(|(_, count)| *count > 0) {
        total += count;
        shown += 1;
        cx.reply.integer(bound_us as i64);
        cx.reply.integer(total as i64);
    }
    cx.reply.end_deferred(map, Aggregate::Map, shown);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use crate::testing::{START_MS, TestServer, check};
    use engine::observe::LatencyEvent;

    const START_S: u64 = START_MS / 1000;

    #[test]
    fn events_are_noted_while_the_threshold_is_set() {
        let mut server = TestServer::new();
        server.host.command_us.store(30_999, Relaxed);
        server.check(&[("keys *", "[]"), ("latency latest", "[]")]);
        server.host.observer.latency.set_threshold_ms(30);
        server.check(&[("keys *", "[]"), ("get a", "nil"), ("after 2000", "")]);
        server.host.command_us.store(40_000, Relaxed);
        server.check(&[("keys *", "[]")]);
        server.host.command_us.store(1_000, Relaxed);
        let later = START_S + 2;
        server.check(&[
            (
                "latency latest",
                &format!("[[\"command\", :{later}, :40, :40], [\"fast-command\", :{START_S}, :30, :30]]"),
            ),
            ("LATENCY HISTORY Command", &format!("[[:{START_S}, :30], [:{later}, :40]]")),
            ("latency history log-sync", "[]"),
            ("latency history nosuch", "[]"),
            ("latency graph nosuch", "-ERR No samples available for event 'nosuch'"),
            ("latency graph log-sync", "-ERR No samples available for event 'log-sync'"),
            ("latency reset nosuch fast-command log-sync", ":1"),
            ("latency history fast-command", "[]"),
            ("latency reset", ":1"),
            ("latency reset", ":0"),
            ("latency latest", "[]"),
        ]);
    }

    #[test]
    fn a_graph_and_a_diagnosis_are_texts() {
        let mut server = TestServer::new();
        server.host.observer.latency.set_threshold_ms(1);
        server.host.observer.latency.took(LatencyEvent::LogSync, 250_000, START_MS);
        assert!(server.run("latency graph log-sync").starts_with("\"log-sync - high 250 ms, low 250 ms"));
        assert!(server.run("latency doctor").contains("log-sync"));
        server.run("hello 3");
        assert!(server.run("latency doctor").starts_with("txt\""));
    }

    #[test]
    fn times_are_distributed_over_buckets() {
        let mut server = TestServer::new();
        server.host.observer.slow_log.configure(0, 0);
        for usec in [0, 1, 3, 100, 2_000_000] {
            server.host.command_us.store(usec, Relaxed);
            server.run("get a");
        }
        server.host.command_us.store(20, Relaxed);
        server.check(&[
            ("client id", ":1"),
            (
                "latency histogram get nosuch client set",
                "[\"get\", [\"calls\", :5, \"histogram_usec\", [:1, :2, :4, :3, :132, :4, :1082130, :5]], \
                 \"client|id\", [\"calls\", :1, \"histogram_usec\", [:33, :1]]]",
            ),
            (
                "hello 3 setname n",
                "{\"server\": \"redis\", \"version\": \"7.2.4\", \"proto\": :3, \"id\": :1, \
              \"mode\": \"standalone\", \"role\": \"master\", \"modules\": []}",
            ),
            (
                "latency histogram client|id",
                "{\"client|id\": {\"calls\": :1, \"histogram_usec\": {:33: :1}}}",
            ),
            ("config resetstat", "+OK"),
            ("latency histogram get", "{}"),
            (
                "latency histogram",
                "{\"config|resetstat\": {\"calls\": :1, \"histogram_usec\": {:33: :1}}, \
              \"latency|histogram\": {\"calls\": :1, \"histogram_usec\": {:33: :1}}}",
            ),
        ]);
    }

    #[test]
    fn invalid_calls_are_refused() {
        check(&[
            ("latency foo", "-ERR unknown subcommand 'foo'. Try LATENCY HELP."),
            ("latency history", "-ERR wrong number of arguments for 'latency|history' command"),
            ("latency latest x", "-ERR wrong number of arguments for 'latency|latest' command"),
        ]);
    }
}
