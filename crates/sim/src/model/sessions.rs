//! The model of a client session: its database, its transaction, its watched keys.
//!
//! A transaction makes at most one position: its changes happen all or not at all.

use std::collections::BTreeMap;

use keyspace::DbId;
use wire::Value;

use super::{Executed, Key, Model, ok};
use crate::Command;

/// The state of one client in the model.
#[derive(Debug, Clone)]
pub struct ModelSession {
    db: DbId,
    queue: Option<Queue>,
    watched: BTreeMap<Key, Watched>,
}

/// The commands queued since MULTI.
#[derive(Debug, Clone, Default)]
struct Queue {
    commands: Vec<Command>,
    failed: bool,
}

/// A watched key: the position of the WATCH, and whether the key was live then.
#[derive(Debug, Clone, Copy)]
struct Watched {
    position: usize,
    seen_alive: bool,
}

impl Default for ModelSession {
    /// A client that has just connected.
    fn default() -> ModelSession {
        ModelSession { db: DbId::ZERO, queue: None, watched: BTreeMap::new() }
    }
}

impl ModelSession {
    /// Whether the server may refuse the command because the log takes no writes.
    pub fn may_be_refused(&self, command: &Command) -> bool {
        match (command, &self.queue) {
            (Command::Exec, Some(queue)) => queue.commands.iter().any(Command::may_write),
            _ => command.may_write(),
        }
    }

    /// Notes that the server has refused the command.
    pub fn is_refused(&mut self, command: &Command) {
        if matches!(command, Command::Exec) {
            self.end_transaction();
        } else if let Some(queue) = &mut self.queue {
            queue.failed = true;
        }
    }

    fn end_transaction(&mut self) {
        (self.queue, self.watched) = (None, BTreeMap::new());
    }
}

impl Model {
    /// Executes a command of a client at `now_ms`. Random choices are taken from the server's `reply`.
    pub fn execute(
        &mut self,
        session: &mut ModelSession,
        command: &Command,
        now_ms: u64,
        reply: &Value,
    ) -> Executed {
        match (command, &mut session.queue) {
            (Command::Multi, None) => session.queue = Some(Queue::default()),
            (Command::Watch(keys), None) => {
                for key in keys {
                    let key = (session.db, key.clone());
                    let watched =
                        Watched { position: self.position(), seen_alive: self.live(&key, now_ms).is_some() };
                    session.watched.entry(key).or_insert(watched);
                }
            }
            (Command::Exec, Some(_)) => return self.exec(session, now_ms, reply),
            (Command::Discard, Some(_)) => session.end_transaction(),
            (Command::Multi | Command::Watch(_) | Command::Exec | Command::Discard, _) => {
                unreachable!("the workload keeps these in order")
            }
            (command, Some(queue)) => {
                queue.commands.push(command.clone());
                return shows_nothing(Value::Simple(b"QUEUED".to_vec()));
            }
            (command, None) => return self.execute_one(&mut session.db, command, now_ms, reply),
        }
        shows_nothing(ok())
    }

    fn exec(&mut self, session: &mut ModelSession, now_ms: u64, reply: &Value) -> Executed {
        let queue = session.queue.take().unwrap_or_default();
        let watched = std::mem::take(&mut session.watched);
        if queue.failed {
            return shows_nothing(Value::Error(b"EXECABORT".to_vec()));
        }
        let broken = |(key, watched): &(&Key, &Watched)| {
            self.touched_at(key) > watched.position
                || (watched.seen_alive && self.live(key, now_ms).is_none())
        };
        if watched.iter().any(|watch| broken(&watch)) {
            // The reply shows that one of the keys has changed, and this change must survive.
            let shows = watched.keys().map(|key| self.shown_by_key(key)).max().unwrap_or(0);
            return Executed { reply: Value::Null, shows, wrote: false };
        }
        let (mut replies, mut seen, mut logs) = (Vec::new(), 0, false);
        let mut given: &[Value] = if let Value::Array(replies) = reply { replies } else { &[] };
        for command in &queue.commands {
            let reply = given.split_off_first().unwrap_or(&Value::Null);
            seen = seen.max(self.shown_by(session.db, command));
            logs |= self.logs(command);
            replies.push(self.run(&mut session.db, command, now_ms, reply));
        }
        let (shows, wrote) = self.end_position(seen, logs, now_ms);
        Executed { reply: Value::Array(replies), shows, wrote }
    }
}

fn shows_nothing(reply: Value) -> Executed {
    Executed { reply, shows: 0, wrote: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Content;

    fn set(key: &str, value: &str) -> Command {
        Command::Set { key: key.into(), value: value.into(), px_ms: None }
    }

    fn watch(key: &str) -> Command {
        Command::Watch(vec![key.into()])
    }

    #[test]
    fn a_transaction_is_one_position() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        for command in [Command::Multi, set("a", "1"), set("b", "2"), set("a", "3")] {
            let executed = model.execute(&mut session, &command, 0, &Value::Null);
            assert!(!executed.wrote && executed.shows == 0);
        }
        assert_eq!((model.position(), model.content()), (0, &Content::new()));
        let executed = model.execute(&mut session, &Command::Exec, 0, &Value::Null);
        assert_eq!(executed.reply, Value::Array(vec![ok(), ok(), ok()]));
        assert_eq!((executed.shows, executed.wrote, model.position()), (1, true, 1));
        assert_eq!(model.position_of(&Content::new()), Some(0), "nothing in between ever was");
        assert_eq!(model.content().len(), 2);
    }

    #[test]
    fn a_transaction_depends_on_watched_keys() {
        let (mut model, mut one, mut other) =
            (Model::default(), ModelSession::default(), ModelSession::default());
        let get = Command::Get(b"a".to_vec());
        let mut exec = |one: &mut ModelSession, between: &[Command], now_ms| {
            model.execute(one, &watch("a"), 0, &Value::Null);
            between.iter().for_each(|command| drop(model.execute(&mut other, command, 0, &Value::Null)));
            model.execute(one, &Command::Multi, now_ms, &Value::Null);
            model.execute(one, &get, now_ms, &Value::Null);
            model.execute(one, &Command::Exec, now_ms, &Value::Null)
        };
        assert_eq!(exec(&mut one, &[set("b", "1")], 0).reply, Value::Array(vec![Value::Null]));
        let broken = exec(&mut one, &[set("a", "1")], 0);
        assert_eq!((broken.reply, broken.shows, broken.wrote), (Value::Null, 2, false));
        assert_eq!(exec(&mut one, &[], 0).reply, Value::Array(vec![Value::Bulk(b"1".to_vec())]));
        assert_eq!(exec(&mut one, &[Command::FlushAll], 0).reply, Value::Null);
        assert_eq!(exec(&mut one, &[Command::FlushAll], 0).reply, Value::Array(vec![Value::Null]));
        let expires = Command::Set { key: b"a".to_vec(), value: b"1".to_vec(), px_ms: Some(10) };
        exec(&mut one, &[expires], 0);
        assert_eq!(exec(&mut one, &[], 10).reply, Value::Null);
    }
}
