//! The arguments of `sheaf health`.

use clap::{Arg, ArgMatches, Command};
use settings::{Key, OPTIONS, variable};

use super::{default_url, tls};

pub(super) fn command() -> Command {
    let url = Arg::new("url").value_name("URL");
    Command::new("health")
        .about("Ask a running server whether it serves")
        .arg(url.help("HTTP port of the server [default: that of this machine]"))
        .args(tls::url_flags())
        .after_help(
            "For supervisors and containers. It asks /_up, which needs no password, and prints the answer. The default is http://127.0.0.1 with the port of \
             SHEAF_HTTP_PORT, or 5984.\n\nExit status: 0: the server serves; a replica also, which takes no writes. 1: there \
             is no answer within five seconds, it still loads its data, or it takes no writes and says why.\n\nExamples:\n  \
             sheaf health\n  sheaf health http://db1:5984",
        )
}

pub(super) fn url(matches: &ArgMatches) -> String {
    let here = || {
        let port = std::env::var(variable(OPTIONS[Key::HttpPort as usize].name)).ok();
        port.map_or_else(default_url, |port| format!("http://127.0.0.1:{port}"))
    };
    matches.get_one::<String>("url").cloned().unwrap_or_else(here)
}
