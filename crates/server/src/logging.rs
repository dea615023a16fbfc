//! The server's log lines (not the durable log): text for people, JSON for machines, on standard error or in
//! the file of `logfile`.
//!
//! ```text
//! start | a change of settings | SIGHUP -> the level; the file, opened again
//! ```
//!
//! Invariants
//! - A client cannot have lines written into a file of another kind, such as one that grants access, because
//!   file names that are set at run time must end in `.log`.
//! - If a file cannot be opened later, the lines go on into the earlier one.
//! - No thread that serves clients waits for the file: see [`queue`].

mod queue;

use std::{
    io::{self, Write},
    path::Path,
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::Duration,
};

use env::LineFile;
use parking_lot::{Once, RwLock};
use settings::{Key, OPTIONS, Settings};
use tracing_subscriber::{
    EnvFilter,
    fmt::{self, MakeWriter},
    reload,
};

use self::queue::{LineQueue, Work};

/// The settings that name files of lines.
const OF_FILES: [Key; 2] = [Key::Logfile, Key::HttpAccessLog];
/// The ending of the names that may be set at run time.
const ENDING: &str = "log";
/// How long a process that ends waits for its last lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Sets the lowest level of lines.
type SetLevel = Box<dyn Fn(&str) + Send + Sync>;

/// Empty before logging has started.
static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

/// The file of `logfile`; none for standard error.
static FILE: RwLock<Option<Arc<LineFile>>> = RwLock::new(None);

/// The lines that are to be written, by a thread that lives as long as the process.
static LINES: LineQueue = LineQueue::new();
static WRITER: Once = Once::new();

/// Starts logging with the level, format and file of the settings. A second call only changes the file.
///
/// # Errors
/// If a file of lines cannot be opened, or the OS refuses a thread.
pub(crate) fn start(settings: &Settings) -> Result<(), String> {
    let opened = OF_FILES.map(|key| open(settings, key).map_err(|reason| format!("{}: {reason}", name(key))));
    let [lines, requests] = opened;
    requests?;
    *FILE.write() = lines?.map(Arc::new);
    start_to_write()?;
    let filter = EnvFilter::new(settings.text(Key::Loglevel));
    // Lines that cannot be written, because a disk is full, are dropped: reporting that on standard error
    // would fail as well, and panic.
    let lines = fmt::fmt().with_env_filter(filter).with_writer(Output).log_internal_errors(false);
    // Fails if logging has started before: then the file alone is changed.
    let _ = if settings.text(Key::LogFormat) == "json" {
        let lines = lines.json().with_filter_reloading();
        keep_handle(lines.reload_handle());
        lines.try_init()
    } else {
        let colours = io::IsTerminal::is_terminal(&io::stderr());
        let lines = lines.with_ansi(colours).with_filter_reloading();
        keep_handle(lines.reload_handle());
        lines.try_init()
    };
    Ok(())
}

fn start_to_write() -> Result<(), String> {
    let mut started = Ok(());
    WRITER.call_once(|| {
        let run = || LINES.run(carry_out);
        started = thread::Builder::new().name("log-lines".into()).spawn(run).map(drop);
    });
    started.map_err(|error| format!("cannot start a thread: {error}"))
}

/// Waits until all lines queued so far are written, for `FLUSH_TIMEOUT` at most, because the process is about
/// to end.
pub fn flush() {
    LINES.flush(FLUSH_TIMEOUT);
}

/// Writes a text to standard error and waits until it is written, for `FLUSH_TIMEOUT` at most, because
/// standard error may be a pipe that nobody reads. For the last words of a process.
pub fn tell(text: String) {
    let write = move || {
        // If the write fails, only the exit status can tell anything.
        let _ = io::stderr().write_all(text.as_bytes());
    };
    let _ = wait_for(write, FLUSH_TIMEOUT);
}

/// Does `work` on a thread of its own, and waits for its end, at most for the time `within`. Returns whether
/// the work has ended.
fn wait_for(work: impl FnOnce() + Send + 'static, within: Duration) -> bool {
    let (done, ended) = mpsc::channel();
    let run = move || {
        work();
        let _ = done.send(());
    };
    let begun = thread::Builder::new().name("last-words".into()).spawn(run);
    begun.is_ok() && ended.recv_timeout(within).is_ok()
}

fn keep_handle<L: 'static>(handle: reload::Handle<EnvFilter, L>) {
    let set = move |level: &str| {
        // Fails only when logging has ended.
        let _ = handle.reload(EnvFilter::new(level));
    };
    let _ = SET_LEVEL.set(Box::new(set));
}

