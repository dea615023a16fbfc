//! The arguments of `sheaf doctor`.

use clap::{Arg, ArgMatches, Command, builder::PossibleValuesParser};
use tools::doctor::Options;

use super::path;

pub(super) fn command() -> Command {
    let dir = Arg::new("dir").long("dir").value_name("DIR");
    let config = Arg::new("config").long("config").value_name("FILE").env("SHEAF_CONFIG").hide_env(true);
    let format = Arg::new("format").long("format").value_name("lines|json");
    Command::new("doctor")
        .about("Look at this machine and a data directory, and say what to change")
        .arg(dir.help("The data directory; it need not exist [default: that of the settings]"))
        .arg(config.help("The file of settings of the server"))
        .arg(
            format
                .value_parser(PossibleValuesParser::new(["lines", "json"]))
                .default_value("lines")
                .hide_default_value(true)
                .hide_possible_values(true)
                .help("How to answer [default: lines]"),
        )
        .after_help(
            "There is a line for each check: settings and unknown variables, the directory, its file system, the latency of a \
             durable write (100 blocks of 4 KiB, in a file that is removed again), free space, the limit of open files, memory, huge \
             pages, overcommit, the clock. Run it as the user of the server, with its variables: limits are those of this process.\n\n\
             Exit status: 0: fine, or worth a note. 1: something to change. 2: a check was not possible.\n\nExamples:\n  sheaf \
             doctor\n  sheaf doctor --dir /var/lib/sheaf --config /etc/sheaf.toml\n  sheaf doctor --format json",
        )
}

pub(super) fn options(matches: &ArgMatches) -> Options {
    let is_json = matches.get_one::<String>("format").is_some_and(|format| format == "json");
    Options { dir: path(matches, "dir"), config: path(matches, "config"), is_json }
}
