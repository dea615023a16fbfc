//! `sheaf completions SHELL` prints a script, `sheaf man DIR` writes the manual pages. Both are made from the
//! same definitions of commands and options as the help. Packages ship the results beside the binary.

use std::{
    io::{self, Write},
    path::Path,
};

use clap::{Arg, ArgMatches, Command, ValueHint, builder::PossibleValuesParser};
use clap_complete::Shell;
use clap_mangen::Man;
use env::{Disk, RealDisk, crashsafe};
use settings::{Kind, OPTIONS};

use super::Task;

/// The mode of the pages: everybody may read them.
const PAGE_MODE: u32 = 0o644;
/// The synopsis of a command that takes settings, in roff.
const SERVE_SYNOPSIS: &[u8] = b".SH SYNOPSIS\n\\fBsheaf\\fR [\\fBserve\\fR] [\\fB\\-\\-SETTING\\fR VALUE]...\n.br\n\\fBsheaf\\fR COMMAND\n";
/// The shells whose scripts are tested.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

pub(super) fn completions_command() -> Command {
    let shell = Arg::new("shell").value_name("SHELL").required(true);
    Command::new("completions")
        .about("Print the script by which a shell completes commands")
        .arg(shell.value_parser(PossibleValuesParser::new(SHELLS)).help("The shell"))
        .after_help(
            "Examples:\n  sheaf completions bash > /etc/bash_completion.d/sheaf\n  sheaf completions zsh > \
             \"${fpath[1]}/_sheaf\"\n  sheaf completions fish > ~/.config/fish/completions/sheaf.fish",
        )
}

pub(super) fn man_command() -> Command {
    let dir = Arg::new("dir").value_name("DIR").required(true);
    Command::new("man")
        .about("Write the manual pages: sheaf.1, and one for each command")
        .arg(dir.help("Directory of the pages; created if missing, existing pages are replaced"))
        .after_help("Example:\n  sheaf man /usr/local/share/man/man1 && man sheaf")
}

pub(super) fn completions_task(matches: &ArgMatches) -> Task {
    let shell = matches.get_one::<String>("shell").and_then(|name| name.parse().ok());
    Task::Completions { shell: shell.unwrap_or(Shell::Bash) }
}

/// Prints the script of a shell.
///
/// # Errors
/// If standard output cannot be written.
pub fn completions(shell: Shell) -> io::Result<()> {
    io::stdout().write_all(&script(shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut command = with_hints(super::command());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "sheaf", &mut script);
    script
}

/// Tells clap which values each argument takes: files, directories, or names. Only completion scripts need
/// this: `settings` checks the values itself, and also takes other spellings.
fn with_hints(command: Command) -> Command {
    command.mut_args(with_hint).mut_subcommands(with_hints)
}

fn with_hint(argument: Arg) -> Arg {
    let name = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let argument = match name.as_deref() {
        Some("DIR" | "DEST" | "SOURCE") => argument.value_hint(ValueHint::DirPath),
        Some("FILE") => argument.value_hint(ValueHint::FilePath),
        _ => argument,
    };
    let option = OPTIONS.iter().find(|option| argument.get_long() == Some(option.name));
    match option.map(|option| option.kind) {
        Some(Kind::Switch) => argument.value_parser(PossibleValuesParser::new(["yes", "no"])),
        Some(Kind::Choice(names)) => argument.value_parser(PossibleValuesParser::new(names)),
        _ => argument,
    }
}

/// Writes the manual pages into `dir`, and says on stderr how to read them.
///
/// # Errors
/// If the directory or a page cannot be written.
pub fn man(dir: &Path) -> io::Result<()> {
    let failed = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
    };
    RealDisk.create_dir_all(dir).map_err(|error| failed(dir, error))?;
    let pages = pages()?;
    let count = pages.len();
    for (name, page) in pages {
        let path = dir.join(name);
        crashsafe::write_atomically_with_mode(&path, &page, PAGE_MODE)
            .map_err(|error| failed(&path, error))?;
    }
    let first = std::path::absolute(dir)?.join("sheaf.1");
    eprintln!("sheaf: wrote {count} manual pages; to read one: man {}", first.display());
    Ok(())
}

/// The pages, with their file names.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    // The generator leaves out the help of arguments that the short help hides, so no argument is hidden
    // here.
    let mut root = shown_whole(super::command()).disable_help_subcommand(true);
    root.build();
    std::iter::once(&root).chain(root.get_subcommands()).map(page).collect()
}

fn shown_whole(command: Command) -> Command {
    command.mut_args(|argument| argument.hide_short_help(false)).mut_subcommands(shown_whole)
}

fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone()).manual("Sheaf");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    match matches!(command.get_name(), "sheaf" | "serve") {
        // A synopsis with the names of all settings would be too long to be useful.
        true => page.write_all(SERVE_SYNOPSIS)?,
        false => man.render_synopsis_section(&mut page)?,
    }
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut page)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok((man.get_filename(), page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_every_command_and_setting() {
        for name in SHELLS {
            let script = String::from_utf8(script(name.parse().unwrap())).unwrap();
            for tool in super::super::tool_names() {
                assert!(script.contains(&tool), "{name}: {tool}");
            }
            for option in OPTIONS {
                assert!(script.contains(option.name), "{name}: {}", option.name);
            }
            assert!(script.contains("volatile-ttl"), "{name}");
        }
    }

    #[test]
    fn pages_have_every_command_and_setting() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..2], ["sheaf.1", "sheaf-serve.1"]);
        assert_eq!(pages.len(), 2 + super::super::tool_names().len());
        // In roff, a hyphen is written `\-`.
        let main = String::from_utf8(pages[0].1.clone()).unwrap().replace("\\-", "-");
        for option in OPTIONS {
            assert!(main.contains(&format!("--{}", option.name)), "{}", option.name);
        }
        for (name, page) in &pages {
            let page = String::from_utf8(page.clone()).unwrap();
            let mut lines = page.lines();
            while lines.any(|line| line == ".TP") {
                let (argument, help) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
                assert!(!help.is_empty(), "{name}: {argument} is not described");
            }
        }
    }
}
