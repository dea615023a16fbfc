//! `sheaf doctor`: looks at a machine and a data directory, and says what to change before a server runs
//! there.
//!
//! Module `look` judges settings, variables and the directory, and collects the figures of all other checks.
//! Module `judge` judges these figures and does no I/O. The command verifies no data (that is `sheaf check`)
//! and changes nothing: a file that it writes to measure the disk is removed.
//!
//! Invariants
//! - At most one line per check. The check of the variables has a line only if one looks like a setting but
//!   is none. If the settings are refused, one line stands for all checks that need them.
//! - Advice is given only where it applies to this server: the server does not fork, so Redis's advice on
//!   overcommit and huge pages mostly does not apply.

mod judge;
mod look;

use std::{io, path::PathBuf};

use serde_json::json;

/// Where to look, and how to answer.
#[derive(Debug)]
pub struct Options {
    /// The data directory; without one, that of the settings.
    pub dir: Option<PathBuf>,
    /// The file of settings of the server.
    pub config: Option<PathBuf>,
    /// Whether to print JSON instead of lines.
    pub is_json: bool,
}

/// The result of a check, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// There is nothing to do.
    Fine,
    /// A fact that is worth knowing.
    Note,
    /// The check was not possible.
    Unseen,
    /// There is something to change.
    Change,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            State::Fine => "fine",
            State::Note => "note",
            State::Unseen => "unseen",
            State::Change => "change",
        }
    }
}

/// The result of one check.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// The judgement, from fine to change.
    pub state: State,
    /// The figures, their meaning, and the advice.
    pub text: String,
}

impl Finding {
    fn new(check: &'static str, state: State, text: impl Into<String>) -> Finding {
        Finding { check, state, text: text.into() }
    }
}

/// Looks, prints the findings, and returns the worst state.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(options: &Options) -> io::Result<State> {
    let findings = look::all(options);
    let text = if options.is_json { as_json(&findings) } else { as_lines(&findings) };
    io::Write::write_all(&mut io::stdout(), text.as_bytes())?;
    Ok(worst(&findings))
}

fn worst(findings: &[Finding]) -> State {
    findings.iter().map(|finding| finding.state).max().unwrap_or(State::Fine)
}

fn as_lines(findings: &[Finding]) -> String {
    let line =
        |finding: &Finding| format!("{:<7} {:<12} {}\n", finding.state.name(), finding.check, finding.text);
    let count = findings.iter().filter(|finding| finding.state == State::Change).count();
    let end = match count {
        0 => "nothing to change\n".to_owned(),
        1 => "1 thing to change\n".to_owned(),
        count => format!("{count} things to change\n"),
    };
    findings.iter().map(line).collect::<String>() + &end
}

fn as_json(findings: &[Finding]) -> String {
    let one = |finding: &Finding| json!({ "check": finding.check, "state": finding.state.name(), "text": finding.text });
    let checks: Vec<_> = findings.iter().map(one).collect();
    format!("{}\n", json!({ "state": worst(findings).name(), "checks": checks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_state_is_that_of_all() {
        let of = |state| Finding::new("clock", state, "x");
        assert_eq!(worst(&[of(State::Fine), of(State::Change), of(State::Unseen)]), State::Change);
        assert_eq!(worst(&[of(State::Note), of(State::Unseen)]), State::Unseen);
        assert_eq!(worst(&[]), State::Fine);
    }

    #[test]
    fn findings_are_lines_or_json() {
        let findings = [Finding::new("clock", State::Change, "it \"drifts\"")];
        assert_eq!(as_lines(&findings), "change  clock        it \"drifts\"\n1 thing to change\n");
        let shown: serde_json::Value = serde_json::from_str(&as_json(&findings)).unwrap();
        assert_eq!(shown["checks"][0]["text"], "it \"drifts\"");
        assert_eq!(shown["state"], "change");
    }
}
