//! Positions of messages, as clients see them: `epoch:lsn`.

use std::fmt;

use lsn::Lsn;

/// Where a message stands in the log, or a place between messages. The epoch is that of the batch: a log that has lost its end and
/// gone on differently has another one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The epoch of who wrote there.
    pub epoch: u32,
    /// The place. What is behind it has a greater one.
    pub lsn: Lsn,
}

impl Position {
    /// Reads what [`Position`] shows.
    pub fn parse(text: &[u8]) -> Option<Position> {
        let text = std::str::from_utf8(text).ok()?;
        let (epoch, lsn) = text.split_once(':')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let all = is_number(epoch) && is_number(lsn);
        // The greatest is kept free: nothing stands behind it.
        let lsn = lsn.parse().ok().filter(|_| all).map(Lsn::new).filter(|&lsn| lsn < Lsn::MAX)?;
        Some(Position { epoch: epoch.parse().ok()?, lsn })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.lsn)
    }
}

/// Where XSUBSCRIBE begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// `-`: at the oldest message that is kept.
    Oldest,
    /// `$`: with what is published from now on.
    Now,
    /// Behind this position.
    After(Position),
}

impl From {
    /// Reads the argument of XSUBSCRIBE.
    pub fn parse(text: &[u8]) -> Option<From> {
        match text {
            b"-" => Some(From::Oldest),
            b"$" => Some(From::Now),
            _ => Position::parse(text).map(From::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_shown() {
        let position = Position { epoch: 7, lsn: Lsn::new(1 << 40) };
        assert_eq!(Position::parse(position.to_string().as_bytes()), Some(position));
        assert_eq!(From::parse(b"-"), Some(From::Oldest));
        assert_eq!(From::parse(b"$"), Some(From::Now));
        assert_eq!(From::parse(b"1:2"), Some(From::After(Position { epoch: 1, lsn: Lsn::new(2) })));
    }

    #[test]
    fn what_is_no_position_is_none() {
        for text in [
            "",
            ":",
            "1:",
            ":1",
            "1",
            "+1:2",
            "1:+2",
            "1:-2",
            "1:2:3",
            " 1:2",
            "1:2 ",
            "4294967296:1",
            "--",
            "0",
        ] {
            assert_eq!(From::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Position::parse(format!("1:{}", u64::MAX).as_bytes()), None);
        assert_eq!(Position::parse(b"1:\xff"), None);
    }
}
