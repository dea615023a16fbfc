//! The expiry options of commands such as SET and GETEX.

use engine::CommandError;
use wire::{ArgsIter, number::parse_i64};

use crate::deadline::Form;

/// The expiry option of a command; each command allows some of the variants.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum ExpiryOption<'a> {
    /// No option was given.
    #[default]
    Unsaid,
    /// KEEPTTL.
    Keep,
    /// PERSIST.
    Persist,
    /// EX, PX, EXAT or PXAT, with the number that followed.
    At(Form, &'a [u8]),
}

impl<'a> ExpiryOption<'a> {
    /// Reads one option; its number, if it takes one, comes from `rest`. Repeating an option replaces its
    /// number; two different options are a syntax error.
    pub(super) fn read(&mut self, word: &[u8], rest: &mut ArgsIter<'a>) -> Result<(), CommandError> {
        let option = match Form::named(word) {
            Some(form) => ExpiryOption::At(form, rest.next().ok_or(CommandError::Syntax)?),
            None if word.eq_ignore_ascii_case(b"keepttl") => ExpiryOption::Keep,
            None if word.eq_ignore_ascii_case(b"persist") => ExpiryOption::Persist,
            None => return Err(CommandError::Syntax),
        };
        if !self.may_become(option) {
            return Err(CommandError::Syntax);
        }
        *self = option;
        Ok(())
    }

    fn may_become(self, option: ExpiryOption<'_>) -> bool {
        match (self, option) {
            (ExpiryOption::Unsaid, _)
            | (ExpiryOption::Keep, ExpiryOption::Keep)
            | (ExpiryOption::Persist, ExpiryOption::Persist) => true,
            (ExpiryOption::At(old, _), ExpiryOption::At(new, _)) => old == new,
            _ => false,
        }
    }

    /// The deadline in unix milliseconds; `None` unless the option is [`ExpiryOption::At`]. `command` is the
    /// name in the error.
    ///
    /// # Errors
    /// The number is not an integer, not positive, or does not fit.
    pub(super) fn deadline_ms(self, now_ms: u64, command: &'static str) -> Result<Option<u64>, CommandError> {
        match self {
            ExpiryOption::At(form, number) => positive_deadline_ms(form, number, now_ms, command).map(Some),
            _ => Ok(None),
        }
    }
}

/// The deadline in unix milliseconds that a positive number gives in this form. `command` is the name in the
/// error.
///
/// # Errors
/// The text is not an integer, not positive, or does not fit.
pub(super) fn positive_deadline_ms(
    form: Form,
    number: &[u8],
    now_ms: u64,
    command: &'static str,
) -> Result<u64, CommandError> {
    let number = parse_i64(number).ok_or(CommandError::NotAnInteger)?;
    let deadline_ms = if number > 0 { form.deadline_ms(number, now_ms) } else { None };
    deadline_ms.and_then(|ms| u64::try_from(ms).ok()).ok_or(CommandError::InvalidExpire(command))
}
