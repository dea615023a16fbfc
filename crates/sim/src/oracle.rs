//! The acknowledged-write oracle: the states that a disk may hold after a crash.
//!
//! ```text
//! positions   0 ........ acknowledged ........ executed
//!                             '--- allowed ------'
//! ```
//! One thread executes all commands, so the order of execution is the order of the log. The recovered state
//! must be the state of some position:
//! - not before the newest position that a delivered reply acknowledged;
//! - not before the position that the kind of failure preserves;
//! - not after the last executed position.
//!
//! Whether a reply acknowledges the changes that it shows depends on the durability.
//!
//! The oracle is strict: the whole content is compared, and every reply.

use lsn::Lsn;
use storage::Durability;
use wire::Value;

use crate::{
    Command, Content, Model,
    model::{Executed, ModelSession},
};

/// The end of an incarnation of the server, as far as it decides the data that must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// The power failed: durable data survives.
    Durable(Lsn),
    /// Only the process ended: data that was written to the OS survives as well.
    Written(Lsn),
    /// The disk failed: only acknowledged data must survive.
    Acknowledged,
}

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Violation {
    /// A reply differs from the expected one.
    #[error("{command:?} replied {reply:?}, not {expected:?}")]
    Reply {
        /// The command that the client sent.
        command: Box<Command>,
        /// The actual reply.
        reply: Box<Value>,
        /// The expected reply.
        expected: Box<Value>,
    },
    /// The recovered state is older than allowed.
    #[error(
        "lost: recovered the state of position {position}, but {floor} must survive (executed: {executed})"
    )]
    Lost {
        /// The position of the recovered state.
        position: usize,
        /// The oldest allowed position.
        floor: usize,
        /// The newest allowed position.
        executed: usize,
    },
    /// The recovered state is the state of no position up to the newest allowed one.
    #[error("recovered what never was, neither at position {floor} nor up to {executed}: {difference}")]
    NeverWas {
        /// The oldest allowed position.
        floor: usize,
        /// The newest allowed position.
        executed: usize,
        /// The first difference from the newest allowed state.
        difference: String,
    },
    /// Any other broken guarantee, such as more replies than commands, or wrong data in memory.
    #[error("{0}")]
    Protocol(String),
}

/// The oracle: the model and the acknowledged positions.
#[derive(Debug, Clone)]
pub struct Oracle {
    promise: Durability,
    model: Model,
    acknowledged: usize,
    refused: usize,
    /// The end of the log and the position, after each round of commands and each expiry.
    marks: Vec<(Lsn, usize)>,
}

impl Oracle {
    /// Creates an oracle for an empty server with this durability.
    pub fn new(promise: Durability) -> Oracle {
        Oracle { promise, model: Model::default(), acknowledged: 0, refused: 0, marks: Vec::new() }
    }

    /// The position after the newest executed command.
    pub fn executed(&self) -> usize {
        self.model.position()
    }

    /// The newest position that a delivered reply acknowledges, or, with strict durability, one of which a
    /// subscriber was told.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// The number of commands that were refused because the log took no writes.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// The content that the server's memory must have now.
    pub fn content(&self) -> &Content {
        self.model.content()
    }

    /// Checks the reply of an executed command. Returns the position that must survive once the reply is
    /// delivered.
    ///
    /// # Errors
    /// If the reply differs from the expected one.
    pub fn executes(
        &mut self,
        session: &mut ModelSession,
        command: &Command,
        now_ms: u64,
        reply: &Value,
    ) -> Result<usize, Violation> {
        if session.may_be_refused(command) && is_refusal(reply) {
            self.refused += 1;
            session.is_refused(command);
            return Ok(0);
        }
        let Executed { reply: expected, shows, wrote } = self.model.execute(session, command, now_ms, reply);
        if !agrees(reply, &expected) {
            let (command, reply) = (command.clone().into(), reply.clone().into());
            return Err(Violation::Reply { command, reply, expected: expected.into() });
        }
        Ok(match self.promise {
            Durability::Strict => shows,
            Durability::Commit if wrote => shows,
            _ => 0,
        })
    }

    /// Notes that the server has removed expired keys or fields; `left` is the content afterwards.
    pub fn expires(&mut self, now_ms: u64, left: &Content) {
        self.model.expire(now_ms, left);
    }

    /// Notes that the log ends at `appended` after the commands executed so far.
    pub fn mark(&mut self, appended: Lsn) {
        self.marks.push((appended, self.model.position()));
    }

    /// Notes that a reply that acknowledges `position` was delivered.
    pub fn delivers(&mut self, position: usize) {
        self.acknowledged = self.acknowledged.max(position);
    }

    /// Notes that a subscriber was told of a change whose record ends at `gate`.
    pub fn shows(&mut self, gate: Lsn) {
        if self.promise == Durability::Strict {
            self.delivers(self.position_at(gate));
        }
    }

    /// The newest position that is known to lie at or before `end`.
    pub fn position_at(&self, end: Lsn) -> usize {
        self.marks.iter().rev().find(|(lsn, _)| *lsn <= end).map_or(0, |(_, position)| *position)
    }

    /// The oldest position that may be recovered.
    pub fn floor(&self, survival: Survival) -> usize {
        let spared = match survival {
            Survival::Durable(end) | Survival::Written(end) => self.position_at(end),
            Survival::Acknowledged => 0,
        };
        self.acknowledged.max(spared)
    }

