//! A running server as the commands of its Redis protocol are given it: its socket, and the user that logs
//! in there.

use clap::{Arg, ArgMatches};
use tools::migration::address::Address;

/// The flags for the user and the password.
pub(super) fn flags() -> [Arg; 2] {
    named(["user", "password-file"])
}

/// As [`flags`], with these names of the flags.
pub(super) fn named([user, password_file]: [&'static str; 2]) -> [Arg; 2] {
    [
        Arg::new(user)
            .long(user)
            .value_name("NAME")
            .requires(password_file)
            .help("User name, if it is not the user default (ACL SETUSER)"),
        Arg::new(password_file).long(password_file).value_name("FILE").help(
            "File whose first line is the password of the user (requirepass is that of the user default)",
        ),
    ]
}

/// The address, with the user that the flag `flag` names, if any.
pub(super) fn with_user(address: Address, flag: &str, matches: &ArgMatches) -> Address {
    match matches.get_one::<String>(flag) {
        Some(user) => Address { user: Some(user.clone()), ..address },
        None => address,
    }
}

/// The flag for a server that is reached by a Unix socket, named as in redis-cli.
pub(super) fn socket() -> Arg {
    Arg::new("socket")
        .short('s')
        .long("socket")
        .value_name("PATH")
        .help("Unix socket of the server (unixsocket), instead of its host and port")
}

/// The server at the Unix socket that was given, if any.
pub(super) fn at_socket(matches: &ArgMatches) -> Option<Address> {
    let path = matches.get_one::<String>("socket")?;
    // A host has no slash, so a path is told apart by one.
    let host = if path.contains('/') { path.clone() } else { format!("./{path}") };
    Some(Address { host, port: 0, user: None, password: None, tls: None })
}
