//! `_changes`: the feed of a database, in all its forms.
//!
//! ```text
//! subscribe -> read after `since` -> wait until the log has committed it -> send -> await a change
//! ```
//!
//! Invariants
//! - A row is sent only when replies may show its change.
//! - A feed checks whether its user still has the right to the database before each read of the database, and
//!   again every [`ROWS_PER_CHECK`] rows. Without the right, the feed ends. A waiting feed is woken for this
//!   check when users or rights change, and when the token or the session of its user expires.
//! - A client of an ascending feed that continues from `last_seq` misses nothing: the feed subscribes before
//!   it reads.

mod filter;
mod form;

use std::{rc::Rc, sync::Arc};

use documents::{ChangeRow, Database, DbId, Direction, DocError, Found, Snapshot, json::put_string};
use engine::replication::RoleView;
use http::HeaderName;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use self::filter::Filter;
pub(super) use self::form::{Beat, Form};
use super::{
    access::{begin_follow, time_left},
    body::{Body, Broken, ChunkWriter, chunks},
    failure::Failure,
    ids::seq_text,
    query::Query,
    reply::Reply,
    request::{Call, only},
    security::may_follow,
    show::{Show, send_document},
    thread::HttpThread,
    user::User,
};

/// After this many filtered-out rows, the feed yields to other connections, and checks whether a heartbeat is
/// due.
const SKIPPED_MAX: u32 = 128;

/// Rows between two checks of the user's right to follow the database.
const ROWS_PER_CHECK: u64 = 256;

/// The start of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    Seq {
        seq: u64,
        /// Whether the client gave the id of the database with the sequence.
        is_named: bool,
    },
    Now,
}

impl Since {
    const START: Since = Since::Seq { seq: 0, is_named: false };

    fn parse(text: &str, db: DbId) -> Result<Since, Failure> {
        let text = text.trim().trim_matches('"');
        if matches!(text, "" | "0") {
            return Ok(Since::START);
        }
        if text == "now" {
            return Ok(Since::Now);
        }
        let malformed = || Failure::bad_request("Malformed sequence supplied in 'since' parameter.");
        let (number, of) = text.split_once('-').map_or((text, None), |(number, of)| (number, Some(of)));
        let seq = number.parse().map_err(|_| malformed())?;
        // The sequence is of an earlier database of the same name: all rows here are new.
        if of.is_some_and(|of| of != db.to_string()) {
            return Ok(Since::START);
        }
        Ok(Since::Seq { seq, is_named: of.is_some() })
    }
}

/// The sequence after which a feed begins. A `since` above `update_seq` refers to writes that this server
/// does not have. Other writes may later get the same numbers, so the feed restarts from 0. But a follower in
/// a group (`may_lag`) may still receive the writes that `since` refers to, with the same numbers. So a
/// follower keeps a `since` that names the database.
fn begin(since: Since, update_seq: u64, may_lag: bool) -> u64 {
    match since {
        Since::Now => update_seq,
        Since::Seq { seq, is_named } if seq > update_seq && !(may_lag && is_named) => 0,
        Since::Seq { seq, .. } => seq,
    }
}

struct FeedRequest {
    form: Form,
    beat: Beat,
    since: Since,
    limit: u64,
    direction: Direction,
    all_leaves: bool,
    include_docs: bool,
    show: Show,
    filter: Filter,
}

impl FeedRequest {
    fn of(call: &Call, database: &Database, filter: Filter) -> Result<FeedRequest, Failure> {
        let query = &call.query;
        let event_id = call.header(HeaderName::from_static("last-event-id"));
        let since = query.text("last-event-id").or(event_id).or(query.text("since"));
        let since = since.map_or(Ok(Since::START), |text| Since::parse(text, database.id()))?;
        let descending = query.flag("descending")?;
        Ok(FeedRequest {
            form: Form::of(query)?,
            beat: Beat::of(query)?,
            since,
            // As in CouchDB: a limit of 0 counts as 1.
            limit: query.count("limit")?.unwrap_or(u64::MAX).max(1),
            direction: if descending { Direction::Descending } else { Direction::Ascending },
            all_leaves: style(query)?,
            include_docs: query.flag("include_docs")?,
            show: Show {
                conflicts: query.flag("conflicts")?,
                attachments: query.flag("attachments")?,
                ..Show::default()
            },
            filter,
        })
    }
}

fn style(query: &Query) -> Result<bool, Failure> {
    match query.text("style") {
        None | Some("main_only") => Ok(false),
        Some("all_docs") => Ok(true),
        Some(_) => Err(Failure::bad_request("Invalid style: only main_only and all_docs are known")),
    }
}

