//! The log of denials: refused calls and failed logins, for ACL LOG.
//!
//! The log is a short list in memory, newest first; it is neither durable nor shared by the members of a
//! group. A denial is counted in an existing entry if that entry is one of the newest, has the same reason,
//! context, object and user, and had a denial within the last minute. So a client that repeats one call does
//! not push out all other entries.
//!
//! Invariants
//! - After each denial, the log has at most as many entries as its limit; a limit of 0 turns it off.

use std::collections::VecDeque;

/// The maximum time between the newest denial of an entry and a further denial that is counted in the entry.
pub const MERGE_MS_MAX: u64 = 60_000;

/// The number of newest entries that are compared with a new denial, as in Redis.
const COMPARED_MAX: usize = 10;

/// The reason of a denial: what the user had no right to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The command is not permitted.
    Command,
    /// A key is not permitted.
    Key,
    /// A channel is not permitted.
    Channel,
    /// A login failed, for instance because the name or the password is wrong.
    Auth,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 4] = [Reason::Command, Reason::Key, Reason::Channel, Reason::Auth];

    /// The name in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// The context in which a call or login was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// A command outside of transactions and scripts.
    TopLevel,
    /// A command in a transaction, when it is queued or when EXEC runs it.
    Multi,
    /// A command in a script.
    Lua,
}

impl Context {
    /// The name in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// A call or login that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The reason of the denial.
    pub reason: Reason,
    /// The context of the denied call or login.
    pub context: Context,
    /// The name of the command, key or channel; for a failed login, the name of the command.
    pub object: Box<[u8]>,
    /// The user; for a failed login, the given name.
    pub user: Box<[u8]>,
    /// The client, as CLIENT LIST shows it.
    pub client: Box<[u8]>,
}

impl Denial {
    fn is_like(&self, other: &Denial) -> bool {
        (self.reason, self.context) == (other.reason, other.context)
            && self.object == other.object
            && self.user == other.user
    }
}

/// One or more denials that differ at most in their clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The number of the entry, counted from 0. Removed entries count, too.
    pub id: u64,
    /// The number of denials that the entry counts.
    pub count: u64,
    /// The newest of the denials that the entry counts.
    pub denial: Denial,
    /// The time of the first denial, in Unix milliseconds.
    pub created_ms: u64,
    /// The time of the newest denial, in Unix milliseconds.
    pub updated_ms: u64,
}

impl LogEntry {
    /// Seconds since the newest denial of the entry, as ACL LOG shows them.
    pub fn age_s(&self, now_ms: u64) -> f64 {
        now_ms.saturating_sub(self.updated_ms) as f64 / 1000.0
    }
}

/// The newest denials.
#[derive(Debug, Default)]
pub struct DenialLog {
    entries: VecDeque<LogEntry>,
    next_id: u64,
}

impl DenialLog {
    /// Notes a denial, and keeps at most `entries_max` entries.
    pub fn note(&mut self, denial: Denial, now_ms: u64, entries_max: usize) {
        if entries_max > 0 {
            let entry = match self.take_similar(&denial, now_ms) {
                Some(known) => LogEntry { count: known.count + 1, denial, updated_ms: now_ms, ..known },
                None => {
                    let id = self.next_id;
                    self.next_id += 1;
                    LogEntry { id, count: 1, denial, created_ms: now_ms, updated_ms: now_ms }
                }
            };
            self.entries.push_front(entry);
        }
        self.entries.truncate(entries_max);
    }

    /// The entries, newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &LogEntry> {
        self.entries.iter()
    }

    /// Forgets all entries. The numbers of forgotten entries are not used again.
    pub fn reset(&mut self) {
        self.entries.clear();
    }

    fn take_similar(&mut self, denial: &Denial, now_ms: u64) -> Option<LogEntry> {
        let is_similar = |entry: &LogEntry| {
            now_ms.abs_diff(entry.updated_ms) <= MERGE_MS_MAX && entry.denial.is_like(denial)
        };
        let at = self.entries.iter().take(COMPARED_MAX).position(is_similar)?;
        self.entries.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str) -> Denial {
        let [object, user, client] = ["AUTH", user, "id=1"].map(|text| text.as_bytes().into());
        Denial { reason: Reason::Auth, context: Context::TopLevel, object, user, client }
    }

    fn shown(log: &DenialLog) -> Vec<(u64, String)> {
        log.iter().map(|entry| (entry.count, String::from_utf8_lossy(&entry.denial.user).into())).collect()
    }

    #[test]
    fn equal_denials_within_a_minute_are_one_entry_which_becomes_the_newest() {
        let mut log = DenialLog::default();
        log.note(login("a"), 1_000, 128);
        log.note(login("b"), 1_000, 128);
        log.note(Denial { client: b"id=2".as_slice().into(), ..login("a") }, 61_000, 128);
        assert_eq!(shown(&log), [(2, "a".into()), (1, "b".into())]);
        let newest = log.iter().next().unwrap();
        assert_eq!((newest.id, newest.created_ms, newest.updated_ms), (0, 1_000, 61_000));
        assert_eq!((&*newest.denial.client, newest.age_s(61_500)), (&b"id=2"[..], 0.5));
        log.note(login("b"), 61_001, 128);
        log.note(Denial { context: Context::Multi, ..login("b") }, 61_001, 128);
        assert_eq!(shown(&log).len(), 4, "too late, and elsewhere");
        log.reset();
        log.note(login("a"), 61_001, 128);
        assert_eq!(log.iter().map(|entry| entry.id).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn only_the_ten_newest_are_compared_and_the_limit_holds() {
        let mut log = DenialLog::default();
        for number in 0..12 {
            log.note(login(&format!("x{number}")), 0, 128);
        }
        log.note(login("x0"), 0, 128);
        log.note(login("x5"), 0, 128);
        assert_eq!(shown(&log).len(), 13);
        assert_eq!(shown(&log)[..2], [(2, "x5".into()), (1, "x0".into())]);
        log.note(login("y"), 0, 3);
        assert_eq!(shown(&log).len(), 3);
        log.note(login("y"), 0, 0);
        assert_eq!(log.iter().len(), 0);
    }
}
