//! Deadlines: the four forms of an expiry (EX, PX, EXAT, PXAT), and their conversion to the unix milliseconds
//! of entries.
//!
//! Whether a deadline may lie in the past is up to the command.

/// The unit and origin of the number that gives an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Seconds from now.
    Ex,
    /// Milliseconds from now.
    Px,
    /// Unix seconds.
    ExAt,
    /// Unix milliseconds.
    PxAt,
}

impl Form {
    /// The form that an option such as EX names, in upper or lower case; `None` for other words.
    pub(super) fn named(word: &[u8]) -> Option<Form> {
        const NAMES: [(&[u8], Form); 4] =
            [(b"ex", Form::Ex), (b"px", Form::Px), (b"exat", Form::ExAt), (b"pxat", Form::PxAt)];
        NAMES.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, form)| form)
    }

    /// The deadline in unix milliseconds, possibly before now and before 1970; `None` if it does not fit 64
    /// bits.
    pub(super) fn deadline_ms(self, number: i64, now_ms: u64) -> Option<i64> {
        let now_ms = i64::try_from(now_ms).ok()?;
        match self {
            Form::Ex => number.checked_mul(1000)?.checked_add(now_ms),
            Form::Px => number.checked_add(now_ms),
            Form::ExAt => number.checked_mul(1000),
            Form::PxAt => Some(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_unix_milliseconds_or_do_not_fit() {
        let now_ms = 1_000_000;
        let cases = [
            (Form::Ex, 10, Some(1_010_000)),
            (Form::Ex, -2_000, Some(-1_000_000)),
            (Form::Px, 10, Some(1_000_010)),
            (Form::ExAt, 10, Some(10_000)),
            (Form::PxAt, 10, Some(10)),
            (Form::Ex, i64::MAX / 1000, None),
            (Form::Ex, i64::MIN / 1000 - 1, None),
            (Form::ExAt, i64::MAX / 1000 + 1, None),
            (Form::Px, i64::MAX - 999_999, None),
            (Form::Px, i64::MIN, Some(i64::MIN + 1_000_000)),
            (Form::PxAt, i64::MAX, Some(i64::MAX)),
        ];
        for (form, number, expected) in cases {
            assert_eq!(form.deadline_ms(number, now_ms), expected, "{form:?} {number}");
        }
    }

    #[test]
    fn forms_are_named_in_any_case() {
        assert_eq!(Form::named(b"PxAt"), Some(Form::PxAt));
        assert_eq!(Form::named(b"ex"), Some(Form::Ex));
        assert_eq!(Form::named(b"exa"), None);
    }
}
