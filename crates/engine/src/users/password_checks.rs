//! Checks of derived passwords: the checks that run, and the verdicts of the last ones.
//!
//! ```text
//! login -> verdict: known -> it counts
//!                   begins -> the caller has a thread run it, and asks again
//!                   running, or too many are -> the caller asks again a little later
//! ```
//!
//! This module has a bounded table in memory, so that a client that sends its password with every request
//! pays for one check in [`ACCEPTED_MS`]. A verdict is not an admission: the caller first respects the waits
//! of the client's address (`access::FailedLogins`).
//!
//! Invariants
//! - At most [`RUNNING_MAX`] checks run at a time, so checks take a bounded share of the machine, however
//!   many clients log in.
//! - A verdict belongs to one derived key and one password: a change of the user's password leaves no verdict
//!   about the new one.

use std::{collections::HashMap, mem};

use access::{DerivedPassword, PasswordHash};
use parking_lot::Mutex;

/// The maximum number of checks that run at a time.
pub const RUNNING_MAX: usize = 2;

/// How long a password counts as accepted without another check.
pub const ACCEPTED_MS: u64 = 5 * 60_000;

/// How long a password counts as refused without another check.
pub const REFUSED_MS: u64 = 10_000;

/// The time after which the caller asks for the verdict again, in milliseconds.
pub const PAUSE_MS: u64 = 20;

/// The maximum number of checks that one login waits for: the password of its user may change meanwhile,
/// again and again. After that the login is refused.
pub const CHECKS_PER_LOGIN_MAX: u8 = 2;

const VERDICTS_MAX: usize = 10_000;

type Digest = [u8; 64];

/// A check to be run on a thread that serves no clients.
#[derive(Debug)]
pub struct PasswordCheck {
    password_of: Digest,
    derived: DerivedPassword,
    password: Box<[u8]>,
}

/// The verdict about a password, or the way to one.
#[derive(Debug)]
pub enum Verdict {
    /// Whether the password is right.
    Known(bool),
    /// No verdict is known: this check is to be run.
    Begins(PasswordCheck),
    /// No verdict is known yet: ask again after [`PAUSE_MS`].
    Later,
}

#[derive(Debug, Default)]
struct State {
    /// The verdict and the time until which it counts.
    known: HashMap<Digest, (bool, u64)>,
    running: Vec<Digest>,
}

/// The checks that run on a server, and their verdicts.
#[derive(Debug, Default)]
pub struct PasswordChecks(Mutex<State>);

impl PasswordChecks {
    /// The verdict about this password; if none is known, the check to run, or [`Verdict::Later`].
    pub fn verdict(&self, derived: &DerivedPassword, password: &[u8], now_ms: u64) -> Verdict {
        let password_of = digest(derived, password);
        let mut state = self.0.lock();
        match state.known.get(&password_of) {
            Some((verdict, until_ms)) if now_ms < *until_ms => return Verdict::Known(*verdict),
            _ if state.running.contains(&password_of) || state.running.len() >= RUNNING_MAX => {
                return Verdict::Later;
            }
            _ => {}
        }
        state.running.push(password_of);
        Verdict::Begins(PasswordCheck { password_of, derived: derived.clone(), password: password.into() })
    }

    /// Runs a check. Takes long.
    pub fn run(&self, check: PasswordCheck, now_ms: u64) {
        let PasswordCheck { password_of, derived, password } = check;
        let verdict = derived.accepts(&password);
        let mut state = self.0.lock();
        state.running.retain(|running| *running != password_of);
        if state.known.len() >= VERDICTS_MAX {
            state.known.retain(|_, (_, until_ms)| now_ms < *until_ms);
        }
        if state.known.len() >= VERDICTS_MAX {
            mem::take(&mut state.known);
        }
        let kept_ms = if verdict { ACCEPTED_MS } else { REFUSED_MS };
        state.known.insert(password_of, (verdict, now_ms + kept_ms));
    }
}

/// The digest of the derived password, followed by the digest of that digest (in hexadecimal) and the given
/// password.
fn digest(derived: &DerivedPassword, password: &[u8]) -> Digest {
    let user = PasswordHash::of(derived.to_text().as_bytes());
    let given = PasswordHash::of(&[user.to_hex().as_bytes(), password].concat());
    let mut digest = [0; 64];
    let (first, second) = digest.split_at_mut(32);
    first.copy_from_slice(user.bytes());
    second.copy_from_slice(given.bytes());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(verdict: Verdict) -> PasswordCheck {
        match verdict {
            Verdict::Begins(check) => check,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_password_is_checked_once_and_then_known_for_a_while() {
        let (checks, derived) = (PasswordChecks::default(), DerivedPassword::derive(b"pw", b"s", 1).unwrap());
        for (password, accepted, kept_ms) in [(&b"pw"[..], true, ACCEPTED_MS), (b"no", false, REFUSED_MS)] {
            let check = begun(checks.verdict(&derived, password, 1000));
            assert!(matches!(checks.verdict(&derived, password, 1000), Verdict::Later), "it is running");
            checks.run(check, 1000);
            let last_ms = 1000 + kept_ms - 1;
            assert!(
                matches!(checks.verdict(&derived, password, last_ms), Verdict::Known(it) if it == accepted)
            );
            checks.run(begun(checks.verdict(&derived, password, last_ms + 1)), last_ms + 1);
        }
        let other = DerivedPassword::derive(b"new", b"s", 1).unwrap();
        checks.run(begun(checks.verdict(&other, b"pw", 2000)), 2000);
        assert!(matches!(checks.verdict(&other, b"pw", 2000), Verdict::Known(false)), "it has changed");
    }

    #[test]
    fn few_checks_run_at_a_time() {
        let (checks, derived) = (PasswordChecks::default(), DerivedPassword::derive(b"pw", b"s", 1).unwrap());
        let running: Vec<PasswordCheck> =
            (0..RUNNING_MAX as u8).map(|number| begun(checks.verdict(&derived, &[number], 0))).collect();
        assert!(matches!(checks.verdict(&derived, b"pw", 0), Verdict::Later));
        running.into_iter().for_each(|check| checks.run(check, 0));
        begun(checks.verdict(&derived, b"pw", 0));
    }

    #[test]
    fn the_table_of_verdicts_is_bounded() {
        let (checks, derived) = (PasswordChecks::default(), DerivedPassword::derive(b"pw", b"s", 1).unwrap());
        for number in 0..VERDICTS_MAX as u32 + 10 {
            checks.run(begun(checks.verdict(&derived, &number.to_be_bytes(), 0)), 0);
        }
        assert!(checks.0.lock().known.len() <= VERDICTS_MAX);
    }
}
