//! The audit: the actions of administrators, and failed logins, for one durable channel.
//!
//! ```text
//! a command | a request over HTTP | a login that failed -> Audit -> (the server) record of the log
//!                                                 -> XSUBSCRIBE __sheaf__:audit, sheaf tail --audit
//! ```
//!
//! This module keeps the entries until the server takes them, and defines their form. The module does not
//! write: the server writes the entries to the log or, where it may not write there, to its own log lines.
//!
//! Invariants
//! - No entry has a password: of a command it has the arguments that MONITOR shows, of a request over HTTP
//!   the method and the path.
//! - An entry for a failed login has the name that was tried only if a user has this name: people type
//!   passwords in place of their name.
//! - An entry never holds up the action. At most [`WAITING_MAX`] wait; more are counted, and the next entry
//!   says how many. Of logins that fail, at most [`LOGINS_PER_S_MAX`] a second are entries, so that they
//!   cannot fill the disk.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

/// The channel of the entries. No client publishes to it.
pub const AUDIT_CHANNEL: &[u8] = b"__sheaf__:audit";

/// The maximum number of entries that wait to be written.
const WAITING_MAX: usize = 1024;
/// The maximum number of failed logins that become entries in one second.
const LOGINS_PER_S_MAX: u32 = 20;
/// The maximum number of arguments in an entry; the others are left out.
const ARGUMENTS_MAX: usize = 16;
/// The maximum bytes of one argument in an entry; the rest of the argument is left out.
const ARGUMENT_BYTES_MAX: usize = 128;

/// An action that was done or tried, or a login that failed.
#[derive(Debug, Clone, Copy)]
pub struct Action<'a> {
    /// The name of the command, or `HTTP`.
    pub name: &'a [u8],
    /// The name of the user; empty if there is none to name.
    pub user: &'a [u8],
    /// The address of the client, with the port if it is known.
    pub client: &'a str,
    /// Whether the action succeeded.
    pub succeeded: bool,
    /// The time of the action, unix milliseconds.
    pub now_ms: u64,
}

/// The entries that the server has not taken yet.
#[derive(Default)]
pub struct Audit {
    is_on: AtomicBool,
    waiting: Mutex<Waiting>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("is_on", &self.is_on).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<String>,
    /// Actions and logins that became no entry since the last entry was added.
    lost: u64,
    /// The second (unix time) of the last failed login, and the number of logins that have failed in that
    /// second.
    second: u64,
    logins: u32,
}

impl Audit {
    /// Puts the setting `audit` in force.
    pub fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    /// Whether the setting `audit` is on, so that actions and failed logins are to be noted.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Sets `wake`, to be called after each action or login that is noted. Only the first call has an effect.
    pub fn listen(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Notes an action with its arguments, which must have no secrets. Does not ask [`Audit::is_on`]: the
    /// caller does.
    pub fn note<'a>(&self, action: Action<'_>, arguments: impl Iterator<Item = &'a [u8]>) {
        self.add(&mut self.waiting.lock(), action, arguments);
        self.wake();
    }

    /// Notes that a login has failed, if the audit is on.
    pub fn note_failed_login(&self, action: Action<'_>) {
        if !self.is_on() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let second = action.now_ms / 1000;
        if waiting.second != second {
            (waiting.second, waiting.logins) = (second, 0);
        }
        waiting.logins += 1;
        if waiting.logins > LOGINS_PER_S_MAX {
            waiting.lost += 1;
            return;
        }
        self.add(&mut waiting, action, std::iter::empty());
        drop(waiting);
        self.wake();
    }

    fn add<'a>(&self, waiting: &mut Waiting, action: Action<'_>, arguments: impl Iterator<Item = &'a [u8]>) {
        if waiting.entries.len() >= WAITING_MAX {
            waiting.lost += 1;
            return;
        }
        let lost = std::mem::take(&mut waiting.lost);
        waiting.entries.push_back(rendered(action, arguments, lost));
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Takes the oldest entries, at most `count`.
    pub fn take(&self, count: usize) -> Vec<String> {
        let mut waiting = self.waiting.lock();
        let count = count.min(waiting.entries.len());
        waiting.entries.drain(..count).collect()
    }

