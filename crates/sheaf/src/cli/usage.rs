//! Wrong command lines. For flags and files of Redis, Valkey and CouchDB, the answer names a replacement.
//!
//! All other errors are clap's, which names the unknown argument and the nearest known one.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use lsn::Lsn;
use settings::{ConfigError, OPTIONS, instead_of};

/// Why a command line was refused; the message says how to correct it.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// A setting is wrong, or a file of settings cannot be read.
    #[error("{0}{answer}", answer = answer_to(.0))]
    Setting(#[from] ConfigError),
    /// No position of the log is in the range.
    #[error("--from {from} is behind --to {to}: no position is between them")]
    EmptyRange {
        /// The first position.
        from: Lsn,
        /// The last position.
        to: Lsn,
    },
    /// An argument, or the value of a variable, is not UTF-8. The error does not show the value, which may be
    /// a password.
    #[error("{0} is not UTF-8, as all settings and paths must be")]
    NotUtf8(String),
    /// Certificates were given for a connection that is not encrypted.
    #[error("--cacert, --cert, --key and --insecure are for URLs that begin with https://, and {0} does not")]
    PlainUrl(String),
    /// The command line has flags or files of another server. Each has a line with its replacement.
    #[error("{}", .0.join("\nsheaf: "))]
    Foreign(Vec<String>),
}

impl UsageError {
    /// Whether the error is damage of a file in the data directory.
    pub fn is_damage(&self) -> bool {
        matches!(self, UsageError::Setting(error) if error.is_damage())
    }
}

/// The replacement for a value that the setting cannot have here, such as `--appendonly no`.
fn answer_to(error: &ConfigError) -> String {
    match error {
        ConfigError::At { error, .. } => answer_to(error),
        ConfigError::Invalid { name: "port", value, .. } if value.starts_with("tcp://") => {
            ": Kubernetes sets it for a Service named `sheaf`; `enableServiceLinks: false` in the pod prevents that"
                .into()
        }
        ConfigError::Invalid { name, .. } => {
            instead_of(name).map_or(String::new(), |answer| format!(": {answer}"))
        }
        _ => String::new(),
    }
}

/// The answer to a command line that clap has refused. If there is no such answer, or help was requested,
/// clap prints its own text and ends the process.
pub(super) fn refused(error: clap::Error, arguments: &[String], tools: &[String]) -> UsageError {
    match foreign(&error, arguments, tools) {
        Some(lines) => UsageError::Foreign(lines),
        None => error.exit(),
    }
}

fn foreign(error: &clap::Error, arguments: &[String], tools: &[String]) -> Option<Vec<String>> {
    // clap takes a second value after a flag (`--save 900 1`) for a subcommand that conflicts with that flag.
    let is_usage = matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict
    );
    // A flag of a tool may have another meaning than the same flag of a server, so tools get no such answer.
    if !is_usage || arguments.get(1).is_some_and(|first| tools.contains(first)) {
        return None;
    }
    let unknown = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
        .into_iter()
        .find_map(|kind| error.get(kind))
        .and_then(|value| if let ContextValue::String(text) = value { Some(&**text) } else { None })?;
    let serves = arguments.get(1).is_some_and(|first| first == "serve");
    if let Some(answer) = file(unknown) {
        return Some(vec![answer]);
    }
    let name = |argument: &str| Some(argument.strip_prefix("--")?.split('=').next()?.to_owned());
    // A flag that is a setting here was understood, unless clap refused a second value of it.
    let is_ours = |name: &str| OPTIONS.iter().any(|option| option.name == name);
    let is_asked = |name: &String| !is_ours(name) || !unknown.starts_with('-');
    let answer =
        |name: String| instead_of(&name).map(|answer| format!("--{name} is not known here: {answer}"));
    let unknown_name = name(unknown).unwrap_or_else(|| unknown.trim_start_matches('-').to_owned());
    if unknown.starts_with('-') && instead_of(&unknown_name).is_none() {
        return None;
    }
    let lines: Vec<String> =
        arguments.iter().skip(1).filter_map(|it| name(it)).filter(is_asked).filter_map(answer).collect();
    match lines.is_empty() {
        // The unknown argument does not begin with `--`, such as `-couch_ini` or `admins`.
        true => {
            let answer = instead_of(&unknown_name).map(|it| format!("{unknown} is not known here: {it}"));
            answer.or_else(|| directory(unknown, serves)).map(|answer| vec![answer])
        }
        false => Some(lines),
    }
}

