//! Values of settings: text in, typed out, and back.

use std::fmt;

use super::{bytes::parse_bytes, output_limits::OutputLimits};

/// The type and range of a setting's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number in a range, both ends included.
    Integer {
        /// The smallest number that is accepted.
        min: u64,
        /// The largest number that is accepted.
        max: u64,
    },
    /// As [`Kind::Integer`], with negative numbers.
    Signed {
        /// The smallest number that is accepted.
        min: i64,
        /// The largest number that is accepted.
        max: i64,
    },
    /// Bytes in a range; the units `kb`, `mb`, `gb` (powers of 1024) and `k`, `m`, `g` (powers of 1000) are
    /// accepted.
    Bytes {
        /// The smallest number of bytes that is accepted.
        min: u64,
        /// The largest number of bytes that is accepted.
        max: u64,
    },
    /// As [`Kind::Bytes`], but only powers of two.
    BytesPowerOfTwo {
        /// The smallest number of bytes that is accepted.
        min: u64,
        /// The largest number of bytes that is accepted.
        max: u64,
    },
    /// `yes` or `no`; `true`, `on`, `false`, `off` are accepted, too.
    Switch,
    /// Text without line ends and zero bytes.
    Text,
    /// A URL of plain HTTP, with a host and without a user; or nothing.
    HttpUrl,
    /// A share from 0 to 1, in steps of a millionth.
    Share,
    /// One of these names is the value.
    Choice(&'static [&'static str]),
    /// The letters of event classes; see [`engine::EventClass`].
    Events,
    /// Limits by class of clients; see [`OutputLimits`].
    OutputLimits,
}

/// The value of a setting, parsed and within its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The value of a setting of [`Kind::Integer`], [`Kind::Bytes`] or [`Kind::BytesPowerOfTwo`].
    Integer(u64),
    /// The value of a setting of [`Kind::Signed`].
    Signed(i64),
    /// The value of a setting of [`Kind::Switch`].
    Switch(bool),
    /// The value of a setting of [`Kind::Text`], [`Kind::HttpUrl`] or [`Kind::Events`].
    Text(String),
    /// The value of a setting of [`Kind::Share`], in millionths.
    Share(u32),
    /// The value of a setting of [`Kind::Choice`].
    Choice(&'static str),
    /// The value of a setting of [`Kind::OutputLimits`].
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
            Kind::HttpUrl if text.is_empty() || is_http_url(text) => Ok(Value::Text(text.into())),
            Kind::HttpUrl => Err("must be a URL such as http://127.0.0.1:4318, without TLS: have a collector run beside the server".into()),
            Kind::Share => {
                let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
                let millionths = share.map(|share| Value::Share((share * f64::from(WHOLE)).round() as u32));
                millionths.ok_or_else(|| "must be a number from 0 to 1, such as 0.01".into())
            }
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

/// The [`Value::Share`] of the whole, in millionths.
const WHOLE: u32 = 1_000_000;

/// Whether the text is `http://HOST[:PORT][/PATH]`.
fn is_http_url(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("http://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    // The port of an address in brackets follows the bracket.
    let (host, port) = match authority.rfind(']') {
        Some(end) => (&authority[..=end], authority[end + 1..].strip_prefix(':')),
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let is_host = !host.is_empty() && !host.contains('@');
    is_host
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#')
}

/// A number of bytes in this range, with a unit if possible.
fn example(min: u64, max: u64) -> String {
    let fits = |text: &&str| parse_bytes(text).is_some_and(|value| (min..=max).contains(&value));
    ["64mb", "1mb", "64kb", "1kb"].into_iter().find(fits).map_or_else(|| min.to_string(), Into::into)
}

/// Writes the value as CONFIG GET shows it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::Switch(true) => f.write_str("yes"),
            Value::Switch(false) => f.write_str("no"),
            Value::Text(text) => f.write_str(text),
            Value::Share(millionths) => write!(f, "{}", f64::from(*millionths) / f64::from(WHOLE)),
            Value::Choice(name) => f.write_str(name),
            Value::OutputLimits(limits) => write!(f, "{limits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_from_0_to_1() {
        for (text, shown) in [("0", "0"), ("1", "1"), ("0.01", "0.01"), ("1e-3", "0.001"), ("0.0000004", "0")]
        {
            assert_eq!(Kind::Share.parse(text).unwrap().to_string(), shown);
        }
        for text in ["", "-0.1", "1.01", "NaN", "inf", "1%"] {
            assert!(Kind::Share.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn urls_have_a_host_and_no_user() {
        for text in
            ["", "http://a", "http://127.0.0.1:4318", "http://[::1]:4318/v1/traces", "http://a-b.c/d/"]
        {
            assert_eq!(Kind::HttpUrl.parse(text), Ok(Value::Text(text.into())), "{text}");
        }
        let refused =
            ["a:4318", "https://a", "http://", "http://:1", "http://a:0", "http://a:99999", "http://u:p@a"];
        for text in
            [&refused[..], &["http://u@a", "http://a b", "http://a?b", "http://a\nb", "ftp://a"]].concat()
        {
            assert!(Kind::HttpUrl.parse(text).is_err(), "{text}");
        }
    }
}
