//! The arguments of `sheaf import`: from a file, or from a running server.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use tools::{
    import::Existing,
    migration::{Destination, IntoServer, Options, address::Address},
};

use super::{Task, data_dir, login, tls};

pub(super) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let named = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let address = |text: &str| text.parse::<Address>().map_err(|error| error.to_string());
    let file = Arg::new("file").value_name("FILE").conflicts_with_all(OF_A_SERVER);
    Command::new("import")
        .about("Move in from Redis or Valkey: an RDB file, or a running server")
        .arg(file.help("The RDB file, as SAVE, BGSAVE or redis-cli --rdb write it"))
        .arg(data_dir().help("Directory of the data of a stopped server; made if there is none"))
        .arg(flag("replace-existing", "Keys of the file replace existing keys; other keys stay"))
        .arg(
            flag("keep-existing", "Existing keys stay as they are; the file's values for them are left out")
                .conflicts_with("replace-existing"),
        )
        .arg(
            named("from", "URL")
                .value_parser(address)
                .help("The server to copy: redis://[[USER]:PASSWORD@]HOST[:PORT], or rediss:// over TLS"),
        )
        .args(login::named(["from-user", "from-password-file"]).map(|flag| flag.requires("from")))
        .arg(
            named("into", "HOST:PORT")
                .requires("from")
                .value_parser(address)
                .conflicts_with_all(["replace-existing", "keep-existing"])
                .help("A running Sheaf server (over TLS: rediss://HOST:PORT): copy into it, then follow the source until Ctrl-C"),
        )
        .args(login::flags().map(|flag| flag.requires("into")))
        .arg(
            flag(
                "flush",
                "Remove all data of the target first, and start again if the source makes it necessary",
            )
            .requires("into"),
        )
        .arg(
            flag("skip-unsupported", "Leave out data that Sheaf does not support, and count it")
                .requires("into"),
        )
        .arg(named("spool", "DIR").requires("from").help(
            "Directory for the source's RDB file during the copy [default: the system's temporary directory]",
        ))
        .args(tls::flags("Reach the source over TLS, as rediss:// does").map(|flag| flag.requires("from")))
        .group(ArgGroup::new("source").args(["file", "from"]).required(true))
        .after_help(AFTER_HELP)
}

/// Arguments that apply only to an import from a running server.
const OF_A_SERVER: [&str; 9] = [
    "from",
    "from-user",
    "from-password-file",
    "into",
    "user",
    "password-file",
    "flush",
    "skip-unsupported",
    "spool",
];

const AFTER_HELP: &str = "\
From a file, into the directory of a stopped server. The file (Redis RDB versions 1 to 12, Valkey 80) is read twice: it is \
verified whole, to its checksum, before anything is written. Keys keep their types, streams with their groups among \
them, databases, expiry and the expiry of hash fields, and libraries of functions are copied; expired keys are left out. \
Data of modules, and libraries that cannot be loaded here, are left out and counted; a value of a module is refused. A directory \
with keys needs --replace-existing or --keep-existing. If the import is interrupted, the directory is not served before the same command has been run again to its end.

From a running server (--from). It is copied as a replica would: its RDB file first, verified whole, then, with --into, \
every write to it. When the command prints \"in sync\": stop the writers of the source, press Ctrl-C, point the clients at \
Sheaf. Ctrl-C waits for the writes that the source has by then and prints the offset at which the copy ends. After a broken \
connection to the source, the copy resumes. Until Ctrl-C no other client should write to the Sheaf server. Without --into, \
the copy goes into --dir, as the source is now, and ends.

The exit status is 0 only if everything was copied. Unsupported data is found before anything is written, and \
named; --skip-unsupported copies the rest. On the source, repl-backlog-size and client-output-buffer-limit must hold the \
writes during the copy of its keys.

Examples:
  redis-cli --rdb dump.rdb && sheaf import dump.rdb --dir ./data && sheaf --dir ./data
  sheaf import more.rdb --dir ./data --keep-existing
  sheaf import --from redis://db1:6379 --into 127.0.0.1:6380
  sheaf import --from redis://db1 --from-password-file /etc/redis/password --dir ./data";