/// The answer to a file that is named as in `redis-server redis.conf`.
fn file(argument: &str) -> Option<String> {
    let (_, ending) = argument.rsplit_once('.')?;
    match ending {
        "toml" | "conf" => Some(format!("{argument}: use --config {argument}")),
        "ini" => Some(format!(
            "{argument}: settings are lines of TOML here (`port = 6379`) in a file given by --config FILE; \
             `sheaf --help` has their names"
        )),
        _ => None,
    }
}

/// The answer to a directory that is named as in `sheaf ./data`. If `serves` is true, a name without a slash
/// counts as a directory, too, because no subcommand can have that name.
fn directory(argument: &str, serves: bool) -> Option<String> {
    let is_one = !argument.starts_with('-') && (serves || argument.contains('/'));
    is_one.then(|| format!("{argument}: the directory of the data is named by --dir {argument}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(arguments: &[&str]) -> Option<Vec<String>> {
        let arguments: Vec<String> = ["sheaf"].iter().chain(arguments).map(ToString::to_string).collect();
        let error = super::super::command().try_get_matches_from(&arguments).unwrap_err();
        foreign(&error, &arguments, &super::super::tool_names())
    }

    #[test]
    fn flags_of_other_servers_are_answered_with_ours() {
        for (arguments, expected) in [
            (&["--daemonize", "yes"][..], "as a service"),
            (&["--cluster-enabled", "yes"], "--cluster-emulation"),
            (&["--syslog-enabled", "yes"], "--logfile"),
            (&["--tls-ciphersuites", "x"], "--tls-protocols"),
            (&["--rename-command", "FLUSHALL", ""], "commands keep"),
            (&["--io-threads=4"], "--workers"),
            (&["--sentinel"], "--join"),
            (&["--save", "900", "1"], "--snapshot-log-bytes"),
            (&["--bind_address", "0.0.0.0"], "--bind"),
            (&["admins"], "--admin-user"),
            (&["couch.ini"], "--config FILE"),
            (&["--port", "1", "/etc/redis/redis.conf"], "--config /etc/redis/redis.conf"),
            (&["my.toml"], "--config my.toml"),
            (&["./data"], "--dir ./data"),
            (&["serve", "data"], "--dir data"),
        ] {
            let lines = answers(arguments).unwrap_or_default();
            assert!(lines.len() == 1 && lines[0].contains(expected), "{arguments:?}: {lines:?}");
        }
        assert_eq!(answers(&["--daemonize", "no", "--io-threads", "4"]).unwrap().len(), 2);
    }

    #[test]
    fn all_else_is_left_to_clap() {
        for arguments in [&["--maxmemroy", "1"][..], &["chekc"], &["backup", "d", "--users", "x"], &["x.rdb"]]
        {
            assert_eq!(answers(arguments), None, "{arguments:?}");
        }
        let error = super::super::command().try_get_matches_from(["sheaf", "--maxmemroy", "1"]).unwrap_err();
        assert!(error.to_string().contains("a similar argument exists: '--maxmemory'"), "{error}");
    }

    #[test]
    fn a_value_that_has_another_name_here_is_answered() {
        let mut settings = settings::Settings::default();
        let error = UsageError::from(settings.set("appendonly", "no").unwrap_err()).to_string();
        assert!(error.contains("can only be yes: every write is in the log; --durability"), "{error}");
    }
}
