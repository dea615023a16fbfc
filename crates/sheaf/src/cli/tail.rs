//! The arguments of `sheaf tail`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use settings::{Key, OPTIONS};
use tools::{
    migration::address::Address,
    tail::{AUDIT_CHANNEL, Options},
};

use super::{
    login::{self, at_socket, socket},
    tls,
};

pub(super) fn command() -> Command {
    let port = Arg::new("port").long("port").value_name("PORT").env("SHEAF_PORT").hide_env(true);
    Command::new("tail")
        .about("Follow channels of a running server, one line per message")
        .arg(Arg::new("names").value_name("CHANNEL").required_unless_present("audit").num_args(1..).help("The channels"))
        .arg(
            Arg::new("pattern")
                .long("pattern")
                .action(ArgAction::SetTrue)
                .help("The names are patterns, as for PSUBSCRIBE"),
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("POSITION")
                .allow_hyphen_values(true)
                .conflicts_with("pattern")
                .help("Follow durable channels from this position on; - is the oldest message kept, $ the next"),
        )
        .arg(
            Arg::new("audit")
                .long("audit")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["names", "pattern"])
                .help("Follow what administrators do (setting audit), from the oldest entry kept on"),
        )
        .arg(Arg::new("host").long("host").value_name("HOST").default_value("127.0.0.1").help("Host of the server"))
        .arg(
            port.value_parser(clap::value_parser!(u16))
                .default_value(OPTIONS[Key::Port as usize].default)
                .help("Port of the server"),
        )
        .args(login::flags())
        .arg(socket().conflicts_with("host").conflicts_with("tls"))
        .args(tls::flags("Connect over TLS"))
        .after_help(
            "Each line is the time at which the message arrived, its channel and the message. Bytes that are not text are escaped: \\n, \
             \\u{1b}, \\xff. After a lost connection, the command reconnects; messages published meanwhile are missing, and \
             a warning says so.\n\nDurable channels (see durable-channels) can be followed with --from: a line has the position of its \
             message after the time, and after a lost connection it resumes.\n\nExamples:\n  sheaf tail orders payments\n  sheaf tail --pattern 'orders:*' | grep failed\n  sheaf \
             tail --from - orders\n  sheaf tail '__keyevent@0__:expired'",
        )
}

pub(super) fn options(matches: &ArgMatches) -> Options {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let audit = matches.get_flag("audit").then(|| String::from_utf8_lossy(AUDIT_CHANNEL).into_owned());
    let at_host = || Address {
        host: text("host").unwrap_or_default(),
        port: matches.get_one::<u16>("port").copied().unwrap_or_default(),
        user: None,
        password: None,
        tls: tls::files(matches),
    };
    Options {
        from: text("from").or(audit.is_some().then(|| "-".into())),
        names: matches.get_many::<String>("names").into_iter().flatten().cloned().chain(audit).collect(),
        are_patterns: matches.get_flag("pattern"),
        address: login::with_user(at_socket(matches).unwrap_or_else(at_host), "user", matches),
        password_file: text("password-file").map(PathBuf::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_and_where_they_are_can_be_chosen() {
        let parsed =
            |arguments: &[&str]| command().try_get_matches_from(arguments).map(|found| options(&found));
        let found = parsed(&["tail", "a", "b"]).unwrap();
        let expected = Options {
            names: vec!["a".into(), "b".into()],
            are_patterns: false,
            from: None,
            address: "127.0.0.1:6379".parse().unwrap(),
            password_file: None,
        };
        assert_eq!(found, expected);
        let login = ["--user", "u", "--password-file", "f"];
        let found =
            parsed(&[&["tail", "--pattern", "a*", "--host", "db1", "--port", "7"], &login[..]].concat());
        let expected = Options {
            names: vec!["a*".into()],
            are_patterns: true,
            from: None,
            address: "redis://u:@db1:7".parse().unwrap(),
            password_file: Some("f".into()),
        };
        assert_eq!(found.unwrap(), expected);
        let found = parsed(&["tail", "a", "-s", "/run/s"]).unwrap();
        assert_eq!(found.address.host, "/run/s");
        assert!(parsed(&["tail", "a", "-s", "/run/s", "--host", "h"]).is_err());
        for from in ["-", "$", "7:42"] {
            let found = parsed(&["tail", "a", "--from", from]).unwrap();
            assert_eq!((found.names, found.from), (vec!["a".into()], Some(from.into())));
        }
        assert!(parsed(&["tail", "a*", "--pattern", "--from", "-"]).is_err(), "patterns have no positions");
        assert!(parsed(&["tail"]).is_err() && parsed(&["tail", "a", "--port", "x"]).is_err());
    }
}
