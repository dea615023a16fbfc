//! Values of settings: text in, typed out, and back.

use std::fmt;

use super::{bytes::parse_bytes, output_limits::OutputLimits};

/// The type and range of a setting's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number in a range, both ends included.
    Integer {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// As [`Kind::Integer`], with negative numbers.
    Signed {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Bytes in a range; the units `kb`, `mb`, `gb` (powers of 1024) and `k`, `m`, `g` (powers of 1000) are
    /// accepted.
    Bytes {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// As [`Kind::Bytes`], but only powers of two.
    BytesPowerOfTwo {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// `yes` or `no`; `true`, `on`, `false`, `off` are accepted, too.
    Switch,
    /// Text without line ends and zero bytes.
    Text,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// The letters of event classes; see [`engine::EventClass`].
    Events,
    /// Limits by class of clients; see [`OutputLimits`].
    OutputLimits,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Integer`], [`Kind::Bytes`] and [`Kind::BytesPowerOfTwo`].
    Integer(u64),
    /// Of [`Kind::Signed`].
    Signed(i64),
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of [`Kind::Text`] and [`Kind::Events`].
    Text(String),
    /// Of [`Kind::Choice`].
    Choice(&'static str),
    /// Of [`Kind::OutputLimits`].
    OutputLimits(OutputLimits),
}

impl Kind {
    /// Parses a value.
    ///
    /// # Errors
    /// The reason, if the text is not a value of this kind, or out of range.
    pub(super) fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Integer { min, max } => {
                let reason = || match min == max {
                    true => format!("can only be {min}"),
                    false => format!("must be a number from {min} to {max}"),
                };
                let value = text.parse::<u64>().ok().filter(|value| (min..=max).contains(value));
                value.map(Value::Integer).ok_or_else(reason)
            }
            Kind::Signed { min, max } => {
                let value = text.parse::<i64>().ok().filter(|value| (min..=max).contains(value));
                value.map(Value::Signed).ok_or_else(|| format!("must be a number from {min} to {max}"))
            }
            Kind::Bytes { min, max } => {
                let value = parse_bytes(text).filter(|value| (min..=max).contains(value));
                let reason = || format!("must be bytes from {min} to {max}, such as {}", example(min, max));
                value.map(Value::Integer).ok_or_else(reason)
            }
            Kind::BytesPowerOfTwo { min, max } => {
                let is_one = |value: &u64| value.is_power_of_two() && (min..=max).contains(value);
                let reason = || {
                    let example = example(min, max);
                    format!("must be a power of two from {min} to {max} bytes, such as {example}")
                };
                parse_bytes(text).filter(is_one).map(Value::Integer).ok_or_else(reason)
            }
            Kind::Switch => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" | "on" => Ok(Value::Switch(true)),
                "no" | "false" | "off" => Ok(Value::Switch(false)),
                _ => Err("must be yes or no".into()),
            },
            Kind::Text if text.contains(['\n', '\r', '\0']) => Err("must be one line".into()),
            Kind::Text => Ok(Value::Text(text.into())),
            Kind::Events => {
                let reason = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                let classes = engine::EventClass::parse(text).ok_or(reason)?;
                Ok(Value::Text(classes.to_string()))
            }
            Kind::OutputLimits => {
                let limits = OutputLimits::default().parse_over(text)?;
                Ok(Value::OutputLimits(limits))
            }
            Kind::Choice(names) => {
                let known = names.iter().find(|name| name.eq_ignore_ascii_case(text));
                let reason = || match names {
                    // Redis' `save`: there are no points of saving to choose.
                    [""] => "must stay empty: the log is the persistence".into(),
                    [only] => format!("can only be {only}"),
                    names => format!("must be one of {}", names.join(", ")),
                };
                known.map(|name| Value::Choice(name)).ok_or_else(reason)
            }
        }
    }
}

/// A number of bytes in this range, with a unit if possible.
fn example(min: u64, max: u64) -> String {
    let fits = |text: &&str| parse_bytes(text).is_some_and(|value| (min..=max).contains(&value));
    ["64mb", "1mb", "64kb", "1kb"].into_iter().find(fits).map_or_else(|| min.to_string(), Into::into)
}

/// As shown by CONFIG GET.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::Switch(true) => f.write_str("yes"),
            Value::Switch(false) => f.write_str("no"),
            Value::Text(text) => f.write_str(text),
            Value::Choice(name) => f.write_str(name),
            Value::OutputLimits(limits) => write!(f, "{limits}"),
        }
    }
}