/// Serves `/DB/_changes`
pub(super) async fn changes(call: &mut Call, database: &Arc<Database>) -> Result<Reply, Failure> {
    only(&call.head, "GET,HEAD,POST")?;
    let filter = Filter::of(call, database).await?;
    let asked = FeedRequest::of(call, database, filter)?;
    let form = asked.form;
    if call.method() == "HEAD" {
        return Ok(form.reply(Body::EMPTY));
    }
    // Subscribe before the first read, so that nothing is missed.
    let feeds = call.thread.feeds();
    let news = News { changes: feeds.subscribe(database.id()), rights: feeds.subscribe_to_rights() };
    let update_seq = call.snapshot(database).await?.update_seq();
    let replication = &call.thread.host().replication;
    let may_lag = replication.is_in_group() && matches!(replication.role(), RoleView::Replica { .. });
    let since = begin(asked.since, update_seq, may_lag);
    let (thread, database) = (call.thread.clone(), database.clone());
    let user = begin_follow(&thread, &call.user);
    let body = chunks(&call.idle_timer, async move |writer: ChunkWriter| {
        let feed = Feed { thread, database, user, asked, writer, since, sent: 0, beat_due: Instant::now() };
        feed.run(news).await
    });
    Ok(form.reply(body))
}

/// The wake-ups of a waiting feed.
struct News {
    changes: watch::Receiver<()>,
    rights: watch::Receiver<()>,
}

/// A feed in progress.
struct Feed {
    thread: Rc<HttpThread>,
    database: Arc<Database>,
    /// The user who follows the feed.
    user: User,
    asked: FeedRequest,
    writer: ChunkWriter,
    /// Where the feed stands. Ascending: it has nothing more to send up to this sequence. Descending:
    /// while it reads, the sequence at which it stops. At the end: the `last_seq` of the reply.
    since: u64,
    sent: u64,
    /// Time of the next heartbeat.
    beat_due: Instant,
}

impl Feed {
    async fn run(mut self, mut news: News) -> Result<(), Broken> {
        self.asked.form.open(&mut self.writer);
        if self.asked.form != Form::Normal {
            // Send the head and the start of the body now: browsers and proxies give up otherwise.
            self.writer.send().await?;
        }
        self.beat_due = self.asked.beat.next();
        let (start, mut pending) = (self.since, 0);
        loop {
            news.changes.mark_unchanged();
            if !self.may_go_on(&mut news) {
                break;
            }
            let snapshot = self.database.snapshot();
            self.thread.committed(snapshot.last_lsn()).await?;
            let is_full = self.send_rows(&snapshot).await?;
            if is_full {
                pending = match self.asked.direction {
                    Direction::Ascending => snapshot.pending(self.since)?,
                    // The rows that a descending feed has not reached: from the start of the feed, which is
                    // its lower end, to the last row sent.
                    Direction::Descending => {
                        snapshot.pending(start)?.saturating_sub(snapshot.pending(self.since - 1)?)
                    }
                };
                break;
            }
            let is_over = match self.asked.form {
                Form::Normal => true,
                Form::Longpoll => self.sent > 0,
                Form::Continuous | Form::EventSource => false,
            };
            if is_over {
                break;
            }
            self.writer.send().await?;
            // A feed may wait for days: do not keep its snapshot alive.
            drop(snapshot);
            if !self.await_news(&mut news).await? {
                break;
            }
        }
        let last_seq = seq_text(self.since, self.database.id());
        self.asked.form.close(&mut self.writer, &last_seq, pending);
        self.writer.send().await
    }

    /// Whether the user may still follow the database.
    fn may_go_on(&self, news: &mut News) -> bool {
        news.rights.mark_unchanged();
        may_follow(&self.thread, &self.user, &self.database)
    }

    /// Waits for a change, sending heartbeats. Returns whether to read on. As in CouchDB, the timeout begins
    /// anew with each change of the database, also one that a filter leaves out.
    async fn await_news(&mut self, news: &mut News) -> Result<bool, Broken> {
        let deadline = Instant::now() + self.asked.beat.timeout;
        let has_beat = self.asked.beat.heartbeat.is_some();
        loop {
            let time_left = time_left(&self.thread, &self.user);
            tokio::select! {
                // The branches are tried in this order: otherwise a feed that always has changes would
                // outlive its user's session.
                biased;
                () = sleep(time_left.unwrap_or_default()), if time_left.is_some() => return Ok(false),
                changed = news.changes.changed() => return Ok(changed.is_ok()),
                // The sender is a part of the server, and outlives the feed.
                Ok(()) = news.rights.changed() => if !self.may_go_on(news) { return Ok(false) },
                () = sleep_until(self.beat_due), if has_beat => self.beat().await?,
                () = sleep_until(deadline), if !has_beat => return Ok(false),
                () = self.thread.stopping() => return Ok(false),
                () = self.writer.gone() => return Err(Broken),
            }
        }
    }