pub(super) fn task(matches: &ArgMatches) -> Task {
    let path = |name: &str| matches.get_one::<String>(name).map(PathBuf::from);
    let existing = match (matches.get_flag("replace-existing"), matches.get_flag("keep-existing")) {
        (true, _) => Existing::Replaced,
        (_, true) => Existing::Kept,
        _ => Existing::Refused,
    };
    let dir = path("dir").unwrap_or_default();
    let Some(source) = matches.get_one::<Address>("from").map(|source| tls::with_files(source, matches))
    else {
        return Task::Import { file: path("file").unwrap_or_default(), dir, existing };
    };
    // The certificates are for both servers. The scheme of the target decides whether the target is reached
    // over TLS.
    let target = matches.get_one::<Address>("into").map(|target| match target.tls {
        Some(_) => tls::with_files(target, matches),
        None => target.clone(),
    });
    let destination = match target {
        None => Destination::Directory { dir, existing },
        Some(target) => Destination::Server(IntoServer {
            target: login::with_user(target, "user", matches),
            password_file: path("password-file"),
            flushes: matches.get_flag("flush"),
            skips_unsupported: matches.get_flag("skip-unsupported"),
        }),
    };
    Task::Migrate(Options {
        source: login::with_user(source, "from-user", matches),
        source_password_file: path("from-password-file"),
        destination,
        spool_dir: path("spool").unwrap_or_else(std::env::temp_dir),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Task, clap::Error> {
        command().try_get_matches_from(arguments).map(|found| task(&found))
    }

    #[test]
    fn a_file_goes_into_a_directory() {
        for (flags, expected) in [
            (&[][..], Existing::Refused),
            (&["--replace-existing"], Existing::Replaced),
            (&["--keep-existing"], Existing::Kept),
        ] {
            let arguments = [&["import", "f", "--dir", "d"], flags].concat();
            let Ok(Task::Import { file, dir, existing }) = parsed(&arguments) else { panic!("not import") };
            assert_eq!((file, dir, existing), (PathBuf::from("f"), PathBuf::from("d"), expected));
        }
    }

    #[test]
    fn a_server_goes_into_a_server_or_a_directory() {
        let arguments = ["import", "--from", "redis://:p@db1", "--into", "db2:7", "--flush", "--spool", "s"];
        let Ok(Task::Migrate(options)) = parsed(&arguments) else { panic!("not a migration") };
        let address = |text: &str| text.parse::<Address>().unwrap();
        let into = IntoServer {
            target: address("db2:7"),
            password_file: None,
            flushes: true,
            skips_unsupported: false,
        };
        let expected = Options {
            source: address("redis://:p@db1:6379"),
            source_password_file: None,
            destination: Destination::Server(into),
            spool_dir: "s".into(),
        };
        assert_eq!(options, expected);
        let arguments = [
            &["import", "--from", "db1", "--from-user", "a", "--from-password-file", "f"][..],
            &["--into", "db2", "--user", "b", "--password-file", "g"],
        ]
        .concat();
        let Ok(Task::Migrate(options)) = parsed(&arguments) else { panic!("not a migration") };
        let Destination::Server(IntoServer { target, .. }) = options.destination else {
            panic!("a directory")
        };
        assert_eq!((options.source.user.as_deref(), target.user.as_deref()), (Some("a"), Some("b")));
        let arguments = ["import", "--from", "redis://db1", "--dir", "d", "--keep-existing"];
        let Ok(Task::Migrate(options)) = parsed(&arguments) else { panic!("not a migration") };
        let expected = Destination::Directory { dir: "d".into(), existing: Existing::Kept };
        assert_eq!(options.destination, expected);
    }

    #[test]
    fn incompatible_flags_are_refused() {
        // A file or a server is missing here, and the error names both.
        let neither = command().try_get_matches_from(["import"]).unwrap_err().to_string();
        assert!(neither.contains("FILE") && neither.contains("--from <URL>"), "{neither}");
        for refused in [
            &["import"][..],
            &["import", "f", "--from", "redis://db1"],
            &["import", "f", "--into", "db2:7"],
            &["import", "f", "--flush"],
            &["import", "f", "--spool", "s"],
            &["import", "f", "--replace-existing", "--keep-existing"],
            &["import", "--from", "http://db1", "--into", "db2:7"],
            &["import", "--from", "redis://db1", "--flush"],
            &["import", "--from", "redis://db1", "--into", "db2:7", "--keep-existing"],
        ] {
            assert!(parsed(refused).is_err(), "{refused:?}");
        }
    }
}
