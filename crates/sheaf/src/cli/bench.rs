//! The arguments of `sheaf bench`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use tools::{bench::Options, migration::address::Address};

use super::{
    login::{self, at_socket, socket},
    path, tls,
};

pub(super) fn command() -> Command {
    let address = |text: &str| text.parse::<Address>().map_err(|error| error.to_string());
    let url = Arg::new("url").long("url").value_name("HOST:PORT").value_parser(address);
    let beside_keys =
        Arg::new("beside-keys").long("beside-keys").action(ArgAction::SetTrue).requires("server");
    let dir = Arg::new("dir").long("dir").value_name("DIR").default_value(".").hide_default_value(true);
    let seconds = Arg::new("seconds").long("seconds").value_name("SECONDS").default_value("60");
    Command::new("bench")
        .about("Measure what a server does on this machine, in a minute")
        .arg(socket().conflicts_with("url").conflicts_with("dir").conflicts_with("tls"))
        .arg(url.help("Measure this running server, by keys that are removed afterwards"))
        .args(login::flags().map(|flag| flag.requires("server")))
        .arg(beside_keys.help("Measure it even if it holds keys, which stay as they are"))
        .arg(
            dir.conflicts_with("url")
                .help("Make the directory of the server here, on the disk to measure [default: here]"),
        )
        .arg(
            seconds
                .value_parser(clap::value_parser!(u64).range(1..=600))
                .hide_default_value(true)
                .help("Time for all cases together [default: 60]"),
        )
        .group(ArgGroup::new("server").args(["url", "socket"]))
        .args(tls::flags("Reach it over TLS").map(|flag| flag.conflicts_with("dir")))
        .after_help(
            "Without --url it starts a server of its own in a new directory, which it removes. It prints the latency of a \
             durable write, and a line for each case: operations per second, and the median, 99th percentile and slowest \
             of the times until a reply, or until all replies of a pipeline. Each client waits for these before it sends \
             more. There are 10,000 keys, with values of 100 bytes. With strict durability each SET is on disk when it is \
             counted.\n\nExamples:\n  sheaf bench --dir /var/lib\n  sheaf \
             bench --url db1:6379 --seconds 20",
        )
}

pub(super) fn options(matches: &ArgMatches) -> Options {
    let address = at_socket(matches)
        .or_else(|| matches.get_one::<Address>("url").map(|address| tls::with_files(address, matches)));
    Options {
        address: address.map(|address| login::with_user(address, "user", matches)),
        password_file: path(matches, "password-file"),
        beside_keys: matches.get_flag("beside-keys"),
        dir: path(matches, "dir").unwrap_or_else(|| PathBuf::from(".")),
        seconds: matches.get_one::<u64>("seconds").copied().unwrap_or(60),
    }
}
