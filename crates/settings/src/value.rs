//! Values of settings: text in, typed out, and back.

use super::{ConfigError, output_limits::OutputLimits, table::Setting};

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
    /// Of [`Kind::Integer`] and [`Kind::Bytes`].
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

impl Setting {
    /// Parses a value. If the text sets only a part, as for [`Kind::OutputLimits`], the rest is that of
    /// `old`.
    ///
    /// # Errors
    /// As [`Setting::parse`].
    pub fn parse_over(&self, text: &str, old: &Value) -> Result<Value, ConfigError> {
        let Value::OutputLimits(limits) = old else { return self.parse(text) };
        let invalid = |reason: String| self.invalid(text, reason);
        limits.parse_over(text).map(Value::OutputLimits).map_err(invalid)
    }

    /// Parses a value.
    ///
    /// # Errors
    /// If the text is not a value of this kind, or out of range.
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        let invalid = |reason: String| self.invalid(text, reason);
        match self.kind {
            Kind::Integer { min, max } => {
                let value = text.parse::<u64>().ok().filter(|value| (min..=max).contains(value));
                value
                    .map(Value::Integer)
                    .ok_or_else(|| invalid(format!("must be a number from {min} to {max}")))
            }
            Kind::Signed { min, max } => {
                let value = text.parse::<i64>().ok().filter(|value| (min..=max).contains(value));
                value
                    .map(Value::Signed)
                    .ok_or_else(|| invalid(format!("must be a number from {min} to {max}")))
            }
            Kind::Bytes { min, max } => {
                let value = parse_bytes(text).filter(|value| (min..=max).contains(value));
                let reason = || format!("must be bytes from {min} to {max}, such as 100mb");
                value.map(Value::Integer).ok_or_else(|| invalid(reason()))
            }
            Kind::Switch => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" | "on" => Ok(Value::Switch(true)),
                "no" | "false" | "off" => Ok(Value::Switch(false)),
                _ => Err(invalid("must be yes or no".into())),
            },
            Kind::Text if text.contains(['\n', '\r', '\0']) => Err(invalid("must be one line".into())),
            Kind::Text => Ok(Value::Text(text.into())),
            Kind::Events => {
                let reason = || "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into();
                let classes = engine::EventClass::parse(text).ok_or_else(|| invalid(reason()))?;
                Ok(Value::Text(classes.to_string()))
            }
            Kind::OutputLimits => {
                let limits = OutputLimits::default().parse_over(text).map_err(invalid)?;
                Ok(Value::OutputLimits(limits))
            }
            Kind::Choice(names) => {
                let known = names.iter().find(|name| name.eq_ignore_ascii_case(text));
                known
                    .map(|name| Value::Choice(name))
                    .ok_or_else(|| invalid(format!("must be one of {}", names.join(", "))))
            }
        }
    }

    fn invalid(&self, text: &str, reason: String) -> ConfigError {
        let value = if self.is_secret() { "(not shown)" } else { text };
        ConfigError::Invalid { name: self.name, value: value.into(), reason }
    }

    /// The value as text, as shown by CONFIG GET.
    pub fn render(&self, value: &Value) -> String {
        match value {
            Value::Integer(value) => value.to_string(),
            Value::Signed(value) => value.to_string(),
            Value::Switch(true) => "yes".into(),
            Value::Switch(false) => "no".into(),
            Value::Text(text) => text.clone(),
            Value::Choice(name) => (*name).into(),
            Value::OutputLimits(limits) => limits.to_string(),
        }
    }
}

pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_units_of_redis() {
        for (text, bytes) in
            [("0", 0), ("10", 10), ("1k", 1000), ("1KB", 1024), ("3mb", 3 << 20), ("1g", 1_000_000_000)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "kb", "-1", "1.5gb", "1tb", "99999999999gb"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
