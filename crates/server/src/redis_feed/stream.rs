//! The stream of commands: the log as commands of Redis, rendered once it is committed.

use std::{thread, time::Duration};

use engine::log_messages::whole_payload;
use keyspace::Item;
use lsn::Lsn;
use propagation::{Feed, Ticket};
use recovery::Loaded;
use storage::{CursorRead, Record};

use super::{Begun, PIECE_BYTES, Serving};

/// While log waits for acknowledgements of other replicas, its commit is checked at this period.
const COMMIT_PERIOD: Duration = Duration::from_millis(2);
/// The longest sleep. After it, conditions other than new log are checked.
const SLEEP: Duration = Duration::from_secs(1);

impl Serving<'_> {
    /// Sends the stream until the connection ends.
    pub(super) fn stream(&self, begun: Begun) -> Result<(), String> {
        let Begun { mut feed, ticket, loaded } = begun;
        let text = |error: storage::Error| error.to_string();
        let from = self.log.boundary_before(feed.lsn()).map_err(text)?;
        let mut cursor = self.log.cursor(from);
        let (mut out, mut sent_ms) = (Vec::new(), self.node.now_ms());
        self.note_sent(&feed);
        feed.repeat_pings(&mut out);
        let mut is_noted = loaded.is_none();
        loop {
            self.check()?;
            match cursor.read_until(PIECE_BYTES, self.log.showable_lsn()).map_err(text)? {
                CursorRead::Chunk(chunk) => {
                    for record in chunk.records() {
                        if record.lsn <= feed.lsn() {
                            continue;
                        }
                        self.render(&record, loaded.as_ref(), &mut feed, &mut out)?;
                        if out.len() >= PIECE_BYTES {
                            self.send(ticket, &feed, loaded.as_ref(), &mut out)?;
                            sent_ms = self.node.now_ms();
                        }
                    }
                    feed.pass(chunk.end);
                    self.node.hold_log(ticket.id, self.needed(ticket).unwrap_or(feed.lsn()));
                }
                CursorRead::UpToDate => {
                    let now_ms = self.node.now_ms();
                    if !out.is_empty() {
                        sent_ms = now_ms;
                        self.send(ticket, &feed, loaded.as_ref(), &mut out)?;
                    } else if now_ms >= sent_ms + self.node.redis.ping_ms() {
                        sent_ms = now_ms;
                        let after = feed.ping(&mut out);
                        self.note(ticket, after)?;
                        self.send(ticket, &feed, loaded.as_ref(), &mut out)?;
                    } else if !is_noted {
                        is_noted = true;
                        self.note(ticket, feed.checkpoint())?;
                    }
                    self.note_sent(&feed);
                    // The cursor waits for new log. Log that is there but not committed is checked again
                    // every [`COMMIT_PERIOD`].
                    if cursor.wait(SLEEP) && self.log.showable_lsn() <= cursor.position() {
                        thread::park_timeout(COMMIT_PERIOD);
                    }
                }
                CursorRead::Forgotten(start) => {
                    return Err(format!(
                        "it is too slow: the log that it needs next is no longer kept ({start})"
                    ));
                }
            }
        }
    }

    /// Renders the part of a record that the replica has not loaded with its file.
    fn render(
        &self,
        record: &Record<'_>,
        loaded: Option<&Loaded>,
        feed: &mut Feed,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let Some(payload) = whole_payload(self.log, record).map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let (mut rest, mut items) = (&*payload, Vec::new());
        while let Some(item) = Item::decode_next(&mut rest).map_err(|error| error.to_string())? {
            let left = match (item, loaded) {
                (Item::Effect(effect), Some(loaded)) => {
                    let left = loaded.left_of(effect, record.lsn).map_err(|error| error.to_string())?;
                    left.map(Item::Effect)
                }
                (item, _) => Some(item),
            };
            items.extend(left);
        }
        feed.record(record.lsn, items, out);
        Ok(())
    }

    /// Sends the bytes, and notes for partial syncs the position that they reach. While the stream still
    /// completes the file, nothing is noted for partial syncs: a replica cannot return to such a position.
    fn send(
        &self,
        ticket: Ticket,
        feed: &Feed,
        loaded: Option<&Loaded>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        if loaded.is_none_or(|loaded| feed.lsn() >= loaded.end_lsn()) {
            self.note(ticket, feed.checkpoint())?;
        }
        self.note_sent(feed);
        self.write(out)?;
        out.clear();
        Ok(())
    }

    fn note_sent(&self, feed: &Feed) {
        self.replica.acks.lock().sent(feed.offset(), feed.lsn());
    }

    /// The position from which the stream would be rendered if the replica reconnected with the bytes that it
    /// has acknowledged.
    fn needed(&self, ticket: Ticket) -> Option<Lsn> {
        let has = self.replica.acks.lock().offset();
        self.node.redis.sessions.lock().needed(ticket, has)
    }

    fn note(&self, ticket: Ticket, at: propagation::Checkpoint) -> Result<(), String> {
        match self.node.redis.sessions.lock().note(ticket, at) {
            true => Ok(()),
            false => Err("another connection has taken its place".into()),
        }
    }
}