/// Takes over level and file of the settings. The file is opened again even if its name is the same, because
/// the file may have been renamed. Does nothing before logging has started.
pub(crate) fn configure(settings: &Settings) {
    let Some(set) = SET_LEVEL.get() else { return };
    set(settings.text(Key::Loglevel));
    LINES.reopen(settings.text(Key::Logfile));
}

/// Checks settings that are not in force yet; `changed` has the keys that were set.
///
/// # Errors
/// The setting that names an unusable file of lines, and the reason.
pub(crate) fn check(settings: &Settings, changed: &[Key]) -> Result<(), (Key, String)> {
    for key in OF_FILES.into_iter().filter(|key| changed.contains(key)) {
        check_name(settings.text(key)).and_then(|()| open(settings, key)).map_err(|reason| (key, reason))?;
    }
    Ok(())
}

fn check_name(path: &str) -> Result<(), String> {
    if path.is_empty() || Path::new(path).extension().is_some_and(|ending| ending == ENDING) {
        return Ok(());
    }
    Err("while the server runs, the name has to end in .log: clients could have lines written into any file"
        .into())
}

/// Rounds a figure to this many digits after the decimal point, for a field of a log line, where JSON has it
/// as a number.
pub(crate) fn rounded(figure: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (figure * scale).round() / scale
}

/// Opens the file that a setting names; `None` if it names none.
///
/// # Errors
/// The reason in words.
pub(crate) fn open(settings: &Settings, key: Key) -> Result<Option<LineFile>, String> {
    open_file(settings.text(key))
}

fn open_file(path: &str) -> Result<Option<LineFile>, String> {
    if path.is_empty() {
        return Ok(None);
    }
    LineFile::open(Path::new(path)).map(Some).map_err(|error| format!("cannot write to {path}: {error}"))
}

fn name(key: Key) -> &'static str {
    OPTIONS[key as usize].name
}

/// Queues each line.
struct Output;

impl MakeWriter<'_> for Output {
    type Writer = Output;

    fn make_writer(&self) -> Output {
        Output
    }
}

/// Gets a line with each call.
impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The work of the thread "log-lines".
fn carry_out(work: Work) {
    match work {
        Work::Reopen(name) => match open_file(&name) {
            Ok(file) => *FILE.write() = file.map(Arc::new),
            Err(reason) => tracing::warn!(target: "server", reason, "log lines go on into the earlier file"),
        },
        Work::Line(line) => write(&line),
        Work::Lost(lost) => {
            tracing::warn!(target: "server", lost, "log lines are missing: what they are written to is too slow, or takes none");
        }
    }
}

/// Writes a line to the file of `logfile`, or to standard error if there is none. A line that cannot be
/// written, for example because a disk is full, is dropped, because a report of that would fail as well.
fn write(line: &[u8]) {
    let file = FILE.read().clone();
    let _ = match file {
        None => io::stderr().write_all(line),
        Some(file) if line.contains(&ESCAPE) => (&*file).write_all(&without_colours(line)),
        Some(file) => (&*file).write_all(line),
    };
}

/// The first byte of a colour sequence for terminals; an `m` ends the sequence.
const ESCAPE: u8 = 0x1b;

/// Removes colour sequences from a line. Lines have colours if standard error was a terminal at the start.
fn without_colours(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let mut is_colour = false;
    for &byte in line {
        match byte {
            ESCAPE => is_colour = true,
            b'm' if is_colour => is_colour = false,
            _ if is_colour => {}
            byte => plain.push(byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_clients_set_are_those_of_logs() {
        for name in ["", "/var/log/sheaf.log", "a.log"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["/root/.ssh/authorized_keys", "/etc/cron.d/x", ".log", "a.log/x", "a.LOG"] {
            assert!(check_name(name).unwrap_err().contains("end in .log"), "{name}");
        }
    }

    #[test]
    fn the_last_words_do_not_wait_for_ever() {
        let (reader, mut pipe) = io::pipe().unwrap();
        // Nobody reads the pipe, and it does not hold so much.
        let write = move || drop(pipe.write_all(&[0; 1 << 20]));
        assert!(!wait_for(write, Duration::from_millis(20)));
        drop(reader);
        assert!(wait_for(|| (), Duration::from_secs(60)));
    }

    #[test]
    fn figures_are_rounded() {
        assert_eq!((rounded(0.0604, 3), rounded(99.96, 1), rounded(1e18, 3)), (0.06, 100.0, 1e18));
    }

    #[test]
    fn files_get_lines_without_colours() {
        assert_eq!(without_colours(b"\x1b[2m1:00\x1b[0m \x1b[32m INFO\x1b[0m more\n"), b"1:00  INFO more\n");
        assert_eq!(without_colours(b"plain\n"), b"plain\n");
    }
}