    async fn beat(&mut self) -> Result<(), Broken> {
        self.beat_due = self.asked.beat.next();
        self.asked.form.put_heartbeat(&mut self.writer);
        self.writer.send().await
    }

    /// Sends new rows. Returns whether the limit is reached.
    async fn send_rows(&mut self, snapshot: &Snapshot) -> Result<bool, Broken> {
        let descending = self.asked.direction == Direction::Descending;
        let from = if descending { u64::MAX } else { self.since };
        let mut skipped = 0;
        for row in snapshot.changes(from, self.asked.direction) {
            let row = row?;
            if descending && row.seq <= self.since {
                break;
            }
            if !self.asked.filter.takes(&row, snapshot)? {
                skipped += 1;
                if skipped % SKIPPED_MAX == 0 {
                    self.writer.rest().await?;
                    if self.asked.beat.heartbeat.is_some() && Instant::now() >= self.beat_due {
                        self.beat().await?;
                    }
                }
                continue;
            }
            let seq = row.seq;
            self.send_row(snapshot, row).await?;
            if self.sent >= self.asked.limit {
                self.since = seq;
                return Ok(true);
            }
        }
        self.since = self.since.max(snapshot.update_seq());
        Ok(false)
    }

    async fn send_row(&mut self, snapshot: &Snapshot, row: ChangeRow) -> Result<(), Broken> {
        if self.sent.is_multiple_of(ROWS_PER_CHECK) && !may_follow(&self.thread, &self.user, &self.database) {
            return Err(Broken);
        }
        let seq = seq_text(row.seq, snapshot.db());
        let mut is_first = self.sent == 0;
        self.sent += 1;
        self.asked.form.begin_row(&mut self.writer, &mut is_first);
        self.writer.put(format_args!("{{\"seq\":\"{seq}\",\"id\":"));
        put_string(&mut self.writer.buffer, &row.id);
        self.writer.buffer.extend_from_slice(b",\"changes\":[");
        let shown = if self.asked.all_leaves { row.leaves.len() } else { 1 };
        for (index, rev) in row.leaves.iter().take(shown).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            self.writer.put(format_args!("{comma}{{\"rev\":\"{rev}\"}}"));
        }
        self.writer.buffer.push(b']');
        if row.deleted {
            self.writer.buffer.extend_from_slice(b",\"deleted\":true");
        }
        if self.asked.include_docs {
            self.writer.buffer.extend_from_slice(b",\"doc\":");
            let info = snapshot.document(&row.id)?.ok_or(DocError::Missing)?;
            let winner =
                row.leaves.first().and_then(|rev| Found::new(info, *rev)).ok_or(DocError::Missing)?;
            send_document(&mut self.writer, snapshot, &winner, &self.asked.show).await?;
        }
        self.writer.buffer.push(b'}');
        self.asked.form.end_row(&mut self.writer, &seq);
        self.writer.breathe().await
    }
}

#[cfg(test)]
mod tests {
    use lsn::Lsn;

    use super::*;

    #[test]
    fn a_position_is_of_one_database() {
        let db = DbId::new(Lsn::new(0xab8));
        let parse = |text: &str| Since::parse(text, db);
        let seq = |seq, is_named| Since::Seq { seq, is_named };
        assert_eq!(parse("7-0000000000000ab8"), Ok(seq(7, true)));
        assert_eq!(parse("\"7-0000000000000ab8\""), Ok(seq(7, true)));
        assert_eq!(parse("7-0000000000000ab0"), Ok(Since::START), "of another that had its name");
        assert_eq!(parse("7"), Ok(seq(7, false)));
        assert_eq!(parse("now"), Ok(Since::Now));
        assert_eq!(parse(""), Ok(Since::START));
        for (since, at_leader, at_follower) in
            [(Since::Now, 9, 9), (seq(9, true), 9, 9), (seq(10, true), 0, 10), (seq(10, false), 0, 0)]
        {
            assert_eq!((begin(since, 9, false), begin(since, 9, true)), (at_leader, at_follower));
        }
        assert!(parse("x").is_err() && parse("-1").is_err() && parse("x-0000000000000ab8").is_err());
    }
}
