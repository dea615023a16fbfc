//! Limits of a client's unsent output (`client-output-buffer-limit`), by class of client.
//!
//! The limits are written as in Redis: for each class its name, a hard limit, a soft limit, and the seconds
//! for which the soft limit may be exceeded; 0 for no limit. Classes that are not named keep their limits.

use std::fmt;

use engine::clients::ClientKind;

use super::bytes::parse_bytes;

/// The classes in the order and with the names in which they are shown.
const CLASSES: [(ClientKind, &str); 3] =
    [(ClientKind::Normal, "normal"), (ClientKind::Replica, "slave"), (ClientKind::PubSub, "pubsub")];

/// The limits of one class of clients; 0 for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// The unsent bytes above which a client is disconnected at once; a normal client has to wait instead.
    pub hard_bytes: u64,
    /// The unsent bytes above which a client is disconnected after `soft_seconds`.
    pub soft_bytes: u64,
    /// Seconds for which `soft_bytes` may be exceeded.
    pub soft_seconds: u64,
}

/// The limits of all classes of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits([OutputLimit; 3]);

impl OutputLimits {
    /// Parses limits; classes that are not named keep the present ones.
    ///
    /// # Errors
    /// The error text of Redis.
    pub fn parse_over(mut self, text: &str) -> Result<OutputLimits, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words.is_empty() || !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        for class in words.chunks_exact(4) {
            let position = ClientKind::parse(class[0].as_bytes()).and_then(position);
            let Some(position) = position else {
                return Err("Invalid client class specified in buffer limit configuration.".into());
            };
            let [hard_bytes, soft_bytes] = [class[1], class[2]].map(parse_bytes);
            let limit = (|| {
                let (hard_bytes, soft_bytes) = (hard_bytes?, soft_bytes?);
                Some(OutputLimit { hard_bytes, soft_bytes, soft_seconds: class[3].parse().ok()? })
            })();
            let wrong = || "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
            self.0[position] = limit.ok_or_else(wrong)?;
        }
        Ok(self)
    }

    /// The limits of a class; none for [`ClientKind::Master`].
    pub fn of(&self, kind: ClientKind) -> OutputLimit {
        position(kind).map(|position| self.0[position]).unwrap_or_default()
    }
}

/// The index of a class in [`CLASSES`]; `None` for a master, which is not a client.
fn position(kind: ClientKind) -> Option<usize> {
    CLASSES.iter().position(|(known, _)| *known == kind)
}

impl fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((_, name), limit)) in CLASSES.iter().zip(&self.0).enumerate() {
            let space = if index > 0 { " " } else { "" };
            let OutputLimit { hard_bytes, soft_bytes, soft_seconds } = limit;
            write!(f, "{space}{name} {hard_bytes} {soft_bytes} {soft_seconds}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_shown_as_in_redis() {
        let parse = |limits: OutputLimits, text: &str| limits.parse_over(text).expect(text);
        let all = parse(OutputLimits::default(), "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60");
        let shown = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        assert_eq!(all.to_string(), shown);
        assert_eq!(parse(OutputLimits::default(), shown), all);
        let some = parse(all, "PubSub 1k 0 5  normal 7 6 5").to_string();
        assert_eq!(some, "normal 7 6 5 slave 268435456 67108864 60 pubsub 1000 0 5");
        assert_eq!((all.of(ClientKind::PubSub).soft_seconds, all.of(ClientKind::Master).hard_bytes), (60, 0));
    }

    #[test]
    fn invalid_limits_are_refused_in_the_words_of_redis() {
        for (text, reason) in [
            ("", "Wrong number"),
            ("pubsub 1 2", "Wrong number"),
            ("pubsub 1 2 3 normal", "Wrong number"),
            ("other 1 2 3", "Invalid client class"),
            ("master 1 2 3", "Invalid client class"),
            ("pubsub x 2 3", "Error in hard"),
            ("pubsub 1 -2 3", "Error in hard"),
            ("pubsub 1 2 x", "Error in hard"),
        ] {
            let error = OutputLimits::default().parse_over(text).unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
