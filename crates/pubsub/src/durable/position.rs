//! Positions of messages, as clients see them: `epoch:lsn:reign`. Earlier versions gave `epoch:lsn`, which is still understood.

use std::fmt;

use lsn::Lsn;

/// Where a message stands in the log, or a place between messages. Epoch and reign are those of the batch: a log that has lost its end
/// and gone on differently has other ones there. Two servers that both were made leaders may have the same epoch, but not the same
/// reign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The epoch of who wrote there.
    pub epoch: u32,
    /// The place. What is behind it has a greater one.
    pub lsn: Lsn,
    /// The reign of who wrote there; 0 if it is not said.
    pub reign: u64,
}

impl Position {
    /// Reads what [`Position`] shows.
    pub fn parse(text: &[u8]) -> Option<Position> {
        let text = std::str::from_utf8(text).ok()?;
        let (epoch, place) = text.split_once(':')?;
        let (lsn, reign) = place.split_once(':').unwrap_or((place, "0"));
        let all = [epoch, lsn, reign].iter().all(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        // The greatest is kept free: nothing stands behind it.
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
        for reign in [0, 1 << 50] {
            let position = Position { epoch: 7, lsn: Lsn::new(1 << 40), reign };
            assert_eq!(Position::parse(position.to_string().as_bytes()), Some(position));
        }
        assert_eq!(From::parse(b"-"), Some(From::Oldest));
        assert_eq!(From::parse(b"$"), Some(From::Now));
        assert_eq!(From::parse(b"1:2"), Some(From::After(Position { epoch: 1, lsn: Lsn::new(2), reign: 0 })));
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
