//! The command line: `sheaf [serve] [settings]`, `sheaf check DIR`, `sheaf log DIR`, `sheaf import FILE`,
//! `sheaf import --from URL`, `sheaf export FILE`, `sheaf backup DIR`, `sheaf restore BACKUP`, `sheaf tail
//! CHANNEL...`, `sheaf group HOST:PORT`, `sheaf health`, `sheaf doctor`, `sheaf bench`, `sheaf certs DIR`,
//! `sheaf config convert FILE`, `sheaf completions SHELL`, `sheaf man DIR`.
//!
//! The flags of `serve` and their environment variables come from the table of settings (`serve.rs`).

mod bench;
mod doctor;
mod generate;
mod group;
mod health;
mod import;
mod login;
mod redis_server;
mod serve;
mod tail;
mod tls;
mod usage;

use std::{ffi::OsString, path::PathBuf};

use ::tls::ClientFiles;
use backup::{fetch::DEFAULT_USER, restore::Target};
use clap::{Arg, ArgAction, ArgMatches, Command};
pub use generate::{completions, man};
use lsn::Lsn;
use recovery::{recover::Mode, unix_time};
use settings::{Key, Lasting, OPTIONS, Settings};

use tools::{backup::Source, export::Format, log::Selection, migration, tail::Options};
pub use usage::UsageError;

