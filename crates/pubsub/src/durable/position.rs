//! Positions of messages, as shown to clients: `epoch:lsn:reign`, or `epoch:lsn` if the reign is unknown, as
//! in earlier versions.

use std::fmt;

use lsn::Lsn;

/// The position of a message in the log, or a position between messages. A position has the epoch and the
/// reign of its batch: a log that lost its end and then continued differently has another epoch or reign
/// there. Two promoted servers may have the same epoch, but not the same reign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The epoch of the leader that wrote this part of the log.
    pub epoch: u32,
    /// The LSN. Later messages have greater LSNs.
    pub lsn: Lsn,
    /// The reign of that leader; 0 if unknown.
    pub reign: u64,
}

impl Position {
    /// Parses the text form; `None` if it is malformed or the LSN is `Lsn::MAX`.
    pub fn parse(text: &[u8]) -> Option<Position> {
        let text = std::str::from_utf8(text).ok()?;
        let (epoch, place) = text.split_once(':')?;
        let (lsn, reign) = place.split_once(':').unwrap_or((place, "0"));
        let all = [epoch, lsn, reign].iter().all(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        // `Lsn::MAX` is reserved: no message can follow it.
        let lsn = lsn.parse().ok().filter(|_| all).map(Lsn::new).filter(|&lsn| lsn < Lsn::MAX)?;
        Some(Position { epoch: epoch.parse().ok()?, lsn, reign: reign.parse().ok()? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.lsn)?;
        if self.reign > 0 { write!(f, ":{}", self.reign) } else { Ok(()) }
    }
}

/// The position at which XSUBSCRIBE begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// `-`: the subscription begins at the oldest message in the log.
    Oldest,
    /// `$`: the subscription begins with the next message that is published.
    Now,
    /// The subscription begins after this position.
    After(Position),
}

impl From {
    /// Parses the position argument of XSUBSCRIBE; `None` if it is malformed.
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
        for reign in [0, 1 << 50] {
            let position = Position { epoch: 7, lsn: Lsn::new(1 << 40), reign };
            assert_eq!(Position::parse(position.to_string().as_bytes()), Some(position));
        }
        assert_eq!(From::parse(b"-"), Some(From::Oldest));
        assert_eq!(From::parse(b"$"), Some(From::Now));
        assert_eq!(From::parse(b"1:2"), Some(From::After(Position { epoch: 1, lsn: Lsn::new(2), reign: 0 })));
    }

    #[test]
    fn invalid_positions_are_not_parsed() {
        for text in [
            "",
            ":",
            "1:",
            ":1",
            "1",
            "+1:2",
            "1:+2",
            "1:-2",
            "1:2:",
            "1:2:+3",
            "1:2:3:4",
            "1:2:18446744073709551616",
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
