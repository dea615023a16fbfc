//! The options NX, XX, GT and LT of EXPIRE and HEXPIRE: parsing and evaluation. The deadline itself is
//! changed by the commands.

use engine::CommandError;
use wire::Args;

/// The conditions under which a command may change a deadline.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// NX: only if the key or field has no deadline.
    absent: bool,
    /// XX: only if the key or field has a deadline.
    present: bool,
    /// GT: sets only a later deadline; a missing deadline counts as the latest.
    later: bool,
    /// LT: sets only an earlier deadline; a missing deadline counts as the latest.
    earlier: bool,
}

impl Conditions {
    /// Parses the options.
    ///
    /// # Errors
    /// An unknown option, or options that exclude each other.
    pub(super) fn parse(words: Args<'_>) -> Result<Conditions, CommandError> {
        let mut conditions = Conditions::default();
        for word in words {
            let condition = match word.to_ascii_lowercase().as_slice() {
                b"nx" => &mut conditions.absent,
                b"xx" => &mut conditions.present,
                b"gt" => &mut conditions.later,
                b"lt" => &mut conditions.earlier,
                _ => {
                    let text = format!("ERR Unsupported option {}", String::from_utf8_lossy(word));
                    return Err(CommandError::Composed(text));
                }
            };
            *condition = true;
        }
        let Conditions { absent, present, later, earlier } = conditions;
        if absent && (present || later || earlier) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(CommandError::Text(text));
        }
        if later && earlier {
            return Err(CommandError::Text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Whether the conditions allow the change. Both deadlines are unix milliseconds.
    pub(super) fn allow(&self, old_ms: Option<u64>, new_ms: u64) -> bool {
        match old_ms {
            None => !self.present && !self.later,
            Some(old_ms) => {
                !self.absent && (!self.later || new_ms > old_ms) && (!self.earlier || new_ms < old_ms)
            }
        }
    }
}
