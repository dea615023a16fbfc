//! The `sheaf` binary: the command line and exit statuses, nothing else.
//!
//! 0: done, or stopped in order. 1: failed or refused to start, damage found; `sheaf doctor` advises a
//! change. 2: wrong usage, or a wrong value of a setting; `sheaf doctor` could not look at everything. 3:
//! `sheaf group` has shown a group, and the server that it asked knows no leader. 66: the data directory was
//! moved, replaced or removed. 74: the log failed.

#![forbid(unsafe_code)]

mod cli;

use std::{backtrace::Backtrace, process::ExitCode, thread};

use server::{
    logging,
    serve::{self, ServeError},
};
use tools::{
    backup, bench, certs, check, doctor, export, group, health, import, log, migration, restore, tail,
};

use self::cli::{ExportSource, Task};

/// The allocator that the keyspace's accounting and memory figures assume.
#[global_allocator]
static ALLOCATOR: env::allocator::Allocator = env::allocator::Allocator;

/// The commit from which the binary was built (`build.rs`); empty if it is not known.
const COMMIT: &str = env!("SHEAF_COMMIT");
/// Exit status of wrong usage, as in clap.
const EXIT_USAGE: u8 = 2;
/// Exit status of `sheaf doctor` if there is nothing to change, but not all could be seen.
const EXIT_UNSEEN: u8 = 2;
/// Exit status of `sheaf group` if the server that is asked knows no leader.
const EXIT_NO_LEADER: u8 = 3;

fn main() -> ExitCode {
    end_at_a_panic();
    let task = match cli::parse(std::env::args_os()) {
        Ok(task) => task,
        Err(error) => {
            tell(&error);
            return if error.is_damage() { ExitCode::FAILURE } else { ExitCode::from(EXIT_USAGE) };
        }
    };
    let result: Result<(), Box<dyn std::error::Error>> = match task {
        Task::Serve { settings, lasting, mode } => {
            serve::serve(settings, lasting, mode, COMMIT).map_err(Into::into)
        }
        Task::Check { dir } => check::check(&dir).map_err(Into::into),
        Task::Import { file, dir, existing } => import::run(&file, &dir, existing).map_err(Into::into),
        Task::Migrate(options) => migration::run(options).map_err(Into::into),
        Task::Export { file, from: ExportSource::Directory(dir), format } => {
            export::run(&file, &dir, format).map_err(Into::into)
        }
        Task::Export { file, from: ExportSource::Server(source), format } => {
            export::run_live(&file, &source, format).map_err(Into::into)
        }
        Task::Backup { dir, source } => backup::run(&dir, &source).map_err(Into::into),
        Task::Restore { source, dir, target } => restore::run(&source, &dir, target).map_err(Into::into),
        Task::Tail(options) => tail::run(&options).map_err(Into::into),
        Task::Group(options) => group::run(&options).map_err(Into::into),
        Task::Health { url, tls } => health::run(&url, &tls).map_err(Into::into),
        Task::Bench(options) => bench::run(&options).map_err(Into::into),
        Task::Doctor(options) => match doctor::run(&options) {
            Ok(state) => return exit_of(state),
            Err(error) => Err(error.into()),
        },
        Task::Certs(options) => certs::run(&options).map_err(Into::into),
        Task::Convert { file } => match settings::converted(&file) {
            Ok(converted) => return print_converted(&converted),
            Err(error) => Err(error.into()),
        },
        Task::Completions { shell } => cli::completions(shell).map_err(Into::into),
        Task::Man { dir } => cli::man(&dir).map_err(Into::into),
        Task::Log { dir, selection } => log::print_log(&dir, &selection).map_err(Into::into),
    };
    logging::flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&*error);
            let is_setting = matches!(error.downcast_ref(), Some(ServeError::Setting(_)));
            match error.downcast_ref() {
                _ if is_setting => ExitCode::from(EXIT_USAGE),
                Some(group::GroupError::NoLeader { .. }) => ExitCode::from(EXIT_NO_LEADER),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Prints the text, and tells of lines that it does not have: a server started with it would do without them.
fn print_converted(converted: &settings::Converted) -> ExitCode {
    print!("{}", converted.text);
    if converted.refused == 0 {
        return ExitCode::SUCCESS;
    }
    let lines =
        if converted.refused == 1 { "1 line was" } else { &format!("{} lines were", converted.refused) };
    logging::tell(format!("sheaf: {lines} not taken over; comments at the end say why\n"));
    ExitCode::FAILURE
}

/// The exit status of `sheaf doctor`.
fn exit_of(state: doctor::State) -> ExitCode {
    match state {
        doctor::State::Fine | doctor::State::Note => ExitCode::SUCCESS,
        doctor::State::Change => ExitCode::FAILURE,
        doctor::State::Unseen => ExitCode::from(EXIT_UNSEEN),
    }
}

/// Prints an error. If that fails, only the exit status reports it.
fn tell(error: &dyn std::error::Error) {
    logging::tell(format!("sheaf: {error}\n"));
}

/// A panic is a bug: memory may be ahead of the log, so the process ends and recovers from the log. The
/// release profile aborts by itself. The binary that tests start is built with the profile of the tests, in
/// which a panic unwinds.
///
/// The hook of the standard library would wait for ever for a pipe that nobody reads, or for another thread
/// that writes to it.
fn end_at_a_panic() {
    std::panic::set_hook(Box::new(|panic| {
        // The last lines of the log come first.
        logging::flush();
        let thread = thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        logging::tell(format!("\nthread '{name}' {panic}\n{}\n", Backtrace::capture()));
        std::process::abort();
    }));
}
