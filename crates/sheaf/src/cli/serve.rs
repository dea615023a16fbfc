//! The arguments of `sheaf [serve]`: the settings, by group, and options of a single start.
//!
//! `-h` shows the settings that matter at a first start, a line each. `--help` shows all settings, with
//! values and units. Both come from the table of settings.

use clap::{Arg, ArgAction, ArgMatches, Command, builder::Str, parser::ValueSource};
use lsn::Lsn;
use recovery::recover::Mode;
use settings::{ConfigError, Given, Group, Key, Kind, Lasting, OPTIONS, Origin, Setting, variable};

use super::{Task, path, redis_server::WITHOUT_EFFECT};

/// The settings that `-h` shows: about one screen, together with the commands.
const FIRST: &[Key] = &[
    Key::Dir,
    Key::Bind,
    Key::Port,
    Key::HttpPort,
    Key::Durability,
    Key::Maxmemory,
    Key::MaxmemoryPolicy,
    Key::Requirepass,
    Key::AdminPassword,
    Key::Maxclients,
    Key::ReplicaOf,
    Key::Group,
    Key::Join,
    Key::AckReplicas,
    Key::MaxDocumentSize,
    Key::Loglevel,
];

/// The heading of options that are not settings.
const ONE_START: &str = "For one start, not saved";

/// The examples in the help: command lines, and their effects.
const EXAMPLES: &[(&str, &str)] = &[
    ("sheaf", "serve ./data on 127.0.0.1:6379"),
    ("sheaf serve --dir /var/lib/sheaf", "serve another directory"),
    ("SHEAF_PORT=6380 sheaf", "every setting is also a variable"),
    ("sheaf check ./data", "verify the data of a stopped server"),
    ("sheaf log ./data --key 'cart:*'", "changes of these keys"),
    ("sheaf import dump.rdb --dir ./data", "move in from Redis or Valkey"),
    ("sheaf backup ./monday", "copy the data of a running server"),
    ("sheaf restore ./monday --dir ./new", "make a data directory from it"),
    ("sheaf export dump.rdb --dir ./data", "move out again"),
    ("sheaf tail orders", "follow a channel"),
    ("sheaf group db1:6379", "show the members of a group"),
];

/// The number of examples in `-h`.
const FIRST_EXAMPLES: usize = 3;

const RULE: &str = "Each setting can also be given as a variable (--http-port as SHEAF_HTTP_PORT), and as a line of the \
                    file of --config (http-port = 8080).";

/// The text after the options in `-h`.
pub(super) fn short_end() -> String {
    format!("{}\n\n`--help` has every setting, and more examples.", examples(FIRST_EXAMPLES))
}

/// The text after the options in `--help`.
pub(super) fn long_end() -> String {
    format!(
        "{RULE} A flag wins over a variable, a variable over the file. BYTES take kb, mb and gb (1024), k, m and g \
         (1000).\n\n{}",
        examples(EXAMPLES.len())
    )
}

fn examples(count: usize) -> String {
    let line = |(example, meaning): &(&str, &str)| format!("\n  {example:<36} {meaning}");
    format!("Examples:{}", EXAMPLES.iter().take(count).map(line).collect::<String>())
}

pub(super) fn task(matches: &ArgMatches) -> Result<Task, ConfigError> {
    let config_file = path(matches, "config");
    let given = |name: &'static str| {
        let value = matches.get_one::<String>(name)?.clone();
        let is_variable = matches.value_source(name) == Some(ValueSource::EnvVariable);
        let origin = if is_variable { Origin::Variable } else { Origin::Flag };
        Some(Given { name: name.into(), value, origin })
    };
    let given: Vec<Given> = OPTIONS.iter().filter_map(|option| given(option.name)).collect();
    let base = matches.get_one::<u64>("recover-from").copied().map(Lsn::new);
    let mode = match base {
        _ if matches.get_flag("force-recovery") => Mode::Force,
        Some(base) => Mode::From(base),
        None => Mode::Newest,
    };
    let (mut settings, mut lasting) = Lasting::load(config_file, given)?;
    let without_effect = matches.get_many::<String>(WITHOUT_EFFECT).into_iter().flatten();
    lasting.take_without_effect(&mut settings, without_effect.map(String::as_str));
    Ok(Task::Serve { settings, lasting, mode })
}

/// Adds the arguments of `serve`: the settings, and the options of a single start, which are not saved.
pub(super) fn with_arguments(command: Command) -> Command {
    let config = Arg::new("config").long("config").value_name("FILE").env("SHEAF_CONFIG").hide_env(true);
    let recover_from = Arg::new("recover-from")
        .long("recover-from")
        .value_name("LSN")
        .value_parser(clap::value_parser!(u64))
        .help("Start from the snapshot or log that begins here, if newer ones are damaged");
    let force_recovery = Arg::new("force-recovery")
        .long("force-recovery")
        .action(ArgAction::SetTrue)
        .conflicts_with("recover-from")
        .help(
            "Leave out damaged parts, write recovery-report.json, and be read-only until CONFIG SET force-recovery \
             confirmed accepts the loss; without damage, start as always",
        );
    let without_effect = Arg::new(WITHOUT_EFFECT).long(WITHOUT_EFFECT).action(ArgAction::Append).hide(true);
    let mut by_group: Vec<&Setting> = OPTIONS.iter().collect();
    by_group.sort_by_key(|option| option.group);
    let one_start = [recover_from, force_recovery];
    command
        .arg(
            config
                .help_heading(Group::Start.title())
                .help("Read settings from this file, in TOML or as redis.conf")
                .long_help(
                    "Read settings from this file; flags and variables override it. A name that ends with .conf is a \
                     configuration file of Redis, every other one is TOML. `sheaf FILE.conf` is the same as \
                     `sheaf --config FILE.conf`.",
                ),
        )
        .args(by_group.into_iter().map(argument))
        .args(one_start.map(|option| option.help_heading(ONE_START).hide_short_help(true)))
        .arg(without_effect)
        .after_help(short_end())
        .after_long_help(long_end())
}

fn argument(option: &'static Setting) -> Arg {
    let default = match option.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    // Only the long help explains the value 0, so the short help leaves out a default of 0.
    let short_default = if option.default == "0" { "" } else { &default };
    let names = match option.unlisted_names() {
        [] => String::new(),
        names => format!(" [one of: {}]", names.join(", ")),
    };
    let flag = Arg::new(option.name)
        .long(option.name)
        .value_name(option.value)
        .action(ArgAction::Set)
        // This makes `--workers -1` a value out of range, instead of an unknown flag.
        .allow_negative_numbers(is_number(option.kind))
        .env(Str::from(variable(option.name)))
        .hide_env(true)
        .help_heading(option.group.title())
        .hide_short_help(!FIRST.contains(&option.key))
        .help(format!("{}{short_default}", option.summary()))
        .long_help(format!("{}{names}{default}", option.doc));
    let flag = match option.kind {
        Kind::Switch => flag.num_args(0..=1).default_missing_value("yes"),
        _ => flag,
    };
    // Every user of the machine can see a secret that is on the command line. It is accepted anyway.
    if option.is_secret() { flag.hide_env_values(true) } else { flag }
}

fn is_number(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Integer { .. } | Kind::Signed { .. } | Kind::Bytes { .. } | Kind::BytesPowerOfTwo { .. }
    )
}