    /// Whether entries wait.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().entries.is_empty()
    }
}

/// An entry as a line of JSON.
fn rendered<'a>(action: Action<'_>, arguments: impl Iterator<Item = &'a [u8]>, lost: u64) -> String {
    let Action { name, user, client, succeeded, now_ms } = action;
    let mut line = format!("{{\"time_ms\":{now_ms},\"user\":");
    if user.is_empty() {
        line.push_str("null")
    } else {
        string(user, &mut line)
    }
    line.push_str(",\"client\":");
    string(client.as_bytes(), &mut line);
    line.push_str(",\"action\":");
    string(name, &mut line);
    line.push_str(",\"arguments\":[");
    for (index, argument) in arguments.take(ARGUMENTS_MAX).enumerate() {
        if index > 0 {
            line.push(',');
        }
        string(&argument[..argument.len().min(ARGUMENT_BYTES_MAX)], &mut line);
    }
    // Writing to a string does not fail.
    let _ = write!(line, "],\"succeeded\":{succeeded}");
    if lost > 0 {
        let _ = write!(line, ",\"lost_before\":{lost}");
    }
    line.push('}');
    line
}

/// Appends bytes as a string of JSON.
fn string(bytes: &[u8], out: &mut String) {
    out.push('"');
    for letter in String::from_utf8_lossy(bytes).chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(now_ms: u64) -> Action<'static> {
        Action { name: b"config|set", user: b"anna", client: "127.0.0.1:1", succeeded: true, now_ms }
    }

    #[test]
    fn an_entry_is_a_line_of_json_whatever_the_arguments_are() {
        let audit = Audit::default();
        let long = [b'x'; 2 * ARGUMENT_BYTES_MAX];
        let arguments: [&[u8]; 4] = [b"a\"b\\c", b"\r\n\x7f", b"\xff", &long];
        audit.note(action(7), arguments.into_iter());
        let expected = format!(
            "{{\"time_ms\":7,\"user\":\"anna\",\"client\":\"127.0.0.1:1\",\"action\":\"config|set\",\"arguments\":[\
             \"a\\\"b\\\\c\",\"\\u000d\\u000a\\u007f\",\"\u{fffd}\",\"{}\"],\"succeeded\":true}}",
            "x".repeat(ARGUMENT_BYTES_MAX)
        );
        assert_eq!(audit.take(10), [expected]);
        assert!(audit.is_empty());
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let audit = Audit::default();
        (0..WAITING_MAX as u64 + 3).for_each(|now_ms| audit.note(action(now_ms), std::iter::empty()));
        assert_eq!(audit.take(usize::MAX).len(), WAITING_MAX);
        audit.note(action(1), std::iter::empty());
        audit.note(action(2), std::iter::empty());
        let entries = audit.take(usize::MAX);
        assert!(
            entries[0].ends_with("\"succeeded\":true,\"lost_before\":3}") && !entries[1].contains("lost")
        );
    }

    #[test]
    fn logins_that_fail_are_few_entries() {
        let audit = Audit::default();
        let fail = |now_ms| {
            let login = Action { name: b"auth", user: b"", client: "x", succeeded: false, now_ms };
            audit.note_failed_login(login);
        };
        fail(0);
        assert!(audit.is_empty(), "the audit is off");
        audit.set_on(true);
        (0..1000).for_each(fail);
        assert_eq!(audit.take(usize::MAX).len(), LOGINS_PER_S_MAX as usize);
        fail(1000);
        let entries = audit.take(usize::MAX);
        assert!(entries[0].contains("\"user\":null") && entries[0].ends_with("\"lost_before\":980}"));
    }
}
