//! The `sheaf` binary has the command line and the exit statuses, and nothing else.
//!
//! Exit statuses:
//! - 0: done, or stopped without a failure.
//! - 1: failed, refused to start, or found damage; for `sheaf doctor`: advises a change.
//! - 2: wrong usage, or a wrong value of a setting; for `sheaf doctor`: a check was not possible.
//! - 3: `sheaf group` has shown a group, and the server that it asked knows no leader.
//! - 66: the data directory was moved, replaced or removed.
//! - 74: the log failed.

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

/// The allocator on which the keyspace's accounting and the memory figures rely.
#[global_allocator]
static ALLOCATOR: env::allocator::Allocator = env::allocator::Allocator;

/// The commit from which the binary was built (`build.rs`); empty if it is not known.
const COMMIT: &str = env!("SHEAF_COMMIT");
/// Exit status for wrong usage, as in clap.
const EXIT_USAGE: u8 = 2;
/// Exit status of `sheaf doctor` if it advises no change, but a check was not possible.
const EXIT_UNSEEN: u8 = 2;
/// Exit status of `sheaf group` if the server that it asks knows no leader.
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

/// Prints the converted file. Fails if lines were left out, because a server started with the result would
/// lack them.
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

/// Prints an error. If printing fails, only the exit status reports the error.
fn tell(error: &dyn std::error::Error) {
    logging::tell(format!("sheaf: {error}\n"));
}

/// Makes a panic end the process. A panic is a bug: memory may be ahead of the log, so the process must end
/// and recover from the log. The release profile aborts anyway. But the binary that tests start is built with
/// the test profile, in which a panic unwinds.
///
/// The hook of the standard library is replaced, because it could wait for ever: for a pipe that nobody
/// reads, or for another thread that writes to standard error.
fn end_at_a_panic() {
    std::panic::set_hook(Box::new(|panic| {
        // The last lines of the server's log are written first.
        logging::flush();
        let thread = thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        logging::tell(format!("\nthread '{name}' {panic}\n{}\n", Backtrace::capture()));
        std::process::abort();
    }));
}
