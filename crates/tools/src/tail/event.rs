//! The events that a server sends to `sheaf tail`, and the format of a message line.

use std::fmt::Write;

use wire::Value;

use super::TailError;

/// The part of an error by which the server refuses to show a setting.
const NO_SETTINGS: &[u8] = b"the 'config|get' command";

/// The meaning of a received value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'v> {
    Message(Message<'v>),
    /// A subscription was confirmed.
    Subscribed,
    /// A subscription to a durable channel was confirmed, with the position at which it begins.
    Placed {
        channel: &'v [u8],
        position: &'v [u8],
    },
    /// A subscription to a durable channel has ended: its next messages are no longer in the log, or cannot
    /// be read. The channel goes on at the position.
    Lost {
        channel: &'v [u8],
        position: &'v [u8],
    },
    /// The reply of the server whose setting `audit` is off.
    AuditOff,
    /// An event that is not shown, such as the reply to HELLO or PING.
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'v> {
    /// The position, if the message was read from the log.
    pub(super) position: Option<&'v [u8]>,
    pub(super) channel: &'v [u8],
    pub(super) payload: &'v [u8],
}

impl Event<'_> {
    /// Classifies a received value; an error reply is an error.
    pub(super) fn of(value: &Value) -> Result<Event<'_>, TailError> {
        let parts = match value {
            Value::Map(pairs) => {
                let is_off = |(name, value): &(Value, Value)| {
                    text(name) == Some(b"audit") && text(value) == Some(b"no")
                };
                return Ok(if pairs.iter().any(is_off) { Event::AuditOff } else { Event::Other });
            }
            // Users that may read the audit, but no settings, read it as it is.
            Value::Error(text)
                if text.starts_with(b"NOPERM ")
                    && text.windows(NO_SETTINGS.len()).any(|part| part == NO_SETTINGS) =>
            {
                return Ok(Event::Other);
            }
            Value::Error(text) => return Err(TailError::Refused(String::from_utf8_lossy(text).into_owned())),
            Value::Push(parts) => parts,
            _ => return Ok(Event::Other),
        };
        let texts: Vec<&[u8]> = parts.iter().filter_map(text).collect();
        Ok(match texts[..] {
            [b"message", channel, payload] | [b"pmessage", _, channel, payload] => {
                Event::Message(Message { position: None, channel, payload })
            }
            [b"xmessage", channel, position, payload] => {
                Event::Message(Message { position: Some(position), channel, payload })
            }
            [b"subscribe" | b"psubscribe", _] => Event::Subscribed,
            [b"xsubscribe", channel, position] => Event::Placed { channel, position },
            [b"xlost", channel, position] => Event::Lost { channel, position },
            _ => Event::Other,
        })
    }
}

/// The bytes of a bulk string.
fn text(value: &Value) -> Option<&[u8]> {
    if let Value::Bulk(bytes) = value { Some(bytes) } else { None }
}

impl Message<'_> {
    /// Appends the message as a line: time, position if any, channel, payload.
    pub(super) fn write_line(&self, time: &str, out: &mut String) {
        out.push_str(time);
        out.push(' ');
        if let Some(position) = self.position {
            escape(position, out);
            out.push(' ');
        }
        // Spaces are escaped, so that the channel is one word.
        let start = out.len();
        escape(self.channel, out);
        if out[start..].contains(' ') {
            let channel = out.split_off(start).replace(' ', "\\u{20}");
            out.push_str(&channel);
        }
        out.push(' ');
        escape(self.payload, out);
        out.push('\n');
    }
}

/// Appends text unchanged; backslashes, unprintable characters and bytes that are no text become escapes.
pub(super) fn escape(bytes: &[u8], out: &mut String) {
    const QUOTES: [char; 2] = ['"', '\''];
    for chunk in bytes.utf8_chunks() {
        for part in chunk.valid().split_inclusive(QUOTES) {
            let quote = part.chars().next_back().filter(|last| QUOTES.contains(last));
            let _ = write!(out, "{}", part.trim_end_matches(QUOTES).escape_debug());
            out.extend(quote);
        }
        let _ = write!(out, "{}", chunk.invalid().escape_ascii());
    }
}

#[cfg(test)]
mod tests {
    use wire::{DecodeLimits, decode};

    use super::*;

    fn value(frame: &[u8]) -> Value {
        decode(frame, &DecodeLimits::DEFAULT).expect("well formed").expect("whole").0
    }

    #[test]
    fn frames_are_messages_confirmations_and_others() {
        let (channel, payload) = (b"ch".as_slice(), b"hi".as_slice());
        let message = || Event::Message(Message { position: None, channel, payload });
        let position = b"7:42".as_slice();
        for (frame, expected) in [
            (">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nhi\r\n", message()),
            (">4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$2\r\nch\r\n$2\r\nhi\r\n", message()),
            (">3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n", Event::Subscribed),
            (">3\r\n$10\r\npsubscribe\r\n$2\r\nc*\r\n:1\r\n", Event::Subscribed),
            (
                ">4\r\n$8\r\nxmessage\r\n$2\r\nch\r\n$4\r\n7:42\r\n$2\r\nhi\r\n",
                Event::Message(Message { position: Some(position), channel, payload }),
            ),
            (
                ">4\r\n$10\r\nxsubscribe\r\n$2\r\nch\r\n$4\r\n7:42\r\n:1\r\n",
                Event::Placed { channel, position },
            ),
            (">4\r\n$5\r\nxlost\r\n$2\r\nch\r\n$4\r\n7:42\r\n:0\r\n", Event::Lost { channel, position }),
            ("%1\r\n$5\r\naudit\r\n$2\r\nno\r\n", Event::AuditOff),
            ("%1\r\n$5\r\naudit\r\n$3\r\nyes\r\n", Event::Other),
            ("-NOPERM User u has no permissions to run the 'config|get' command\r\n", Event::Other),
            (">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", Event::Other),
            ("*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nhi\r\n", Event::Other),
            (">0\r\n", Event::Other),
            ("+PONG\r\n", Event::Other),
        ] {
            assert_eq!(Event::of(&value(frame.as_bytes())).unwrap(), expected, "{frame}");
        }
        let refused = Event::of(&value(b"-NOPERM no\r\n")).unwrap_err();
        assert_eq!(refused.to_string(), "the server refuses: NOPERM no");
    }

    #[test]
    fn a_message_is_one_line() {
        for (channel, payload, line) in [
            ("news", "hello world", "news hello world"),
            ("a b", "", "a\\u{20}b "),
            ("c", "{\"it's\": \"\"}", "c {\"it's\": \"\"}"),
            ("c", "\"", "c \""),
            ("c", "two\nlines\r\t\0", "c two\\nlines\\r\\t\\0"),
            ("c", "\x1b[31mred\u{202e}", "c \\u{1b}[31mred\\u{202e}"),
            ("c", "a\\b", "c a\\\\b"),
            ("kanał", "日本 e\u{301}", "kanał 日本 e\u{301}"),
        ] {
            let mut out = String::new();
            let (channel, payload) = (channel.as_bytes(), payload.as_bytes());
            Message { position: None, channel, payload }.write_line("T", &mut out);
            assert_eq!(out, format!("T {line}\n"));
        }
        let mut out = String::new();
        Message { position: Some(b"7:42"), channel: b"\xff", payload: b"ok\xc3(\x80" }
            .write_line("T", &mut out);
        assert_eq!(out, "T 7:42 \\xff ok\\xc3(\\x80\n");
    }
}
