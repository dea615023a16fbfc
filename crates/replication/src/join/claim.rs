//! The text of a join: the arguments of REPLICATE and the lines that answer it.
//!
//! Numbers are decimal; chain values and ids are hexadecimal of fixed width, see `hex`. Anything else is
//! refused.

use lsn::Lsn;

use super::MARKS_MAX;
use crate::{ReplicaId, hex};

/// The version of the frames, the join and the log format; both sides must have the same. Version 1 compared
/// batch ends by checksums of their footers, which did not cover the content of the batches.
pub const PROTOCOL_VERSION: u32 = 2;

/// The end of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The position at which the batch ends.
    pub end: Lsn,
    /// The chain value: covers this batch and all before it.
    pub chain: u64,
}

/// The description of a replica and its log that it sends to join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The protocol version of the replica.
    pub version: u32,
    /// The id of the log that it holds.
    pub log_id: [u8; 16],
    /// The highest epoch that it has seen.
    pub epoch: u32,
    /// The end of its last durable batch; [`Lsn::ZERO`] and chain value 0 if its log is empty.
    pub mark: Mark,
    /// The port on which it serves clients.
    pub port: u16,
    /// The identity of the replica.
    pub replica: ReplicaId,
}

impl Claim {
    /// Formats the arguments of REPLICATE.
    pub fn arguments(&self) -> [String; 7] {
        [
            self.version.to_string(),
            hex::of_bytes(&self.log_id),
            self.epoch.to_string(),
            self.mark.end.to_string(),
            hex::of_u64(self.mark.chain),
            self.port.to_string(),
            self.replica.to_string(),
        ]
    }

    /// Parses the arguments of REPLICATE; `None` if they are malformed. The arguments of other versions are
    /// unknown: for them only `version` is set, the rest is zero.
    pub fn parse(arguments: &[&[u8]]) -> Option<Claim> {
        let version = parse_number(arguments.first()?)?;
        if version != PROTOCOL_VERSION {
            let mark = Mark { end: Lsn::ZERO, chain: 0 };
            return Some(Claim {
                version,
                log_id: [0; 16],
                epoch: 0,
                mark,
                port: 0,
                replica: ReplicaId::new([0; 16]),
            });
        }
        let &[_, log_id, epoch, end, chain, port, replica] = arguments else { return None };
        Some(Claim {
            version,
            log_id: hex::parse_bytes(log_id)?,
            epoch: parse_number(epoch)?,
            mark: Mark { end: parse_lsn(end)?, chain: hex::parse_u64(chain)? },
            port: parse_number(port)?,
            replica: ReplicaId::parse(replica)?,
        })
    }
}

/// The answer of a leader, other than errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Partial sync: frames follow from here on.
    Resume {
        /// The end of the replica's log.
        end: Lsn,
        /// The leader's epoch.
        epoch: u32,
    },
    /// The logs have diverged: the replica has to find the common position.
    Probe,
    /// Full sync: the replica has to copy everything from the given port.
    Full {
        /// The HTTP port, on the host of the leader.
        http_port: u16,
    },
}

impl Answer {
    /// The text of the simple string, without the RESP framing.
    pub fn line(&self) -> String {
        match self {
            Answer::Resume { end, epoch } => format!("RESUME {end} {epoch}"),
            Answer::Probe => "PROBE".into(),
            Answer::Full { http_port } => format!("FULL {http_port}"),
        }
    }

    /// Parses a line of [`Answer::line`]; `None` if it is malformed.
    pub fn parse(line: &[u8]) -> Option<Answer> {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        match words.as_slice() {
            [b"RESUME", end, epoch] => {
                Some(Answer::Resume { end: parse_lsn(end)?, epoch: parse_number(epoch)? })
            }
            [b"PROBE"] => Some(Answer::Probe),
            [b"FULL", port] => Some(Answer::Full { http_port: parse_number(port)? }),
            _ => None,
        }
    }
}

/// Formats the arguments of REPLICATE MARKS.
pub fn format_marks(marks: &[Mark]) -> Vec<String> {
    marks.iter().flat_map(|mark| [mark.end.to_string(), hex::of_u64(mark.chain)]).collect()
}

/// Parses the arguments of REPLICATE MARKS; `None` if they are malformed, or not between 1 and [`MARKS_MAX`]
/// marks.
pub fn parse_marks(arguments: &[&[u8]]) -> Option<Vec<Mark>> {
    let (pairs, []) = arguments.as_chunks::<2>() else { return None };
    if pairs.is_empty() || pairs.len() > MARKS_MAX {
        return None;
    }
    pairs
        .iter()
        .map(|&[end, chain]| Some(Mark { end: parse_lsn(end)?, chain: hex::parse_u64(chain)? }))
        .collect()
}

/// Positions are below 2^62, as in frames.
fn parse_lsn(text: &[u8]) -> Option<Lsn> {
    let position: u64 = parse_number(text)?;
    (position < 1 << 62).then_some(Lsn::new(position))
}

fn parse_number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        let mark = Mark { end: Lsn::new(8192), chain: 0xfeed_feed };
        let replica = ReplicaId::new([3; 16]);
        Claim { version: PROTOCOL_VERSION, log_id: [0xab; 16], epoch: 4, mark, port: 6379, replica }
    }

    fn parse(arguments: &[String]) -> Option<Claim> {
        Claim::parse(&arguments.iter().map(String::as_bytes).collect::<Vec<_>>())
    }

    #[test]
    fn a_claim_is_read_back_and_every_broken_one_refused() {
        let arguments = claim().arguments();
        assert_eq!(parse(&arguments), Some(claim()));
        for index in 0..arguments.len() {
            for wrong in ["", "x", "-1", "+1", "99999999999999999999999"] {
                let mut broken = arguments.clone();
                broken[index] = wrong.into();
                assert_eq!(parse(&broken), None, "argument {index} is {wrong:?}");
            }
            assert_eq!(parse(&arguments[..index]), None);
        }
        let newer = parse(&["3".into(), "whatever".into()]);
        assert_eq!(newer.map(|it| it.version), Some(3));
    }

    #[test]
    fn answers_are_read_back() {
        let answers = [
            Answer::Resume { end: Lsn::new(4096), epoch: 7 },
            Answer::Probe,
            Answer::Full { http_port: 6380 },
        ];
        for answer in answers {
            assert_eq!(Answer::parse(answer.line().as_bytes()), Some(answer));
        }
        for wrong in [
            "",
            "OK",
            "RESUME",
            "RESUME 1",
            "RESUME 1 2 3",
            "PROBE ",
            "FULL 65536",
            "RESUME 9223372036854775807 1",
        ] {
            assert_eq!(Answer::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn marks_are_read_back_in_pairs() {
        let marks: Vec<Mark> =
            (1..=MARKS_MAX as u64).map(|it| Mark { end: Lsn::new(it), chain: it << 48 | it }).collect();
        let words = format_marks(&marks);
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        assert_eq!(parse_marks(&words), Some(marks));
        assert_eq!(parse_marks(&words[..3]), None);
        assert_eq!(parse_marks(&[]), None);
        let mut too_many = words.clone();
        too_many.extend_from_slice(&words[..2]);
        assert_eq!(parse_marks(&too_many), None);
    }
}