    /// Checks the content of a server's memory.
    ///
    /// # Errors
    /// If it is not the newest state.
    pub fn check(&self, held: &Content) -> Result<(), Violation> {
        if held == self.model.content() {
            return Ok(());
        }
        let difference = difference(held, self.model.content());
        Err(Violation::Protocol(format!("memory is not what was executed: {difference}")))
    }

    /// Checks a recovered content; returns its position.
    ///
    /// # Errors
    /// If it is not one of the allowed states.
    pub fn judge(&self, recovered: &Content, survival: Survival) -> Result<usize, Violation> {
        let (floor, executed) = (self.floor(survival), self.executed());
        match self.model.position_of(recovered) {
            Some(position) if position >= floor => Ok(position),
            Some(position) => Err(Violation::Lost { position, floor, executed }),
            None => {
                let difference = difference(recovered, self.model.content());
                Err(Violation::NeverWas { floor, executed, difference })
            }
        }
    }

    /// Checks the content of a log restored up to `lsn`; returns its position.
    ///
    /// # Errors
    /// If it cannot be the state after the records up to `lsn`.
    pub fn judge_restored(&self, restored: &Content, lsn: Lsn) -> Result<usize, Violation> {
        let floor = self.position_at(lsn);
        // A round of commands makes several records; only the end of the last one is known.
        let is_mark = self.marks.iter().any(|(mark, _)| *mark == lsn);
        let next = self.marks.iter().find(|(mark, _)| *mark > lsn).map(|(_, position)| *position);
        let executed = if is_mark { floor } else { next.unwrap_or(self.executed()) };
        let mut model = self.model.clone();
        model.rewind(executed);
        match model.position_of(restored) {
            Some(position) if position >= floor => Ok(position),
            Some(position) => Err(Violation::Lost { position, floor, executed }),
            None => {
                let difference = difference(restored, model.content());
                Err(Violation::NeverWas { floor, executed, difference })
            }
        }
    }

    /// Notes that the server has restarted at this position: later ones never happened.
    pub fn restart(&mut self, position: usize, end: Lsn) {
        self.model.rewind(position);
        self.acknowledged = self.acknowledged.min(position);
        self.marks.clear();
        self.mark(end);
    }
}

/// Whether a reply says that the log takes no writes.
pub(crate) fn is_refusal(reply: &Value) -> bool {
    let Value::Error(text) = reply else { return false };
    let text = text.strip_prefix(b"EXECABORT Transaction discarded because of: ").unwrap_or(text);
    [&b"MISCONF"[..], b"IOERR", b"BUSY"].iter().any(|prefix| text.starts_with(prefix))
}

fn agrees(reply: &Value, expected: &Value) -> bool {
    match (reply, expected) {
        (Value::Error(text), Value::Error(prefix)) => text.starts_with(prefix),
        (Value::Array(replies), Value::Array(expected)) => {
            replies.len() == expected.len()
                && replies.iter().zip(expected).all(|(reply, expected)| agrees(reply, expected))
        }
        _ => reply == expected,
    }
}

/// Describes the first difference.
fn difference(recovered: &Content, newest: &Content) -> String {
    let shorten = |value: &[u8]| value[..value.len().min(40)].escape_ascii().to_string();
    for (key, entry) in recovered {
        match newest.get(key) {
            Some(wanted) if wanted == entry => {}
            other => {
                return format!("db {} {:?} is {entry:?}, newest {other:?}", key.0, shorten(&key.1));
            }
        }
    }
    let missing = newest.keys().find(|key| !recovered.contains_key(*key));
    format!("missing {:?}", missing.map(|(db, key)| (db, shorten(key))))
}

#[cfg(test)]
mod tests {
    use keyspace::DbId;

    use super::*;

    fn set(oracle: &mut Oracle, value: &str) -> usize {
        let command = Command::Set { key: b"k".to_vec(), value: value.into(), px_ms: None };
        let reply = Value::Simple(b"OK".to_vec());
        oracle.executes(&mut ModelSession::default(), &command, 0, &reply).expect("the reply is right")
    }

    #[test]
    fn only_states_between_acknowledged_and_executed_pass() {
        let mut oracle = Oracle::new(Durability::Strict);
        let mut states = vec![Content::new()];
        for (index, value) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(set(&mut oracle, value), index + 1);
            states.push(oracle.content().clone());
            oracle.mark(Lsn::new(100 * (index as u64 + 1)));
        }
        oracle.delivers(1);
        let lost = Violation::Lost { position: 0, floor: 1, executed: 3 };
        assert_eq!(oracle.judge(&states[0], Survival::Acknowledged), Err(lost));
        assert_eq!(oracle.judge(&states[1], Survival::Acknowledged), Ok(1));
        assert_eq!(oracle.judge(&states[3], Survival::Durable(Lsn::new(250))), Ok(3));
        assert!(oracle.judge(&states[1], Survival::Durable(Lsn::new(250))).is_err());
        let mut phantom = states[3].clone();
        phantom.insert((DbId::ZERO, b"x".to_vec()), states[1][&(DbId::ZERO, b"k".to_vec())].clone());
        assert!(matches!(oracle.judge(&phantom, Survival::Acknowledged), Err(Violation::NeverWas { .. })));
    }

    #[test]
    fn a_wrong_reply_is_told() {
        let mut oracle = Oracle::new(Durability::Strict);
        set(&mut oracle, "a");
        let mut session = ModelSession::default();
        let stale = oracle.executes(&mut session, &Command::Get(b"k".to_vec()), 0, &Value::Null);
        assert!(matches!(stale, Err(Violation::Reply { .. })));
    }
}
