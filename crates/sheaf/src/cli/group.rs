//! The arguments of `sheaf group`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tools::{group::Options, migration::address::Address};

use super::{
    login::{self, at_socket, socket},
    tls,
};

pub(super) fn command() -> Command {
    let address = |text: &str| text.parse::<Address>().map_err(|error| error.to_string());
    Command::new("group")
        .about("Show the members of a group of servers that fails over by itself")
        .arg(
            Arg::new("address")
                .value_name("HOST:PORT")
                .required_unless_present("socket")
                .value_parser(address)
                .help("Any member of the group"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Show the table again every second, until Ctrl-C"),
        )
        .args(login::flags())
        .arg(socket().conflicts_with("address").conflicts_with("tls"))
        .args(tls::flags("Reach it over TLS"))
        .after_help(
            "The first line has the name of the group, its term and its leader. Then there is a line for each member: its id and \
             address, its kind (voter, learner or witness), its role, its epoch (the term; - if it was not heard lately), the end of its durable log, the \
             position that it knows to be committed, how many bytes of the leader's log it lacks, and when the server that is \
             asked has last heard from it. Only the leader knows the positions of all.\n\nExit status: 0: the table was shown. 1: \
             it cannot be, because the server is not reached, refuses or belongs to no group. 2: wrong usage. 3: it was shown, \
             and the server that is asked knows no leader.\n\nTo change the group, send its leader GROUP REMOVE or GROUP TRANSFER.\n\nExamples:\n  \
             sheaf group 127.0.0.1:7001\n  sheaf group db1:6379 --watch --password-file /etc/sheaf/password",
        )
}

pub(super) fn options(matches: &ArgMatches) -> Options {
    let address = at_socket(matches).unwrap_or_else(|| {
        let address = matches.get_one::<Address>("address").expect("it is given if no socket is");
        tls::with_files(address, matches)
    });
    Options {
        address: login::with_user(address, "user", matches),
        watch: matches.get_flag("watch"),
        password_file: matches.get_one::<String>("password-file").map(PathBuf::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_by_its_address() {
        let parsed =
            |arguments: &[&str]| command().try_get_matches_from(arguments).map(|found| options(&found));
        let address = Address { host: "db1".into(), port: 7001, user: None, password: None, tls: None };
        let found = parsed(&["group", "db1:7001"]).unwrap();
        assert_eq!(found, Options { address: address.clone(), watch: false, password_file: None });
        let found = parsed(&["group", "db1:7001", "--watch", "--password-file", "f"]).unwrap();
        assert_eq!(found, Options { address, watch: true, password_file: Some("f".into()) });
        for (path, host) in [("/run/s", "/run/s"), ("s.sock", "./s.sock")] {
            assert_eq!(parsed(&["group", "-s", path]).unwrap().address.host, host);
        }
        let found = parsed(&["group", "db1:7001", "--user", "u", "--password-file", "f"]).unwrap();
        assert_eq!((found.address.user, found.password_file), (Some("u".into()), Some("f".into())));
        for refused in [
            &["group"][..],
            &["group", "db1:7001", "--user", "u"],
            &["group", "db1:x"],
            &["group", "db1:0"],
            &["group", "a:1", "b:1"],
        ] {
            assert!(parsed(refused).is_err(), "{refused:?}");
        }
    }
}