/// The requested task, with its arguments.
#[derive(Debug)]
pub enum Task {
    /// Run a server.
    Serve {
        /// The settings of the server.
        settings: Settings,
        /// The files, variables and flags from which the settings come.
        lasting: Lasting,
        /// Whether to recover from the newest snapshot, from an older one, or by force.
        mode: Mode,
    },
    /// Verify a data directory.
    Check {
        /// The data directory.
        dir: PathBuf,
    },
    /// Print the log of a data directory.
    Log {
        /// The data directory.
        dir: PathBuf,
        /// The records to print.
        selection: Selection,
    },
    /// Read an RDB file into a data directory.
    Import {
        /// The RDB file.
        file: PathBuf,
        /// The data directory.
        dir: PathBuf,
        /// How to treat keys that the directory already holds.
        existing: tools::import::Existing,
    },
    /// Copy the data of a running Redis-compatible server.
    Migrate(migration::Options),
    /// Write the keys of a server to an RDB file.
    Export {
        /// The RDB file.
        file: PathBuf,
        /// The source of the data.
        from: ExportSource,
        /// The format of the file.
        format: Format,
    },
    /// Copy the data of a running server.
    Backup {
        /// The directory of the backup.
        dir: PathBuf,
        /// The server to copy.
        source: Source,
    },
    /// Make a data directory from a backup or another data directory.
    Restore {
        /// The source: a backup or a data directory.
        source: PathBuf,
        /// The new data directory.
        dir: PathBuf,
        /// The position or time to restore.
        target: Target,
    },
    /// Follow channels of a running server.
    Tail(Options),
    /// Show the group of a running server.
    Group(tools::group::Options),
    /// Ask a running server whether it serves.
    Health {
        /// The URL of the server's HTTP port.
        url: String,
        /// The certificates for a URL that begins with `https`.
        tls: ClientFiles,
    },
    /// Measure a server.
    Bench(tools::bench::Options),
    /// Check the machine and a data directory.
    Doctor(tools::doctor::Options),
    /// Make certificates with which TLS can be tried.
    Certs(tools::certs::Options),
    /// Print a configuration file of Redis as one of Sheaf.
    Convert {
        /// The configuration file of Redis.
        file: PathBuf,
    },
    /// Print a script for a shell.
    Completions {
        /// The shell that will run the script.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages.
    Man {
        /// The directory into which the pages are written.
        dir: PathBuf,
    },
}

/// The data that is exported.
#[derive(Debug, PartialEq, Eq)]
pub enum ExportSource {
    /// The data of a stopped server, in this directory.
    Directory(PathBuf),
    /// The data of a running server.
    Server(Source),
}

/// The arguments as texts. Also checks that the values of variables `SHEAF_*` are UTF-8, because clap would
/// not name the variable that it refuses.
fn texts(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Vec<String>, UsageError> {
    let is_setting = |name: &OsString| name.as_encoded_bytes().starts_with(b"SHEAF_");
    let refused = std::env::vars_os().find(|(name, value)| is_setting(name) && value.to_str().is_none());
    if let Some((name, _)) = refused {
        return Err(UsageError::NotUtf8(format!("the value of {}", name.to_string_lossy())));
    }
    let text = |(index, argument): (usize, OsString)| {
        argument.into_string().map_err(|_| UsageError::NotUtf8(format!("argument {index}")))
    };
    arguments.into_iter().map(Into::into).enumerate().map(text).collect()
}

/// Parses the command line. If the user asks for help, prints it and exits. At a usage error that only clap
/// knows, prints the error and exits with status 2, as clap does.
///
/// # Errors
/// If a setting is wrong or its file cannot be read, if arguments do not fit together or are not UTF-8, or if
/// a flag belongs to another server.
pub fn parse(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Task, UsageError> {
    let arguments = redis_server::in_our_words(texts(arguments)?, &tool_names());
    let matches = command()
        .try_get_matches_from(&arguments)
        .map_err(|error| usage::refused(error, &arguments, &tool_names()))?;
    match matches.subcommand() {
        Some(("check", check)) => Ok(Task::Check { dir: path(check, "dir").unwrap_or_default() }),
        Some(("log", log)) => {
            let lsn = |name: &str| log.get_one::<u64>(name).map(|position| Lsn::new(*position));
            let key = log.get_one::<String>("key").cloned();
            let selection = Selection { from: lsn("from"), to: lsn("to"), key };
            if let (Some(from), Some(to)) = (selection.from, selection.to)
                && from > to
            {
                return Err(UsageError::EmptyRange { from, to });
            }
            Ok(Task::Log { dir: path(log, "dir").unwrap_or_default(), selection })
        }
        Some(("import", found)) => Ok(import::task(found)),
        Some(("export", export)) => {
            let version = export.get_one::<u16>("rdb-version").copied().unwrap_or(Format::DEFAULT_VERSION);
            let format = Format { version, drops_field_expiry: export.get_flag("drop-field-expiry") };
            let from = match export.get_one::<String>("from") {
                Some(url) => ExportSource::Server(source(url.clone(), export)?),
                None => ExportSource::Directory(path(export, "dir").unwrap_or_default()),
            };
            Ok(Task::Export { file: path(export, "file").unwrap_or_default(), from, format })
        }
        Some(("backup", backup)) => {
            let url = backup.get_one::<String>("from").cloned().unwrap_or_else(default_url);
            let dir = path(backup, "dest").unwrap_or_default();
            Ok(Task::Backup { dir, source: source(url, backup)? })
        }
        Some(("restore", restore)) => {
            let lsn = restore.get_one::<u64>("to-lsn").map(|lsn| Target::Lsn(Lsn::new(*lsn)));
            let time = restore.get_one::<u64>("to-time").map(|unix_ms| Target::Time(*unix_ms));
            let (source, dir) = (path(restore, "source"), path(restore, "dir"));
            let target = lsn.or(time).unwrap_or(Target::End);
            Ok(Task::Restore { source: source.unwrap_or_default(), dir: dir.unwrap_or_default(), target })
        }
        Some(("tail", found)) => Ok(Task::Tail(tail::options(found))),
        Some(("group", found)) => Ok(Task::Group(group::options(found))),
        Some(("health", found)) => {
            let url = health::url(found);
            Ok(Task::Health { tls: tls::files_for(&url, found)?, url })
        }
        Some(("bench", found)) => Ok(Task::Bench(bench::options(found))),
        Some(("doctor", found)) => Ok(Task::Doctor(doctor::options(found))),
        Some(("certs", found)) => Ok(Task::Certs(tls::certs_options(found))),
        Some(("config", found)) => Ok(Task::Convert { file: converted_file(found) }),
        Some(("completions", found)) => Ok(generate::completions_task(found)),
        Some(("man", man)) => Ok(Task::Man { dir: path(man, "dir").unwrap_or_default() }),
        Some((_, serve)) => Ok(serve::task(serve)?),
        None => Ok(serve::task(&matches)?),
    }
}

/// The running server that will be copied.
///
/// # Errors
/// If certificates are given for a connection without TLS.
fn source(url: String, matches: &ArgMatches) -> Result<Source, UsageError> {
    Ok(Source {
        user: matches.get_one::<String>("user").cloned().unwrap_or_else(|| DEFAULT_USER.into()),
        password_file: path(matches, "password-file"),
        tls: tls::files_for(&url, matches)?,
        url,
    })
}

/// The flags for the user that logs in to the server that will be copied.
fn login_flags() -> [Arg; 2] {
    let user = Arg::new("user").long("user").value_name("NAME");
    let password_file = Arg::new("password-file").long("password-file").value_name("FILE");
    [
        user.help(format!("User name: an admin of the server, as admin-user [default: {DEFAULT_USER}]")),
        password_file
            .help("File whose first line is the password (requirepass, or admin-password with --user admin)"),
    ]
}

fn path(matches: &ArgMatches, name: &str) -> Option<PathBuf> {
    matches.get_one::<String>(name).map(PathBuf::from)
}

fn config_command() -> Command {
    let file = Arg::new("file").value_name("FILE").required(true).help("The redis.conf");
    let convert = Command::new("convert")
        .about("Print a redis.conf as a configuration file of Sheaf, in TOML")
        .long_about(
            "Print a redis.conf, and the files that it includes, as a configuration file of Sheaf, in TOML. Comments \
             name the lines that have no effect here, and those that are refused, with what to do instead.",
        )
        .arg(file)
        .after_help(
            "Exit status: 0: every line was taken over, or has no effect here. 1: lines were refused, or the file \
             cannot be read. 2: wrong usage.",
        );
    Command::new("config").about("Convert configuration files").subcommand_required(true).subcommand(convert)
}

fn converted_file(config: &ArgMatches) -> PathBuf {
    config.subcommand_matches("convert").and_then(|convert| path(convert, "file")).unwrap_or_default()
}

fn command() -> Command {
    let dir = || Arg::new("dir").value_name("DIR").required(true).help("Directory of the data");
    let lsn = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("LSN").value_parser(clap::value_parser!(u64)).help(help)
    };
    serve::with_arguments(Command::new("sheaf"))
        .version(env!("SHEAF_VERSION"))
        .about(
            "A database that keeps its word: keys as in Redis, documents as in CouchDB, every OK is on disk",
        )
        .args_conflicts_with_subcommands(true)
        .subcommand(serve::with_arguments(Command::new("serve")).about("Run the server (the default)"))
        .subcommand(
            Command::new("check")
                .about("Verify every byte of a data directory")
                .long_about(
                    "Verify every byte of the log, snapshots and documents of a data directory or a backup, and rehearse a start",
                )
                .arg(dir())
                .after_help(
                    "Exit status: 0: every byte is intact, and a server would start. 1: there is damage, or a start would be \
                     refused; the message says what to do. 2: wrong usage.\n\nExamples:\n  sheaf check ./data\n  \
                     sheaf check /backups/monday",
                ),
        )
        .subcommand(
            Command::new("log")
                .about("Print the records of the log, one line per change")
                .arg(dir())
                .arg(lsn("from", "First position to print"))
                .arg(lsn("to", "Last position to print"))
                .arg(Arg::new("key").long("key").value_name("PATTERN").help("Only changes of matching keys"))
                .after_help(
                    "Each line begins with the position of its record, which --from, --to and `sheaf restore --to-lsn` take.\n\n\
                     Exit status: 0: the log was printed, to its end or to --to. 1: it cannot be read. 2: wrong \
                     usage.\n\nExamples:\n  sheaf log ./data --key 'cart:*'\n  sheaf log /backups/monday --from 4096 | tail",
                ),
        )
        .subcommand(import::command())
        .subcommand(export_command())
        .subcommand(backup_command())
        .subcommand(restore_command())
        .subcommand(tail::command())
        .subcommand(group::command())
        .subcommand(health::command())
        .subcommand(doctor::command())
        .subcommand(bench::command())
        .subcommand(tls::certs_command())
        .subcommand(config_command())
        .subcommand(generate::completions_command())
        .subcommand(generate::man_command())
}

/// The commands other than `serve`.
fn tool_names() -> Vec<String> {
    let all = command();
    all.get_subcommands().map(|tool| tool.get_name().to_owned()).filter(|name| name != "serve").collect()
}

/// The flag for the directory of a stopped server; its default is the same as for `serve`.
fn data_dir() -> Arg {
    let default = OPTIONS[Key::Dir as usize].default;
    Arg::new("dir").long("dir").value_name("DIR").env("SHEAF_DIR").hide_env(true).default_value(default)
}

fn export_command() -> Command {
    let version = Arg::new("rdb-version").long("rdb-version").value_name("VERSION");
    let file = Arg::new("file").value_name("FILE").required(true);
    let from = Arg::new("from").long("from").value_name("URL");
    Command::new("export")
        .about("Write the data of a stopped or running server to an RDB file")
        .arg(file.help("The RDB file; one that exists is replaced when the new one is complete"))
        .arg(data_dir().help("Directory of the data of a stopped server, or of a backup; it is not changed"))
        .arg(from.help(format!("HTTP port of a running Sheaf, instead of a directory, such as {}", default_url())))
        .args(login_flags().map(|flag| flag.requires("from")))
        .args(tls::url_flags().map(|flag| flag.requires("from")))
        .arg(
            version
                .value_parser(clap::value_parser!(u16).range(Format::VERSIONS))
                .help("10 for Redis 7.0 and newer, 11 for 7.2 and Valkey, 12 for 7.4 [default: 10]"),
        )
        .arg(
            Arg::new("drop-field-expiry")
                .long("drop-field-expiry")
                .action(ArgAction::SetTrue)
                .help("Write hash fields without their expiry, for versions before 12"),
        )
        .after_help(
            "Keys keep their types, databases and expiry; expired keys are left out. Only version 12 holds the expiry \
             of hash fields: without it, a hash with such fields is refused.\n\nWith --from, the data is copied first, as by \
             `sheaf backup`, into the directory FILE.export-copy, which needs as much room as the data and is removed at the \
             end. If that is interrupted, run the same command again to resume it.\n\nExamples:\n  sheaf export dump.rdb --dir \
             ./data && redis-server --dbfilename dump.rdb\n  sheaf export dump.rdb --dir ./data --rdb-version 12\n  sheaf export dump.rdb --from http://db1:5984 --password-file /etc/sheaf/password",
        )
}

/// The HTTP port of a server with the default settings on this machine.
fn default_url() -> String {
    format!("http://127.0.0.1:{}", OPTIONS[Key::HttpPort as usize].default)
}

fn backup_command() -> Command {
    let from = Arg::new("from").long("from").value_name("URL");
    Command::new("backup")
        .about("Copy the data of a running server, or bring a copy up to date")
        .arg(
            Arg::new("dest")
                .value_name("DEST")
                .required(true)
                .help("Directory of the backup; made if there is none, brought up to date if it is one"),
        )
        .arg(from.help(format!("HTTP port of the server [default: {}]", default_url())))
        .args(login_flags())
        .args(tls::url_flags())
        .after_help(
            "The backup holds the newest snapshot and the log up to the moment it was begun: every write that was \
             acknowledged before. If it is interrupted, run the same command again to resume it. It is \
             complete when it has its backup.json. `sheaf check DEST` verifies it again.\n\nIf DEST is a backup of this server, \
             only changes are copied: the ends of the log and of files of documents, replaced files, and the snapshot if the \
             server no longer has the earlier one. Existing files are verified, and copied again if they are damaged. Until \
             the end, DEST stays the earlier backup. A backup of another server is refused.\n\nExamples:\n  sheaf backup \
             /backups/monday\n  sheaf backup /backups/monday --from http://db1:5984 --password-file /etc/sheaf/password",
        )
}

fn restore_command() -> Command {
    let lsn = Arg::new("to-lsn").long("to-lsn").value_name("LSN").value_parser(clap::value_parser!(u64));
    let time = Arg::new("to-time").long("to-time").value_name("TIME").value_parser(unix_time::parse);
    let dir = Arg::new("dir").long("dir").value_name("DIR").required(true);
    Command::new("restore")
        .about("Make a data directory as of any point of a log")
        .arg(Arg::new("source").value_name("SOURCE").required(true).help("A backup, or the directory of a stopped server; it is not changed"))
        .arg(dir.help("The new directory; it must not exist or be empty"))
        .arg(lsn.help("Up to this position: `sheaf log SOURCE` shows the changes and their positions"))
        .arg(
            time.help("Up to this time: RFC 3339 as 2026-01-31T18:30:00Z, or seconds since 1970")
                .conflicts_with("to-lsn"),
        )
        .after_help(
            "Without a target, everything is restored. A record (a command or a transaction) is restored as a whole or \
             not at all. Keys that have expired by now are restored, but no client sees them.\n\nThe new directory \
             has a history of its own, which continues after the target. If the restore is interrupted, the directory is \
             not served.\n\nExamples:\n  sheaf restore /backups/monday --dir ./data\n  sheaf restore ./data --dir \
             ./before --to-time 2026-01-31T18:29:59Z",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &[&str]) -> Settings {
        match parse(arguments.iter().map(ToString::to_string)).unwrap() {
            Task::Serve { settings, .. } => settings,
            other => panic!("not serve: {other:?}"),
        }
    }

    #[test]
    fn serve_is_the_default_and_takes_every_setting() {
        command().debug_assert();
        assert_eq!(settings(&["sheaf"]), Settings::default());
        assert_eq!(settings(&["sheaf", "--port", "1"]).integer(Key::Port), 1);
        assert_eq!(settings(&["sheaf", "serve", "--durability", "none"]).text(Key::Durability), "none");
    }

    #[test]
    fn a_switch_alone_means_yes() {
        let switch = |arguments: &[&str]| settings(arguments).switch(Key::Witness);
        assert!(!switch(&["sheaf"]) && switch(&["sheaf", "--witness"]));
        assert!(switch(&["sheaf", "serve", "--witness", "--port", "1"]));
        assert!(switch(&["sheaf", "--witness", "yes"]) && !switch(&["sheaf", "--witness", "no"]));
    }

    #[test]
    fn the_flags_of_one_recovery_are_not_settings() {
        for (arguments, expected) in [
            (&["sheaf", "--dir", "d"][..], Mode::Newest),
            (&["sheaf", "serve", "--recover-from", "4096"], Mode::From(Lsn::new(4096))),
            (&["sheaf", "--force-recovery"], Mode::Force),
        ] {
            let task = parse(arguments.iter().map(ToString::to_string)).unwrap();
            let Task::Serve { mode, .. } = task else { panic!("not serve: {task:?}") };
            assert_eq!(mode, expected);
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let error = parse(["sheaf", "--port", "99999"].map(String::from)).unwrap_err();
        assert!(error.to_string().contains("'port'"), "{error}");
    }

    #[test]
    fn negative_numbers_are_values() {
        let given = settings(&["sheaf", "--slowlog-log-slower-than", "-1", "--list-max-listpack-size", "-2"]);
        assert_eq!(
            (given.signed(Key::SlowlogLogSlowerThan), given.signed(Key::ListMaxListpackSize)),
            (-1, -2)
        );
        let error = parse(["sheaf", "--workers", "-1"].map(String::from)).unwrap_err();
        assert!(error.to_string().ends_with("'workers': must be a number from 0 to 128"), "{error}");
    }

    #[test]
    fn the_short_help_fits_a_screen_and_the_long_one_has_every_setting() {
        let short = command().term_width(100).render_help().to_string();
        let lines: Vec<&str> = short.lines().collect();
        assert!(lines.len() <= 70, "{}: {short}", lines.len());
        assert!(lines.iter().all(|line| line.len() <= 100), "{short}");
        let long = command().term_width(100).render_long_help().to_string();
        for option in OPTIONS {
            assert!(long.contains(&format!("--{} ", option.name)), "{}", option.name);
            assert!(long.contains(&format!("<{}>", option.value)), "{}", option.name);
            assert!(long.contains(&format!("\n{}:\n", option.group.title())), "{}", option.name);
        }
        assert!(long.contains("SHEAF_HTTP_PORT") && long.contains("volatile-ttl]"), "{long}");
    }

    #[test]
    fn the_tools_take_their_arguments() {
        let task = parse(["sheaf", "log", "d", "--from", "5", "--key", "a*"].map(String::from)).unwrap();
        let Task::Log { dir, selection } = task else { panic!("not log") };
        assert_eq!((dir, selection.from, selection.to), (PathBuf::from("d"), Some(Lsn::new(5)), None));
        let empty = ["sheaf", "log", "d", "--from", "10", "--to", "5"].map(String::from);
        let refused = parse(empty).unwrap_err().to_string();
        assert_eq!(refused, "--from 10 is behind --to 5: no position is between them");
    }

    #[test]
    fn moving_out_and_copies_take_the_directory_of_the_server() {
        let task = |arguments: &[&str]| parse(arguments.iter().map(ToString::to_string)).unwrap();
        let Task::Export { format, .. } = task(&["sheaf", "export", "f"]) else { panic!("not export") };
        assert_eq!(format, Format { version: 10, drops_field_expiry: false });
        let arguments = ["sheaf", "export", "f", "--rdb-version", "12", "--drop-field-expiry"];
        let Task::Export { format, .. } = task(&arguments) else { panic!("not export") };
        assert_eq!(format, Format { version: 12, drops_field_expiry: true });
        let Task::Export { from, .. } = task(&["sheaf", "export", "f", "--dir", "d"]) else {
            panic!("not export")
        };
        assert_eq!(from, ExportSource::Directory("d".into()));
        let Task::Export { from, .. } =
            task(&["sheaf", "export", "f", "--from", "http://h:1", "--user", "u"])
        else {
            panic!("not export")
        };
        let ExportSource::Server(Source { url, user, .. }) = from else { panic!("a directory") };
        assert_eq!((url.as_str(), user.as_str()), ("http://h:1", "u"));
        assert!(command().try_get_matches_from(["sheaf", "export", "f", "--user", "u"]).is_err());
        let Task::Backup { dir, source } = task(&["sheaf", "backup", "d"]) else { panic!("not backup") };
        let Source { url, user, password_file, .. } = source;
        assert_eq!((dir, url.as_str(), password_file), (PathBuf::from("d"), "http://127.0.0.1:5984", None));
        assert_eq!(user, "default");
        for (arguments, expected) in [
            (&[][..], Target::End),
            (&["--to-lsn", "4096"], Target::Lsn(Lsn::new(4096))),
            (&["--to-time", "1970-01-01T00:00:01.5Z"], Target::Time(1500)),
            (&["--to-time", "1.5"], Target::Time(1500)),
        ] {
            let arguments = [&["sheaf", "restore", "s", "--dir", "d"], arguments].concat();
            let Task::Restore { source, dir, target } = task(&arguments) else { panic!("not restore") };
            assert_eq!((source, dir, target), (PathBuf::from("s"), PathBuf::from("d"), expected));
        }
        for refused in [
            &["sheaf", "restore", "s"][..],
            &["sheaf", "restore", "s", "--dir", "d", "--to-time", "noon"],
            &["sheaf", "restore", "s", "--dir", "d", "--to-time", "1", "--to-lsn", "1"],
        ] {
            assert!(command().try_get_matches_from(refused).is_err(), "{refused:?}");
        }
        assert!(command().try_get_matches_from(["sheaf", "export", "f", "--rdb-version", "9"]).is_err());
    }
}
