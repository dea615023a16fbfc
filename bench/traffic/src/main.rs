//! `traffic`: publishers, subscribers, workers on streams, and writers and readers of documents over real
//! sockets, for `bench/run` and for manual use.
//!
//! A task uses one thread (`flood`: two) with many connections, and checks every message: a lost, repeated or
//! reordered message is a failure. So is a wrong response about a document, and a job that is not done
//! exactly once. The program does not judge speed: it prints figures as one line of JSON, including its own
//! CPU share, which shows whether the client was the limit.
//!
//! Exit status: 0 measured, 1 faulty messages or documents, or a failure of the server, 2 wrong usage.

#![forbid(unsafe_code)]

mod connection;
mod documents;
mod failure;
mod flood;
mod frames;
mod jobs;
mod latency;
mod ledger;
mod listener;
mod message;
mod process;
mod publish;
mod publisher;
mod replay;
mod sequence;
mod slow;
mod subscribe;
mod traffic;

use std::{net::SocketAddr, process::ExitCode};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::Value;

use crate::{failure::Failure, listener::From, process::Process, traffic::Plan};

/// Sufficient for all connections of the largest plan.
const OPEN_FILES: u64 = 65_536;

fn main() -> ExitCode {
    let matches = command().get_matches();
    env::process::raise_open_files_limit(OPEN_FILES);
    match run(&matches) {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("traffic: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(matches: &ArgMatches) -> Result<Value, Failure> {
    let Some((task, options)) = matches.subcommand() else { unreachable!("clap requires one") };
    // Options that a task does not have are 0.
    let count = |name: &str| options.try_get_one::<u64>(name).ok().flatten().copied().unwrap_or(0) as usize;
    let seconds = || options.try_get_one::<f64>("seconds").ok().flatten().copied().unwrap_or(0.0);
    let address = SocketAddr::from(([127, 0, 0, 1], count("port") as u16));
    let process = Process { id: count("pid") as u32 };
    let plan = |from| Plan {
        address,
        process,
        publishers: count("publishers"),
        pipeline: count("pipeline"),
        channels: count("channels"),
        listened: count("listened").min(count("channels")),
        subscribers: count("subscribers"),
        span: count("span").max(1),
        from,
        slow: count("slow"),
        patterns: count("patterns"),
        churn_per_s: count("churn") as u64,
        rate_per_s: count("rate") as u64,
        seconds: seconds(),
    };
    match task {
        "publish" => publish::run(plan(if options.get_flag("log") { From::LogEnd } else { From::Now })),
        "flood" => flood::run(Plan { channels: 1, listened: 1, ..plan(From::Now) }),
        "replay" => replay::run(plan(From::LogStart), count("messages") as u64),
        "put" | "bulk" | "changes" | "all-docs" | "pull" => documents::run(task, address, process, options),
        "jobs" => jobs::run(address, process, count("connections"), count("jobs")),
        "many" => subscribe::many(address, process, count("connections"), count("channels")),
        _ => subscribe::pairs(address, process, count("batch"), seconds()),
    }
}

fn command() -> Command {
    let publish = common("publish", "Publishes at full rate")
        .arg(positive("publishers", "50", "Connections that publish"))
        .arg(positive("pipeline", "16", "Messages that each has on its way"))
        .arg(positive("channels", "100", "Channels that are published to, at random"))
        .arg(number("listened", "100", "The first so many of them have listeners"))
        .arg(number("subscribers", "0", "Listeners of each of these"))
        .arg(positive("span", "1", "Channels that one connection listens to"))
        .arg(flag("log", "They get it from the log: XSUBSCRIBE FROM $"))
        .arg(number("slow", "0", "Readers of these channels that take a kilobyte per second"))
        .arg(number("patterns", "0", "Patterns subscribed to, none of which matches"))
        .arg(number("churn", "0", "SUBSCRIBE and UNSUBSCRIBE of others, pairs per second"))
        .arg(seconds());
    let flood = common("flood", "Publishes to one channel, and listens on a thread of its own")
        .arg(positive("publishers", "50", "Connections that publish"))
        .arg(positive("pipeline", "16", "Messages that each has on its way"))
        .arg(positive("subscribers", "100", "Connections that listen, as fast as they can"))
        .arg(number(
            "rate",
            "0",
            "Messages per second of all publishers together; 0: as many as the server takes",
        ))
        .arg(seconds());
    let replay = common("replay", "Publishes to durable channels, and gets it all from the log")
        .arg(positive("publishers", "50", "Connections that publish"))
        .arg(positive("pipeline", "16", "Messages that each has on its way"))
        .arg(positive("channels", "1", "Channels that are published to, at random"))
        .arg(positive("messages", "2000000", "Messages at least"));
    let jobs = common("jobs", "Adds jobs to a stream, and takes and acknowledges them one by one")
        .arg(positive("connections", "50", "Workers, each on a connection of its own"))
        .arg(positive("jobs", "200000", "Jobs"));
    let many = common("many", "Subscribes to many channels, and leaves")
        .arg(positive("connections", "100", "Connections that share the channels"))
        .arg(positive("channels", "1000000", "Channels"));
    let pairs = common("pairs", "SUBSCRIBE and UNSUBSCRIBE on one connection")
        .arg(positive("batch", "200", "Pairs at once"))
        .arg(seconds());
    Command::new("traffic")
        .about("Publishers and subscribers that check every message; writers and readers of documents")
        .subcommand_required(true)
        .subcommands([publish, flood, replay, jobs, many, pairs])
        .subcommands(documents::commands())
}

fn common(name: &'static str, about: &'static str) -> Command {
    let port = Arg::new("port").long("port").required(true).help("Port of the server on this machine");
    let pid = Arg::new("pid").long("pid").required(true).help("Its process");
    Command::new(name)
        .about(about)
        .arg(port.value_parser(value_parser!(u64).range(1..=65_535)))
        .arg(pid.value_parser(value_parser!(u64)))
}

fn positive(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).default_value(default).help(help).value_parser(value_parser!(u64).range(1..))
}

fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).default_value(default).help(help).value_parser(value_parser!(u64))
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn seconds() -> Arg {
    let help = "For how long it is measured, after a quarter of that for warming up";
    Arg::new("seconds").long("seconds").default_value("4").help(help).value_parser(value_parser!(f64))
}
