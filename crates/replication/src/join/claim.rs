//! The texts of a join: the arguments of REPLICATE and the lines that answer it.
//!
//! Numbers are decimal; chain values and ids are hexadecimal of fixed width, see `digits`. Anything else is
//! refused.

use lsn::Lsn;

use super::MARKS_MAX;
use crate::{ProcessId, ReplicaId, digits};

/// The version of frames, texts and the log format, on which a replica and its leader must agree. Version 1
/// compared the ends of batches by checksums of their footers, which did not depend on the content of the
/// batches.
pub const PROTOCOL_VERSION: u32 = 2;

/// The end of a batch, with its chain value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The position at which the batch ends.
    pub end: Lsn,
    /// The chain value: covers this batch and all before it.
    pub chain: u64,
}

/// The arguments of a REPLICATE command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The version of the protocol.
    pub version: u32,
    /// The id of the replica's log.
    pub log_id: [u8; 16],
    /// The highest epoch that the replica has seen.
    pub epoch: u32,
    /// The end of the replica's last durable batch; [`Lsn::ZERO`] and 0 if the log is empty or unusable.
    pub mark: Mark,
    /// The port on which it serves clients.
    pub port: u16,
    /// The id of the replica.
    pub replica: ReplicaId,
    /// The id of its process; `None` from a server of an earlier release, which does not send it.
    pub process: Option<ProcessId>,
}

impl Claim {
    /// Formats the arguments of REPLICATE.
    pub fn arguments(&self) -> Vec<String> {
        let always = [
            self.version.to_string(),
            hex::encode(self.log_id),
            self.epoch.to_string(),
            self.mark.end.to_string(),
            digits::of_u64(self.mark.chain),
            self.port.to_string(),
            self.replica.to_string(),
        ];
        always.into_iter().chain(self.process.map(|process| process.to_string())).collect()
    }

    /// Parses the arguments of REPLICATE; `None` if they are invalid. For another version, whose arguments
    /// are unknown, only `version` is meaningful.
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
                process: None,
            });
        }
        let (&[_, log_id, epoch, end, chain, port, replica], more) = arguments.split_first_chunk()?;
        let process = match more {
            [] => None,
            [process] => Some(ProcessId::parse(process)?),
            _ => return None,
        };
        Some(Claim {
            version,
            log_id: digits::parse_bytes(log_id)?,
            epoch: parse_number(epoch)?,
            mark: Mark { end: parse_lsn(end)?, chain: digits::parse_u64(chain)? },
            port: parse_number(port)?,
            replica: ReplicaId::parse(replica)?,
            process,
        })
    }
}

/// The answer of a leader to a claim, except errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Frames follow, from this position.
    Resume {
        /// The end of the replica's log.
        end: Lsn,
        /// The leader's epoch.
        epoch: u32,
    },
    /// The replica must find the last common position.
    Probe,
    /// The replica must copy everything.
    Full {
        /// The port of the leader's host that serves the copy.
        http_port: u16,
    },
}

impl Answer {
    /// Formats the simple string, without its prefix and terminator.
    pub fn line(&self) -> String {
        match self {
            Answer::Resume { end, epoch } => format!("RESUME {end} {epoch}"),
            Answer::Probe => "PROBE".into(),
            Answer::Full { http_port } => format!("FULL {http_port}"),
        }
    }

    /// Parses the output of [`Answer::line`]; `None` if it is invalid.
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
    marks.iter().flat_map(|mark| [mark.end.to_string(), digits::of_u64(mark.chain)]).collect()
}

/// Parses the arguments of REPLICATE MARKS; `None` if they are invalid or more than [`MARKS_MAX`] marks.
pub fn parse_marks(arguments: &[&[u8]]) -> Option<Vec<Mark>> {
    let (pairs, []) = arguments.as_chunks::<2>() else { return None };
    if pairs.is_empty() || pairs.len() > MARKS_MAX {
        return None;
    }
    pairs
        .iter()
        .map(|&[end, chain]| Some(Mark { end: parse_lsn(end)?, chain: digits::parse_u64(chain)? }))
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
        let process = Some(ProcessId::new(0xbeef));
        Claim { version: PROTOCOL_VERSION, log_id: [0xab; 16], epoch: 4, mark, port: 6379, replica, process }
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
            let rest = parse(&arguments[..index]);
            assert_eq!(rest, (index == 7).then_some(Claim { process: None, ..claim() }), "{index} arguments");
        }
        assert_eq!(parse(&[arguments.clone(), vec!["00".into()]].concat()), None, "one too many");
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
